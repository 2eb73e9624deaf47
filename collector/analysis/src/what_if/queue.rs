//! Queues that requests share, for a limited number of workers, connections or locks.
//!
//! One request does not show that it waits for another request, but many requests together do. Two
//! kinds of queues are recognised:
//!
//! * **A visit begins when a place is free.** No more than `k` visits ever ran at once, although so
//!   many came that this is not chance. More visits than by chance began as another visit ended.
//! * **A visit begins when it is requested**, and waits inside. Its turn comes once all but `k - 1`
//!   of the earlier visits have ended. A visit almost never ends before its turn. If its turn comes
//!   later, it ends later by as much. Its work after its turn is as long as the work of visits that
//!   did not wait.
//!
//! Both kinds assume first-come, first-served order. Requests that were not recorded also occupy
//! places, so usually neither kind is found if such requests exist.

use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Minimum number of visits of one kind, such as visits that waited, that count as evidence.
const WAITS_MIN: usize = 20;
/// Minimum number of visits that would be expected to begin while all places were taken, if there
/// were more places.
const TURNED_AWAY_MIN: f64 = 12.0;
/// Minimum ratio of the number of handovers of a place to the number expected by chance.
const OVER_CHANCE_MIN: f64 = 4.0;
/// Maximum time of a handover, as a fraction of the mean visit. The next constant is its maximum in
/// nanoseconds.
const HANDOVER_SHARE: f64 = 0.05;
const HANDOVER_MAX_NS: f64 = 200_000.0;
/// Maximum number of places of a queue in which visits wait inside.
const PLACES_MAX: usize = 32;
/// At most one in this many visits may end before its turn.
const EARLY_ONE_IN: usize = 500;
/// Number of times that the arrival of each visit that waited is redrawn.
const SWEEPS: usize = 8;

/// Position of a visit's wait relative to the visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WaitPlace {
    /// At the end of the segment that leads to the visit.
    End,
    /// Before the first segment of the visit, in no segment.
    Before,
    /// At the start of the first segment of the visit.
    Start,
}

/// A request's use of a resource that other requests may also use.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    /// Index of the request in the waiting sample; in `SharedQueues`, the index in its `traces`.
    pub(super) request: usize,
    /// Number of the task of the visit's span.
    pub(super) task: u32,
    pub(super) place: WaitPlace,
    /// Index of the segment that `place` refers to.
    pub(super) segment: usize,
    /// Index of the first segment of the visit; `last` is the index of its last segment.
    pub(super) first: usize,
    pub(super) last: usize,
    /// True if the first segment belongs to the visit's span; false if it belongs to a span below
    /// the visit's span.
    pub(super) has_own_first: bool,
    /// Earliest instant at which the visit can have requested its turn, nanoseconds since the Unix
    /// epoch.
    pub(super) asked_ns: i64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// Time that the visit waited for its turn, in nanoseconds.
    pub(super) wait_ns: u64,
}

impl Visit {
    fn order(&self) -> (i64, usize, usize) {
        (self.start_ns, self.request, self.segment)
    }

    /// Returns the time to reach the queue plus the wait there, in nanoseconds.
    fn approach_ns(&self) -> u64 {
        self.start_ns.abs_diff(self.asked_ns)
    }
}

/// A queue with its visits, in order of start.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) places: usize,
    pub(super) visits: Vec<Visit>,
    /// Number of visits that took over a place from another visit, or that waited inside.
    pub(super) waited: usize,
}

impl Queue {
    /// Finds a queue in which visits wait before they begin; `None` if there is none.
    pub(super) fn before_visits(mut visits: Vec<Visit>) -> Option<Queue> {
        visits.sort_by_key(Visit::order);
        let places = most_at_once(&visits);
        let count = visits.len() as f64;
        let mean_ns = visits
            .iter()
            .map(|v| v.end_ns.abs_diff(v.start_ns) as f64)
            .sum::<f64>()
            / count;
        let handover_ns = (mean_ns * HANDOVER_SHARE).min(HANDOVER_MAX_NS);
        let mut running: BinaryHeap<Reverse<i64>> = BinaryHeap::new();
        let (mut full_ns, mut releases) = (0.0, 0usize);
        // For each visit, the time at which the place that it took over was released; `None` if it
        // took over none.
        let mut taken_over = vec![None; visits.len()];
        for (visit, taken_over) in visits.iter().zip(&mut taken_over) {
            while let Some(Reverse(end_ns)) = running.peek().copied()
                && end_ns <= visit.start_ns
            {
                if running.len() == places {
                    releases += 1;
                    let is_handover = visit.asked_ns < end_ns
                        && visit.start_ns.abs_diff(end_ns) as f64 <= handover_ns;
                    *taken_over = is_handover.then_some(end_ns);
                }
                running.pop();
            }
            running.push(Reverse(visit.end_ns));
            if running.len() == places
                && let Some(Reverse(next_ns)) = running.peek()
            {
                full_ns += next_ns.abs_diff(visit.start_ns) as f64;
            }
        }
        let [first, .., last] = visits.as_slice() else {
            return None;
        };
        let rate = count / last.start_ns.abs_diff(first.start_ns).max(1) as f64;
        let waited = taken_over.iter().flatten().count();
        let by_chance = releases as f64 * (rate * handover_ns).min(1.0);
        if waited < WAITS_MIN
            || rate * full_ns < TURNED_AWAY_MIN
            || (waited as f64) < OVER_CHANCE_MIN * by_chance
        {
            return None;
        }
        let mut queue = Queue {
            places,
            visits,
            waited,
        };
        queue.part_approaches(&taken_over);
        Some(queue)
    }

