//! Failed requests: their number per root operation, changes of the error rate, the origins of
//! failures, and the attributes that distinguish failed requests from others.
//!
//! Incomplete requests count as well, because a process that dies loses the rest of its requests'
//! records.

mod apart;
mod between;
mod origins;
mod rate;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use stroboscope_analysis::by_root::{OTHER_ROOTS, ROOTS_MAX};
use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::failure::{FAILURE_KEYS, FailureFinder};
use stroboscope_analysis::record::{SpanFlags, TraceRecords};
use stroboscope_analysis::sampling::WeightedCount;
use stroboscope_analysis::segment::answered_interval;
use stroboscope_store::tables::AttributeKeys;

use super::notes::Notes;
use super::query_error::QueryError;
use super::sampled_notes::WeightUse;
use super::search::{align, with_cut};
use super::source::{Selection, Source};
pub use apart::FailedApart;
use apart::{RequestSample, tell_apart};
pub(super) use between::failure_shifts;
pub use between::{FailureShift, OriginShift};
use origins::FailuresByOrigin;
pub use origins::{FailureGroup, GroupedFailures};
use rate::OutcomesOverTime;
pub use rate::{Outcomes, RateChange};

/// Maximum number of root operations whose error rate is searched for changes, or compared between
/// periods. Those with the most failed requests are chosen.
const ROOTS_SEARCHED: usize = 8;
/// Maximum probability of a false alarm in a search or comparison, over all root operations.
const FALSE_ALARMS_MAX: f64 = 0.03;

/// Outcomes and latency of the requests of one root operation.
#[derive(Clone, Debug, Default)]
pub struct RootFailures {
    pub outcomes: Outcomes,
    /// Number of requests that recovered from the failure of a span.
    pub recovered: WeightedCount,
    /// Latency of failed requests and of the others, if the root span was recorded from its start
    /// to its end.
    pub latency_failed: Distribution,
    pub latency_others: Distribution,
    over_time: OutcomesOverTime,
    /// Samples of the requests that did not fail, and of those that did.
    samples: [RequestSample; 2],
}

impl RootFailures {
    /// Returns the latency of all requests whose root span was recorded from its start to its end.
    #[must_use]
    pub fn latency(&self) -> Distribution {
        let mut all = self.latency_others.clone();
        all.merge(&self.latency_failed);
        all
    }

    fn merge(&mut self, other: Self) {
        self.outcomes.requests += other.outcomes.requests;
        self.outcomes.failed += other.outcomes.failed;
        self.recovered += other.recovered;
        self.latency_failed.merge(&other.latency_failed);
        self.latency_others.merge(&other.latency_others);
        self.over_time.merge(other.over_time);
        let samples = self.samples.iter_mut().zip(other.samples);
        samples.for_each(|(sample, other)| sample.merge(other));
    }
}

/// Failures of all selected requests.
#[derive(Debug)]
pub struct Failures {
    pub outcomes: Outcomes,
    pub recovered: WeightedCount,
    /// Root operations. Those with the most failed requests come first.
    pub roots: Vec<(String, RootFailures)>,
    /// Last change of the error rate of each root operation with a change, among the eight with the
    /// most failed requests. The most certain change comes first.
    pub changes: Vec<RateChange>,
    /// Origins of failures, the most frequent first. Origins from which the requests recovered come
    /// last.
    pub origins: Vec<(FailureGroup, GroupedFailures)>,
    /// Number of requests with a failed span that are in no group, because the limit on groups was
    /// reached.
    pub other_origins: WeightedCount,
    /// Differences between failed requests and others, for at most three root operations: those
    /// with the most failed requests, among those with enough requests of both kinds.
    pub apart: Vec<FailedApart>,
    pub notes: Notes,
}

