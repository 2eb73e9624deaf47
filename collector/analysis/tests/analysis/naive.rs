//! The obvious double loop over all pairs of instances: the twin of the sweep.

use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::PairCounts;
use stroboscope_analysis::segment::SegmentedTrace;

/// Counts all pairs of `labels` labels as [`Model::pairs`](stroboscope_analysis::model::Model::pairs) does.
pub(crate) fn pairs(traces: &[SegmentedTrace], labels: usize) -> Vec<PairCounts> {
    let mut counts = vec![[0u64; 3]; labels * labels];
    for trace in traces {
        let mut answers = vec![[false; 3]; labels * labels];
        for (i, a) in trace.segments.iter().enumerate() {
            for (_, b) in trace.segments.iter().enumerate().filter(|(j, _)| *j != i) {
                let answer = &mut answers[a.id.index() * labels + b.id.index()];
                answer[0] = true;
                answer[1] |= a.id != b.id && b.start_ns < a.end_ns;
                answer[2] |= a.start_ns < b.end_ns && b.start_ns < a.end_ns;
            }
        }
        for (counts, answer) in counts.iter_mut().zip(answers) {
            for (count, yes) in counts.iter_mut().zip(answer) {
                *count += u64::from(yes);
            }
        }
    }
    let numbered = counts.iter().enumerate().filter(|(_, counts)| counts[0] > 0);
    numbered
        .map(|(at, [cooccurrences, contradictions, overlaps])| PairCounts {
            a: SegmentId((at / labels) as u32),
            b: SegmentId((at % labels) as u32),
            cooccurrences: *cooccurrences,
            contradictions: *contradictions,
            overlaps: *overlaps,
        })
        .collect()
}
