//! Conditions on the path to a leaf.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Constraint on a column's values.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// Greater than the first bound and at most the second; either may be infinite.
    Between(f64, f64),
    /// One of these texts.
    OneOf(BTreeSet<Arc<str>>),
    /// Any text but these.
    NoneOf(BTreeSet<Arc<str>>),
}

impl Test {
    /// Returns the conjunction of both tests, or `None` if one test cannot express it.
    fn and(&self, other: &Test) -> Option<Test> {
        Some(match (self, other) {
            (Test::Between(a, b), Test::Between(c, d)) => Test::Between(a.max(*c), b.min(*d)),
            (Test::OneOf(a), Test::OneOf(b)) => Test::OneOf(a & b),
            (Test::OneOf(a), Test::NoneOf(b)) | (Test::NoneOf(b), Test::OneOf(a)) => {
                Test::OneOf(a - b)
            }
            (Test::NoneOf(a), Test::NoneOf(b)) => Test::NoneOf(a | b),
            _ => return None,
        })
    }
}

/// Constraint on one column.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Index of the column in the table.
    pub column: usize,
    /// Name of the column.
    pub name: Arc<str>,
    /// Constraint on the column's values.
    pub test: Test,
}

impl Condition {
    /// Adds the condition to a list. Merges it with the first condition on the same column if one
    /// test can express both.
    pub(super) fn add_to(self, conditions: &mut Vec<Condition>) {
        let mut others = conditions.iter_mut();
        let same = others.find(|other| other.column == self.column);
        let both = same.as_ref().and_then(|same| same.test.and(&self.test));
        match (same, both) {
            (Some(same), Some(both)) => same.test = both,
            _ => conditions.push(self),
        }
    }
}

impl Test {
    /// Formats the test as people write it, for a column of this name: `count <= 4096`,
    /// `shard = "b"`, `partition = 1`.
    pub fn of(&self, name: &str) -> String {
        match self {
            Test::Between(above, most) if above.is_infinite() => format!("{name} <= {most}"),
            Test::Between(above, most) if most.is_infinite() => format!("{name} > {above}"),
            Test::Between(above, most) => format!("{above} < {name} <= {most}"),
            Test::OneOf(texts) => match texts.first() {
                // Formulas write numbers without quotes.
                Some(text) if texts.len() == 1 && text.parse::<f64>().is_ok_and(f64::is_finite) => {
                    format!("{name} = {text}")
                }
                Some(text) if texts.len() == 1 => format!("{name} = {text:?}"),
                _ => format!("{name} is {}", listed(texts)),
            },
            Test::NoneOf(texts) => format!("{name} is not {}", listed(texts)),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.test.of(&self.name))
    }
}

fn listed(texts: &BTreeSet<Arc<str>>) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    quoted.join(" or ")
}
