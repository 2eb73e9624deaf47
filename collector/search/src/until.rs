//! Evaluates `a until b` and its mirror image `a since b`.

use super::formula::{Side, When};
use super::truth::Truth;
use super::unit::{Instant, NEVER_NS, Unit};

/// Starts of spans, as recorded or mirrored in time. Mirroring turns `since` into `until`.
struct Starts<'u, 'a> {
    unit: &'u Unit<'a>,
    is_mirrored: bool,
    names_kernel: bool,
}

impl Starts<'_, '_> {
    fn at(&self, place: usize) -> (u32, Instant) {
        let span = &self.unit.spans[place];
        let Instant { from_ns, to_ns } = span.start;
        let start = match self.is_mirrored {
            true => Instant {
                from_ns: -to_ns,
                to_ns: -from_ns,
            },
            false => span.start,
        };
        (span.clock, start)
    }

    /// Returns the bounds of the time from `a` to `b`, in ns.
    fn gap_ns(&self, a: usize, b: usize) -> (i64, i64) {
        if a == b {
            return (0, 0);
        }
        self.unit.gap_ns(self.at(a), self.at(b))
    }

    fn is_all_seen(&self, from_ns: i64, to_ns: i64) -> bool {
        match self.is_mirrored {
            true => self
                .unit
                .is_all_seen_of(self.names_kernel, -to_ns, -from_ns),
            false => self.unit.is_all_seen_of(self.names_kernel, from_ns, to_ns),
        }
    }

    /// Reports whether one clock, whose timestamps have an exact order, recorded all starts, and no
    /// start lies before the recording.
    fn are_exact(&self) -> bool {
        let unit = self.unit;
        let is_known = |place: usize| {
            let Instant { from_ns, to_ns } = unit.spans[place].start;
            from_ns == to_ns
        };
        unit.clocks() <= 1 && unit.slack_ns(0, 0) == 0 && (0..unit.len()).all(is_known)
    }
}

impl Unit<'_> {
    pub(super) fn until(
        &self,
        holds: &[Truth],
        when: When,
        until: &[Truth],
        names_kernel: bool,
    ) -> Vec<Truth> {
        let starts = Starts {
            unit: self,
            is_mirrored: when.side == Side::Past,
            names_kernel,
        };
        let within_ns = when
            .within_ns
            .map_or(i64::MAX, |ns| i64::try_from(ns).unwrap_or(i64::MAX));
        if self.is_empty() {
            return Vec::new();
        }
        if starts.are_exact() {
            return exactly(&starts, holds, within_ns, until);
        }
        (0..self.len())
            .map(|place| one(&starts, holds, within_ns, until, place))
            .collect()
    }
}

/// Returns `Unknown` if an unrecorded span could have started within `within_ns` and no later than
/// `broken_ns`, the first start of a span certainly without `a`. Returns `False` otherwise.
fn unseen(starts: &Starts<'_, '_>, place: usize, broken_ns: i64, within_ns: i64) -> Truth {
    let (_, start) = starts.at(place);
    let to_ns = start.to_ns.saturating_add(within_ns).min(broken_ns);
    let is_seen = starts.is_all_seen(start.from_ns, to_ns.min(NEVER_NS));
    Truth::from_bounds(false, !is_seen)
}

