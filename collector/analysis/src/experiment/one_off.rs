//! Times at which something happened that is not the change (004 §3.2: "a one-off event … that renders the comparison
//! invalid").

use super::Observed;

/// So far from the median, in robust standard deviations, is a time apart from all others.
const APART: f64 = 5.0;
/// Times that are told apart.
const SLOTS: usize = 48;
/// In fewer, none is unlike the others.
const SLOTS_MIN: usize = 8;
/// Fewer requests of a side in a time have no median worth looking at.
const REQUESTS_MIN: usize = 8;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneOff {
    /// Both sides were as slow, or as fast, as never else: the load, and not the change.
    Both,
    /// One side had far more or fewer requests than its share.
    ShareOfTest,
}

/// A time that says nothing of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOutTime {
    /// As requests say when they began.
    pub from_ns: i64,
    /// Half-open.
    pub to_ns: i64,
    /// Why.
    pub why: OneOff,
    /// Requests in it.
    pub requests: usize,
}

/// Finds times in which either both sides took as long as never else, or the sides' shares moved: of `(began at, request)`.
/// The time is cut into at most 48 equal parts.
pub fn one_offs(requests: &[(i64, Observed)]) -> Vec<LeftOutTime> {
    let began = requests.iter().map(|(at_ns, _)| *at_ns);
    let (Some(first), Some(last)) = (began.clone().min(), began.max()) else {
        return Vec::new();
    };
    let length_ns = (last.saturating_sub(first) / SLOTS as i64).saturating_add(1);
    let mut sides = vec![[Vec::new(), Vec::new()]; SLOTS];
    for (at_ns, request) in requests {
        let slot = (at_ns.saturating_sub(first) / length_ns) as usize;
        sides[slot.min(SLOTS - 1)][usize::from(request.is_test)].push(request.latency_ns);
    }
    let slots: Vec<Slot> = sides
        .into_iter()
        .enumerate()
        .filter_map(|(place, sides)| Slot::of(place, sides))
        .collect();
    if slots.len() < SLOTS_MIN {
        return Vec::new();
    }
    let control = Robust::of(slots.iter().map(|slot| slot.medians[0]));
    let test = Robust::of(slots.iter().map(|slot| slot.medians[1]));
    let share = Robust::of(slots.iter().map(|slot| slot.share));
    let left_out = slots.iter().filter_map(|slot| {
        let own = (share.middle * (1.0 - share.middle) / slot.requests as f64).sqrt();
        let of_sides = [
            control.away(slot.medians[0], 0.0),
            test.away(slot.medians[1], 0.0),
        ];
        let why = if share.away(slot.share, own).abs() > APART {
            OneOff::ShareOfTest
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

struct Slot {
    place: usize,
    requests: usize,
    /// Part of its requests that are of the test.
    share: f64,
    /// Logarithms of the median latencies of control and test.
    medians: [f64; 2],
}

impl Slot {
    fn of(place: usize, mut sides: [Vec<u64>; 2]) -> Option<Slot> {
        let [control, test] = [sides[0].len(), sides[1].len()];
        if control + test < 2 * REQUESTS_MIN {
            return None;
        }
        let share = test as f64 / (control + test) as f64;
        // A side that is not there has the other's median: what is unlike is its share.
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
        })
    }
}

/// Median, and the standard deviation that the median absolute deviation foretells of normal values.
struct Robust {
    middle: f64,
    deviation: f64,
}

impl Robust {
    fn of(values: impl Iterator<Item = f64>) -> Robust {
        let median = |mut values: Vec<f64>| {
            let place = values.len() / 2;
            *values.select_nth_unstable_by(place, f64::total_cmp).1
        };
        let values: Vec<f64> = values.collect();
        let middle = median(values.clone());
        let deviation = median(values.iter().map(|value| (value - middle).abs()).collect());
        Robust {
            middle,
            deviation: deviation * 1.4826,
        }
    }

    /// In units of its deviation, which is at least this.
    fn away(&self, value: f64, least: f64) -> f64 {
        (value - self.middle) / self.deviation.max(least).max(0.01)
    }
}
