//! Collects spans that show why a formula holds or may hold.

use super::among::is_shared;
use super::formula::{Formula, Order, Relation, When};
use super::truth::Truth;
use super::unit::Unit;

impl Unit<'_> {
    /// Evaluates whether two spans are related, regardless of the formulas that they satisfy.
    pub(super) fn is_related(&self, a: usize, relation: &Relation, b: usize) -> Truth {
        if a == b {
            return Truth::False;
        }
        let shared = relation.same.iter();
        let is_shared = shared
            .map(|shared| is_shared(self, a, shared, b))
            .fold(Truth::True, Truth::and);
        let is_same_request = self.spans[a].request == self.spans[b].request;
        if relation
            .same_request
            .is_some_and(|wanted| wanted != is_same_request)
        {
            return Truth::False;
        }
        let (a, b) = (&self.spans[a], &self.spans[b]);
        let gap = |from, to| self.gap_ns(from, to);
        let (a_start, a_end) = ((a.clock, a.start), (a.clock, a.end));
        let (b_start, b_end) = ((b.clock, b.start), (b.clock, b.end));
        let most_ns = relation
            .within_ns
            .map_or(i64::MAX, |ns| i64::try_from(ns).unwrap_or(i64::MAX));
        let in_order = match relation.order {
            Order::Then => Self::is_in(gap(a_end, b_start), (0, most_ns)),
            Order::Before => Self::is_in(gap(a_start, b_start), (1, most_ns)),
            Order::During => Self::is_in(gap(b_start, a_start), (0, i64::MAX))
                .and(Self::is_in(gap(a_end, b_end), (0, i64::MAX))),
            Order::Overlaps => Self::is_in(gap(b_start, a_end), (1, i64::MAX))
                .and(Self::is_in(gap(a_start, b_end), (1, i64::MAX))),
        };
        is_shared.and(in_order)
    }

    /// Evaluates whether span `other` starts in the time range `when` of span `place`.
    pub(super) fn is_when(&self, place: usize, when: When, other: usize) -> Truth {
        if place == other {
            return Truth::True;
        }
        let stretch = self.stretch(place, when);
        let other = &self.spans[other];
        let gap = self.gap_ns((stretch.clock, stretch.base), (other.clock, other.start));
        Self::is_in(gap, (stretch.least_ns, stretch.most_ns))
    }

    /// Adds recorded spans as evidence that a formula is at least `truth` for a span, where
    /// `Unknown` is less than `True`. Operators that require absence, such as `not` and `always`,
    /// add no span. `a until b` adds only spans of `b`, and `{…} >> {…}` only the span of the
    /// right-hand selector.
    pub(super) fn witness(
        &self,
        formula: &Formula,
        place: usize,
        truth: Truth,
        found: &mut Vec<usize>,
    ) {
        let is_so = |formula: &Formula| self.evaluate(formula)[place] >= truth;
        match formula {
            Formula::Is(_) => found.push(place),
            Formula::Not(_) | Formula::All(..) => {}
            Formula::And(a, b) => {
                self.witness(a, place, truth, found);
                self.witness(b, place, truth, found);
            }
            Formula::Or(a, b) => {
                let which = if is_so(a) { a } else { b };
                self.witness(which, place, truth, found);
            }
            Formula::Implies(_, b) => {
                if is_so(b) {
                    self.witness(b, place, truth, found);
                }
            }
            Formula::Pair(a, relation, b) => {
                self.witness(a, place, truth, found);
                let holds = self.evaluate_where(b, Truth::False);
                let partner = (0..self.len()).find(|other| {
                    self.is_related(place, relation, *other).and(holds[*other]) >= truth
                });
                if let Some(partner) = partner {
                    self.witness(b, partner, truth, found);
                }
            }
            Formula::Some(when, inner) | Formula::AtLeast(_, when, inner) => {
                let count = match formula {
                    Formula::AtLeast(count, ..) => usize::try_from(*count).unwrap_or(usize::MAX),
                    _ => 1,
                };
                let holds = self.evaluate_where(inner, Truth::False);
                let places = (0..self.len()).filter(|other| {
                    holds[*other] >= truth && self.is_when(place, *when, *other) >= truth
                });
                for other in places.take(count) {
                    self.witness(inner, other, truth, found);
                }
            }
            Formula::Until(_, when, until) => {
                let holds = self.evaluate_where(until, Truth::False);
                let last = (0..self.len()).find(|other| {
                    holds[*other] >= truth && self.is_when(place, *when, *other) >= truth
                });
                if let Some(last) = last {
                    self.witness(until, last, truth, found);
                }
            }
        }
    }
}
