//! Operations: their frequency, their durations, and the request with the longest span.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::flow::{ERROR, failed_spans};
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::sampling::{Weight, WeightedCount};
use stroboscope_store::tables::{AttributeKeys, IdRange};

use super::categories::CategoryRule;
use super::inference::Inference;
use super::notes::Notes;
use super::paths::{PathsQuestion, note_largest};
use super::query_error::QueryError;
use super::shard::ShardQuestion;
use super::study::{Question, StudyInput};

/// Question of the report on operations, with their share of critical paths.
pub const OPERATIONS: (OperationsQuestion, PathsQuestion) =
    (OperationsQuestion, PathsQuestion(CategoryRule::Kinds));

/// Maximum number of operations that are distinguished. Spans of further operations are only
/// counted.
const OPERATIONS_MAX: usize = 4_096;

/// Frequency and durations, in all selected requests, of the spans of one operation or of the calls
/// between two services.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OperationTimes {
    /// Durations of the spans or calls.
    pub duration: Distribution,
    /// Number of requests with such a span or call.
    pub requests: WeightedCount,
    /// Number of spans or calls that failed.
    pub failed: WeightedCount,
    /// Duration of the longest span or call in ns, and its request. Among equally long ones, that
    /// of the request with the lowest id counts.
    pub longest: Option<(u64, TraceId)>,
    /// Request that was counted last. A whole request is observed at once, so this suffices to
    /// count each request once.
    counted: Option<TraceId>,
}

impl OperationTimes {
    pub(super) fn see(&mut self, took_ns: u64, has_failed: bool, id: TraceId, weight: Weight) {
        self.duration.record_weighted(took_ns, weight);
        if has_failed {
            self.failed.count(weight);
        }
        if self.counted != Some(id) {
            self.counted = Some(id);
            self.requests.count(weight);
        }
        note_largest(&mut self.longest, took_ns, id);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.duration.merge(&other.duration);
        self.requests += other.requests;
        self.failed += other.failed;
        if let Some((took_ns, id)) = other.longest {
            note_largest(&mut self.longest, took_ns, id);
        }
    }
}

/// Frequency and durations of operations.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    /// Times of each operation, by `service:name`.
    pub of: BTreeMap<String, OperationTimes>,
    /// Number of spans of further operations, beyond the limit on operations.
    pub others: u64,
}

/// Asks for the frequency and durations of each operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperationsQuestion;

impl Question for OperationsQuestion {
    type Records = ();
    type Preparation = ();
    type Paths<'a> = OperationsPass;
    type Answer = Operations;

    fn what(&self) -> &'static str {
        "timing operations"
    }

    fn records(&self) {}

    fn prepare(&self, _: StudyInput<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn path_keys(&self, (): &()) -> AttributeKeys {
        AttributeKeys::of([ERROR])
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, (): &'a ()) -> OperationsPass {
        OperationsPass::default()
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        (): &(),
        paths: OperationsPass,
        _: Notes,
    ) -> Result<Operations, QueryError> {
        Ok(paths.into_operations())
    }
}

impl ShardQuestion for OperationsQuestion {
    type State = OperationsPass;

    fn shard_preparation(&self, _: &Inference) {}

    fn state(
        &self,
        _: StudyInput<'_>,
        _: Option<&IdRange>,
        (): (),
        paths: OperationsPass,
    ) -> Result<OperationsPass, QueryError> {
        Ok(paths)
    }

    fn merge_states(&self, whole: &mut OperationsPass, part: OperationsPass) {
        whole.merge(part);
    }

    fn conclude(
        &self,
        _: &Inference,
        whole: OperationsPass,
        _: Notes,
    ) -> Result<Operations, QueryError> {
        Ok(whole.into_operations())
    }
}

impl OperationsPass {
    fn into_operations(self) -> Operations {
        let of = self.of.into_iter().flat_map(|(service, names)| {
            let named = names.into_iter();
            named.map(move |(name, times)| (format!("{service}:{name}"), times))
        });
        Operations {
            of: of.collect(),
            others: self.others,
        }
    }
}

/// Pass that counts and times spans by operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OperationsPass {
    /// Times by service, then by name.
    of: BTreeMap<Arc<str>, BTreeMap<Arc<str>, OperationTimes>>,
    known: usize,
    others: u64,
}

impl OperationsPass {
    /// Returns the entry of an operation; `None` if it is new and [`OPERATIONS_MAX`] is reached.
    fn entry(&mut self, service: &Arc<str>, name: &Arc<str>) -> Option<&mut OperationTimes> {
        let is_known = |names: &BTreeMap<Arc<str>, OperationTimes>| names.contains_key(name);
        if !self.of.get(service).is_some_and(is_known) {
            if self.known >= OPERATIONS_MAX {
                return None;
            }
            self.known += 1;
        }
        let names = self.of.entry(service.clone()).or_default();
        Some(names.entry(name.clone()).or_default())
    }
}

impl Pass<TraceView<'_>> for OperationsPass {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let (id, weight) = (seen.trace.id, seen.weight());
        let failed: BTreeSet<u64> = failed_spans(seen.records).collect();
        for span in &seen.records.spans {
            let took_ns = span.duration_ns();
            match self.entry(&span.service, &span.name) {
                Some(times) => times.see(took_ns, failed.contains(&span.span_id), id, weight),
                None => self.others += 1,
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.others += other.others;
        for (service, names) in other.of {
            for (name, times) in names {
                match self.entry(&service, &name) {
                    Some(known) => known.merge(&times),
                    None => self.others += times.duration.count(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(spans: &[(&str, u64, u128)]) -> OperationsPass {
        let mut pass = OperationsPass::default();
        for (name, took_ns, id) in spans {
            let times = pass.entry(&"web".into(), &(*name).into());
            times
                .unwrap()
                .see(*took_ns, false, TraceId(*id), Weight::ONE);
        }
        pass
    }

    #[test]
    fn parts_are_the_whole() {
        let spans = [
            ("a", 5, 1),
            ("b", 9, 1),
            ("a", 7, 1),
            ("a", 7, 2),
            ("a", 1, 3),
        ];
        let check = |pass: &OperationsPass| {
            let a = &pass.of["web"]["a"];
            assert_eq!((a.duration.count(), a.requests.rounded()), (4, 3));
            assert_eq!(a.longest, Some((7, TraceId(1))));
            assert_eq!(pass.of["web"]["b"].requests.rounded(), 1);
        };
        check(&pass(&spans));
        // Parts are ranges of ids, so a request is in one of them.
        let (before, after) = spans.split_at(3);
        for (mut one, other) in [(pass(before), pass(after)), (pass(after), pass(before))] {
            one.merge(other);
            check(&one);
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut full = OperationsPass {
            known: OPERATIONS_MAX,
            ..OperationsPass::default()
        };
        full.merge(pass(&[("a", 1, 1), ("a", 2, 2)]));
        assert_eq!((full.others, full.of.len()), (2, 0));
    }
}
