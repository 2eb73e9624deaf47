//! Failures by origin: requests with a failed span, grouped by root operation, origin, and the
//! failure that the origin states.

use std::collections::BTreeMap;

use stroboscope_analysis::failure::{FailureTrail, StatedFailure};
use stroboscope_analysis::record::{SpanRecord, TraceId, TraceRecords};
use stroboscope_analysis::sampling::WeightedCount;

/// Maximum number of groups. Requests of further groups are only counted.
const GROUPS_MAX: usize = 1_024;
/// Maximum length of an example's list of operations.
const TRAIL_MAX: usize = 24;

/// Key of a group of requests with a failed span.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureGroup {
    pub root: String,
    /// True if a root span failed as well, or if none was recorded and the failure may have reached
    /// it; false if the requests recovered.
    pub has_reached_root: bool,
    /// Operation at which the failure originated, `service:name`.
    pub origin: String,
    pub stated: StatedFailure,
}

/// Number, times and example of the requests of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupedFailures {
    pub requests: WeightedCount,
    /// Ends of the origin's spans that failed first and last, in ns since the Unix epoch; `None` if
    /// no request is in the group.
    pub times_ns: Option<(i64, i64)>,
    /// Request with the first failure, and the operations that the failure passed through, origin
    /// first.
    pub example: Option<(TraceId, Vec<String>)>,
}

/// Requests with a failed span, grouped by root operation, origin and stated failure.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FailuresByOrigin {
    pub(super) groups: BTreeMap<FailureGroup, GroupedFailures>,
    /// Number of requests that are in no group, because the limit on groups was reached.
    pub(super) others: WeightedCount,
}

impl FailuresByOrigin {
    pub(super) fn observe(&mut self, records: &TraceRecords, root: &str, trail: &FailureTrail<'_>) {
        let Some(origin) = trail.spans.first() else {
            return;
        };
        let group = FailureGroup {
            root: root.to_owned(),
            has_reached_root: trail.has_reached_root,
            origin: origin.operation(),
            stated: StatedFailure::of(records, origin),
        };
        let Some(grouped) = self.group(group) else {
            self.others.count(records.weight());
            return;
        };
        grouped.requests.count(records.weight());
        if grouped.is_earlier(origin.end_ns, records.id) {
            grouped.example = Some((records.id, operations(&trail.spans)));
        }
        grouped.widen((origin.end_ns, origin.end_ns));
    }

    /// Returns the entry of a group; `None` if it is new and the limit on groups is reached.
    fn group(&mut self, group: FailureGroup) -> Option<&mut GroupedFailures> {
        let has_room = self.groups.len() < GROUPS_MAX || self.groups.contains_key(&group);
        has_room.then(|| self.groups.entry(group).or_default())
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.others += other.others;
        for (group, of_other) in other.groups {
            match self.group(group) {
                Some(grouped) => grouped.merge(of_other),
                None => self.others += of_other.requests,
            }
        }
    }
}

impl GroupedFailures {
    /// Reports whether a failure is earlier than the example. Among failures at the same time, the
    /// request with the lowest id is the example.
    fn is_earlier(&self, end_ns: i64, id: TraceId) -> bool {
        match (&self.times_ns, &self.example) {
            (Some((first_ns, _)), Some((known, _))) => (end_ns, id) < (*first_ns, *known),
            _ => true,
        }
    }

    fn widen(&mut self, (from_ns, until_ns): (i64, i64)) {
        let (first_ns, last_ns) = self.times_ns.unwrap_or((from_ns, until_ns));
        self.times_ns = Some((first_ns.min(from_ns), last_ns.max(until_ns)));
    }

    fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        if let (Some(times_ns), Some(example)) = (other.times_ns, other.example) {
            if self.is_earlier(times_ns.0, example.0) {
                self.example = Some(example);
            }
            self.widen(times_ns);
        }
    }
}

