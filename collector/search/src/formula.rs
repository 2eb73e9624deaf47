//! Syntax tree of a search formula.

use super::condition::Condition;
use super::field::Field;

/// Formula about a span. A request or burst satisfies the formula if its first span does, see
/// [`of_whole`](Formula::of_whole).
#[derive(Clone, Debug, PartialEq)]
pub enum Formula {
    /// The selector matches the span.
    Is(Selector),
    /// The inner formula does not hold.
    Not(Box<Formula>),
    /// Both formulas hold.
    And(Box<Formula>, Box<Formula>),
    /// At least one of the formulas holds.
    Or(Box<Formula>, Box<Formula>),
    /// The second formula holds for the span, or the first does not.
    Implies(Box<Formula>, Box<Formula>),
    /// The first formula holds for the span, and the second for another span that is related to it.
    Pair(Box<Formula>, Relation, Box<Formula>),
    /// The formula holds for at least one span that starts in the given time range.
    Some(When, Box<Formula>),
    /// The formula holds for every span that starts in the given time range.
    All(When, Box<Formula>),
    /// The formula holds for at least this many spans that start in the given time range.
    AtLeast(u64, When, Box<Formula>),
    /// The second formula holds for a span that starts in the given time range, and the first for
    /// every span that starts earlier in the range (in the past: later).
    Until(Box<Formula>, When, Box<Formula>),
}

/// Time range relative to the start of a span. It selects spans by their starts, including the span
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// Direction of the time range from the span's start.
    pub side: Side,
    /// Maximum distance in ns; `None` for no limit.
    pub within_ns: Option<u64>,
}

/// Direction of a time range from the start of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From the start of the span on.
    Future,
    /// Up to the start of the span.
    Past,
    /// Both directions.
    Anywhere,
}

/// Relation between two spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Required order of both spans in time.
    pub order: Order,
    /// Maximum distance in ns for `Then` and `Before`; `None` for no limit.
    pub within_ns: Option<u64>,
    /// Properties that both spans must share.
    pub same: Vec<SharedProperty>,
    /// True if both spans must belong to the same request, false if they must belong to different
    /// requests; `None` for no restriction.
    pub same_request: Option<bool>,
}

/// Order of two spans, `a` and `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `b` starts when `a` ends, or later.
    Then,
    /// `b` starts after `a` starts.
    Before,
    /// `a` lies within `b`.
    During,
    /// Each of both spans starts before the other ends.
    Overlaps,
}

/// Property that two spans may share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedProperty {
    /// Name of the service that recorded the span.
    Service,
    /// Name of the host on which the span was recorded.
    Host,
    /// Process that recorded the span.
    Process,
    /// Value of this attribute, which both spans must have.
    Attribute(Field),
}

/// Selector of spans.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// Spans that meet this condition.
    Where(Condition),
    /// Spans of the second selector whose parent is a span of the first.
    Child(Box<Selector>, Box<Selector>),
    /// Spans of the second selector that are descendants of a span of the first.
    Descendant(Box<Selector>, Box<Selector>),
    /// Spans of the second selector that have the same parent as another span of the first.
    Sibling(Box<Selector>, Box<Selector>),
}

impl Formula {
    /// Returns the corresponding formula about a whole request or burst. A part about one span
    /// becomes true if it holds for any span. `always`, `until` and similar operators begin at the
    /// first span.
    #[must_use]
    pub fn of_whole(self) -> Self {
        let lift = |inner: Box<Self>| Box::new(inner.of_whole());
        match self {
            Self::Not(inner) => Self::Not(lift(inner)),
            Self::And(a, b) => Self::And(lift(a), lift(b)),
            Self::Or(a, b) => Self::Or(lift(a), lift(b)),
            Self::Implies(a, b) => Self::Implies(lift(a), lift(b)),
            Self::Is(_) | Self::Pair(..) => Self::Some(When::ANYWHERE, Box::new(self)),
            // A range from the first span on covers every span, even if clocks err.
            Self::Some(when, inner) => Self::Some(when.of_whole(), inner),
            Self::All(when, inner) => Self::All(when.of_whole(), inner),
            Self::AtLeast(count, when, inner) => Self::AtLeast(count, when.of_whole(), inner),
            Self::Until(..) => self,
        }
    }

