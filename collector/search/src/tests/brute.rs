//! Reference implementation of formulas: evaluates each span by comparing it with every other span.

use stroboscope_analysis::record::SpanRecord;

use crate::formula::{Formula, Selector, Side, When};
use crate::unit::{NEVER_NS, UnitRecord};
use crate::{Truth, Unit};

/// Evaluates a formula on the span at `place`.
pub(super) fn evaluate(unit: &Unit<'_>, formula: &Formula, place: usize) -> Truth {
    let here = |formula: &Formula| evaluate(unit, formula, place);
    let of = |inner: &Formula| {
        let names_kernel = inner.names_kernel();
        (0..unit.len()).filter(move |place| unit.is_looked_at(*place, names_kernel))
    };
    match formula {
        Formula::Is(selector) => select(unit, selector, place),
        Formula::Not(inner) => !here(inner),
        Formula::And(a, b) => here(a).and(here(b)),
        Formula::Or(a, b) => here(a).or(here(b)),
        Formula::Implies(a, b) => (!here(a)).or(here(b)),
        Formula::Pair(a, relation, b) => {
            let one = |other: usize| {
                let is_related = unit.is_related(place, relation, other);
                is_related.and(evaluate(unit, b, other))
            };
            let seen = of(b).map(one).fold(Truth::False, Truth::or);
            let own = match unit.is_looked_at(place, a.names_kernel()) {
                true => here(a),
                false => Truth::False,
            };
            own.and(seen.or(unit.unseen_partner(place, relation, b.names_kernel())))
        }
        Formula::Some(when, inner) => {
            let one = |other: usize| {
                unit.is_when(place, *when, other)
                    .and(evaluate(unit, inner, other))
            };
            let seen = of(inner).map(one).fold(Truth::False, Truth::or);
            seen.or(unseen(unit, inner, place, *when))
        }
        Formula::All(when, inner) => {
            let one = |other: usize| {
                let is_when = unit.is_when(place, *when, other);
                (!is_when).or(evaluate(unit, inner, other))
            };
            let seen = of(inner).map(one).fold(Truth::True, Truth::and);
            seen.and(!unseen(unit, inner, place, *when))
        }
        Formula::AtLeast(count, when, inner) => {
            let truths: Vec<Truth> = of(inner)
                .map(|other| {
                    let is_when = unit.is_when(place, *when, other);
                    is_when.and(evaluate(unit, inner, other))
                })
                .collect();
            let number = |wanted: fn(Truth) -> bool| {
                truths.iter().filter(|truth| wanted(**truth)).count() as u64
            };
            let seen = Truth::from_bounds(
                number(Truth::is_sure) >= *count,
                number(Truth::is_possible) >= *count,
            );
            seen.or(unseen(unit, inner, place, *when))
        }
        Formula::Until(holds, when, until) => self::until(unit, holds, *when, until, place),
    }
}

fn unseen(unit: &Unit<'_>, of: &Formula, place: usize, when: When) -> Truth {
    if when == When::ANYWHERE {
        return Truth::from_bounds(false, !unit.is_seen_anywhere(of.names_kernel()));
    }
    let start = unit.spans[place].start;
    let within_ns = when.within_ns.map_or(2 * NEVER_NS, |ns| ns as i64);
    let from_ns = match when.side {
        Side::Future => start.from_ns,
        Side::Past | Side::Anywhere => (start.from_ns - within_ns).max(-NEVER_NS),
    };
    let to_ns = match when.side {
        Side::Past => start.to_ns,
        Side::Future | Side::Anywhere => (start.to_ns + within_ns).min(NEVER_NS),
    };
    Truth::from_bounds(
        false,
        !unit.is_all_seen_of(of.names_kernel(), from_ns, to_ns),
    )
}

