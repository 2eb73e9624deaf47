//! Necessary conditions of a formula: spans that a request must have. Requests without these spans
//! need not be read.
//!
//! The conditions apply only to requests that were recorded completely. In other requests, a
//! missing span does not prove that the formula is false. Operators that require absence, such as
//! `never`, add no condition.

use super::condition::{Comparison, Condition, FieldReading, Value};
use super::field::Field;
use super::formula::{Formula, Selector};

/// Boolean combination of the spans that a request must have.
#[derive(Clone, Debug, PartialEq)]
enum Tree {
    /// No span is necessary.
    Anything,
    /// A span that meets the condition with this index is necessary.
    Span(usize),
    All(Vec<Tree>),
    Any(Vec<Tree>),
}

/// Spans that a request must have for a formula to hold, given by conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    /// Conditions on spans. The index of a condition is the number of its bit in
    /// [`is_met`](Requirement::is_met).
    spans: Vec<Condition>,
    tree: Tree,
    /// True if the formula names kernel events.
    has_kernel_items: bool,
}

/// Known facts about the values of a field of one or several spans.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct FieldFacts {
    /// True if nothing is known, not even whether the spans have the field.
    pub is_unknown: bool,
    /// True if some spans may lack the field. Has no meaning if `is_unknown`.
    pub may_be_absent: bool,
    /// Text values that may occur; the list is complete unless `is_unknown`.
    pub texts: Vec<String>,
    /// Range of the numeric values, unless `is_unknown`; `None` if there are none.
    pub between: Option<(f64, f64)>,
}

impl FieldFacts {
    /// Returns facts that allow any value.
    #[must_use]
    pub fn unknown() -> Self {
        Self {
            is_unknown: true,
            ..Self::default()
        }
    }

    /// Returns the facts of a field that has this text in all spans.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self {
            texts: vec![text.to_owned()],
            ..Self::default()
        }
    }

    /// Adds the facts `others` for the spans that may lack this field. If no span may lack it, or
    /// nothing is known, returns the facts unchanged.
    #[must_use]
    pub fn or_else(mut self, others: impl FnOnce() -> Self) -> Self {
        if self.is_unknown || !self.may_be_absent {
            return self;
        }
        let others = others();
        self.is_unknown = others.is_unknown;
        self.may_be_absent = others.may_be_absent;
        self.texts.extend(others.texts);
        self.between = match (self.between, others.between) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self
    }

    /// Returns the facts of a field that no span has.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            may_be_absent: true,
            ..Self::default()
        }
    }

    /// Returns the facts of a field whose values are numbers in this range.
    #[must_use]
    pub fn between(low: f64, high: f64) -> Self {
        Self {
            between: Some((low, high)),
            ..Self::default()
        }
    }
}

/// Possible outcomes of a condition: whether it may hold, and whether it may fail.
#[derive(Clone, Copy)]
struct May {
    hold: bool,
    fail: bool,
}

const EITHER: May = May {
    hold: true,
    fail: true,
};

impl May {
    fn or(self, truth: super::Truth) -> Self {
        Self {
            hold: self.hold || truth.is_possible(),
            fail: self.fail || !truth.is_sure(),
        }
    }
}

impl Condition {
    /// Reports whether the condition may hold for a span, given only these facts about its fields.
    pub fn may_hold(&self, facts: &impl Fn(&Field) -> FieldFacts) -> bool {
        self.may(facts).hold
    }

    fn may(&self, facts: &impl Fn(&Field) -> FieldFacts) -> May {
        match self {
            Self::Any => May {
                hold: true,
                fail: false,
            },
            Self::Compare(field, comparison, value) => compared(&facts(field), *comparison, value),
            Self::Matches(field, ..) | Self::IsThere(field, _) => self.of_values(&facts(field)),
            Self::Not(inner) => {
                let may = inner.may(facts);
                May {
                    hold: may.fail,
                    fail: may.hold,
                }
            }
            Self::And(a, b) => {
                let (a, b) = (a.may(facts), b.may(facts));
                May {
                    hold: a.hold && b.hold,
                    fail: a.fail || b.fail,
                }
            }
            Self::Or(a, b) => {
                let (a, b) = (a.may(facts), b.may(facts));
                May {
                    hold: a.hold || b.hold,
                    fail: a.fail && b.fail,
                }
            }
        }
    }