/// Finds failures. Reads all selected requests once, including incomplete ones, and then a sample
/// of them with their attributes. `alignment` corrects the clocks; with `None`, timestamps are used
/// as recorded.
///
/// # Errors
/// Fails if the store cannot be read, or if there is too little memory.
pub fn failures(
    source: &Source,
    selection: Selection,
    alignment: Option<&Alignment>,
) -> Result<Failures, QueryError> {
    let selection = with_cut(selection);
    let parts = source.parts(selection, &AttributeKeys::of(FAILURE_KEYS))?;
    let workers = vec![OutcomePass::default(); parts.count()];
    let visit = |worker: &mut OutcomePass, records: &mut TraceRecords, _: &mut Notes| {
        align(alignment, records);
        worker.observe(records);
    };
    let (workers, notes) = source.fold("finding failures", selection, &parts, workers, visit)?;
    let mut all = OutcomePass::default();
    workers.into_iter().for_each(|worker| all.merge(worker));
    let mut found = all.failures(notes);
    // If the error rate rose, compares only requests after the rise. Earlier requests failed less
    // often, whatever their attributes.
    let rose = |root: &str| {
        let mut changes = found.changes.iter();
        changes.find(|change| change.root == root && change.rates[1] > change.rates[0])
    };
    let with_failed = found.roots.iter().map(|(root, of)| {
        let from_ns = rose(root).map_or(i64::MIN, |change| change.at_ns);
        (&**root, &of.samples, from_ns)
    });
    found.apart = tell_apart(source, selection, with_failed)?;
    Ok(found)
}

/// Counts failed requests by root operation and by origin.
#[derive(Clone, Debug, Default)]
pub(super) struct OutcomePass {
    roots: BTreeMap<String, RootFailures>,
    origins: FailuresByOrigin,
    finder: FailureFinder,
}

impl OutcomePass {
    /// Observes a request by its timestamps, which the caller aligns unless it trusts the clocks.
    pub(super) fn observe(&mut self, records: &TraceRecords) {
        let name = records.root_name();
        let weight = records.weight();
        let trail = self.finder.trail(records);
        let has_failed = trail.as_ref().is_some_and(|trail| trail.has_reached_root);
        let (start_ns, answer_ns) = answered_interval(records);
        let root = root_of(&mut self.roots, &name);
        root.outcomes.observe(has_failed, weight);
        root.over_time.observe(start_ns, has_failed, weight);
        root.samples[usize::from(has_failed)].observe(records.id, weight, start_ns);
        if is_timed(records) {
            let latency = match has_failed {
                true => &mut root.latency_failed,
                false => &mut root.latency_others,
            };
            latency.record_weighted(answer_ns.abs_diff(start_ns), weight);
        }
        if let Some(trail) = &trail {
            if !has_failed {
                root.recovered.count(weight);
            }
            self.origins.observe(records, &name, trail);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (name, root) in other.roots {
            root_of(&mut self.roots, &name).merge(root);
        }
        self.origins.merge(other.origins);
    }

    fn failures(self, notes: Notes) -> Failures {
        let (mut outcomes, mut recovered) = (Outcomes::default(), WeightedCount::default());
        for root in self.roots.values() {
            outcomes.requests += root.outcomes.requests;
            outcomes.failed += root.outcomes.failed;
            recovered += root.recovered;
        }
        let mut roots: Vec<(String, RootFailures)> = self.roots.into_iter().collect();
        // The sorts are stable, so equal entries stay in the order of the maps' keys.
        roots.sort_by_key(|(_, of)| {
            let Outcomes { requests, failed } = of.outcomes;
            Reverse((failed.rounded(), requests.rounded()))
        });
        let mut origins: Vec<_> = self.origins.groups.into_iter().collect();
        origins.sort_by_key(|(group, of)| Reverse((group.has_reached_root, of.requests.rounded())));
        Failures {
            outcomes,
            recovered,
            changes: changes(&roots),
            roots,
            origins,
            other_origins: self.origins.others,
            apart: Vec::new(),
            notes: notes.weighing(WeightUse::Everything),
        }
    }
}

fn root_of<'a>(roots: &'a mut BTreeMap<String, RootFailures>, name: &str) -> &'a mut RootFailures {
    let fits = roots.len() < ROOTS_MAX || roots.contains_key(name);
    let name = if fits { name } else { OTHER_ROOTS };
    roots.entry(name.to_owned()).or_default()
}

