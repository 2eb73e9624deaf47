//! Data from the store for estimates of the yield and cost of bursts: the number of requests per
//! hour, their durations, and the numbers of records.

use std::collections::BTreeMap;

use stroboscope_analysis::burst_plan::Arrivals;
use stroboscope_analysis::record::{SpanFlags, TraceRecords};
use stroboscope_store::record::WindowRow;
use stroboscope_store::tables::{AttributeKeys, read_batches};

use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};

const HOUR_NS: f64 = 3.6e12;

/// Data for planning bursts.
#[derive(Debug)]
pub struct BurstBasis {
    /// Durations of requests, and how many requests of each duration begin per hour.
    pub arrivals: Arrivals,
    /// Number of selected requests with a root span that began in the recorded time.
    pub requests: u64,
    /// Time in which the counted requests were recorded, in ns.
    pub recorded_ns: u64,
    /// True if `recorded_ns` is the summed length of bursts; false if it is the time from the first
    /// request's start to the last one's.
    pub is_of_bursts: bool,
    /// Process with the highest cost of recording relative to the CPU time that it uses; `None` if
    /// no process with windows recorded anything. A process with unknown CPU use is taken to use
    /// one core.
    pub busiest: Option<BusiestProcess>,
    pub notes: Notes,
}

/// Recording rate and CPU use of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct BusiestProcess {
    pub service: String,
    /// Number of spans and events per second of recorded time.
    pub records_per_second: f64,
    /// Mean number of busy CPU cores; `None` if it was not measured or is 0.
    pub cpu_cores: Option<f64>,
}

impl BusiestProcess {
    /// Returns the fraction of the process's CPU time that recording takes in a burst, if a record
    /// costs `record_ns`. If the CPU use is unknown, returns the fraction of one core.
    pub fn cost(&self, record_ns: f64) -> f64 {
        self.records_per_second * record_ns / 1e9 / self.cpu_cores.unwrap_or(1.0)
    }
}

/// Selected request with a root span.
#[derive(Clone, Copy, Debug)]
struct Whole {
    start_ns: i64,
    length_ns: i64,
    /// True if the process records this request to its end, even past the end of the burst.
    is_followed: bool,
}

/// Reads the data for planning bursts from the store.
///
/// # Errors
/// Fails if the store cannot be read, if there is too little memory, if no selected request has a
/// root span, or if samplers recorded too many bursts.
pub fn burst_basis(source: &Source, selection: Selection) -> Result<BurstBasis, QueryError> {
    let parts = source.parts(selection, &AttributeKeys::of(Vec::<&str>::new()))?;
    let workers = (0..parts.count()).map(|_| Vec::new()).collect();
    let visit = |seen: &mut Vec<Whole>, records: &mut TraceRecords, _: &mut Notes| {
        if let Some(root) = records.root() {
            seen.push(Whole {
                start_ns: root.start_ns,
                length_ns: root.end_ns.saturating_sub(root.start_ns),
                is_followed: root.flags.contains(SpanFlags::SAMPLED)
                    || records.sampling.burst_config().is_some(),
            });
        }
    };
    let (found, notes) = source.fold("reading lengths", selection, &parts, workers, visit)?;
    let mut whole: Vec<Whole> = found.into_iter().flatten().collect();
    whole.sort_unstable_by_key(|one| (one.start_ns, one.length_ns));
    let (Some(first), Some(last)) = (whole.first(), whole.last()) else {
        return Err(QueryError::NoneWhole(source.name()).with_damage(&notes.damage));
    };
    let range_ns = (first.start_ns, last.start_ns);
    let mut windows = super::recorded::bursts(read_batches(source.store())?, &notes.sampling)?;
    windows.retain(|(open_ns, _)| selection.range.contains(*open_ns));
    let is_of_bursts = !windows.is_empty();
    if !is_of_bursts {
        windows = vec![(range_ns.0, range_ns.1.saturating_add(1))];
    }
    let length = |(open_ns, close_ns): &(i64, i64)| close_ns.saturating_sub(*open_ns) as f64;
    let lengths: Vec<f64> = windows.iter().map(length).collect();
    let recorded_ns: f64 = lengths.iter().sum();
    // Requests sampled outside of bursts do not show how many begin inside.
    whole.retain(|one| {
        let next = windows.partition_point(|(open_ns, _)| *open_ns <= one.start_ns);
        next > 0 && one.start_ns < windows[next - 1].1
    });
    let requests = whole.len() as u64;
    Ok(BurstBasis {
        arrivals: Arrivals::new(arrivals(&whole, &lengths, is_of_bursts)),
        requests,
        recorded_ns: recorded_ns as u64,
        is_of_bursts,
        busiest: busiest(source)?,
        notes,
    })
}