    /// Evaluates a condition about one field on the facts of that field.
    fn of_values(&self, facts: &FieldFacts) -> May {
        if facts.is_unknown {
            return EITHER;
        }
        let mut may = May {
            hold: false,
            fail: false,
        };
        if facts.may_be_absent {
            may = may.or(self.of(&|_| FieldReading::Nothing));
        }
        for text in &facts.texts {
            may = may.or(self.of(&|_| FieldReading::Text(text)));
        }
        match (self, facts.between) {
            (_, None) => may,
            // Attributes are texts, even if they contain numbers.
            (Self::Matches(..), Some(_)) => EITHER,
            (_, Some((low, high))) => may.or(self.of(&|_| FieldReading::Between(low, high))),
        }
    }
}

fn compared(facts: &FieldFacts, comparison: Comparison, value: &Value) -> May {
    if facts.between.is_some() && matches!(value, Value::Text(_) | Value::Whole(_)) {
        // Evaluation compares attributes as texts, even if they contain numbers, and large whole
        // numbers exactly.
        return EITHER;
    }
    Condition::Compare(Field::Name, comparison, value.clone()).of_values(facts)
}

impl Requirement {
    /// Returns the necessary conditions of a formula. If there are more than 64 different ones, the
    /// formula counts as one that needs no span.
    #[must_use]
    pub fn of(formula: &Formula) -> Self {
        let mut need = Self {
            spans: Vec::new(),
            tree: Tree::Anything,
            has_kernel_items: formula.names_kernel(),
        };
        need.tree = need.for_holding(formula);
        if need.spans.len() > u64::BITS as usize || need.is_anything() {
            // Formulas with more conditions are too rare to justify a second word of bits.
            (need.spans, need.tree) = (Vec::new(), Tree::Anything);
        }
        need
    }

    /// Returns the conditions on spans, by index; none if no span is necessary.
    #[must_use]
    pub fn spans(&self) -> &[Condition] {
        &self.spans
    }

    /// Reports whether no span is necessary. Every request must be read then.
    #[must_use]
    pub fn is_anything(&self) -> bool {
        self.is_met(0)
    }

    /// Reports whether a request may satisfy the formula. Bit `i` of `there` means that the
    /// request may have a span that meets condition `i`.
    #[must_use]
    pub fn is_met(&self, there: u64) -> bool {
        self.tree.is_met(there)
    }

    fn for_holding(&mut self, formula: &Formula) -> Tree {
        match formula {
            Formula::Is(selector) => self.selected(selector),
            Formula::Not(inner) => self.for_failing(inner),
            Formula::And(a, b) | Formula::Pair(a, _, b) => {
                Tree::All(vec![self.for_holding(a), self.for_holding(b)])
            }
            Formula::Or(a, b) => Tree::Any(vec![self.for_holding(a), self.for_holding(b)]),
            Formula::Implies(a, b) => Tree::Any(vec![self.for_failing(a), self.for_holding(b)]),
            // `All` holds for a kernel event that has no span in its time range.
            Formula::All(..) if self.has_kernel_items => Tree::Anything,
            // The spans of `Some` and `All` include the span itself, so at least one span must
            // satisfy the inner formula.
            Formula::Some(_, inner) | Formula::All(_, inner) => self.for_holding(inner),
            Formula::AtLeast(0, ..) => Tree::Anything,
            Formula::AtLeast(_, _, inner) => self.for_holding(inner),
            Formula::Until(_, _, until) => self.for_holding(until),
        }
    }

    fn for_failing(&mut self, formula: &Formula) -> Tree {
        match formula {
            Formula::Not(inner) => self.for_holding(inner),
            Formula::And(a, b) => Tree::Any(vec![self.for_failing(a), self.for_failing(b)]),
            Formula::Or(a, b) => Tree::All(vec![self.for_failing(a), self.for_failing(b)]),
            Formula::Implies(a, b) => Tree::All(vec![self.for_holding(a), self.for_failing(b)]),
            _ => Tree::Anything,
        }
    }

    fn selected(&mut self, selector: &Selector) -> Tree {
        match selector {
            // Kernel events are in another table, by time instead of by request.
            Selector::Where(condition) if condition.names_kernel() => Tree::Anything,
            Selector::Where(condition) => {
                let known = self.spans.iter().position(|known| known == condition);
                Tree::Span(known.unwrap_or_else(|| {
                    self.spans.push(condition.clone());
                    self.spans.len() - 1
                }))
            }
            Selector::Child(a, b) | Selector::Descendant(a, b) | Selector::Sibling(a, b) => {
                Tree::All(vec![self.selected(a), self.selected(b)])
            }
        }
    }
}