/// Reports whether the root span was recorded from its start to its end.
fn is_timed(records: &TraceRecords) -> bool {
    const PARTIAL: [SpanFlags; 3] = [
        SpanFlags::CUT_OPEN,
        SpanFlags::CUT_CLOSE,
        SpanFlags::UNFINISHED,
    ];
    let is_whole = |flags: SpanFlags| !PARTIAL.iter().any(|flag| flags.contains(*flag));
    records.root().is_some_and(|root| is_whole(root.flags))
}

fn changes(roots: &[(String, RootFailures)]) -> Vec<RateChange> {
    let with_failed = roots.iter().filter(|(_, of)| !of.outcomes.failed.is_zero());
    let searched: Vec<_> = with_failed.take(ROOTS_SEARCHED).collect();
    let p_max = FALSE_ALARMS_MAX / searched.len().max(1) as f64;
    let changes = searched
        .into_iter()
        .filter_map(|(name, of)| of.over_time.last_change(name, p_max));
    let mut changes: Vec<RateChange> = changes.collect();
    changes.sort_by(|a, b| a.p_value.total_cmp(&b.p_value));
    changes
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::flow::ERROR;
    use stroboscope_analysis::record::{AttributeRecord, RecordOwner, SpanRecord, TraceId};

    use super::*;

    /// Creates a request whose page makes a call. `failed` has the ids of the failed spans,
    /// `took_ns` is the duration, and `flags` are those of the root.
    fn request(id: u128, failed: &[u64], took_ns: i64, flags: SpanFlags) -> TraceRecords {
        let span = |(span_id, parent_id, name): (u64, u64, &str)| SpanRecord {
            span_id,
            parent_id,
            service: "web".into(),
            name: name.into(),
            host: "h".into(),
            process: 1,
            start_ns: 0,
            end_ns: took_ns,
            flags: if span_id == 1 { flags } else { SpanFlags(0) },
            events: Vec::new(),
        };
        let said = failed.iter().map(|span_id| AttributeRecord {
            owner: RecordOwner::Span(*span_id),
            key: ERROR.into(),
            value: "true".into(),
        });
        TraceRecords {
            id: TraceId(id),
            spans: [(1, 0, "page"), (2, 1, "call")].map(span).to_vec(),
            attributes: said.collect(),
            ..TraceRecords::default()
        }
    }

    #[test]
    fn requests_are_counted_by_their_outcome() {
        let none = SpanFlags(0);
        let mut part = request(5, &[2], 70, none);
        part.spans.remove(0);
        let requests = [
            request(1, &[], 50, none),
            request(2, &[1, 2], 10, none),
            request(3, &[2], 60, none),
            request(4, &[1], 20, SpanFlags::UNFINISHED),
            part,
        ];
        let mut merged = OutcomePass::default();
        for request in &requests {
            let mut worker = OutcomePass::default();
            worker.observe(request);
            merged.merge(worker);
        }
        let found = merged.failures(Notes::default());
        let count = |of: &Outcomes| (of.requests.rounded(), of.failed.rounded());
        assert_eq!(count(&found.outcomes), (5, 3));
        assert_eq!(found.recovered.rounded(), 1);
        let roots: Vec<_> = found
            .roots
            .iter()
            .map(|(name, of)| (&**name, count(&of.outcomes)))
            .collect();
        assert_eq!(roots, [("web:page", (4, 2)), ("(no root)", (1, 1))]);
        let page = &found.roots[0].1;
        // The end of the unfinished request is unknown.
        assert_eq!(
            (page.latency_failed.count(), page.latency_others.count()),
            (1, 2)
        );
        assert_eq!((page.latency().count(), page.latency().max_ns()), (3, 60));
        let origins: Vec<_> = found
            .origins
            .iter()
            .map(|(group, of)| {
                (
                    &*group.root,
                    &*group.origin,
                    group.has_reached_root,
                    of.requests.rounded(),
                )
            })
            .collect();
        assert_eq!(
            origins,
            [
                ("(no root)", "web:call", true, 1),
                ("web:page", "web:call", true, 1),
                ("web:page", "web:page", true, 1),
                ("web:page", "web:call", false, 1),
            ]
        );
        assert_eq!(found.changes, []);
    }
}
