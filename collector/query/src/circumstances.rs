//! Circumstances that make figures misleading: busy processors and failed requests.
//!
//! On Unix, processes with the SDK measure the processor time that they use, about once a second.
//! They do not record how many processors a host has, or what other programs use of them. A reader
//! on the same machine can supply the number.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_store::tables::BatchRead;

/// Minimum share of a host's processors in use at which the host counts as busy. If their number is
/// unknown, this is the share of one processor.
const BUSY_MIN: f64 = 0.9;
/// Minimum share of the measured seconds in which a host must be busy to be reported.
const BUSY_SECONDS_MIN: f64 = 0.5;

/// Number of processors that the recorded processes used, by host and by second since the Unix
/// epoch. The mean of each measurement counts in the second of its middle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessorUse(BTreeMap<Arc<str>, BTreeMap<i64, f64>>);

impl ProcessorUse {
    /// Sums the measurements of all processes of each host.
    pub(super) fn of(batches: impl Iterator<Item = BatchRead>) -> Self {
        const SECOND_NS: i64 = 1_000_000_000;
        let mut used = Self::default();
        for batch in batches {
            let seconds = used.0.entry(Arc::clone(&batch.host)).or_default();
            for load in &batch.loads {
                let length_ns = load.to_ns.saturating_sub(load.from_ns);
                if let Some(cpu_ns) = load.cpu_ns.filter(|_| length_ns > 0) {
                    let middle_ns = load.from_ns + length_ns / 2;
                    let processors = cpu_ns as f64 / length_ns as f64;
                    *seconds.entry(middle_ns.div_euclid(SECOND_NS)).or_default() += processors;
                }
            }
        }
        used
    }

    /// Returns a sentence for each host whose processors were busy in at least half of the measured
    /// seconds.
    pub(super) fn busy(&self, processors: Option<usize>) -> Vec<String> {
        let least = BUSY_MIN * processors.unwrap_or(1).max(1) as f64;
        let of = |(host, seconds): (&Arc<str>, &BTreeMap<i64, f64>)| {
            let busy = seconds.values().copied();
            let busy: Vec<f64> = busy.filter(|used| *used >= least).collect();
            let is_busy =
                !busy.is_empty() && busy.len() as f64 >= BUSY_SECONDS_MIN * seconds.len() as f64;
            let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
            let of_which = processors.map_or_else(
                || "how many it has is not recorded".to_owned(),
                |processors| format!("it has {processors}"),
            );
            is_busy.then(|| {
                format!(
                    "Processors were busy: in {} of {} seconds, the recorded processes of {host} kept at least \
                     {least:.1} of its processors busy, {mean:.1} on average ({of_which}; the usage of other \
                     programs is not recorded). Requests may have waited for processors rather than for the \
                     operations named here.",
                    busy.len(),
                    seconds.len()
                )
            })
        };
        self.0.iter().filter_map(of).collect()
    }
}

/// Returns sentences about circumstances that make the figures of a report misleading; empty if
/// there are none. If the number of processors is unknown, busy processors are reported only
/// together with failed requests, because one busy processor of many is no shortage.
#[must_use]
pub fn circumstances(
    used: &ProcessorUse,
    processors: Option<usize>,
    failed: u64,
    requests: u64,
) -> Vec<String> {
    let mut sentences = Vec::new();
    if processors.is_some() || failed > 0 {
        sentences.extend(used.busy(processors));
    }
    sentences.extend(failures_text(failed, requests));
    sentences
}

/// Returns a sentence about failed requests; `None` if none failed.
pub(super) fn failures_text(failed: u64, requests: u64) -> Option<String> {
    (failed > 0).then(|| {
        format!(
            "{failed} of {requests} requests failed, which may end early; what follows has those that were recorded completely."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_store::record::LoadRow;

    fn used(cpu_ns: i64) -> ProcessorUse {
        let second = |at: i64| LoadRow {
            from_ns: at * 1_000_000_000,
            to_ns: (at + 1) * 1_000_000_000,
            cpu_ns: Some(cpu_ns),
            memory_bytes: None,
            requests: 1,
        };
        let batch = |process| BatchRead {
            process,
            sequence: 0,
            service: "web".into(),
            host: "a".into(),
            from_ns: 0,
            to_ns: 1,
            spans: 0,
            events: 0,
            windows: vec![],
            losses: vec![],
            kernel_clock: None,
            loads: (0..10).map(second).collect(),
        };
        ProcessorUse::of([1, 2].map(batch).into_iter())
    }

    #[test]
    fn busy_processors_and_failed_requests_are_reported_and_idle_ones_are_not() {
        let said = circumstances(&used(1_000_000_000), Some(2), 702, 734);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with("Processors were busy: in 10 of 10 seconds, the recorded processes of a kept at least 1.8 of its"),
            "{said:?}"
        );
        assert!(
            said[1].starts_with("702 of 734 requests failed"),
            "{said:?}"
        );
        assert_eq!(
            circumstances(&used(20_000_000), Some(2), 0, 734),
            Vec::<String>::new()
        );
        // Two busy processors of sixteen are no shortage. If the number of processors is unknown
        // and no request failed, no shortage is reported.
        assert_eq!(
            circumstances(&used(1_000_000_000), Some(16), 0, 734),
            Vec::<String>::new()
        );
        assert_eq!(
            circumstances(&used(1_000_000_000), None, 0, 734),
            Vec::<String>::new()
        );
        let said = circumstances(&used(1_000_000_000), None, 7, 734);
        assert!(
            said[0].contains("how many it has is not recorded"),
            "{said:?}"
        );
    }
}
