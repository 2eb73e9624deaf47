//! Finds one-off events, which are not effects of the tested change (Ardelean et al., NSDI 2018,
//! §3.2: "a one-off event … that renders the comparison invalid").

use super::ExperimentRequest;
use crate::statistics::median;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Distance from the median, as [`Robust::away`] measures it, that is unusual.
const APART: f64 = 5.0;
/// Number of time slots of an experiment.
const SLOTS: usize = 48;
/// Minimum number of slots with enough requests. With fewer, no one-off event is found.
const SLOTS_MIN: usize = 8;
/// Minimum mean number of requests per side in a slot. Slots with fewer are ignored. Also the
/// minimum number on each side for comparing the mix of operations of a slot.
const REQUESTS_MIN: usize = 8;

/// Kind of one-off event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneOff {
    /// Both sides were much slower, or much faster, than usual. The load is the likely cause.
    Both,
    /// One side had a far larger or smaller share of the requests than usual.
    ShareOfTest,
    /// The difference between the sides' mixes of operations was unusual.
    MixOfTest,
}

/// A time span that is excluded from the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOutTime {
    /// Start of the time span, in nanoseconds since the Unix epoch. The span contains the requests
    /// that start in it.
    pub from_ns: i64,
    /// End of the time span, exclusive, in nanoseconds since the Unix epoch.
    pub to_ns: i64,
    /// Reason for excluding the time span.
    pub why: OneOff,
    /// Number of requests in the time span.
    pub requests: usize,
}

/// A request of an experiment, with its start time and operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedRequest {
    /// Start time in nanoseconds since the Unix epoch.
    pub at_ns: i64,
    /// Number of the request's operation, in any numbering.
    pub operation: u32,
    /// The request's side, unit, burst and latency.
    pub observed: ExperimentRequest,
}

/// Finds time spans with a [`OneOff`] event. Divides the time into 48 equal slots, and compares
/// each slot with enough requests with the median over these slots.
pub fn one_offs(requests: &[TimedRequest]) -> Vec<LeftOutTime> {
    let began = requests.iter().map(|one| one.at_ns);
    let (Some(first), Some(last)) = (began.clone().min(), began.max()) else {
        return Vec::new();
    };
    let length_ns = (last.saturating_sub(first) / SLOTS as i64).saturating_add(1);
    let operations = frequent(requests);
    let mut sides = vec![[Side::default(), Side::default()]; SLOTS];
    for one in requests {
        let slot = (one.at_ns.saturating_sub(first) / length_ns) as usize;
        let side = &mut sides[slot.min(SLOTS - 1)][usize::from(one.observed.is_test)];
        side.latencies.push(one.observed.latency_ns);
        let known = operations.iter().position(|known| *known == one.operation);
        if let Some(place) = known {
            side.operations[place] += 1;
        }
    }
    let sides = sides.into_iter().enumerate();
    let slots = sides.filter_map(|(place, sides)| Slot::of(place, sides));
    let slots: Vec<Slot> = slots.collect();
    if slots.len() < SLOTS_MIN {
        return Vec::new();
    }
    let control = Robust::of(slots.iter().map(|slot| slot.medians[0]));
    let test = Robust::of(slots.iter().map(|slot| slot.medians[1]));
    let share = Robust::of(slots.iter().map(|slot| slot.share));
    let mixes = std::array::from_fn(|place| Robust::of(slots.iter().map(|slot| slot.mix[place].0)));
    let left_out = slots.iter().filter_map(|slot| {
        let own = (share.middle * (1.0 - share.middle) / slot.requests as f64).sqrt();
        let [of_control, of_test] = slot.medians;
        let of_sides = [control.away(of_control, 0.0), test.away(of_test, 0.0)];
        let why = if share.away(slot.share, own).abs() > APART {
            OneOff::ShareOfTest
        } else if slot.has_other_mix(&mixes) {
            OneOff::MixOfTest
        } else if of_sides.iter().all(|away| *away > APART)
            || of_sides.iter().all(|away| *away < -APART)
        {
            OneOff::Both
        } else {
            return None;
        };
        let from_ns = first.saturating_add(length_ns.saturating_mul(slot.place as i64));
        Some(LeftOutTime {
            from_ns,
            to_ns: from_ns.saturating_add(length_ns),
            why,
            requests: slot.requests,
        })
    });
    left_out.collect()
}