    /// Returns the opposite formula. Moves the negation of `and`, `or`, `implies` and `always`
    /// inward, because the witness of a negation is empty.
    #[must_use]
    pub fn negated(self) -> Self {
        let negated = |inner: Box<Self>| Box::new(inner.negated());
        match self {
            Self::Not(inner) => *inner,
            Self::And(a, b) => Self::Or(negated(a), negated(b)),
            Self::Or(a, b) => Self::And(negated(a), negated(b)),
            Self::Implies(a, b) => Self::And(a, negated(b)),
            Self::All(when, inner) => Self::Some(when, negated(inner)),
            Self::Is(_) | Self::Pair(..) | Self::Some(..) | Self::AtLeast(..) | Self::Until(..) => {
                Self::Not(Box::new(self))
            }
        }
    }

    /// Returns the names of the stored attributes from which the formula's fields are read.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.fields().iter().flat_map(Field::keys).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns the fields in conditions on spans and after `with the same`, each once.
    #[must_use]
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut add = |field: &Field| {
            if !fields.contains(field) {
                fields.push(field.clone());
            }
        };
        self.visit(&mut |part| match part {
            Part::Selector(selector) => selector.visit(&mut |condition| {
                // Kernel events are stored in another table.
                if !condition.names_kernel() {
                    condition.visit_fields(&mut add);
                }
            }),
            Part::Relation(relation) => {
                for shared in &relation.same {
                    if let SharedProperty::Attribute(field) = shared {
                        add(field);
                    }
                }
            }
        });
        fields
    }

    /// Reports whether any part of the formula is about kernel events.
    #[must_use]
    pub fn names_kernel(&self) -> bool {
        let mut is_named = false;
        self.visit(&mut |part| {
            if let Part::Selector(selector) = part {
                selector.visit(&mut |condition| is_named |= condition.names_kernel());
            }
        });
        is_named
    }

    /// Reports whether a formula about a whole request compares the times of several spans, so that
    /// its truth may depend on the clocks of their hosts.
    #[must_use]
    pub fn compares_times(&self) -> bool {
        match self {
            Self::Is(_) => false,
            Self::Pair(..) | Self::Until(..) => true,
            Self::Not(inner) => inner.compares_times(),
            Self::And(a, b) | Self::Or(a, b) | Self::Implies(a, b) => {
                a.compares_times() || b.compares_times()
            }
            Self::Some(when, inner) | Self::All(when, inner) | Self::AtLeast(_, when, inner) => {
                *when != When::ANYWHERE || inner.compares_times()
            }
        }
    }

    fn visit(&self, see: &mut impl FnMut(Part<'_>)) {
        if let Self::Pair(_, relation, _) = self {
            see(Part::Relation(relation));
        }
        match self {
            Self::Is(selector) => see(Part::Selector(selector)),
            Self::Not(inner)
            | Self::Some(_, inner)
            | Self::All(_, inner)
            | Self::AtLeast(_, _, inner) => inner.visit(see),
            Self::And(a, b)
            | Self::Or(a, b)
            | Self::Implies(a, b)
            | Self::Pair(a, _, b)
            | Self::Until(a, _, b) => {
                a.visit(see);
                b.visit(see);
            }
        }
    }
}

/// Part of a formula that may name attributes.
enum Part<'a> {
    Selector(&'a Selector),
    Relation(&'a Relation),
}

impl When {
    /// Time range that covers every span of the request or burst.
    pub const ANYWHERE: Self = Self {
        side: Side::Anywhere,
        within_ns: None,
    };

    fn of_whole(self) -> Self {
        match (self.side, self.within_ns) {
            (Side::Future, None) => Self::ANYWHERE,
            _ => self,
        }
    }
}

impl Selector {
    fn visit(&self, see: &mut impl FnMut(&Condition)) {
        match self {
            Self::Where(condition) => see(condition),
            Self::Child(a, b) | Self::Descendant(a, b) | Self::Sibling(a, b) => {
                a.visit(see);
                b.visit(see);
            }
        }
    }
}