fn until(unit: &Unit<'_>, holds: &Formula, when: When, until: &Formula, place: usize) -> Truth {
    let is_past = when.side == Side::Past;
    let at = |place: usize| (unit.spans[place].clock, unit.spans[place].start);
    // Bounds of the time from the first span to the second in the direction of the operator, in ns.
    let gap = |a: usize, b: usize| match (a == b, is_past) {
        (true, _) => (0, 0),
        (false, false) => unit.gap_ns(at(a), at(b)),
        (false, true) => unit.gap_ns(at(b), at(a)),
    };
    let far = i64::MAX;
    let within_ns = when.within_ns.map_or(far, |ns| ns as i64);
    let names_kernel = holds.names_kernel() || until.names_kernel();
    let mut truth = Truth::False;
    for last in (0..unit.len()).filter(|at| unit.is_looked_at(*at, until.names_kernel())) {
        let mut one =
            Unit::is_in(gap(place, last), (0, within_ns)).and(evaluate(unit, until, last));
        let between = (0..unit.len()).filter(|at| unit.is_looked_at(*at, holds.names_kernel()));
        for between in between.filter(|between| *between != last) {
            let is_between = Unit::is_in(gap(place, between), (0, far))
                .and(Unit::is_in(gap(between, last), (1, far)));
            one = one.and((!is_between).or(evaluate(unit, holds, between)));
        }
        truth = truth.or(one);
    }
    // An unrecorded span may satisfy the second formula before the first recorded span that breaks
    // the first formula.
    let instant = |place: usize| {
        let start = unit.spans[place].start;
        match is_past {
            true => (-start.to_ns, -start.from_ns),
            false => (start.from_ns, start.to_ns),
        }
    };
    let breaks =
        |other: &usize| gap(place, *other).0 >= 0 && evaluate(unit, holds, *other) == Truth::False;
    let broken_ns = (0..unit.len())
        .filter(|at| unit.is_looked_at(*at, holds.names_kernel()))
        .filter(breaks)
        .map(|other| instant(other).1)
        .min()
        .unwrap_or(far);
    let (from_ns, to_ns) = instant(place);
    let to_ns = to_ns.saturating_add(within_ns).min(broken_ns).min(NEVER_NS);
    let is_seen = match is_past {
        true => unit.is_all_seen_of(names_kernel, -to_ns, -from_ns),
        false => unit.is_all_seen_of(names_kernel, from_ns, to_ns),
    };
    truth.or(Truth::from_bounds(false, !is_seen))
}

fn record<'u>(unit: &'u Unit<'_>, place: usize) -> Option<(u32, &'u SpanRecord)> {
    let span = &unit.spans[place];
    match span.record {
        UnitRecord::Span(record) => Some((span.request, record)),
        UnitRecord::Event { .. } | UnitRecord::Kernel { .. } => None,
    }
}

/// Returns the request and the id of the parent: the parent of a span, or the span that caused a
/// kernel event. Returns `None` for a root span and a log event.
fn parent_of(unit: &Unit<'_>, place: usize) -> Option<(u32, u64)> {
    let span = &unit.spans[place];
    match span.record {
        UnitRecord::Span(record) => {
            (record.parent_id != 0).then_some((span.request, record.parent_id))
        }
        UnitRecord::Kernel { event, .. } => Some((span.request, event.span_id)),
        UnitRecord::Event { .. } => None,
    }
}

fn select(unit: &Unit<'_>, selector: &Selector, place: usize) -> Truth {
    let places = 0..unit.len();
    let own = record(unit, place);
    let at = |(request, id): (u32, u64)| {
        places.clone().find(|other| {
            record(unit, *other).is_some_and(|(of, other)| of == request && other.span_id == id)
        })
    };
    match selector {
        Selector::Where(condition) if condition.names_kernel() != unit.is_kernel(place) => {
            Truth::False
        }
        Selector::Where(condition) => unit.is(place, condition),
        Selector::Child(a, b) => {
            let above = match parent_of(unit, place) {
                Some(parent) => at(parent).map_or(Truth::Unknown, |at| select(unit, a, at)),
                None => Truth::False,
            };
            above.and(select(unit, b, place))
        }
        Selector::Descendant(a, b) => {
            let mut above = Truth::False;
            let mut next = parent_of(unit, place);
            while let Some(parent) = next {
                match at(parent) {
                    None => {
                        above = above.or(Truth::Unknown);
                        break;
                    }
                    Some(parent) => {
                        above = above.or(select(unit, a, parent));
                        next = parent_of(unit, parent);
                    }
                }
            }
            above.and(select(unit, b, place))
        }
        Selector::Sibling(a, b) => {
            let Some((request, span)) = own.filter(|(_, span)| span.parent_id != 0) else {
                return Truth::False;
            };
            let is_beside = |other: &usize| {
                *other != place
                    && record(unit, *other).is_some_and(|(of, other)| {
                        of == request && other.parent_id == span.parent_id
                    })
            };
            let beside = places.filter(is_beside).map(|other| select(unit, a, other));
            let unseen = Truth::from_bounds(false, !unit.is_all_seen(-NEVER_NS, NEVER_NS));
            beside.fold(unseen, Truth::or).and(select(unit, b, place))
        }
    }
}
