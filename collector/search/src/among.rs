//! Counts the spans that start in an interval, by binary search in the sorted starts of the spans
//! of each clock.

use rustc_hash::FxHashMap;

use super::condition::FieldReading;
use super::formula::{Relation, SharedProperty};
use super::truth::Truth;
use super::unit::{Instant, Unit};

/// Number of spans that surely match, and number of spans that possibly match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) sure: u64,
    pub(super) possible: u64,
}

impl Counts {
    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            sure: self.sure - other.sure,
            possible: self.possible - other.possible,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.sure += other.sure;
        self.possible += other.possible;
    }

    pub(super) fn is_any(self) -> Truth {
        Truth::from_bounds(self.sure > 0, self.possible > 0)
    }
}

/// Interval from `least_ns` to `most_ns` after the instant `base`, by the clock with the index
/// `clock`. `least_ns` may be negative.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) clock: u32,
    pub(super) base: Instant,
    pub(super) least_ns: i64,
    pub(super) most_ns: i64,
}

/// Starts of the possibly matching spans of one clock, in order of time.
#[derive(Debug, Default)]
struct Starts {
    clock: u32,
    /// Known starts. `counts` has the cumulative counts up to and including each of them.
    known_ns: Vec<i64>,
    counts: Vec<Counts>,
    /// Latest possible starts of spans that may have begun before the recording. `open_counts` has
    /// their cumulative counts.
    open_ns: Vec<i64>,
    open_counts: Vec<Counts>,
}

/// Key of a group of spans: (index of the combination of shared values, request). [`ALL`] means
/// that the formula does not require this part.
type Group = (u32, u32);
const ALL: u32 = u32::MAX;

/// Partition of the spans into groups that share the values, and the request, that a relation
/// requires.
#[derive(Debug)]
pub(super) struct Groups {
    /// Index of each span's combination of shared values; `None` for a span that lacks one. The
    /// whole list is `None` if the relation requires no shared values.
    shared: Option<Vec<Option<u32>>>,
    by_request: bool,
}

/// Known value that a span may share with other spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Own<'a> {
    Text(&'a str),
    Process(u128),
}

fn own<'a>(unit: &Unit<'a>, place: usize, shared: &SharedProperty) -> Option<Own<'a>> {
    match shared {
        SharedProperty::Service => unit.service(place).map(Own::Text),
        SharedProperty::Host => Some(Own::Text(unit.host(place))),
        SharedProperty::Process => unit.process(place).map(Own::Process),
        SharedProperty::Attribute(field) => match unit.said(place, field) {
            FieldReading::Text(text) => Some(Own::Text(text)),
            _ => None,
        },
    }
}

/// Evaluates whether two spans share a property.
pub(super) fn is_shared(unit: &Unit<'_>, a: usize, shared: &SharedProperty, b: usize) -> Truth {
    match (own(unit, a, shared), own(unit, b, shared)) {
        (Some(a), Some(b)) => (a == b).into(),
        (own_a, own_b) => {
            let may = |is_said: bool, place: usize| is_said || may_be_missing(unit, place, shared);
            Truth::from_bounds(false, may(own_a.is_some(), a) && may(own_b.is_some(), b))
        }
    }
}

/// Reports whether a span may have had a value that was not recorded, if none is known.
fn may_be_missing(unit: &Unit<'_>, place: usize, shared: &SharedProperty) -> bool {
    let is_unseen = |field| matches!(unit.said(place, field), FieldReading::Unseen);
    unit.may_have_more(place)
        || matches!(shared, SharedProperty::Attribute(field) if is_unseen(field))
}

/// Reports whether a span lacks a required value, perhaps because it was not recorded.
pub(super) fn is_unsure(unit: &Unit<'_>, place: usize, shared: &[SharedProperty]) -> bool {
    shared
        .iter()
        .any(|shared| own(unit, place, shared).is_none() && may_be_missing(unit, place, shared))
}

impl Groups {
    pub(super) fn of(unit: &Unit<'_>, shared: &[SharedProperty], by_request: bool) -> Self {
        let mut numbers: Option<Vec<Option<u32>>> = None;
        for shared in shared {
            let mut known: FxHashMap<(u32, Own<'_>), u32> = FxHashMap::default();
            let mut number = |place: usize| {
                let before = match &numbers {
                    Some(numbers) => numbers[place]?,
                    None => 0,
                };
                let next = known.len() as u32;
                Some(
                    *known
                        .entry((before, own(unit, place, shared)?))
                        .or_insert(next),
                )
            };
            let with = (0..unit.len()).map(&mut number).collect();
            numbers = Some(with);
        }
        Self {
            shared: numbers,
            by_request,
        }
    }

    /// Returns the group of a span; `None` if the span lacks a value that it would have to share.
    pub(super) fn group(&self, unit: &Unit<'_>, place: usize) -> Option<Group> {
        let shared = match &self.shared {
            Some(shared) => shared[place]?,
            None => ALL,
        };
        let request = if self.by_request {
            unit.spans[place].request
        } else {
            ALL
        };
        Some((shared, request))
    }
}

/// Spans that match or may match, indexed by group, clock and start.
#[derive(Debug)]
pub(super) struct Among {
    groups: Groups,
    starts: FxHashMap<Group, Vec<Starts>>,
}

impl Among {
    /// Indexes the spans that possibly match and have a group. `holds` has one truth per span, in
    /// the unit's order.
    pub(super) fn new(unit: &Unit<'_>, holds: &[Truth], groups: Groups) -> Self {
        let mut starts: FxHashMap<Group, Vec<Starts>> = FxHashMap::default();
        for (place, (span, holds)) in unit.spans.iter().zip(holds).enumerate() {
            if !holds.is_possible() {
                continue;
            }
            let Some(group) = groups.group(unit, place) else {
                continue;
            };
            let of_group = starts.entry(group).or_default();
            let found = of_group
                .iter()
                .position(|starts| starts.clock == span.clock);
            let at = found.unwrap_or_else(|| {
                of_group.push(Starts {
                    clock: span.clock,
                    ..Starts::default()
                });
                of_group.len() - 1
            });
            let Some(starts) = of_group.get_mut(at) else {
                continue;
            };
            let one = Counts {
                sure: u64::from(holds.is_sure()),
                possible: 1,
            };
            let (times, counts) = if span.start.from_ns == span.start.to_ns {
                (&mut starts.known_ns, &mut starts.counts)
            } else {
                (&mut starts.open_ns, &mut starts.open_counts)
            };
            let mut sum = counts.last().copied().unwrap_or_default();
            sum.add(one);
            times.push(span.start.to_ns);
            counts.push(sum);
        }
        Self { groups, starts }
    }

