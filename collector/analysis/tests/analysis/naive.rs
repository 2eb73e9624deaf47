//! Naive double loop over all pairs of instances, with which the sweep is compared.

use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::PairCounts;
use stroboscope_analysis::segment::{Segment, SegmentedTrace};

/// Counts all pairs of `labels` labels as
/// [`Model::pairs`](stroboscope_analysis::model::Model::pairs) does.
pub(crate) fn pairs(traces: &[SegmentedTrace], labels: usize) -> Vec<PairCounts> {
    let mut counts = vec![[0u64; 3]; labels * labels];
    for trace in traces {
        let mut answers = vec![[false; 3]; labels * labels];
        for (i, a) in trace.segments.iter().enumerate() {
            for (_, b) in trace.segments.iter().enumerate().filter(|(j, _)| *j != i) {
                let answer = &mut answers[a.id.index() * labels + b.id.index()];
                answer[0] = true;
                let surely = |x: &Segment, y: &Segment| starts_before_end(trace, x, y);
                answer[1] |= a.id != b.id && surely(b, a);
                answer[2] |= surely(a, b) && surely(b, a);
            }
        }
        for (counts, answer) in counts.iter_mut().zip(answers) {
            for (count, yes) in counts.iter_mut().zip(answer) {
                *count += u64::from(yes);
            }
        }
    }
    let numbered = counts
        .iter()
        .enumerate()
        .filter(|(_, counts)| counts[0] > 0);
    numbered
        .map(
            |(at, [cooccurrences, contradictions, overlaps])| PairCounts {
                a: SegmentId((at / labels) as u32),
                b: SegmentId((at % labels) as u32),
                cooccurrences: *cooccurrences,
                contradictions: *contradictions,
                overlaps: *overlaps,
            },
        )
        .collect()
}

/// Reports whether `x` certainly starts before `y` ends: because one thread recorded both in this
/// order, or because a timestamp of `x` is certainly before one of `y`.
fn starts_before_end(trace: &SegmentedTrace, x: &Segment, y: &Segment) -> bool {
    if x.step.is_with(y.step) {
        return x.step.is_before(y.step);
    }
    let (x, y) = (trace.as_recorded(x), trace.as_recorded(y));
    let of_x = [(x.start_ns, x.start_clock), (x.end_ns, x.end_clock)];
    let of_y = [(y.start_ns, y.start_clock), (y.end_ns, y.end_clock)];
    of_x.iter().any(|(x_ns, x_clock)| {
        of_y.iter().any(|(y_ns, y_clock)| {
            i128::from(*x_ns) + i128::from(trace.tolerance_ns(*x_clock, *y_clock))
                < i128::from(*y_ns)
        })
    })
}
