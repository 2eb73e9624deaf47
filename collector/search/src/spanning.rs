//! Decides whether a span lies within another span, or overlaps it. For each clock, it looks up the
//! latest end of the spans that started up to an instant.

use rustc_hash::FxHashMap;

use super::among::Groups;
use super::formula::{Order, Relation};
use super::truth::Truth;
use super::unit::Unit;

/// Latest end of several spans, the owner of the span that ends then, and the latest end among the
/// spans of other owners. The owner of a span is the span itself or its request. A span must not
/// pair with spans of its own owner, so it may need the second end.
#[derive(Clone, Copy, Debug)]
struct Latest {
    end_ns: i64,
    owner: u32,
    other_end_ns: i64,
}

const NONE: Latest = Latest {
    end_ns: i64::MIN,
    owner: u32::MAX,
    other_end_ns: i64::MIN,
};

impl Latest {
    fn with(self, end_ns: i64, owner: u32) -> Self {
        if owner == self.owner {
            return Self {
                end_ns: self.end_ns.max(end_ns),
                ..self
            };
        }
        if end_ns > self.end_ns {
            return Self {
                end_ns,
                owner,
                other_end_ns: self.end_ns,
            };
        }
        Self {
            other_end_ns: self.other_end_ns.max(end_ns),
            ..self
        }
    }

    fn but_of(self, owner: u32) -> i64 {
        if owner == self.owner {
            self.other_end_ns
        } else {
            self.end_ns
        }
    }
}

/// Starts in ascending order, and for each start, the latest end of the spans up to this start.
#[derive(Debug, Default)]
struct Ends {
    starts_ns: Vec<i64>,
    latest: Vec<Latest>,
}

impl Ends {
    fn push(&mut self, start_ns: i64, end_ns: i64, owner: u32) {
        let before = self.latest.last().copied().unwrap_or(NONE);
        self.starts_ns.push(start_ns);
        self.latest.push(before.with(end_ns, owner));
    }

    /// Reports whether a span of another owner starts at or before `start_ns` and ends at or after
    /// `end_ns`.
    fn has(&self, start_ns: i64, end_ns: i64, owner: u32) -> bool {
        let until = self.starts_ns.partition_point(|at| *at <= start_ns);
        let latest = until.checked_sub(1).and_then(|last| self.latest.get(last));
        latest.is_some_and(|latest| latest.but_of(owner) >= end_ns)
    }
}

#[derive(Debug, Default)]
struct OfClock {
    clock: u32,
    sure: Ends,
    possible: Ends,
}

/// Ends of the matching spans, by group and clock.
#[derive(Debug)]
pub(super) struct SpanIntervals {
    groups: Groups,
    ends: FxHashMap<(u32, u32), Vec<OfClock>>,
    /// True if the owner of a span is its request, false if it is the span itself.
    by_request: bool,
    order: Order,
}

impl SpanIntervals {
    pub(super) fn new(unit: &Unit<'_>, holds: &[Truth], relation: &Relation) -> Self {
        let groups = Groups::of(unit, &relation.same, relation.same_request == Some(true));
        let mut spanning = Self {
            groups,
            ends: FxHashMap::default(),
            by_request: relation.same_request == Some(false),
            order: relation.order,
        };
        let held = |wanted: fn(Truth) -> bool| {
            let places = (0..unit.len()).filter(|place| wanted(holds[*place]));
            places.collect::<Vec<usize>>()
        };
        for place in held(Truth::is_sure) {
            let span = &unit.spans[place];
            let (start_ns, end_ns) = (span.start.to_ns, span.end.from_ns);
            let owner = spanning.owner(unit, place);
            if let Some(of) = spanning.of(unit, place) {
                of.sure.push(start_ns, end_ns, owner);
            }
        }
        let mut possible = held(Truth::is_possible);
        possible.sort_by_key(|place| unit.spans[*place].start.from_ns);
        for place in possible {
            let span = &unit.spans[place];
            let (start_ns, end_ns) = (span.start.from_ns, span.end.to_ns);
            let owner = spanning.owner(unit, place);
            if let Some(of) = spanning.of(unit, place) {
                of.possible.push(start_ns, end_ns, owner);
            }
        }
        spanning
    }

    fn owner(&self, unit: &Unit<'_>, place: usize) -> u32 {
        match self.by_request {
            true => unit.spans[place].request,
            false => place as u32,
        }
    }

    fn of(&mut self, unit: &Unit<'_>, place: usize) -> Option<&mut OfClock> {
        let clock = unit.spans[place].clock;
        let group = self.groups.group(unit, place)?;
        let of_group = self.ends.entry(group).or_default();
        let found = of_group.iter().position(|ends| ends.clock == clock);
        let at = found.unwrap_or_else(|| {
            of_group.push(OfClock {
                clock,
                ..OfClock::default()
            });
            of_group.len() - 1
        });
        of_group.get_mut(at)
    }

    /// Evaluates whether a span is related to at least one of the matching spans. Values that were
    /// not recorded count as not shared.
    pub(super) fn is_related(&self, unit: &Unit<'_>, place: usize) -> Truth {
        let span = &unit.spans[place];
        let owner = self.owner(unit, place);
        let group = self.groups.group(unit, place);
        let Some(of_group) = group.and_then(|group| self.ends.get(&group)) else {
            return Truth::False;
        };
        let mut is_possible = false;
        for ends in of_group {
            let slack_ns = unit.slack_ns(span.clock, ends.clock);
            // An overlapping span starts before the end and ends after the start. A surrounding
            // span starts no later than the start and ends no earlier than the end.
            let (sure, possible) = match self.order {
                Order::During => (
                    (
                        span.start.from_ns.saturating_sub(slack_ns),
                        span.end.to_ns.saturating_add(slack_ns),
                    ),
                    (
                        span.start.to_ns.saturating_add(slack_ns),
                        span.end.from_ns.saturating_sub(slack_ns),
                    ),
                ),
                _ => (
                    (
                        span.end.from_ns.saturating_sub(slack_ns) - 1,
                        span.start.to_ns.saturating_add(slack_ns) + 1,
                    ),
                    (
                        span.end.to_ns.saturating_add(slack_ns) - 1,
                        span.start.from_ns.saturating_sub(slack_ns) + 1,
                    ),
                ),
            };
            if ends.sure.has(sure.0, sure.1, owner) {
                return Truth::True;
            }
            is_possible |= ends.possible.has(possible.0, possible.1, owner);
        }
        Truth::from_bounds(false, is_possible)
    }
}
