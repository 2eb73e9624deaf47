//! Counts recent requests and spans, and the failed ones among them. Incomplete requests count as
//! well, as a failed request is often not fully recorded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use stroboscope_analysis::failure::FailureFinder;
use stroboscope_analysis::name_rule::normalise;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::sampling::{Weight, WeightedCount};

/// Maximum time for which a request counts as recent after the model observed it.
pub const RECENT: Duration = Duration::from_secs(300);
/// Maximum length of a time slice, in ns, unless the clock is set back. The first request for which
/// the slice's start is no longer recent drops the slice as a whole.
const SLICE_NS: i64 = 10_000_000_000;
/// Maximum operations of one slice; spans of further operations are not counted.
const OPERATIONS_MAX: usize = 2_048;

/// Number of spans, calls or requests, and of the failed ones among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub all: WeightedCount,
    pub failed: WeightedCount,
}

impl Outcomes {
    pub(super) fn count(&mut self, has_failed: bool, weight: Weight) {
        self.all.count(weight);
        if has_failed {
            self.failed.count(weight);
        }
    }

    fn merge(&mut self, other: Self) {
        self.all += other.all;
        self.failed += other.failed;
    }
}

/// Outcomes of requests, and of spans by operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentOutcomes {
    pub requests: Outcomes,
    /// Outcomes of spans, by `service:name`; ids in names are replaced.
    pub operations: BTreeMap<String, Outcomes>,
}

/// Outcomes in one time slice.
#[derive(Debug, Default)]
struct Slice {
    from_ns: i64,
    requests: Outcomes,
    /// Outcomes of spans, by service and name.
    operations: BTreeMap<(Arc<str>, Arc<str>), Outcomes>,
}

/// Recent slices, the oldest first.
#[derive(Debug, Default)]
pub(super) struct OutcomeSlices {
    slices: VecDeque<Slice>,
    finder: FailureFinder,
}

impl OutcomeSlices {
    /// Counts a request that the model observes at `now_ns`; `failed` has the ids of its failed
    /// spans. Returns true if the request failed.
    pub(super) fn observe(
        &mut self,
        now_ns: i64,
        records: &TraceRecords,
        failed: &BTreeSet<u64>,
    ) -> bool {
        let weight = records.weight();
        let trail = self.finder.trail(records);
        let has_failed = trail.is_some_and(|trail| trail.has_reached_root);
        let slice = self.slice_at(now_ns);
        slice.requests.count(has_failed, weight);
        for span in &records.spans {
            let key = (span.service.clone(), span.name.clone());
            let has_room = slice.operations.len() < OPERATIONS_MAX;
            if has_room || slice.operations.contains_key(&key) {
                let of = slice.operations.entry(key).or_default();
                of.count(failed.contains(&span.span_id), weight);
            }
        }
        has_failed
    }

    fn slice_at(&mut self, now_ns: i64) -> &mut Slice {
        // If the clock was set back, slices would be recent until the clock has caught up.
        let later = self.slices.iter_mut().rev();
        later
            .take_while(|slice| slice.from_ns > now_ns)
            .for_each(|slice| slice.from_ns = now_ns);
        self.forget(now_ns);
        let is_new = |last: &Slice| now_ns.saturating_sub(last.from_ns) >= SLICE_NS;
        if self.slices.back().is_none_or(is_new) {
            let from_ns = now_ns;
            self.slices.push_back(Slice {
                from_ns,
                ..Slice::default()
            });
        }
        let last = self.slices.len() - 1;
        &mut self.slices[last]
    }

    fn forget(&mut self, now_ns: i64) {
        let recent_ns = i64::try_from(RECENT.as_nanos()).unwrap_or(i64::MAX);
        let from_ns = now_ns.saturating_sub(recent_ns);
        while self
            .slices
            .front()
            .is_some_and(|slice| slice.from_ns < from_ns)
        {
            self.slices.pop_front();
        }
    }

    pub(super) fn since(&self, from_ns: i64) -> RecentOutcomes {
        let mut recent = RecentOutcomes::default();
        for slice in self.slices.iter().filter(|slice| slice.from_ns >= from_ns) {
            recent.requests.merge(slice.requests);
            for ((service, name), of) in &slice.operations {
                let operation = format!("{service}:{}", normalise(name));
                recent.operations.entry(operation).or_default().merge(*of);
            }
        }
        recent
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::flow::failed_spans;
    use stroboscope_analysis::record::{SpanFlags, SpanRecord};

    use super::*;

    fn observe(slices: &mut OutcomeSlices, at_ns: i64, records: &TraceRecords) {
        slices.observe(at_ns, records, &failed_spans(records).collect());
    }

    /// Returns a request with one call; either both have panicked, or neither.
    fn request(name: &str, has_failed: bool) -> TraceRecords {
        let flags = if has_failed {
            SpanFlags::PANICKED
        } else {
            SpanFlags(0)
        };
        let span = |span_id, name: &str| SpanRecord {
            span_id,
            parent_id: span_id - 1,
            service: "web".into(),
            name: name.into(),
            host: "h".into(),
            process: 1,
            start_ns: 0,
            end_ns: 9,
            flags,
            events: Vec::new(),
        };
        let spans = vec![span(1, name), span(2, "call 77")];
        TraceRecords {
            spans,
            ..TraceRecords::default()
        }
    }

    #[test]
    fn the_last_minutes_are_counted_by_operation() {
        let recent_ns = RECENT.as_nanos() as i64;
        let mut slices = OutcomeSlices::default();
        observe(&mut slices, 0, &request("old", true));
        for at_ns in [recent_ns, recent_ns + SLICE_NS] {
            observe(&mut slices, at_ns, &request("home", at_ns > recent_ns));
            observe(&mut slices, at_ns, &request("home", false));
        }
        let recent = slices.since(recent_ns);
        let count = |of: Outcomes| (of.all.rounded(), of.failed.rounded());
        assert_eq!(count(recent.requests), (4, 1));
        let by_name = |(name, of): (&String, &Outcomes)| (name.clone(), count(*of));
        let found: Vec<_> = recent.operations.iter().map(by_name).collect();
        let expected = ["web:call *", "web:home"].map(|name| (name.to_owned(), (4, 1)));
        assert_eq!(found, expected);
        // The first slice is too old, and was dropped with a later observation.
        assert_eq!(slices.slices.len(), 2);
    }

    #[test]
    fn slices_age_after_the_clock_was_set_back() {
        let (hour_ns, recent_ns) = (3_600_000_000_000, RECENT.as_nanos() as i64);
        let mut slices = OutcomeSlices::default();
        for at_ns in [hour_ns, hour_ns + SLICE_NS, 0, recent_ns + 1] {
            observe(&mut slices, at_ns, &request("home", false));
        }
        assert_eq!(slices.since(1).requests.all.rounded(), 1);
    }

    #[test]
    fn operations_are_bounded() {
        let mut slices = OutcomeSlices::default();
        for number in 0..OPERATIONS_MAX + 10 {
            let name: String = number
                .to_string()
                .chars()
                .map(|digit| (digit as u8 + 49) as char)
                .collect();
            observe(&mut slices, 0, &request(&name, false));
        }
        let recent = slices.since(0);
        assert_eq!(recent.operations.len(), OPERATIONS_MAX);
        assert_eq!(recent.requests.all.rounded() as usize, OPERATIONS_MAX + 10);
    }
}
