//! Whether the lines of a host's event logs are in the order in which it wrote them.
//!
//! Lines of one task on one host that nearly always run with the host's clock were written in the order of control, and
//! decide between equal timestamps. Lines that run against it were shuffled and decide nothing.

use crate::record::{EventRecord, Successors};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many hosts of one task are looked at.
const HOSTS_COMPARED_MAX: usize = 8;

/// How many neighbouring lines of one task run with their host's clock, and how many against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    with_clock: u64,
    against_clock: u64,
}

/// What the event logs of all hosts say of the order of their lines. Merging is commutative and associative, as long as
/// there are no more pairs of events than fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LineOrders {
    hosts: BTreeMap<Arc<str>, Lines>,
    pub(super) successors: Successors,
}

impl LineOrders {
    pub(super) fn observe(&mut self, events: &[EventRecord]) {
        if events.is_empty() {
            return;
        }
        let mut order: Vec<&EventRecord> = events.iter().collect();
        order.sort_unstable_by(|a, b| (&a.task, a.ts_ns, a.seq).cmp(&(&b.task, b.ts_ns, b.seq)));
        let mut latest: Vec<&EventRecord> = Vec::new();
        for task in order.chunk_by_mut(|a, b| a.task == b.task) {
            self.successors.observe(task);
            task.sort_unstable_by_key(|event| event.seq);
            latest.clear();
            for event in task.iter() {
                match latest.iter().position(|last| last.host == event.host) {
                    Some(at) => self.take(std::mem::replace(&mut latest[at], event), event),
                    None if latest.len() < HOSTS_COMPARED_MAX => latest.push(event),
                    None => {}
                }
            }
        }
    }

    fn take(&mut self, a: &EventRecord, b: &EventRecord) {
        if !self.hosts.contains_key(&b.host) {
            if self.hosts.len() >= super::estimates::HOSTS_MAX {
                return;
            }
            self.hosts.insert(b.host.clone(), Lines::default());
        }
        if let Some(lines) = self.hosts.get_mut(&b.host) {
            lines.with_clock += u64::from(a.ts_ns < b.ts_ns);
            lines.against_clock += u64::from(a.ts_ns > b.ts_ns);
        }
    }

    pub(super) fn merge(&mut self, other: &LineOrders) {
        for (host, lines) in &other.hosts {
            let own = self.hosts.entry(host.clone()).or_default();
            own.with_clock += lines.with_clock;
            own.against_clock += lines.against_clock;
        }
        self.successors.merge(&other.successors);
    }

    /// The hosts whose lines are not in the order in which they were written.
    pub(super) fn shuffled(&self) -> impl Iterator<Item = &Arc<str>> {
        let is_shuffled =
            |lines: &Lines| lines.against_clock > 0 && lines.with_clock / 9 < lines.against_clock;
        self.hosts
            .iter()
            .filter(move |(_, lines)| is_shuffled(lines))
            .map(|(host, _)| host)
    }
}
