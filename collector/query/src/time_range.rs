//! Time range that a query covers.

use std::ops::RangeInclusive;

use stroboscope_analysis::record::TraceRecords;

/// Margin before and after a time range, in ns: one hour. Files are read only if they may have
/// records within the range and its margins. A trace of the range may lack records that begin after
/// the later margin. A trace whose root began before the earlier margin may appear in the range as
/// a fragment.
const TRACE_NS_MAX: i64 = 3_600_000_000_000;

/// Half-open range of time; by default unlimited. A trace belongs to the range in which its first
/// record begins, by the clock that recorded it. Adjacent ranges therefore share no trace that
/// takes less than an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// Start, inclusive, in ns since the Unix epoch; `None` for no limit.
    pub since_ns: Option<i64>,
    /// End, exclusive, in ns since the Unix epoch; `None` for no limit.
    pub until_ns: Option<i64>,
}

/// Returns the first start and the last end of a trace's records, in ns since the Unix epoch;
/// `None` without records.
pub(super) fn recorded_ns(records: &TraceRecords) -> Option<(i64, i64)> {
    let spans = records.spans.iter();
    let spans = spans.map(|span| (span.start_ns, span.end_ns));
    let events = records.events.iter();
    let all = spans.chain(events.map(|event| (event.ts_ns, event.ts_ns)));
    all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

impl TimeRange {
    /// Reports whether an instant lies in the range.
    #[must_use]
    pub fn contains(&self, at_ns: i64) -> bool {
        self.since_ns.is_none_or(|since_ns| since_ns <= at_ns)
            && self.until_ns.is_none_or(|until_ns| at_ns < until_ns)
    }

    /// Returns the range with a margin of an hour on both sides, in ns since the Unix epoch.
    /// Records of the range's traces are read if they begin in this interval.
    #[must_use]
    pub fn records_ns(&self) -> RangeInclusive<i64> {
        let (from_ns, to_ns) = (self.since_ns, self.until_ns);
        let from_ns = from_ns.map_or(i64::MIN, |at_ns| at_ns.saturating_sub(TRACE_NS_MAX));
        from_ns..=to_ns.map_or(i64::MAX, |at_ns| at_ns.saturating_add(TRACE_NS_MAX))
    }

    /// Reports whether a trace belongs to the range. A trace without records has no known time, and
    /// belongs only to the unlimited range.
    #[must_use]
    pub fn holds(&self, records: &TraceRecords) -> bool {
        if *self == Self::default() {
            return true;
        }
        recorded_ns(records).is_some_and(|(first_ns, _)| self.contains(first_ns))
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::EventRecord;

    use super::*;

    #[test]
    fn a_trace_is_in_one_of_two_ranges_that_meet() {
        let event = |ts_ns| EventRecord {
            host: "h".into(),
            ts_ns,
            seq: 0,
            event: "e".into(),
            task: "t".into(),
        };
        let before = TimeRange {
            since_ns: None,
            until_ns: Some(10),
        };
        let after = TimeRange {
            since_ns: Some(10),
            until_ns: None,
        };
        for (first_ns, is_before) in [(i64::MIN, true), (9, true), (10, false), (i64::MAX, false)] {
            let records = TraceRecords {
                events: vec![event(first_ns), event(i64::MAX)],
                ..TraceRecords::default()
            };
            assert_eq!(
                (before.holds(&records), after.holds(&records)),
                (is_before, !is_before),
                "{first_ns}"
            );
            assert!(TimeRange::default().holds(&records));
        }
        let nothing = TraceRecords::default();
        assert!(
            TimeRange::default().holds(&nothing)
                && !before.holds(&nothing)
                && !after.holds(&nothing)
        );
    }
}
