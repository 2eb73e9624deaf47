//! Conditions about one span, in TraceQL's notation.

use regex::Regex;

use super::field::Field;
use super::truth::Truth;

/// Condition about one span.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// `{}`: every span meets it.
    Any,
    /// A field compared with a value.
    Compare(Field, Comparison, Value),
    /// A field is present, and matches a pattern (true) or does not match it (false).
    Matches(Field, Pattern, bool),
    /// A field is present (true), or absent (false).
    IsThere(Field, bool),
    /// The inner condition does not hold.
    Not(Box<Condition>),
    /// Both conditions hold.
    And(Box<Condition>, Box<Condition>),
    /// At least one of the conditions holds.
    Or(Box<Condition>, Box<Condition>),
}

/// Operator that compares two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`: the values are equal.
    Equal,
    /// `!=`: the values differ.
    NotEqual,
    /// `<`: the field's value is less.
    Less,
    /// `<=`: the field's value is less or equal.
    AtMost,
    /// `>`: the field's value is greater.
    Greater,
    /// `>=`: the field's value is greater or equal.
    AtLeast,
}

/// Value that a field is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `"text"`, or a word that is compared as a text, such as `true`, `server` or `error`.
    Text(String),
    /// A number. Durations are numbers of nanoseconds.
    Number(f64),
    /// A whole number of more than 53 bits, such as an id.
    Whole(i128),
}

/// Regular expression that has to match the whole text.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Pattern {
    /// Returns the pattern as the user wrote it.
    pub(super) fn text(&self) -> &str {
        let text = self.0.as_str();
        let inner = text
            .strip_prefix("^(?:")
            .and_then(|text| text.strip_suffix(")$"));
        inner.unwrap_or(text)
    }

    /// Compiles a pattern, anchored at both ends, as in TraceQL. Returns an error for an invalid or
    /// too large pattern.
    pub(super) fn new(text: &str) -> Result<Self, regex::Error> {
        let compiled = |text: &str| regex::RegexBuilder::new(text).size_limit(1 << 20).build();
        // Otherwise, unbalanced parentheses such as in `a)|(?:b` would escape the anchors.
        compiled(text)?;
        compiled(&format!("^(?:{text})$")).map(Self)
    }
}

/// Value of a span's field, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FieldReading<'a> {
    Text(&'a str),
    /// Range of possible numeric values. Both ends are equal if the value is certain.
    Between(f64, f64),
    /// The span has no such field.
    Nothing,
    /// The field may exist, but was not recorded.
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
        // The value may also equal `with` somewhere inside the range.
        let is_between = low <= with && with <= high;
        let (all, any) = match self {
            Self::Equal => (false, is_between),
            Self::NotEqual => (!is_between, true),
            _ => (at(low) && at(high), at(low) || at(high)),
        };
        Truth::from_bounds(all, any)
    }

    fn of(self, said: FieldReading<'_>, value: &Value) -> Truth {
        match (said, value) {
            (FieldReading::Nothing, _) => Truth::False,
            (FieldReading::Unseen, _) => Truth::Unknown,
            (FieldReading::Text(text), Value::Text(with)) => {
                self.holds(text.cmp(with.as_str())).into()
            }
            (FieldReading::Text(text), Value::Number(with)) => match text.parse::<f64>() {
                Ok(number) => self.of_numbers(number, number, *with),
                // Values of different types are not equal and have no order.
                Err(_) => (self == Self::NotEqual).into(),
            },
            (FieldReading::Between(low, high), Value::Number(with)) => {
                self.of_numbers(low, high, *with)
            }
            (FieldReading::Between(..), Value::Text(_)) => (self == Self::NotEqual).into(),
            (said, Value::Whole(with)) => {
                let exact = match said {
                    FieldReading::Text(text) => text.parse::<i128>().ok(),
                    _ => None,
                };
                match exact {
                    Some(number) => self.holds(number.cmp(with)).into(),
                    None => self.of(said, &Value::Number(*with as f64)),
                }
            }
        }
    }
}

impl Condition {
    /// Evaluates the condition on a span or event. `said` returns the value of a field.
    pub(super) fn of<'a>(&self, said: &impl Fn(&Field) -> FieldReading<'a>) -> Truth {
        match self {
            Self::Any => Truth::True,
            Self::Compare(field, comparison, value) => comparison.of(said(field), value),
            Self::Matches(field, pattern, is_wanted) => match said(field) {
                FieldReading::Nothing => Truth::False,
                FieldReading::Unseen => Truth::Unknown,
                FieldReading::Text(text) => (pattern.0.is_match(text) == *is_wanted).into(),
                FieldReading::Between(..) => (!is_wanted).into(),
            },
            Self::IsThere(field, is_wanted) => match said(field) {
                FieldReading::Unseen => Truth::Unknown,
                FieldReading::Nothing => (!is_wanted).into(),
                FieldReading::Text(_) | FieldReading::Between(..) => (*is_wanted).into(),
            },
            Self::Not(inner) => !inner.of(said),
            Self::And(a, b) => a.of(said).and(b.of(said)),
            Self::Or(a, b) => a.of(said).or(b.of(said)),
        }
    }

    /// Reports whether the condition names the field `kernel`, even if it is about spans, too.
    #[must_use]
    pub fn names_kernel(&self) -> bool {
        self.names(&|field| *field == Field::Kernel)
    }

    /// Reports two facts: whether the condition names events inside spans, and whether it names
    /// links.
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