/// Returns the operations of spans, with consecutive repetitions merged. In a list longer than
/// [`TRAIL_MAX`], replaces the middle by the number of operations there.
fn operations(spans: &[&SpanRecord]) -> Vec<String> {
    let mut operations: Vec<String> = spans.iter().map(|span| span.operation()).collect();
    operations.dedup();
    let more = operations.len().saturating_sub(TRAIL_MAX);
    if more > 0 {
        let middle = TRAIL_MAX / 2;
        operations.splice(middle..middle + more + 1, [format!("({} more)", more + 1)]);
    }
    operations
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stroboscope_analysis::record::SpanFlags;

    use super::*;

    fn span(span_id: u64, name: &str, end_ns: i64) -> SpanRecord {
        SpanRecord {
            span_id,
            parent_id: 0,
            service: "web".into(),
            name: name.into(),
            host: "h".into(),
            process: 1,
            start_ns: 0,
            end_ns,
            flags: SpanFlags::PANICKED,
            events: Vec::new(),
        }
    }

    /// Observes failures, each given by the id of its request, the number of the failed operation,
    /// and the end of the failed span in ns.
    fn seen(failures: &[(u128, u8, i64)]) -> FailuresByOrigin {
        let mut seen = FailuresByOrigin::default();
        for (id, name, end_ns) in failures {
            let records = TraceRecords {
                id: TraceId(*id),
                ..TraceRecords::default()
            };
            let (origin, root) = (span(2, &format!("op{name}"), *end_ns), span(1, "home", 99));
            let trail = FailureTrail {
                has_reached_root: name % 2 == 0,
                spans: vec![&origin, &root],
            };
            seen.observe(&records, "web:home", &trail);
        }
        seen
    }

    #[test]
    fn failures_of_one_origin_are_one_group() {
        let seen = seen(&[(7, 0, 50), (8, 1, 60), (9, 0, 40), (3, 0, 70)]);
        let groups: Vec<_> = seen.groups.iter().collect();
        let [(recovered, _), (failed, of_failed)] = groups[..] else {
            panic!("{groups:?}");
        };
        assert_eq!(
            (&*recovered.origin, recovered.has_reached_root),
            ("web:op1", false)
        );
        assert_eq!(
            (&*failed.origin, &*failed.stated.kind),
            ("web:op0", "panic")
        );
        assert_eq!(of_failed.requests.rounded(), 3);
        assert_eq!(of_failed.times_ns, Some((40, 70)));
        let (example, trail) = of_failed.example.as_ref().unwrap();
        assert_eq!(
            (example.0, &trail[..]),
            (9, &["web:op0".to_owned(), "web:home".to_owned()][..])
        );
    }

    #[test]
    fn long_trails_are_cut_in_the_middle() {
        let spans: Vec<SpanRecord> = (0..60)
            .map(|id| span(id, &format!("a{}", id / 2), 1))
            .collect();
        let shown = operations(&spans.iter().collect::<Vec<_>>());
        assert_eq!(shown.len(), TRAIL_MAX);
        assert_eq!(
            (&*shown[0], &*shown[12], &*shown[23]),
            ("web:a0", "(7 more)", "web:a29")
        );
        let (a, b) = (span(1, "a", 1), span(2, "b", 1));
        assert_eq!(operations(&[&a, &a, &b, &a]), ["web:a", "web:b", "web:a"]);
    }

    proptest! {
        #[test]
        fn parts_are_the_whole(
            failures in proptest::collection::vec((0u128..8, 0u8..4, 0i64..6), 0..40),
            cut in 0usize..40,
        ) {
            let (before, after) = failures.split_at(cut.min(failures.len()));
            let mut merged = seen(after);
            merged.merge(seen(before));
            prop_assert_eq!(merged, seen(&failures));
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut full = seen(&[(1, 0, 1)]);
        for number in full.groups.len()..GROUPS_MAX {
            let group = FailureGroup {
                root: format!("r{number}"),
                has_reached_root: true,
                origin: String::new(),
                stated: StatedFailure::default(),
            };
            full.groups.insert(group, GroupedFailures::default());
        }
        full.merge(seen(&[(2, 0, 2), (3, 2, 3)]));
        assert_eq!((full.others.rounded(), full.groups.len()), (1, GROUPS_MAX));
    }
}
