//! Sends a sustainable load for a long time, and measures the growth of the collector's memory.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::load::{Load, Sent};
use crate::process::CollectorProcess;
use crate::{Arguments, Failure};

/// Interval between measurements of the collector's memory.
const LOOK: Duration = Duration::from_millis(500);
const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn run(
    load: Load,
    spans_per_s: f64,
    duration: Duration,
    arguments: &Arguments,
) -> Result<(), Failure> {
    println!(
        "{}, {spans_per_s:.0} spans/s for {} s:",
        load.name(),
        duration.as_secs()
    );
    println!(
        "{:>7}  {:>9}  {:>9}  {:>9}  {:>8}  {:>8}  {:>8}  {:>8}",
        "until s", "spans/s", "MiB least", "MiB most", "log MiB", "p50 ms", "p99 ms", "refused"
    );
    let mut collector = CollectorProcess::start(&arguments.memory_limit)?;
    let (prepared, sent) = (load.prepare(), Sent::default());
    let mut most_mib = Vec::new();
    std::thread::scope(|scope| -> Result<(), Failure> {
        let (target, connections) = (&collector.target, arguments.connections);
        let (prepared, sent) = (&prepared, &sent);
        let sending = scope.spawn(move || {
            let rate = Some(spans_per_s);
            load.send(target, prepared, connections, duration, rate, sent)
        });
        let begun = Instant::now();
        let (mut spans_before, mut minute) = (0, Instant::now());
        let mut memory_mib: Vec<f64> = Vec::new();
        while !sending.is_finished() {
            std::thread::sleep(LOOK);
            memory_mib.push(collector.resident_mib()?);
            if minute.elapsed() < MINUTE {
                continue;
            }
            let spans = sent.spans.load(Relaxed);
            let least = memory_mib.iter().copied().fold(f64::INFINITY, f64::min);
            let most = memory_mib.drain(..).fold(0.0, f64::max);
            let mut times = match sent.acknowledged_us.lock() {
                Ok(mut times) => std::mem::take(&mut *times),
                Err(_) => return Err("a sender panicked".into()),
            };
            times.sort_unstable();
            let quantile_ms = |share: f64| {
                let at = (times.len() as f64 * share) as usize;
                times.get(at).map_or(f64::NAN, |us| f64::from(*us) / 1e3)
            };
            println!(
                "{:>7.0}  {:>9.0}  {:>9.0}  {:>9.0}  {:>8.0}  {:>8.1}  {:>8.1}  {:>8}",
                begun.elapsed().as_secs_f64(),
                (spans - spans_before) as f64 / minute.elapsed().as_secs_f64(),
                least,
                most,
                collector.metric("wal_bytes")? / f64::from(1 << 20),
                quantile_ms(0.5),
                quantile_ms(0.99),
                sent.refused.load(Relaxed)
            );
            most_mib.push(most);
            (spans_before, minute) = (spans, Instant::now());
        }
        sending.join().map_err(|_| "a sender panicked")?
    })?;
    let stored = collector.stop()?;
    let acknowledged = sent.spans.into_inner();
    // Buffers are allocated in the first minute and then reused.
    let (early, late) = most_mib.split_at(most_mib.len().div_ceil(2));
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    println!(
        "memory in the second half over the first: {:.2}; {acknowledged} spans acknowledged, {} stored",
        most(late) / most(early),
        stored.spans
    );
    if stored.spans != acknowledged {
        return Err("what was acknowledged is not what is stored".into());
    }
    Ok(())
}
