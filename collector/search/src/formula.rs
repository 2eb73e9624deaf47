//! What can be asked, as a tree.

use super::condition::Condition;
use super::field::Field;

/// A formula about a span; and, of its first span, about a request or burst as a whole: see [`of_whole`](Formula::of_whole).
#[derive(Clone, Debug, PartialEq)]
pub enum Formula {
    /// The span is one of these.
    Is(Selector),
    /// It does not hold.
    Not(Box<Formula>),
    /// Both hold.
    And(Box<Formula>, Box<Formula>),
    /// One of them holds.
    Or(Box<Formula>, Box<Formula>),
    /// The second holds wherever the first does.
    Implies(Box<Formula>, Box<Formula>),
    /// The first holds, and there is another span, related so, of which the second holds.
    Pair(Box<Formula>, Relation, Box<Formula>),
    /// It holds of a span that starts then.
    Some(When, Box<Formula>),
    /// It holds of all spans that start then.
    All(When, Box<Formula>),
    /// It holds of at least so many spans that start then.
    AtLeast(u64, When, Box<Formula>),
    /// The second holds of a span that starts then, and the first of all that start between.
    Until(Box<Formula>, When, Box<Formula>),
}

/// When spans start, as seen from the start of one, which is among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// On which side.
    pub side: Side,
    /// Not further away; none: however far.
    pub within_ns: Option<u64>,
}

/// Where to look, from the start of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From there on.
    Future,
    /// Up to there.
    Past,
    /// Everywhere in the request or burst.
    Anywhere,
}

/// How two spans are related.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// In time.
    pub order: Order,
    /// Not further apart; none: however far.
    pub within_ns: Option<u64>,
    /// What they share: all of it.
    pub same: Vec<Shared>,
    /// Whether they are of the same request; none: it does not matter.
    pub same_request: Option<bool>,
}

/// The order of two spans, `a` and `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `b` starts when `a` has ended, or later.
    Then,
    /// `b` starts after `a` has started.
    Before,
    /// `a` lies within `b`.
    During,
    /// Both are under way at some time.
    Overlaps,
}

/// What two spans may share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shared {
    /// The service's name.
    Service,
    /// The host's name.
    Host,
    /// The process.
    Process,
    /// The value of this attribute, which both have.
    Attribute(Field),
}

/// Which spans.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// Those of which this holds.
    Where(Condition),
    /// Those of the second that a span of the first is the parent of.
    Child(Box<Selector>, Box<Selector>),
    /// Those of the second that are below one of the first.
    Descendant(Box<Selector>, Box<Selector>),
    /// Those of the second that have the same parent as another one of the first.
    Sibling(Box<Selector>, Box<Selector>),
}

impl Formula {
    /// The same of a whole request or burst: what is about one span has to hold of any span; `always`, `until` and their like
    /// begin at its first one.
    #[must_use]
    pub fn of_whole(self) -> Self {
        let lift = |inner: Box<Self>| Box::new(inner.of_whole());
        match self {
            Self::Not(inner) => Self::Not(lift(inner)),
            Self::And(a, b) => Self::And(lift(a), lift(b)),
            Self::Or(a, b) => Self::Or(lift(a), lift(b)),
            Self::Implies(a, b) => Self::Implies(lift(a), lift(b)),
            Self::Is(_) | Self::Pair(..) => Self::Some(When::ANYWHERE, Box::new(self)),
            // From the first span on is everywhere, whatever clocks say.
            Self::Some(when, inner) => Self::Some(when.of_whole(), inner),
            Self::All(when, inner) => Self::All(when.of_whole(), inner),
            Self::AtLeast(count, when, inner) => Self::AtLeast(count, when.of_whole(), inner),
            Self::Until(..) => self,
        }
    }

    /// The names of the stored attributes that it is read from.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.fields().iter().flat_map(Field::keys).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The fields of spans that it asks for, each once.
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
                // What is known of the kernel's events is recorded elsewhere.
                if !condition.names_kernel() {
                    condition.visit_fields(&mut add);
                }
            }),
            Part::Relation(relation) => {
                for shared in &relation.same {
                    if let Shared::Attribute(field) = shared {
                        add(field);
                    }
                }
            }
        });
        fields
    }

    /// Whether any part of it is about what the kernel did.
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

/// What says something of attributes.
enum Part<'a> {
    Selector(&'a Selector),
    Relation(&'a Relation),
}

impl When {
    /// Everywhere.
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
