//! Thinning of old requests: decides which requests the store keeps, and how many requests each
//! kept one then represents.
//!
//! A request stays unchanged if a span of it failed, if a root of it took long, if it has no root,
//! if it is not whole within the hour that is thinned, or if it was thinned before. Any other
//! request that the store reads whole is kept with a fixed probability, the ratio, by a hash of its
//! trace id. A kept request represents as many requests as before, divided by the ratio. Sums of
//! weights are therefore unbiased: the requests that stay unchanged were certain to stay, and only
//! the hash decides about the others.
//!
//! The hash must be independent of how the random bits of the trace id compare with samplers'
//! thresholds. Otherwise the requests that a sampler kept would be kept again with another
//! probability.
//!
//! The new weight is written as a threshold (see [`sampling`](crate::sampling)) into the
//! `tracestate` of all spans, so that other programs can read it. A second entry,
//! `stroboscope=thin:`, has the threshold of the ratio alone. It marks the request as thinned, and
//! shows by how much its weight grew.

use crate::flow::failed_spans;
use crate::record::{SpanRecord, TraceRecords};
use crate::sampling::{DIGITS_MAX, OWN, THIN, THRESHOLD, THRESHOLD_BITS, VENDOR, threshold};
use std::ops::Range;

/// Rule by which old requests are thinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinningRule {
    /// Threshold of the ratio: requests whose hash is below are dropped.
    rejection: u64,
    /// Minimum duration of a root span, in ns, for the request to stay unchanged; `None` if the
    /// duration does not matter.
    slow_ns: Option<u64>,
}

/// Decision about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinningDecision {
    /// The request stays unchanged.
    Unchanged,
    /// The request stays, and represents as many requests as before, divided by the ratio.
    Reweighted(NewThreshold),
    /// The request is dropped.
    Dropped,
}

/// Basis of the new sampling thresholds of a request that thinning keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewThreshold {
    /// Previous threshold by which the request counts; 0 if it counts once.
    pub previous: u64,
    /// True if windows held the request, so that the thresholds of its spans did not count.
    pub is_held: bool,
}

impl ThinningRule {
    /// Creates a rule with this ratio (above 0, at most 1) that leaves a request unchanged if a
    /// root of it took at least `slow_ns`.
    #[must_use]
    pub fn new(ratio: f64, slow_ns: Option<u64>) -> Self {
        let all = 1u64 << THRESHOLD_BITS;
        // The cast saturates. The ratio is rounded to a multiple of 2⁻⁵⁶.
        let kept = ((ratio * all as f64).round() as u64).clamp(1, all);
        Self {
            rejection: all - kept,
            slow_ns,
        }
    }

    /// Decides about a request. `hash` is the hash of its trace id; only the upper 56 bits of the
    /// hash count. `hour_ns` is the hour that is thinned, in ns since the Unix epoch. The records
    /// must include the attribute [`ERROR`](crate::flow::ERROR). A request that was thinned before
    /// stays unchanged.
    #[must_use]
    pub fn decide(
        &self,
        records: &TraceRecords,
        hash: u64,
        hour_ns: &Range<i64>,
    ) -> ThinningDecision {
        let is_inside =
            |span: &SpanRecord| span.start_ns >= hour_ns.start && span.end_ns <= hour_ns.end;
        let is_slow = |root: &SpanRecord| {
            let slow_ns = self.slow_ns;
            slow_ns.is_some_and(|slow_ns| root.duration_ns() >= slow_ns)
        };
        let mut roots = records.spans.iter().filter(|span| span.parent_id == 0);
        let is_exempt = records.sampling.thinned().is_some()
            || !records.spans.iter().all(is_inside)
            || roots.clone().next().is_none()
            || roots.any(is_slow)
            || failed_spans(records).next().is_some();
        if is_exempt {
            return ThinningDecision::Unchanged;
        }
        if hash >> (u64::BITS - THRESHOLD_BITS) < self.rejection {
            return ThinningDecision::Dropped;
        }
        let is_held = records.is_held();
        let previous = records.sampling.threshold().filter(|_| !is_held);
        ThinningDecision::Reweighted(NewThreshold {
            previous: previous.unwrap_or(0),
            is_held,
        })
    }

    /// Returns the new `tracestate` of a span of a kept request. `known` is its previous one; empty
    /// if it had none.
    #[must_use]
    pub fn tracestate(&self, of: NewThreshold, known: &str) -> String {
        let own = threshold(known).ok().flatten().filter(|_| !of.is_held);
        let all = 1u64 << THRESHOLD_BITS;
        let kept_before = u128::from(all - own.unwrap_or(of.previous).min(all));
        let kept = (kept_before * u128::from(all - self.rejection) + u128::from(all / 2))
            >> THRESHOLD_BITS;
        let rejected = all - u64::try_from(kept).unwrap_or(all).max(1);
        let with_threshold = with_field(known, VENDOR, THRESHOLD, &digits(rejected));
        with_field(&with_threshold, OWN, THIN, &digits(self.rejection))
    }
}

