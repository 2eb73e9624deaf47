//! Measures the lengths and ends of the segments of each label.

use super::follows::POINTS_MIN;
use super::sample::WaitingSample;
use crate::segment::interval_ns;

/// Maximum standard deviation of ends that count as equal, relative to their mean.
const SAME_END: f64 = 1e-3;

/// Statistics of a label's segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LabelTimes {
    pub(super) count: u32,
    pub(super) mean_ns: f64,
    /// True if there are at least `POINTS_MIN` segments, and they always end at nearly the same
    /// time after the request's start. Work and waiting are then indistinguishable.
    pub(super) undecided: bool,
    /// True if any of the segments ended after its request's answer. Answers then do not wait for
    /// this label.
    pub(super) outlasts: bool,
}

/// Measures each label's segments in the requests of [`WaitingSample::spread`].
pub(super) fn shown(sample: &WaitingSample, labels: usize) -> Vec<LabelTimes> {
    let mut all = vec![LabelTimes::default(); labels];
    let mut ends = vec![(0.0, 0.0); labels];
    for trace in sample.spread() {
        for segment in &trace.segments {
            let label = segment.id.index();
            let Some(shown) = all.get_mut(label) else {
                continue;
            };
            shown.count += 1;
            shown.outlasts |= segment.end_ns > trace.answer_ns;
            let part = 1.0 / f64::from(shown.count);
            shown.mean_ns += (segment.duration_ns() as f64 - shown.mean_ns) * part;
            let end_ns = interval_ns(trace.start_ns, segment.end_ns) as f64;
            let (mean_ns, squares) = &mut ends[label];
            let off_ns = end_ns - *mean_ns;
            *mean_ns += off_ns * part;
            *squares += off_ns * (end_ns - *mean_ns);
        }
    }
    for (shown, (mean_ns, squares)) in all.iter_mut().zip(ends) {
        let spread_ns = (squares / f64::from(shown.count.max(1))).sqrt();
        shown.undecided = shown.count as usize >= POINTS_MIN && spread_ns <= SAME_END * mean_ns;
    }
    all
}