    /// Returns the total length of the queue's visits, in nanoseconds.
    pub(super) fn total_ns(&self) -> u64 {
        let lengths = self.visits.iter().map(|v| v.end_ns.abs_diff(v.start_ns));
        lengths.fold(0, u64::saturating_add)
    }

    /// Reports whether at least `WAITS_MIN` visits of the other queue waited and lie inside visits
    /// of this queue by the same requests.
    pub(super) fn encloses(&self, other: &Queue) -> bool {
        let mut of_request: FxHashMap<usize, Vec<&Visit>> = FxHashMap::default();
        for visit in &self.visits {
            of_request.entry(visit.request).or_default().push(visit);
        }
        let is_inside = |inner: &&Visit| {
            of_request.get(&inner.request).is_some_and(|outer| {
                outer
                    .iter()
                    .any(|outer| outer.start_ns <= inner.start_ns && inner.end_ns <= outer.end_ns)
            })
        };
        other
            .visits
            .iter()
            .filter(|v| v.wait_ns > 0)
            .filter(is_inside)
            .count()
            >= WAITS_MIN
    }

    /// Divides the time before each visit that waited into the approach to the queue and the wait.
    /// Approaches are drawn from those of visits that did not wait, if any fits. A visit reached
    /// the queue between the visits that were served before and after it. Each arrival is therefore
    /// redrawn several times, between its neighbours.
    fn part_approaches(&mut self, taken_over: &[Option<i64>]) {
        let mut ways: Vec<u64> = self
            .visits
            .iter()
            .zip(taken_over)
            .filter(|(_, taken_over)| taken_over.is_none())
            .map(|(visit, _)| visit.approach_ns())
            .collect();
        ways.sort_unstable();
        let mut came_ns: Vec<i64> = self.visits.iter().map(|visit| visit.start_ns).collect();
        let mut next_ns = i64::MAX;
        for (index, taken_over) in taken_over.iter().enumerate().rev() {
            if let Some(end_ns) = taken_over {
                came_ns[index] = (*end_ns).min(next_ns).max(self.visits[index].asked_ns);
            }
            next_ns = came_ns[index];
        }
        let mut draw = 0u64;
        for index in (0..SWEEPS).flat_map(|_| 0..self.visits.len()) {
            let Some(end_ns) = taken_over[index] else {
                continue;
            };
            let asked_ns = self.visits[index].asked_ns;
            let before_ns = index
                .checked_sub(1)
                .map_or(asked_ns, |before| came_ns[before]);
            let after_ns = came_ns.get(index + 1).copied().unwrap_or(end_ns);
            let least_ns = before_ns.max(asked_ns).min(end_ns);
            let most_ns = after_ns.min(end_ns).max(least_ns);
            let range = ways.partition_point(|way| *way < least_ns.abs_diff(asked_ns))
                ..ways.partition_point(|way| *way <= most_ns.abs_diff(asked_ns));
            draw = draw.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (draw ^ (draw >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33;
            came_ns[index] = match range.len() as u64 {
                0 => least_ns + (most_ns.abs_diff(least_ns) / 2) as i64,
                count => {
                    asked_ns.saturating_add_unsigned(ways[range.start + (mixed % count) as usize])
                }
            };
        }
        for (visit, came_ns) in self.visits.iter_mut().zip(came_ns) {
            visit.wait_ns = visit.start_ns.abs_diff(came_ns.min(visit.start_ns));
        }
    }

    /// Finds a queue in which visits wait after they have begun; `None` if there is none.
    pub(super) fn inside_visits(mut visits: Vec<Visit>) -> Option<Queue> {
        visits.sort_by_key(Visit::order);
        if visits.len() < 2 * WAITS_MIN || !visits.iter().all(|visit| visit.has_own_first) {
            return None;
        }
        let never_early = |places: &usize| {
            let mut early = 0;
            let mut turns = Turns::new(*places);
            visits.iter().all(|visit| {
                let wait_ns = turns.wait_ns(visit.start_ns);
                turns.take(visit.end_ns);
                early +=
                    usize::from(visit.end_ns < visit.start_ns.saturating_add_unsigned(wait_ns));
                early <= visits.len() / EARLY_ONE_IN
            })
        };
        let least = (1..=PLACES_MAX).find(never_early)?;
        // If all visits take equally long, none overtakes another, however many places there are.
        let most = most_at_once(&visits).min(PLACES_MAX);
        (least..=most).find_map(|places| Queue::waiting_inside(&visits, places))
    }

    fn waiting_inside(visits: &[Visit], places: usize) -> Option<Queue> {
        let mut turns = Turns::new(places);
        let mut queue = Queue {
            places,
            visits: visits.to_vec(),
            waited: 0,
        };
        for visit in &mut queue.visits {
            visit.place = WaitPlace::Start;
            visit.segment = visit.first;
            visit.wait_ns = turns
                .wait_ns(visit.start_ns)
                .min(visit.end_ns.abs_diff(visit.start_ns));
            turns.take(visit.end_ns);
        }
        queue.waited = queue.visits.iter().filter(|v| v.wait_ns > 0).count();
        queue.follows().then_some(queue)
    }

    /// Reports whether the visits behave as in a queue. They must end later by as much as their
    /// turn comes later, and their work after the turn must be as long as that of visits that did
    /// not wait.
    fn follows(&self) -> bool {
        let (mut waited, mut others) = (Vec::new(), Vec::new());
        for visit in &self.visits {
            let length_ns = visit.end_ns.abs_diff(visit.start_ns) as f64;
            if visit.wait_ns > 0 {
                waited.push((visit.wait_ns as f64, length_ns - visit.wait_ns as f64));
            } else {
                others.push(length_ns);
            }
        }
        if waited.len() < WAITS_MIN || others.len() < WAITS_MIN {
            return false;
        }
        let mean = |values: &mut dyn Iterator<Item = f64>| {
            let (count, sum, squares) =
                values.fold((0.0, 0.0, 0.0), |(n, s, q), v| (n + 1.0, s + v, q + v * v));
            let mean = sum / count;
            (mean, (squares / count - mean * mean).max(0.0), count)
        };
        let (wait_ns, wait_variance, count) = mean(&mut waited.iter().map(|(wait, _)| *wait));
        let (work_ns, work_variance, _) = mean(&mut waited.iter().map(|(_, work)| *work));
        let (usual_ns, usual_variance, usual_count) = mean(&mut others.iter().copied());
        let both = waited
            .iter()
            .map(|(wait, work)| (wait - wait_ns) * (work - work_ns))
            .sum::<f64>()
            / count;
        // The work after the turn must not depend on the wait: the slope is close to 0, and
        // certainly not -1.
        let slope = both / wait_variance;
        let slope_error = (work_variance / wait_variance / count).sqrt();
        let error = (work_variance / count + usual_variance / usual_count).sqrt();
        slope.abs() <= 3.0 * slope_error.max(0.03)
            && slope_error <= 0.15
            && (work_ns - usual_ns).abs() <= (4.0 * error).max(0.1 * usual_ns)
    }
}

/// Returns the maximum number of visits that ran at once. The visits must be in order of start.
fn most_at_once(visits: &[Visit]) -> usize {
    let mut running: BinaryHeap<Reverse<i64>> = BinaryHeap::new();
    let mut most = 0;
    for visit in visits {
        while running
            .peek()
            .is_some_and(|Reverse(end_ns)| *end_ns <= visit.start_ns)
        {
            running.pop();
        }
        running.push(Reverse(visit.end_ns));
        most = most.max(running.len());
    }
    most
}

/// Places of a queue that serves visits in order of arrival.
pub(super) struct Turns {
    places: usize,
    /// Times at which the occupied places become free.
    free_ns: BinaryHeap<Reverse<i64>>,
}

impl Turns {
    pub(super) fn new(places: usize) -> Turns {
        Turns {
            places,
            free_ns: BinaryHeap::with_capacity(places + 1),
        }
    }

    /// Returns the wait of a visit that arrives at `at_ns`, in nanoseconds. All earlier visits must
    /// have taken their places.
    pub(super) fn wait_ns(&self, at_ns: i64) -> u64 {
        match self.free_ns.peek() {
            Some(Reverse(free_ns)) if self.free_ns.len() == self.places && *free_ns > at_ns => {
                free_ns.abs_diff(at_ns)
            }
            _ => 0,
        }
    }

    /// Occupies a free place, or else the one that becomes free first, until `until_ns`.
    pub(super) fn take(&mut self, until_ns: i64) {
        self.free_ns.push(Reverse(until_ns));
        if self.free_ns.len() > self.places {
            self.free_ns.pop();
        }
    }
}