/// Formats a threshold as hex digits without trailing zeros.
fn digits(threshold: u64) -> String {
    let text = format!("{threshold:0DIGITS_MAX$x}");
    match text.trim_end_matches('0') {
        "" => "0".to_owned(),
        digits => digits.to_owned(),
    }
}

/// Sets a field in a vendor's member of a `tracestate`. Keeps the other fields and members. Adds a
/// missing member in front.
fn with_field(tracestate: &str, vendor: &str, field: &str, value: &str) -> String {
    let fields_of = |member: &str| {
        let rest = member.trim().strip_prefix(vendor)?.strip_prefix('=')?;
        Some(rest.to_owned())
    };
    let field_text = format!("{field}:{value}");
    let mut members: Vec<String> = tracestate.split(',').map(str::to_owned).collect();
    let found = members
        .iter()
        .enumerate()
        .find_map(|(at, member)| Some((at, fields_of(member)?)));
    let Some((at, fields)) = found else {
        let separator = if tracestate.trim().is_empty() {
            ""
        } else {
            ","
        };
        return format!("{vendor}={field_text}{separator}{}", tracestate.trim());
    };
    let is_it = |one: &&str| {
        one.strip_prefix(field)
            .is_some_and(|rest| rest.starts_with(':'))
    };
    let others = fields
        .split(';')
        .filter(|one| !is_it(one) && !one.is_empty());
    let fields: Vec<&str> = others.chain([&*field_text]).collect();
    members[at] = format!("{vendor}={}", fields.join(";"));
    members.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::ERROR;
    use crate::record::{AttributeRecord, RecordOwner, SpanFlags, TraceId};
    use crate::sampling::TraceSampling;

    const HOUR: Range<i64> = 1_000..2_000;
    const HELD: SpanFlags = SpanFlags::SAMPLED;

    /// Creates a request of a root and a call, with these trace states and times of the call.
    fn request(states: [&str; 2], call_ns: Range<i64>, flags: SpanFlags) -> TraceRecords {
        let span = |span_id: u64, times_ns: Range<i64>| SpanRecord {
            span_id,
            parent_id: span_id - 1,
            service: "web".into(),
            name: "get".into(),
            host: "h".into(),
            process: 1,
            start_ns: times_ns.start,
            end_ns: times_ns.end,
            flags,
            events: Vec::new(),
        };
        let mut sampling = TraceSampling::default();
        sampling.observe(true, states[0]);
        sampling.observe(false, states[1]);
        TraceRecords {
            id: TraceId(7),
            spans: vec![span(1, 1_100..1_200), span(2, call_ns)],
            sampling,
            ..TraceRecords::default()
        }
    }

    fn ordinary() -> TraceRecords {
        request(["", ""], 1_110..1_190, SpanFlags(0))
    }

    /// Applies the decision to a request, and returns the thinned request with its trace states.
    fn thinned(
        rule: &ThinningRule,
        records: &TraceRecords,
        states: [&str; 2],
    ) -> (TraceRecords, [String; 2]) {
        let ThinningDecision::Reweighted(of) = rule.decide(records, u64::MAX, &HOUR) else {
            panic!("the highest hash is kept");
        };
        let states = states.map(|known| rule.tracestate(of, known));
        let mut after = records.clone();
        after.sampling = TraceSampling::default();
        after.sampling.observe(true, &states[0]);
        after.sampling.observe(false, &states[1]);
        (after, states)
    }

    #[test]
    fn failed_slow_and_cut_requests_stay_unchanged() {
        let rule = ThinningRule::new(0.1, Some(100));
        let check = |records: &TraceRecords, expected| {
            assert_eq!(rule.decide(records, 0, &HOUR), expected, "{records:?}");
        };
        let unchanged = ThinningDecision::Unchanged;
        let fast = |change: &dyn Fn(&mut TraceRecords)| {
            let mut records = ordinary();
            records.spans[0].end_ns = 1_199;
            change(&mut records);
            records
        };
        check(&fast(&|_| {}), ThinningDecision::Dropped);
        check(&ordinary(), unchanged);
        let failed = |value: &str| {
            fast(&|records| {
                records.attributes.push(AttributeRecord {
                    owner: RecordOwner::Span(2),
                    key: ERROR.into(),
                    value: value.into(),
                });
            })
        };
        check(&failed("true"), unchanged);
        check(&failed("false"), ThinningDecision::Dropped);
        check(
            &fast(&|it| it.spans[1].flags = SpanFlags::PANICKED),
            unchanged,
        );
        check(&fast(&|it| it.spans[1].end_ns = 2_001), unchanged);
        check(
            &fast(&|it| it.spans[1].end_ns = 2_000),
            ThinningDecision::Dropped,
        );
        check(&fast(&|it| it.spans[1].start_ns = 999), unchanged);
        check(&fast(&|it| it.spans[0].parent_id = 9), unchanged);
        check(&TraceRecords::default(), unchanged);
        let all_alike = ThinningRule::new(0.1, None);
        let dropped = ThinningDecision::Dropped;
        assert_eq!(all_alike.decide(&ordinary(), 0, &HOUR), dropped);
    }

    #[test]
    fn the_ratio_is_the_share_of_hashes() {
        for ratio in [1e-9, 0.05, 0.3, 0.5, 1.0] {
            let rule = ThinningRule::new(ratio, None);
            let is_kept = |hash| rule.decide(&ordinary(), hash, &HOUR) != ThinningDecision::Dropped;
            let first = (1.0 - ratio) * 2f64.powi(64);
            assert!(is_kept((first * (1.0 + 1e-12)) as u64), "{ratio}");
            assert!(
                ratio == 1.0 || !is_kept((first * (1.0 - 1e-12)) as u64),
                "{ratio}"
            );
        }
    }

    #[test]
    fn the_weight_is_divided_by_the_ratio() {
        let rule = ThinningRule::new(0.05, None);
        let check = |states: [&str; 2], flags, weight: f64, is_differing| {
            let before = request(states, 1_110..1_190, flags);
            let (after, _) = thinned(&rule, &before, states);
            let ratio = after.weight().value() / before.weight().value();
            assert!((ratio - 20.0).abs() < 1e-3, "{states:?}: {ratio}");
            assert!((after.weight().value() - weight).abs() < 1e-2, "{states:?}");
            assert_eq!(after.sampling.is_differing(), is_differing, "{states:?}");
            let unchanged = ThinningDecision::Unchanged;
            assert_eq!(rule.decide(&after, u64::MAX, &HOUR), unchanged);
            assert_eq!(rule.decide(&after, 0, &HOUR), unchanged);
        };
        let outside = SpanFlags::SAMPLED.with(SpanFlags::OUTSIDE);
        check(["", ""], SpanFlags(0), 20.0, false);
        check(["ot=th:8", "ot=th:8"], SpanFlags(0), 40.0, false);
        check(["ot=rv:1;th:c", "ot=th:8"], outside, 80.0, true);
        check(["", "ot=th:8"], SpanFlags(0), 40.0, false);
        check(["ot=th:8", "a=b"], SpanFlags(0), 40.0, false);
        check(["ot=th:x", ""], SpanFlags(0), 20.0, false);
        // Windows held the request, so its thresholds did not count.
        check(["ot=th:fc", "ot=th:fc"], HELD, 20.0, false);
        check(["", ""], HELD, 20.0, false);
    }

    #[test]
    fn a_trace_state_keeps_its_other_members() {
        let rule = ThinningRule::new(0.5, None);
        let of = NewThreshold {
            previous: 0,
            is_held: false,
        };
        for (known, expected) in [
            ("", "stroboscope=thin:8,ot=th:8"),
            ("a=1, b=2", "stroboscope=thin:8,ot=th:8,a=1, b=2"),
            ("a=1,ot=rv:12;th:8", "stroboscope=thin:8,a=1,ot=rv:12;th:c"),
            (
                "ot=th:0;x:1,stroboscope=burst:1c",
                "ot=x:1;th:8,stroboscope=burst:1c;thin:8",
            ),
            ("ot=,b=", "stroboscope=thin:8,ot=th:8,b="),
        ] {
            assert_eq!(rule.tracestate(of, known), expected, "{known}");
        }
        let weight = |ratio: f64| {
            let state = ThinningRule::new(ratio, None).tracestate(of, "");
            let mut sampling = TraceSampling::default();
            sampling.observe(true, &state);
            sampling.weight().value() * ratio
        };
        for ratio in [0.9, 0.37, 0.05, 1e-6] {
            assert!((weight(ratio) - 1.0).abs() < 1e-5, "{ratio}");
        }
        let whole = ThinningRule::new(1.0, None).tracestate(of, "");
        assert_eq!(whole, "stroboscope=thin:0,ot=th:0");
    }
}
