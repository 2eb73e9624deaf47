//! The table of results: medians over slices. CPU time is compared with the baseline slices of the
//! same round.

use std::fmt::Write as _;
use std::time::Duration;

use crate::Failure;
use crate::web::VARIANTS;

/// The results of one process in one turn: CPU time per request and percentiles of latency, all in
/// microseconds.
pub(crate) struct Slice {
    variant: String,
    requests: usize,
    cpu_us: f64,
    p50_us: f64,
    p99_us: f64,
}

impl Slice {
    pub(crate) fn new(
        variant: &str,
        latencies: &[Duration],
        cpu: Duration,
    ) -> Result<Self, Failure> {
        if latencies.is_empty() {
            return Err("a slice without a request: raise --rate".into());
        }
        let mut us: Vec<f64> = latencies
            .iter()
            .map(|latency| latency.as_secs_f64() * 1e6)
            .collect();
        us.sort_by(f64::total_cmp);
        Ok(Self {
            variant: variant.to_owned(),
            requests: us.len(),
            cpu_us: cpu.as_secs_f64() * 1e6 / us.len() as f64,
            p50_us: at(&us, 0.5),
            p99_us: at(&us, 0.99),
        })
    }

    fn to_line(&self) -> String {
        let Self {
            variant,
            requests,
            cpu_us,
            p50_us,
            p99_us,
        } = self;
        format!("{variant}\t{requests}\t{cpu_us}\t{p50_us}\t{p99_us}\n")
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.split('\t');
        let variant = parts.next()?.to_owned();
        let requests = parts.next()?.parse().ok()?;
        let mut number = || parts.next()?.parse().ok();
        Some(Self {
            variant,
            requests,
            cpu_us: number()?,
            p50_us: number()?,
            p99_us: number()?,
        })
    }
}

/// Appends slices to a file and returns all slices of the file. A file that does not exist is
/// created.
pub(crate) fn keep(file: &str, slices: &[Slice]) -> Result<Vec<Slice>, Failure> {
    let mut text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| format!("cannot read {file}: {error}"))?,
    };
    text.extend(slices.iter().map(Slice::to_line));
    std::fs::write(file, &text)?;
    let read = text
        .lines()
        .map(|line| Slice::from_line(line).ok_or_else(|| format!("{file}: {line:?}")));
    Ok(read.collect::<Result<_, _>>()?)
}

/// Returns the value below which the share `share` (0 to 1) of the sorted numbers lies.
fn at(sorted: &[f64], share: f64) -> f64 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted[index.min(sorted.len() - 1)]
}

pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    at(&numbers, 0.5)
}

/// Returns the median and the ends of its 95 % confidence interval, which are the order statistics
/// at n/2 ± 0.98 √n. They assume only that slices are independent.
fn median_interval(mut numbers: Vec<f64>) -> (f64, f64, f64) {
    numbers.sort_by(f64::total_cmp);
    let (n, half) = (numbers.len(), 0.98 * (numbers.len() as f64).sqrt());
    let low = (n as f64 / 2.0 - half).max(0.0) as usize;
    let high = ((n as f64 / 2.0 + half) as usize).min(n - 1);
    (at(&numbers, 0.5), numbers[low], numbers[high])
}

/// Returns the slices of one variant, in the order of the rounds.
fn of<'a>(slices: &'a [Slice], variant: &str) -> Vec<&'a Slice> {
    slices
        .iter()
        .filter(|slice| slice.variant == variant)
        .collect()
}

pub(crate) fn print(slices: &[Slice], rate_per_s: f64) {
    let (one, other) = (of(slices, VARIANTS[0].name), of(slices, VARIANTS[1].name));
    let rounds = one.len().min(other.len());
    let requests: usize = slices.iter().map(|slice| slice.requests).sum();
    println!(
        "\n{rounds} rounds, {requests} requests, {rate_per_s} per second, open loop; medians of the rounds."
    );
    println!(
        "Change: CPU beside the mean of both processes without anything in the same round, median (95 % interval).\n"
    );
    println!("| web server of the newsfeed | CPU µs a request | change | p50 ms | p99 ms |");
    println!("|---|---|---|---|---|");
    for variant in &VARIANTS {
        let own = of(slices, variant.name);
        let figure = |get: fn(&Slice) -> f64| median(own.iter().map(|slice| get(slice)).collect());
        let mut line = format!("| {} | {:.0} |", variant.name, figure(|slice| slice.cpu_us));
        let changes: Vec<f64> = own
            .iter()
            .zip(one.iter().zip(&other))
            .map(|(slice, (one, other))| {
                100.0 * (slice.cpu_us / ((one.cpu_us + other.cpu_us) / 2.0) - 1.0)
            })
            .collect();
        let (change, low, high) = median_interval(changes);
        let _ = write!(line, " {change:+.1} % ({low:+.1} … {high:+.1}) |");
        let _ = write!(
            line,
            " {:.2} | {:.2} |",
            figure(|s| s.p50_us) / 1e3,
            figure(|s| s.p99_us) / 1e3
        );
        println!("{line}");
    }
    let noise: Vec<f64> = one
        .iter()
        .zip(&other)
        .map(|(one, other)| 100.0 * (other.cpu_us / one.cpu_us - 1.0))
        .collect();
    let (middle, low, high) = median_interval(noise.clone());
    let mut sorted = noise;
    sorted.sort_by(f64::total_cmp);
    println!(
        "\nNoise: of the two processes without anything, the second took {middle:+.1} % ({low:+.1} … {high:+.1}) more in \
         the median;\nin half of the rounds they differed by {:+.1} … {:+.1} %.",
        at(&sorted, 0.25),
        at(&sorted, 0.75),
    );
}