/// Returns each request's duration in ns, and the number of such requests per hour that it
/// represents. A burst cuts long requests more often than short ones, so a long request that was
/// recorded completely represents more requests (Horvitz and Thompson, 1952).
fn arrivals(whole: &[Whole], lengths: &[f64], is_of_bursts: bool) -> Vec<(f64, f64)> {
    let all: f64 = lengths.iter().sum();
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let mut sum = 0.0;
    // `sums[n]` is the total length of the `n` longest bursts.
    let sums: Vec<f64> = std::iter::once(0.0)
        .chain(sorted.iter().map(|length| {
            sum += length;
            sum
        }))
        .collect();
    whole
        .iter()
        .map(|one| {
            let own_ns = one.length_ns.max(0) as f64;
            let could_begin_ns = match is_of_bursts && !one.is_followed {
                false => all,
                true => {
                    let longer = sorted.partition_point(|length| *length > own_ns);
                    sums[longer] - own_ns * longer as f64
                }
            };
            let per_hour = match could_begin_ns > 0.0 {
                true => HOUR_NS / could_begin_ns,
                // The request is at least as long as the longest burst.
                false => HOUR_NS / all.max(1.0),
            };
            (own_ns, per_hour)
        })
        .collect()
}

/// Records and CPU use of one process, summed over its batches.
#[derive(Debug, Default)]
struct Recording {
    service: String,
    records: u64,
    recorded_ns: i64,
    cpu_ns: i64,
    measured_ns: i64,
}

fn busiest(source: &Source) -> Result<Option<BusiestProcess>, QueryError> {
    let mut processes: BTreeMap<u128, Recording> = BTreeMap::new();
    for batch in read_batches(source.store())? {
        let process = processes.entry(batch.process).or_default();
        process.service = batch.service.to_string();
        process.records += u64::from(batch.spans) + u64::from(batch.events);
        let length = |window: &WindowRow| window.close_ns.saturating_sub(window.open_ns);
        process.recorded_ns += batch.windows.iter().map(length).sum::<i64>();
        for load in &batch.loads {
            if let Some(cpu_ns) = load.cpu_ns {
                process.cpu_ns = process.cpu_ns.saturating_add(cpu_ns);
                process.measured_ns += load.to_ns.saturating_sub(load.from_ns);
            }
        }
    }
    let found = processes
        .into_values()
        .filter(|process| process.records > 0 && process.recorded_ns > 0);
    let found = found.map(|process| BusiestProcess {
        records_per_second: process.records as f64 / process.recorded_ns as f64 * 1e9,
        cpu_cores: (process.measured_ns > 0 && process.cpu_ns > 0)
            .then(|| process.cpu_ns as f64 / process.measured_ns as f64),
        service: process.service,
    });
    Ok(found.max_by(|a, b| a.cost(1.0).total_cmp(&b.cost(1.0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generates requests with random starts, recorded in bursts of 100 ms per second. Unless they
    /// are followed, omits requests that the end of a burst cuts.
    #[test]
    fn requests_that_are_often_cut_are_not_undercounted() {
        let mut state = 7_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        for is_followed in [false, true] {
            let mut whole = Vec::new();
            let mut begun = [0.0; 2];
            for second in 0..2_000 {
                for _ in 0..200 {
                    let is_long = random() < 0.3;
                    let length_ns = if is_long { 80_000_000 } else { 5_000_000 };
                    begun[usize::from(is_long)] += 1.0;
                    let at_ns = (random() * 1e9) as i64;
                    let is_seen = match is_followed {
                        true => at_ns < 100_000_000,
                        false => at_ns + length_ns < 100_000_000,
                    };
                    if is_seen {
                        whole.push(Whole {
                            start_ns: second * 1_000_000_000 + at_ns,
                            length_ns,
                            is_followed,
                        });
                    }
                }
            }
            let found = Arrivals::new(arrivals(&whole, &vec![1e8; 2_000], true));
            let hours = 2_000.0 / 3_600.0;
            let all = (begun[0] + begun[1]) / hours;
            assert!((found.per_hour() / all - 1.0).abs() < 0.03, "{all}");
            assert_eq!(found.percentile_ns(0.6), Some(5e6));
            assert_eq!(found.percentile_ns(0.8), Some(8e7));
        }
    }
}
