//! Kernel activity of each request, summed up over the chunks of all hosts.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use stroboscope_analysis::kernel::summary::RequestSummary;

/// Summaries of requests by the low half of the trace id and by host.
#[derive(Debug, Default)]
pub(super) struct HostSummaries(BTreeMap<(u64, Arc<str>), RequestSummary>);

impl HostSummaries {
    pub(super) fn add(&mut self, host: &Arc<str>, summary: RequestSummary) {
        match self.0.entry((summary.trace, host.clone())) {
            Entry::Occupied(mut known) => known.get_mut().merge(&summary, true),
            Entry::Vacant(new) => _ = new.insert(summary),
        }
    }

    /// Returns one summary per request, in order of the low half of the trace id. Threads of
    /// different hosts are different threads.
    pub(super) fn into_requests(self) -> Vec<RequestSummary> {
        let mut requests: Vec<RequestSummary> = Vec::new();
        for ((trace, _), summary) in self.0 {
            match requests.last_mut() {
                Some(known) if known.trace == trace => known.merge(&summary, false),
                _ => requests.push(summary),
            }
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chunks_of_one_host_share_threads() {
        let mut summaries = HostSummaries::default();
        for (host, trace, threads) in [("a", 7, 2), ("b", 7, 3), ("b", 7, 1), ("b", 8, 1)] {
            let summary = RequestSummary {
                trace,
                threads,
                ..RequestSummary::default()
            };
            summaries.add(&host.into(), summary);
        }
        let requests = summaries.into_requests().into_iter();
        let threads: Vec<_> = requests.map(|of| (of.trace, of.threads)).collect();
        assert_eq!(threads, [(7, 5), (8, 1)]);
    }
}
