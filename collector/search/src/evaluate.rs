//! Evaluates a formula on every span, innermost operators first. Most operators need one pass over
//! the spans. Spans that may have had a shared value that was not recorded, and inexact starts
//! under `until`, need comparisons of each span with others.

use super::among::{Among, Counts, Groups, RelatedSpans, Stretch, is_unsure};
use super::formula::{Formula, Order, Relation, Side, When};
use super::spanning::SpanIntervals;
use super::truth::Truth;
use super::unit::{NEVER_NS, Unit};

/// Result of a search in one request or burst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Truth of the formula.
    pub truth: Truth,
    /// Spans that make the formula true or possible, as indices into the unit's spans: in order of
    /// time, and without duplicates.
    pub witness: Vec<usize>,
}

impl Unit<'_> {
    /// Evaluates a formula on the whole request or burst, and collects its witness.
    #[must_use]
    pub fn search(&self, formula: &Formula) -> Evaluation {
        // In an empty unit, no formula holds, not even a formula about all spans.
        let truth = self.of_whole(formula);
        let mut witness = Vec::new();
        if truth.is_possible()
            && let Some(first) = self.first(formula)
        {
            self.witness(formula, first, truth, &mut witness);
            witness.sort_unstable();
            witness.dedup();
        }
        Evaluation { truth, witness }
    }

    /// Evaluates a formula on the whole request or burst, without collecting its witness.
    #[must_use]
    pub fn of_whole(&self, formula: &Formula) -> Truth {
        let first = self.first(formula);
        first.map_or(Truth::False, |first| self.evaluate(formula)[first])
    }

    /// Evaluates a formula on each span. If the formula does not name `kernel`, the result for
    /// kernel events is `otherwise`.
    pub(super) fn evaluate_where(&self, formula: &Formula, otherwise: Truth) -> Vec<Truth> {
        let mut truths = self.evaluate(formula);
        if self.has_kernel_events() && !formula.names_kernel() {
            for (place, truth) in truths.iter_mut().enumerate() {
                if self.is_kernel(place) {
                    *truth = otherwise;
                }
            }
        }
        truths
    }

    /// Evaluates a formula on each span, log event and kernel event of the unit, in their order.
    pub(super) fn evaluate(&self, formula: &Formula) -> Vec<Truth> {
        let both = |a: &Formula, b: &Formula, of: fn(Truth, Truth) -> Truth| -> Vec<Truth> {
            let (a, b) = (self.evaluate(a), self.evaluate(b));
            a.into_iter().zip(b).map(|(a, b)| of(a, b)).collect()
        };
        match formula {
            Formula::Is(selector) => self.select(selector),
            Formula::Not(inner) => self
                .evaluate(inner)
                .into_iter()
                .map(|truth| !truth)
                .collect(),
            Formula::And(a, b) => both(a, b, Truth::and),
            Formula::Or(a, b) => both(a, b, Truth::or),
            Formula::Implies(a, b) => both(a, b, |a, b| (!a).or(b)),
            Formula::Pair(a, relation, b) => {
                let of = |operand: &Formula| self.evaluate_where(operand, Truth::False);
                let (own, other) = (of(a), of(b));
                self.pairs(&own, relation, &other, b.names_kernel())
            }
            Formula::Some(when, inner) => {
                let holds = self.evaluate_where(inner, Truth::False);
                let names_kernel = inner.names_kernel();
                self.counted(&holds, *when, (false, names_kernel), Counts::is_any)
            }
            Formula::All(when, inner) => {
                let holds = self.evaluate_where(inner, Truth::True).into_iter();
                let fails: Vec<Truth> = holds.map(|of| !of).collect();
                let names_kernel = inner.names_kernel();
                let failing = self.counted(&fails, *when, (false, names_kernel), Counts::is_any);
                failing.into_iter().map(|truth| !truth).collect()
            }
            Formula::AtLeast(count, when, inner) => {
                let holds = self.evaluate_where(inner, Truth::False);
                let is_enough = |counts: Counts| {
                    Truth::from_bounds(counts.sure >= *count, counts.possible >= *count)
                };
                self.counted(
                    &holds,
                    *when,
                    (*count == 0, inner.names_kernel()),
                    is_enough,
                )
            }
            Formula::Until(holds, when, until) => {
                let names_kernel = holds.names_kernel() || until.names_kernel();
                let holds = self.evaluate_where(holds, Truth::True);
                let until = self.evaluate_where(until, Truth::False);
                self.until(&holds, *when, &until, names_kernel)
            }
        }
    }

    /// Applies `is`, for each span, to the number of matching spans in the time range `when`.
    /// `is_met` means that unrecorded spans cannot change the result. `names_kernel` means that
    /// unrecorded kernel events can change it.
    fn counted(
        &self,
        holds: &[Truth],
        when: When,
        (is_met, names_kernel): (bool, bool),
        is: impl Fn(Counts) -> Truth,
    ) -> Vec<Truth> {
        let unseen = |from_ns: i64, to_ns: i64| {
            let is_seen = || self.is_all_seen_of(names_kernel, from_ns, to_ns);
            Truth::from_bounds(false, !is_met && !is_seen())
        };
        let one = |place: usize| Counts {
            sure: u64::from(holds[place].is_sure()),
            possible: u64::from(holds[place].is_possible()),
        };
        if when.side == Side::Anywhere && when.within_ns.is_none() {
            let mut counts = Counts::default();
            (0..self.len()).for_each(|place| counts.add(one(place)));
            let is_seen = is_met || self.is_seen_anywhere(names_kernel);
            let truth = is(counts).or(Truth::from_bounds(false, !is_seen));
            return vec![truth; self.len()];
        }
        let among = Among::new(self, holds, Groups::of(self, &[], false));
        let of_span = |place: usize| {
            let stretch = self.stretch(place, when);
            let mut counts = among.count(self, place, stretch);
            // A span's start is certain relative to itself, so the span is counted apart from clock
            // errors.
            let own = self.counts_itself(place, stretch, holds[place]);
            counts = counts.minus(own);
            counts.add(one(place));
            let (from_ns, to_ns) = self.times(stretch);
            is(counts).or(unseen(from_ns, to_ns))
        };
        (0..self.len()).map(of_span).collect()
    }

    /// Returns the interval that `when` selects, relative to a span's start.
    pub(super) fn stretch(&self, place: usize, when: When) -> Stretch {
        let within_ns = when
            .within_ns
            .map(|ns| i64::try_from(ns).unwrap_or(i64::MAX));
        let span = &self.spans[place];
        let future_ns = within_ns.unwrap_or(i64::MAX);
        let past_ns = within_ns.map_or(i64::MIN, |ns| -ns);
        let (least_ns, most_ns) = match when.side {
            Side::Future => (0, future_ns),
            Side::Past => (past_ns, 0),
            Side::Anywhere => (past_ns, future_ns),
        };
        Stretch {
            clock: span.clock,
            base: span.start,
            least_ns,
            most_ns,
        }
    }

    /// Returns the first and last instant of an interval by recorded times, in ns since the Unix
    /// epoch. An open side ends at [`NEVER_NS`] or its negative.
    pub(super) fn times(&self, stretch: Stretch) -> (i64, i64) {
        let from_ns = stretch.base.from_ns.saturating_add(stretch.least_ns);
        let to_ns = stretch.base.to_ns.saturating_add(stretch.most_ns);
        (from_ns.max(-NEVER_NS), to_ns.min(NEVER_NS))
    }

    /// Returns the counts that a span itself adds to those of its group in an interval.
    fn counts_itself(&self, place: usize, stretch: Stretch, holds: Truth) -> Counts {
        let span = &self.spans[place];
        let gap = self.gap_ns((stretch.clock, stretch.base), (span.clock, span.start));
        let is_in = Self::is_in(gap, (stretch.least_ns, stretch.most_ns));
        Counts {
            sure: u64::from(is_in.is_sure() && holds.is_sure()),
            possible: u64::from(is_in.is_possible() && holds.is_possible()),
        }
    }

    /// Returns the interval in which the partners of a span start, for the orders `then` and
    /// `before`.
    pub(super) fn partners(&self, place: usize, relation: &Relation) -> Stretch {
        let span = &self.spans[place];
        let most_ns = relation
            .within_ns
            .map_or(i64::MAX, |ns| i64::try_from(ns).unwrap_or(i64::MAX));
        let (base, least_ns) = match relation.order {
            Order::Then => (span.end, 0),
            _ => (span.start, 1),
        };
        Stretch {
            clock: span.clock,
            base,
            least_ns,
            most_ns,
        }
    }

    /// Returns `Unknown` if a partner could have started at a time that was not completely
    /// recorded, and `False` otherwise.
    pub(super) fn unseen_partner(
        &self,
        place: usize,
        relation: &Relation,
        names_kernel: bool,
    ) -> Truth {
        let span = &self.spans[place];
        let earliest_ns = match relation.same_request {
            Some(true) => self.requests[span.request as usize].from_ns,
            _ => -NEVER_NS,
        };
        let (from_ns, to_ns) = match relation.order {
            Order::Then | Order::Before => self.times(self.partners(place, relation)),
            Order::During => (earliest_ns, span.start.to_ns),
            Order::Overlaps => (earliest_ns, span.end.to_ns),
        };
        let is_seen = self.is_all_seen_of(names_kernel, from_ns, to_ns);
        Truth::from_bounds(false, !is_seen)
    }

    fn pairs(
        &self,
        own: &[Truth],
        relation: &Relation,
        other: &[Truth],
        names_kernel: bool,
    ) -> Vec<Truth> {
        let is_related: Box<dyn Fn(usize) -> Truth + '_> = match relation.order {
            Order::Then | Order::Before => {
                let related = RelatedSpans::new(self, other, relation);
                Box::new(move |place| {
                    let stretch = self.partners(place, relation);
                    let mut counts = related.count(self, place, stretch);
                    if related.has_itself(self, place) {
                        counts = counts.minus(self.counts_itself(place, stretch, other[place]));
                    }
                    counts.is_any()
                })
            }
            Order::During | Order::Overlaps => {
                let spanning = SpanIntervals::new(self, other, relation);
                Box::new(move |place| spanning.is_related(self, place))
            }
        };
        // Spans that may have had a shared value that was not recorded are compared one by one.
        let is_unsure = |place: usize| is_unsure(self, place, &relation.same);
        let unsure: Vec<usize> = (0..self.len())
            .filter(|place| other[*place].is_possible() && is_unsure(*place))
            .collect();
        let one_by_one = |place: usize, others: &mut dyn Iterator<Item = usize>| {
            let related = others.map(|at| self.is_related(place, relation, at).and(other[at]));
            related.fold(Truth::False, Truth::or)
        };
        let places = own.iter().enumerate();
        places
            .map(|(place, own)| {
                let related = match own {
                    // Most spans do not match, and need no partner.
                    Truth::False => return Truth::False,
                    _ if is_unsure(place) => one_by_one(place, &mut (0..self.len())),
                    _ => is_related(place).or(one_by_one(place, &mut unsure.iter().copied())),
                };
                own.and(related.or(self.unseen_partner(place, relation, names_kernel)))
            })
            .collect()
    }
}
