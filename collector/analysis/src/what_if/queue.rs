//! Queues that requests share: workers, connections and locks of which there are so many, for all requests.
//!
//! A request does not say that it waits for another one, but many requests together do. Two kinds of queues are told:
//!
//! * **A visit begins when a place is free.** No more than `k` visits ever ran at once, although so many requests came while
//!   `k` did that chance does not explain it, and visits began the moment another one ended.
//! * **A visit begins when it is asked for**, and waits inside. Then it can go on once all but `k - 1` of those that came
//!   earlier have ended, never ends before that, and the later that is, the later it ends; what it does after is as
//!   long as that of visits that did not wait.
//!
//! Both take for granted that whoever comes first is served first. Requests that were not recorded hold places as well: where
//! a part of them is missing, neither kind is found.

use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Fewer waits prove no queue.
const WAITS_MIN: usize = 20;
/// So many visits should have begun while all places were taken, if there were more places.
const TURNED_AWAY_MIN: f64 = 12.0;
/// Handovers of a place are so many times more than by chance.
const OVER_CHANCE_MIN: f64 = 4.0;
/// A place is handed over within this part of the mean visit, and within so long.
const HANDOVER_SHARE: f64 = 0.05;
const HANDOVER_MAX_NS: f64 = 200_000.0;
/// Queues of more places are not looked for where visits wait inside.
const PLACES_MAX: usize = 32;
/// One in so many visits may end before it could.
const EARLY_ONE_IN: usize = 500;
/// So often the instants are drawn anew at which visits came to a queue.
const SWEEPS: usize = 8;

/// Where the waiting of a visit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WaitPlace {
    /// At the end of the segment that leads to the visit.
    End,
    /// Before the first segment of the visit, in no segment.
    Before,
    /// At the start of the first segment of the visit.
    Start,
}

/// A request's stay at something that others may use as well.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    /// The request, by its place in the sample.
    pub(super) request: usize,
    /// The span's task.
    pub(super) task: u32,
    pub(super) place: WaitPlace,
    /// The segment that `place` is about.
    pub(super) segment: usize,
    /// The first segment of the visit, and the last.
    pub(super) first: usize,
    pub(super) last: usize,
    /// Whether the first one is its own, and not of a span below.
    pub(super) has_own_first: bool,
    /// The earliest instant at which its turn can have been asked for.
    pub(super) asked_ns: i64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// How long it waited for its turn.
    pub(super) wait_ns: u64,
}

impl Visit {
    fn order(&self) -> (i64, usize, usize) {
        (self.start_ns, self.request, self.segment)
    }

    /// How long it took to come to the queue, and to wait there.
    fn approach_ns(&self) -> u64 {
        self.start_ns.abs_diff(self.asked_ns)
    }
}

/// A queue with its visits, in order of their starts.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) places: usize,
    pub(super) visits: Vec<Visit>,
    /// How many of them waited.
    pub(super) waited: usize,
}

impl Queue {
    /// A queue that visits wait in before they begin, if there is one.
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
        // For each visit, when the place was given up that it took over.
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

    /// How long its visits last, all together.
    pub(super) fn total_ns(&self) -> u64 {
        let lengths = self.visits.iter().map(|v| v.end_ns.abs_diff(v.start_ns));
        lengths.fold(0, u64::saturating_add)
    }

    /// Whether visits of the other queue wait inside those of this one.
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

    /// Parts the time before visits that waited into the way to the queue, which is as long as that of visits that did not,
    /// and the waiting. When a visit came to the queue lies between those served before and after it: each is drawn
    /// anew, given the others, a few times over.
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

    /// A queue that visits wait in after they have begun, if there is one.
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
        // Where all visits take equally long, none overtakes another one, however many places there are.
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

    /// Whether visits end later by as much as they could go on later, and take as long after that as those that did not
    /// wait.
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
        // The work after must not get shorter the longer the wait was: the slope is 0, and surely not -1.
        let slope = both / wait_variance;
        let slope_error = (work_variance / wait_variance / count).sqrt();
        let error = (work_variance / count + usual_variance / usual_count).sqrt();
        slope.abs() <= 3.0 * slope_error.max(0.03)
            && slope_error <= 0.15
            && (work_ns - usual_ns).abs() <= (4.0 * error).max(0.1 * usual_ns)
    }
}

/// The most visits that ran at once.
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

/// The places of a queue in which whoever comes first is served first.
pub(super) struct Turns {
    places: usize,
    /// When each place is free again.
    free_ns: BinaryHeap<Reverse<i64>>,
}

impl Turns {
    pub(super) fn new(places: usize) -> Turns {
        Turns {
            places,
            free_ns: BinaryHeap::with_capacity(places + 1),
        }
    }

    /// How long who comes now waits, after all that came before.
    pub(super) fn wait_ns(&self, at_ns: i64) -> u64 {
        match self.free_ns.peek() {
            Some(Reverse(free_ns)) if self.free_ns.len() == self.places && *free_ns > at_ns => {
                free_ns.abs_diff(at_ns)
            }
            _ => 0,
        }
    }

    /// Takes the place that is free first, until then.
    pub(super) fn take(&mut self, until_ns: i64) {
        self.free_ns.push(Reverse(until_ns));
        if self.free_ns.len() > self.places {
            self.free_ns.pop();
        }
    }
}