impl Tree {
    fn is_met(&self, there: u64) -> bool {
        match self {
            Self::Anything => true,
            Self::Span(number) => there >> number & 1 == 1,
            Self::All(parts) => parts.iter().all(|part| part.is_met(there)),
            Self::Any(parts) => parts.iter().any(|part| part.is_met(there)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn need(formula: &str) -> Requirement {
        Requirement::of(&parse(formula).expect("a formula"))
    }

    #[test]
    fn what_is_to_be_there_is_needed_and_what_is_not_to_be_is_not() {
        let check = |formula: &str, met: &[u64], unmet: &[u64]| {
            let need = need(formula);
            assert!(met.iter().all(|there| need.is_met(*there)), "{formula}");
            assert!(!unmet.iter().any(|there| need.is_met(*there)), "{formula}");
        };
        check(r#"{ name = "a" }"#, &[1], &[0]);
        check(r#"{ name = "a" } then { name = "b" }"#, &[3], &[0, 1, 2]);
        check(r#"{ name = "a" } then { name = "a" }"#, &[1], &[0]);
        check(r#"{ name = "a" } or { name = "b" }"#, &[1, 2], &[0]);
        check(r#"{ name = "a" } >> { name = "b" }"#, &[3], &[1, 2]);
        check(r#"at least 2 of { name = "a" } within 1s"#, &[1], &[0]);
        check(r#"always { name = "a" }"#, &[1], &[0]);
        check(r#"{ name = "a" } until { name = "b" }"#, &[1], &[0]);
        check(r#"not not { name = "a" }"#, &[1], &[0]);
        check(r#"{ name = "a" } and never { name = "b" }"#, &[1], &[0, 2]);
        for all in [
            r#"never { name = "a" }"#,
            r#"at most 2 of { name = "a" }"#,
            r#"at least 0 of { name = "a" }"#,
            r#"always ({ name = "a" } implies eventually { name = "b" })"#,
            r#"{ kernel = syscall }"#,
            r#"eventually ({ kernel = syscall } and always within 1ms { name = "a" })"#,
            r#"not ({ name = "a" } or { name = "b" })"#,
            r#"{ name = "a" } or never { name = "b" }"#,
        ] {
            let need = need(all);
            assert!(need.is_anything() && need.spans().is_empty(), "{all}");
        }
    }

    #[test]
    fn spans_are_told_by_what_is_known_of_them() {
        let check = |condition: &str, facts: FieldFacts, expected: bool| {
            let need = need(condition);
            assert_eq!(
                need.spans()[0].may_hold(&|_| facts.clone()),
                expected,
                "{condition} {facts:?}"
            );
        };
        let texts = |texts: &[&str]| FieldFacts {
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
            ..FieldFacts::default()
        };
        check(r#"{ name = "a" }"#, texts(&["b", "a"]), true);
        check(r#"{ name = "a" }"#, texts(&["b", "c"]), false);
        check(r#"{ name != "a" }"#, texts(&["a"]), false);
        check(r#"{ name =~ "re.*" }"#, texts(&["read"]), true);
        check(r#"{ !(name = "a") }"#, texts(&["a"]), false);
        check(r#"{ !(name = "a") }"#, FieldFacts::absent(), true);
        check(r#"{ .n > 5 }"#, FieldFacts::between(0.0, 5.0), false);
        check(r#"{ .n > 5 }"#, FieldFacts::between(0.0, 6.0), true);
        check(r#"{ .n != 5 }"#, FieldFacts::between(5.0, 5.0), false);
        check(r#"{ .n = "5" }"#, FieldFacts::between(9.0, 9.0), true);
        let rounded = FieldFacts::between(2f64.powi(53), 2f64.powi(53));
        check(r#"{ .n != 9007199254740993 }"#, rounded, true);
        check(r#"{ .n > 5 }"#, FieldFacts::absent(), false);
        check(r#"{ .n = nil }"#, FieldFacts::between(0.0, 1.0), false);
        check(r#"{ .n != nil }"#, FieldFacts::absent(), false);
        check(r#"{ .n > 5 }"#, texts(&["4", "x"]), false);
        check(r#"{ .n > 5 && .m > 5 }"#, FieldFacts::unknown(), true);
        check(r#"{ duration > 2ms }"#, FieldFacts::between(0.0, 3e6), true);
        check(r#"{ }"#, FieldFacts::absent(), true);
    }
}