    /// Counts the matching spans of a span's group that start in the interval `stretch`, perhaps
    /// including the span itself. Returns zeros for a span without a group.
    pub(super) fn count(&self, unit: &Unit<'_>, place: usize, stretch: Stretch) -> Counts {
        let group = self.groups.group(unit, place);
        let Some(of_group) = group.and_then(|group| self.starts.get(&group)) else {
            return Counts::default();
        };
        let mut counts = Counts::default();
        for starts in of_group {
            let slack_ns = unit.slack_ns(stretch.clock, starts.clock);
            counts.add(starts.count(stretch, slack_ns));
        }
        counts
    }
}

fn up_to(counts: &[Counts], end: usize) -> Counts {
    end.checked_sub(1)
        .and_then(|last| counts.get(last))
        .copied()
        .unwrap_or_default()
}

/// Counts the starts from `from_ns` to `to_ns`, both included.
fn between(times: &[i64], counts: &[Counts], from_ns: i64, to_ns: i64) -> Counts {
    let from = times.partition_point(|at| *at < from_ns);
    let to = times.partition_point(|at| *at <= to_ns);
    if to <= from {
        return Counts::default();
    }
    up_to(counts, to).minus(up_to(counts, from))
}

impl Starts {
    fn count(&self, stretch: Stretch, slack_ns: i64) -> Counts {
        let Stretch {
            base,
            least_ns,
            most_ns,
            ..
        } = stretch;
        let sure = (
            least_ns.saturating_add(base.to_ns).saturating_add(slack_ns),
            most_ns
                .saturating_add(base.from_ns)
                .saturating_sub(slack_ns),
        );
        let possible = (
            least_ns
                .saturating_add(base.from_ns)
                .saturating_sub(slack_ns),
            most_ns.saturating_add(base.to_ns).saturating_add(slack_ns),
        );
        let mut counts = Counts {
            sure: between(&self.known_ns, &self.counts, sure.0, sure.1).sure,
            possible: between(&self.known_ns, &self.counts, possible.0, possible.1).possible,
        };
        if !self.open_ns.is_empty() {
            // These spans may have begun at any time up to their latest possible start.
            if least_ns == i64::MIN {
                counts.sure += between(&self.open_ns, &self.open_counts, i64::MIN, sure.1).sure;
            }
            counts.possible +=
                between(&self.open_ns, &self.open_counts, possible.0, i64::MAX).possible;
        }
        counts
    }
}

/// Spans that a relation may pair with a span: the matching spans of that span's group. If the
/// relation requires another request, `of_request` holds the matching spans by request, so that
/// those of the span's own request can be subtracted.
#[derive(Debug)]
pub(super) struct RelatedSpans {
    all: Among,
    of_request: Option<Among>,
}

impl RelatedSpans {
    pub(super) fn new(unit: &Unit<'_>, holds: &[Truth], relation: &Relation) -> Self {
        let by_request = relation.same_request == Some(true);
        let groups = |by_request| Groups::of(unit, &relation.same, by_request);
        Self {
            all: Among::new(unit, holds, groups(by_request)),
            of_request: (relation.same_request == Some(false))
                .then(|| Among::new(unit, holds, groups(true))),
        }
    }

    /// Counts the related spans that start in the interval `stretch`. If the relation requires
    /// another request, only spans of other requests count. Otherwise, the count may include the
    /// span itself.
    pub(super) fn count(&self, unit: &Unit<'_>, place: usize, stretch: Stretch) -> Counts {
        let all = self.all.count(unit, place, stretch);
        match &self.of_request {
            Some(own) => all.minus(own.count(unit, place, stretch)),
            None => all,
        }
    }

    /// Reports whether [`RelatedSpans::count`] includes the span itself if the span matches and
    /// starts in the interval.
    pub(super) fn has_itself(&self, unit: &Unit<'_>, place: usize) -> bool {
        self.of_request.is_none() && self.all.groups.group(unit, place).is_some()
    }
}
