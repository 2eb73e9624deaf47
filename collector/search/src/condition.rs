//! What is asked of one span, as TraceQL writes it.

use regex::Regex;

use super::field::Field;
use super::truth::Truth;

/// What holds of a span.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// `{}`: every span.
    Any,
    /// A field compared with a value.
    Compare(Field, Comparison, Value),
    /// A field matches a pattern, or does not.
    Matches(Field, Pattern, bool),
    /// A field is there, or is not.
    IsThere(Field, bool),
    /// It does not hold.
    Not(Box<Condition>),
    /// Both hold.
    And(Box<Condition>, Box<Condition>),
    /// One of them holds.
    Or(Box<Condition>, Box<Condition>),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

/// What is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `"text"`, or `true` and `false`, which are recorded as texts.
    Text(String),
    /// A number; a duration is one of ns.
    Number(f64),
}

/// A regular expression over the whole text.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Pattern {
    /// As it was written.
    pub(super) fn text(&self) -> &str {
        let text = self.0.as_str();
        let inner = text
            .strip_prefix("^(?:")
            .and_then(|text| text.strip_suffix(")$"));
        inner.unwrap_or(text)
    }

    /// Anchored at both ends, as TraceQL's are.
    pub(super) fn new(text: &str) -> Result<Self, regex::Error> {
        regex::RegexBuilder::new(&format!("^(?:{text})$"))
            .size_limit(1 << 20)
            .build()
            .map(Self)
    }
}

/// What a field of a span says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Said<'a> {
    Text(&'a str),
    /// Between these; where nothing is uncertain, both are the same.
    Between(f64, f64),
    /// It has none.
    Nothing,
    /// It may have had one before the recording began.
    Unseen,
}

impl Comparison {
    fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }

    fn of_numbers(self, low: f64, high: f64, with: f64) -> Truth {
        let at = |value: f64| {
            value
                .partial_cmp(&with)
                .is_some_and(|order| self.holds(order))
        };
        if low == high {
            return at(low).into();
        }
        // Somewhere between the two it may be equal, too.
        let is_between = low <= with && with <= high;
        let (all, any) = match self {
            Self::Equal => (false, is_between),
            Self::NotEqual => (!is_between, true),
            _ => (at(low) && at(high), at(low) || at(high)),
        };
        Truth::from_bounds(all, any)
    }

    fn of(self, said: Said<'_>, value: &Value) -> Truth {
        match (said, value) {
            (Said::Nothing, _) => Truth::False,
            (Said::Unseen, _) => Truth::Unknown,
            (Said::Text(text), Value::Text(with)) => self.holds(text.cmp(with.as_str())).into(),
            (Said::Text(text), Value::Number(with)) => match text.parse::<f64>() {
                Ok(number) => self.of_numbers(number, number, *with),
                // Of another type: they are not equal, and in no order.
                Err(_) => (self == Self::NotEqual).into(),
            },
            (Said::Between(low, high), Value::Number(with)) => self.of_numbers(low, high, *with),
            (Said::Between(..), Value::Text(_)) => (self == Self::NotEqual).into(),
        }
    }
}

impl Condition {
    /// Whether it holds of a span that says this.
    pub(super) fn of<'a>(&self, said: &impl Fn(&Field) -> Said<'a>) -> Truth {
        match self {
            Self::Any => Truth::True,
            Self::Compare(field, comparison, value) => comparison.of(said(field), value),
            Self::Matches(field, pattern, is_wanted) => match said(field) {
                Said::Nothing => Truth::False,
                Said::Unseen => Truth::Unknown,
                Said::Text(text) => (pattern.0.is_match(text) == *is_wanted).into(),
                Said::Between(..) => (!is_wanted).into(),
            },
            Self::IsThere(field, is_wanted) => match said(field) {
                Said::Unseen => Truth::Unknown,
                Said::Nothing => (!is_wanted).into(),
                Said::Text(_) | Said::Between(..) => (*is_wanted).into(),
            },
            Self::Not(inner) => !inner.of(said),
            Self::And(a, b) => a.of(said).and(b.of(said)),
            Self::Or(a, b) => a.of(said).or(b.of(said)),
        }
    }

    /// Whether it is about what the kernel did, and not about spans.
    #[must_use]
    pub fn names_kernel(&self) -> bool {
        self.names(&|field| *field == Field::Kernel)
    }

    /// Whether it names events inside spans, and links.
    pub(super) fn names_parts(&self) -> (bool, bool) {
        (
            self.names(&|field| matches!(field, Field::Event(_))),
            self.names(&|field| matches!(field, Field::Link(_))),
        )
    }

    fn names(&self, is_it: &impl Fn(&Field) -> bool) -> bool {
        let mut is_named = false;
        self.visit_fields(&mut |field| is_named |= is_it(field));
        is_named
    }

    pub(super) fn visit_fields(&self, see: &mut impl FnMut(&Field)) {
        match self {
            Self::Any => {}
            Self::Compare(field, ..) | Self::Matches(field, ..) | Self::IsThere(field, _) => {
                see(field);
            }
            Self::Not(inner) => inner.visit_fields(see),
            Self::And(a, b) | Self::Or(a, b) => {
                a.visit_fields(see);
                b.visit_fields(see);
            }
        }
    }
}
