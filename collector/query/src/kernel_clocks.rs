//! Clock states that the hosts' kernels report, from all batches in the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::clock::{ClockEvidence, KernelClock};

use stroboscope_store::tables::BatchRead;

/// Clock state by host. If several batches or processes of a host report different states, the
/// worst value of each field counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelClocks(BTreeMap<Arc<str>, Option<KernelClock>>);

impl KernelClocks {
    /// Adds the clock state that a batch reports.
    pub fn note(&mut self, batch: &BatchRead) {
        let ns = |ns: i64| ns.max(0).cast_unsigned();
        let said = batch.kernel_clock.map(|said| KernelClock {
            synchronised: said.synchronised,
            max_error_ns: ns(said.max_error_ns),
            estimated_error_ns: ns(said.estimated_error_ns),
        });
        let known = match self.0.get_mut(&batch.host) {
            Some(known) => known,
            None => self.0.entry(batch.host.clone()).or_default(),
        };
        *known = match (*known, said) {
            (Some(known), Some(said)) => Some(known.worse(said)),
            (known, said) => known.or(said),
        };
    }

    /// Returns the clock state that a host's kernel reported; `None` if it reported none.
    #[must_use]
    pub fn of(&self, host: &str) -> Option<KernelClock> {
        self.0.get(host).copied().flatten()
    }

    /// Iterates over all hosts, with the clock states that their kernels reported.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<KernelClock>)> {
        self.0.iter().map(|(host, said)| (&**host, *said))
    }

    /// Returns the number of hosts that recorded.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.0.len()
    }

    /// Returns the hosts whose kernels report that their clocks are not synchronised.
    pub fn unsynchronised(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0
            .iter()
            .filter(|(_, said)| said.is_some_and(|said| !said.synchronised))
            .map(|(host, _)| host)
    }

    /// Returns the hosts with unsynchronised clocks; empty if there is only one host. All processes
    /// of one host share its clock, so their timestamps agree even if the clock is wrong.
    #[must_use]
    pub fn unsynchronised_among_several(&self) -> Vec<Arc<str>> {
        if self.hosts() < 2 {
            Vec::new()
        } else {
            self.unsynchronised().cloned().collect()
        }
    }

    /// Adds the clock states of all hosts to the evidence.
    pub fn note_in(&self, evidence: &mut ClockEvidence) {
        for (host, said) in &self.0 {
            if let Some(said) = said {
                evidence.note_kernel(host, *said);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_store::record::KernelClockRow;

    fn clocks(said: &[(&str, Option<(bool, i64)>)]) -> KernelClocks {
        let mut clocks = KernelClocks::default();
        for (host, said) in said {
            clocks.note(&BatchRead {
                process: 1,
                sequence: 0,
                service: "s".into(),
                host: (*host).into(),
                from_ns: 0,
                to_ns: 1,
                spans: 0,
                events: 0,
                windows: vec![],
                losses: vec![],
                kernel_clock: said.map(|(synchronised, max_error_ns)| KernelClockRow {
                    synchronised,
                    max_error_ns,
                    estimated_error_ns: 3,
                }),
                loads: vec![],
            });
        }
        clocks
    }

    fn named(hosts: &[Arc<str>]) -> Vec<&str> {
        hosts.iter().map(|host| &**host).collect()
    }

    #[test]
    fn the_worst_holds_and_silence_is_unknown() {
        let clocks = clocks(&[
            ("a", Some((true, 5))),
            ("b", None),
            ("a", None),
            ("a", Some((true, 9))),
            ("a", Some((true, 7))),
            ("c", Some((false, 16))),
            ("c", Some((true, 1))),
        ]);
        let said = clocks.of("a").unwrap();
        assert_eq!(
            (
                said.synchronised,
                said.max_error_ns,
                said.estimated_error_ns
            ),
            (true, 9, 3)
        );
        assert_eq!(
            (clocks.of("b"), clocks.of("nobody"), clocks.hosts()),
            (None, None, 3)
        );
        assert_eq!(named(&clocks.unsynchronised_among_several()), ["c"]);
        let mut evidence = ClockEvidence::new();
        clocks.note_in(&mut evidence);
        assert_eq!(
            evidence
                .align(None)
                .kernel_clock("c")
                .map(|said| said.max_error_ns),
            Some(16)
        );
    }

    #[test]
    fn one_host_agrees_with_itself() {
        let one = clocks(&[("a", Some((false, 16)))]);
        assert_eq!(one.unsynchronised().count(), 1);
        assert!(one.unsynchronised_among_several().is_empty());
    }
}