/// Maximum number of operations whose shares are compared: the most frequent ones.
const OPERATIONS: usize = 4;

fn frequent(requests: &[TimedRequest]) -> Vec<u32> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for one in requests {
        *counts.entry(one.operation).or_default() += 1;
    }
    let mut found: Vec<(u32, usize)> = counts.into_iter().collect();
    found.sort_unstable_by_key(|(operation, count)| Reverse((*count, *operation)));
    let found = found.into_iter().take(OPERATIONS);
    found.map(|(operation, _)| operation).collect()
}

/// Requests of one side in one slot.
#[derive(Clone, Debug, Default)]
struct Side {
    latencies: Vec<u64>,
    operations: [usize; OPERATIONS],
}

impl Side {
    fn part(&self, place: usize) -> f64 {
        self.operations[place] as f64 / self.latencies.len().max(1) as f64
    }
}

struct Slot {
    place: usize,
    requests: usize,
    /// Share of the slot's requests that are on the test side.
    share: f64,
    /// Logarithms of the medians of control and test. An empty side has the other's median.
    medians: [f64; 2],
    /// For each of the most frequent operations, the result of [`mix`].
    mix: [(f64, f64); OPERATIONS],
}

impl Slot {
    fn of(place: usize, sides: [Side; 2]) -> Option<Slot> {
        let mix = std::array::from_fn(|place| mix(&sides, place));
        let mut sides = sides.map(|side| side.latencies);
        let [control, test] = [sides[0].len(), sides[1].len()];
        if control + test < 2 * REQUESTS_MIN {
            return None;
        }
        let share = test as f64 / (control + test) as f64;
        // The slot's `share` reveals a side without requests.
        let median = |side: &mut Vec<u64>| {
            let middle = side.len() / 2;
            (!side.is_empty()).then(|| (*side.select_nth_unstable(middle).1).max(1) as f64)
        };
        let [control_ns, test_ns] = [median(&mut sides[0]), median(&mut sides[1])];
        let of = |own: Option<f64>, other: Option<f64>| own.or(other).unwrap_or(1.0).ln();
        Some(Slot {
            place,
            requests: control + test,
            share,
            medians: [of(control_ns, test_ns), of(test_ns, control_ns)],
            mix,
        })
    }

    fn has_other_mix(&self, usual: &[Robust; OPERATIONS]) -> bool {
        let away = |(of, usual): (&(f64, f64), &Robust)| usual.away(of.0, of.1).abs() > APART;
        self.mix.iter().zip(usual).any(away)
    }
}

/// Returns the share of an operation in the test's requests minus its share in the control's, and
/// the standard error of this difference. If a side has fewer than [`REQUESTS_MIN`] requests, the
/// difference is 0 and the error 1.
fn mix(sides: &[Side; 2], place: usize) -> (f64, f64) {
    let [control, test] = [&sides[0], &sides[1]];
    let counts = [control.latencies.len() as f64, test.latencies.len() as f64];
    if counts.iter().any(|count| *count < REQUESTS_MIN as f64) {
        return (0.0, 1.0);
    }
    let runs = control.operations[place] + test.operations[place];
    let both = runs as f64 / (counts[0] + counts[1]);
    let own = (both * (1.0 - both) * (1.0 / counts[0] + 1.0 / counts[1])).sqrt();
    (test.part(place) - control.part(place), own)
}

/// Median, and the standard deviation of a normal distribution with the same median absolute
/// deviation.
struct Robust {
    middle: f64,
    deviation: f64,
}

impl Robust {
    fn of(values: impl Iterator<Item = f64>) -> Robust {
        let values: Vec<f64> = values.collect();
        let middle = median(values.clone()).unwrap_or_default();
        let deviations = values.iter().map(|value| (value - middle).abs()).collect();
        let deviation = median(deviations).unwrap_or_default();
        Robust {
            middle,
            deviation: deviation * 1.4826,
        }
    }

    /// Returns the signed distance of a value from the median, in units of the deviation. The unit
    /// is at least `least` and at least 0.01.
    fn away(&self, value: f64, least: f64) -> f64 {
        (value - self.middle) / self.deviation.max(least).max(0.01)
    }
}