/// Evaluates `a until b` for all spans, given exact starts: some `b` must start no later than the
/// first span without `a`.
fn exactly(
    starts: &Starts<'_, '_>,
    holds: &[Truth],
    within_ns: i64,
    until: &[Truth],
) -> Vec<Truth> {
    let mut order: Vec<usize> = (0..holds.len()).collect();
    order.sort_by_key(|place| starts.at(*place).1.to_ns);
    let times: Vec<i64> = order
        .iter()
        .map(|place| starts.at(*place).1.to_ns)
        .collect();
    // For each span, the first start at or after it of a span certainly without `a`, and of a span
    // that may be without `a`.
    let (mut false_ns, mut unsure_ns) = (i64::MAX, i64::MAX);
    let mut first_broken = vec![(i64::MAX, i64::MAX); order.len()];
    for (at, place) in order.iter().enumerate().rev() {
        if holds[*place] == Truth::False {
            false_ns = times[at];
        }
        if !holds[*place].is_sure() {
            unsure_ns = times[at];
        }
        first_broken[at] = (false_ns, unsure_ns);
    }
    let count = |wanted: fn(Truth) -> bool| {
        let mut sums = vec![0usize];
        for place in &order {
            sums.push(sums[sums.len() - 1] + usize::from(wanted(until[*place])));
        }
        sums
    };
    let (sure, possible) = (count(Truth::is_sure), count(Truth::is_possible));
    let any = |sums: &[usize], from: usize, to_ns: i64| {
        let to = times.partition_point(|at| *at <= to_ns);
        to > from && sums[to] > sums[from]
    };
    let mut found = vec![Truth::False; order.len()];
    for place in &order {
        let start_ns = starts.at(*place).1.to_ns;
        // Spans that start at the same instant also count as later.
        let from = times.partition_point(|at| *at < start_ns);
        let (false_ns, unsure_ns) = first_broken[from];
        let end_ns = start_ns.saturating_add(within_ns);
        let truth = Truth::from_bounds(
            any(&sure, from, end_ns.min(unsure_ns)),
            any(&possible, from, end_ns.min(false_ns)),
        );
        found[*place] = truth.or(unseen(starts, *place, false_ns, within_ns));
    }
    found
}

/// The two earliest instants of a set of spans, in ns, with the span of the first. They yield the
/// earliest instant of all spans except any given one.
#[derive(Clone, Copy)]
struct Least {
    first: (i64, usize),
    second_ns: i64,
}

impl Least {
    const NONE: Self = Self {
        first: (i64::MAX, usize::MAX),
        second_ns: i64::MAX,
    };

    fn add(&mut self, ns: i64, place: usize) {
        if ns < self.first.0 {
            self.second_ns = self.first.0;
            self.first = (ns, place);
        } else {
            self.second_ns = self.second_ns.min(ns);
        }
    }

    fn but(self, place: usize) -> i64 {
        if self.first.1 == place {
            self.second_ns
        } else {
            self.first.0
        }
    }
}

/// Evaluates `a until b` for the span at `place`, even if starts are inexact.
fn one(
    starts: &Starts<'_, '_>,
    holds: &[Truth],
    within_ns: i64,
    until: &[Truth],
    place: usize,
) -> Truth {
    let unit = starts.unit;
    // Per clock, the earliest starts of spans certainly without `a`, and of spans that may be
    // without `a`.
    let mut sure = vec![Least::NONE; unit.clocks() as usize];
    let mut possible = sure.clone();
    let mut broken_ns = i64::MAX;
    for (other, holds) in holds.iter().enumerate() {
        if holds.is_sure() {
            continue;
        }
        let (low, high) = starts.gap_ns(place, other);
        let (clock, start) = starts.at(other);
        if *holds == Truth::False && low >= 0 {
            sure[clock as usize].add(start.to_ns, other);
            broken_ns = broken_ns.min(start.to_ns);
        }
        if high >= 0 {
            possible[clock as usize].add(start.from_ns, other);
        }
    }
    let mut truth = Truth::False;
    for (other, until) in until.iter().enumerate() {
        if !until.is_possible() {
            continue;
        }
        let in_time = Unit::is_in(starts.gap_ns(place, other), (0, within_ns));
        let (clock, start) = starts.at(other);
        let is_before = |of_clock: &[Least], at: fn(Instant) -> i64, sign: i64| {
            of_clock.iter().enumerate().any(|(from, least)| {
                let slack_ns = unit.slack_ns(from as u32, clock);
                let least_ns = least.but(other);
                least_ns != i64::MAX
                    && at(start)
                        .saturating_sub(least_ns)
                        .saturating_sub(sign * slack_ns)
                        >= 1
            })
        };
        let is_whole = if is_before(&sure, |start| start.from_ns, 1) {
            Truth::False
        } else if is_before(&possible, |start| start.to_ns, -1) {
            Truth::Unknown
        } else {
            Truth::True
        };
        truth = truth.or(until.and(in_time).and(is_whole));
    }
    truth.or(unseen(starts, place, broken_ns, within_ns))
}
