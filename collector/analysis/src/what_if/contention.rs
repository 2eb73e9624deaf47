//! Separates segments that exclude each other because of a lock from segments that merely happened
//! never to overlap. Short segments may simply never have met.

use super::sample::WaitingSample;
use crate::label::SegmentId;
use crate::segment::{Segment, interval_ns};
use rustc_hash::FxHashMap;

/// Minimum number of requests in which one segment of a pair closely followed the other, for each
/// of the two orders.
const CLOSE_MIN: usize = 12;

/// Returns the pairs whose segments came close to each other, in both orders, so often that they
/// would have overlapped if they could.
///
/// For two unrelated segments, the distance between their starts has about the same density near an
/// overlap as inside one. If each followed the other within the sum of their lengths `CLOSE_MIN`
/// times, about as many overlaps are expected. The probability of no overlap at all is then about
/// e^-12 or less.
pub(super) fn contended(
    sample: &WaitingSample,
    pairs: &[(SegmentId, SegmentId)],
) -> Vec<(SegmentId, SegmentId)> {
    let mut close = vec![[0usize; 2]; pairs.len()];
    for trace in sample.spread() {
        let mut of_label: FxHashMap<SegmentId, Vec<&Segment>> = FxHashMap::default();
        for segment in &trace.segments {
            of_label.entry(segment.id).or_default().push(segment);
        }
        let of = |id: &SegmentId| of_label.get(id).into_iter().flatten().copied();
        for ((a, b), close) in pairs.iter().zip(&mut close) {
            let mut is_close = [false; 2];
            of(a).for_each(|a| of(b).for_each(|b| note(a, b, &mut is_close)));
            close
                .iter_mut()
                .zip(is_close)
                .for_each(|(times, is_close)| *times += usize::from(is_close));
        }
    }
    let both = close.into_iter().map(|[ab, ba]| ab.min(ba) >= CLOSE_MIN);
    pairs
        .iter()
        .zip(both)
        .filter_map(|(pair, contended)| contended.then_some(*pair))
        .collect()
}

fn note(a: &Segment, b: &Segment, is_close: &mut [bool; 2]) {
    let reach_ns = a.duration_ns().saturating_add(b.duration_ns());
    let follows = |first: &Segment, second: &Segment| {
        second.start_ns >= first.end_ns && interval_ns(first.end_ns, second.start_ns) <= reach_ns
    };
    is_close[0] |= follows(a, b);
    is_close[1] |= follows(b, a);
}
