//! Finds segments that take longer under load, although no queue that explains this was found.
//!
//! Possible causes are shared processors, queues that are not first-come, first-served, or several
//! servers behind one name. Each visit is a span of its operation. A straight line through the
//! lengths of segments, or of the times before visits, over the number of concurrent visits,
//! estimates the part of a length that is due to other visits. After a change, that part may be
//! zero or larger than before, so it gives bounds for the prediction.

use super::queue::{Visit, WaitPlace};
use crate::label::SegmentId;
use crate::segment::Segment;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Minimum number of visits for an estimate.
const VISITS_MIN: usize = 50;
/// Minimum slope, in standard errors, of segments that depend on load.
const ERRORS_MIN: f64 = 4.0;
/// Factor by which the line may underestimate the share that is due to load.
const SHARE_UNSURE: f64 = 1.5;
/// Maximum utilization of a server that is considered possible, 0 to 1.
const BUSY_MAX: f64 = 0.98;

/// Share (0 to 1) of the length of each label's segments that is due to load, with the visited
/// service.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    shares: FxHashMap<SegmentId, (f64, Arc<str>)>,
}

impl Load {
    /// Estimates the share due to load of the time before visits of one operation, and of the
    /// visits' segments that `own` selects. `own` and `segment` use indices into the segments of a
    /// visit's request.
    pub(super) fn observe<'a>(
        &mut self,
        service: &Arc<str>,
        visits: &mut [Visit],
        segment: impl Fn(&Visit, usize) -> &'a Segment,
        own: impl Fn(&Visit) -> Vec<usize>,
    ) {
        if visits.len() < VISITS_MIN {
            return;
        }
        visits.sort_by_key(|visit| visit.asked_ns);
        let mut running: BinaryHeap<Reverse<i64>> = BinaryHeap::new();
        let (mut ways, mut stays) = (Vec::new(), Vec::new());
        let (mut of_ways, mut of_stays) = (FxHashSet::default(), FxHashSet::default());
        for visit in visits.iter() {
            while running
                .peek()
                .is_some_and(|Reverse(end_ns)| *end_ns <= visit.asked_ns)
            {
                running.pop();
            }
            let others = running.len() as f64;
            running.push(Reverse(visit.end_ns));
            ways.push((others, visit.start_ns.abs_diff(visit.asked_ns) as f64));
            if visit.place == WaitPlace::End {
                of_ways.insert(segment(visit, visit.segment).id);
            }
            let mut own_ns = 0;
            for index in own(visit) {
                own_ns += segment(visit, index).duration_ns();
                of_stays.insert(segment(visit, index).id);
            }
            stays.push((others, own_ns as f64));
        }
        for (points, labels) in [(ways, of_ways), (stays, of_stays)] {
            let Some(share) = share(&points) else {
                continue;
            };
            let all = labels.into_iter().map(|id| (id, (share, service.clone())));
            self.shares.extend(all);
        }
    }

    /// Removes labels whose waits are already explained.
    pub(super) fn leave_out(&mut self, labels: &FxHashSet<SegmentId>) {
        self.shares.retain(|id, _| !labels.contains(id));
    }

    /// Returns the labels whose segments take longer under load on one of these services, each with
    /// the share of their length that is due to load.
    pub(super) fn of_services<'a>(
        &'a self,
        services: &'a FxHashSet<&str>,
    ) -> impl Iterator<Item = (SegmentId, f64)> + 'a {
        let is_one =
            |(_, (_, service)): &(&SegmentId, &(f64, Arc<str>))| services.contains(&**service);
        self.shares
            .iter()
            .filter(is_one)
            .map(|(id, (share, _))| (*id, *share))
    }
}

/// Returns the minimum and maximum new length, in nanoseconds, of a segment that was `ns` long.
/// `share` of it is due to load, the length of visits changes by `factor`, and `changed` returns
/// the new length of work.
pub(super) fn bounds(ns: u64, share: f64, factor: f64, changed: impl Fn(u64) -> u64) -> (u64, u64) {
    let by_load_ns = ns as f64 * share;
    let (work_ns, kept_ns) = (changed(ns - by_load_ns as u64), changed(ns));
    if factor <= 1.0 {
        return (work_ns.min(kept_ns), kept_ns.max(work_ns));
    }
    // At most, the part becomes twice as long as waits for a single server would.
    let grown_ns = by_load_ns * 2.0 * growth(share, factor);
    (
        kept_ns,
        kept_ns.max(work_ns.saturating_add(grown_ns as u64)),
    )
}

/// Returns the factor by which waits for a server with utilization `busy` grow if the length of its
/// work changes by `factor`.
fn growth(busy: f64, factor: f64) -> f64 {
    let busy = busy.min(BUSY_MAX / factor);
    factor * factor * (1.0 - busy) / (1.0 - factor * busy)
}

/// Returns the share of the lengths that a line attributes to concurrent visits, times
/// `SHARE_UNSURE`, at most 1; `None` unless it is significant. Each point has the number of
/// concurrent visits and the length.
fn share(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|p| p.0), mean(|p| p.1));
    let (mut of_x, mut of_y, mut both) = (0.0, 0.0, 0.0);
    for (x, y) in points {
        let (dx, dy) = (x - mean_x, y - mean_y);
        of_x += dx * dx;
        of_y += dy * dy;
        both += dx * dy;
    }
    if of_x <= 0.0 || mean_y <= 0.0 {
        return None;
    }
    let slope = both / of_x;
    let error = ((of_y - slope * both).max(0.0) / count / of_x).sqrt();
    (slope > ERRORS_MIN * error).then(|| (SHARE_UNSURE * slope * mean_x / mean_y).min(1.0))
}
