//! Judges an answer of `compare` by the injected change.

use std::fmt;
use std::iter::Sum;

use serde_json::Value;

use crate::Failure;
use crate::change::Change;

/// Number of mutations that a reader is assumed to look at.
const FIRST: usize = 10;

/// A part of a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Share {
    pub(crate) part: u64,
    pub(crate) whole: u64,
}

impl Sum for Share {
    fn sum<I: Iterator<Item = Self>>(shares: I) -> Self {
        shares.fold(Self::default(), |sum, share| Self {
            part: sum.part + share.part,
            whole: sum.whole + share.whole,
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.whole == 0 {
            return f.write_str("none");
        }
        let percent = 100.0 * self.part as f64 / self.whole as f64;
        write!(f, "{percent:.1} %")
    }
}

/// Correctness of an answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Judged {
    /// Relevant mutations among the ten highest.
    pub(crate) of_first_ten: Share,
    /// Irrelevant mutations among all.
    pub(crate) false_positives: Share,
    /// Requests in relevant mutations, among the requests with the change.
    pub(crate) coverage: Share,
    /// Rank of the first cause that names the injected change, from 1; `None` if no cause names it.
    pub(crate) rank: Option<usize>,
    /// Operation of the first cause, or `none`.
    pub(crate) first: String,
    /// True if the explanation names the parameter; `None` without an explanation.
    pub(crate) explained: Option<bool>,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of the first ten relevant, {} of all false, {} covered, first cause {}{}",
            self.of_first_ten,
            self.false_positives,
            self.coverage,
            self.first,
            if self.rank == Some(1) { "" } else { " (WRONG)" }
        )?;
        match self.explained {
            Some(true) => f.write_str(", explained by the parameter"),
            Some(false) => f.write_str(", the explanation lacks the parameter"),
            None => Ok(()),
        }
    }
}

/// Judges `answer`. All later requests have `change`.
///
/// A mutation is relevant if one of its edges that became slower belongs to a changed operation. If
/// the change affects the structure, a mutation is also relevant if the requests of its category
/// diverge from their precursors at a changed operation. Causes are not evidence of relevance,
/// because they are judged themselves.
pub(crate) fn judge(answer: &Value, change: &Change) -> Result<Judged, Failure> {
    let mutations = rows(answer, "mutations")?;
    let causes = rows(answer, "causes")?;
    let is_relevant: Vec<bool> = mutations
        .iter()
        .map(|mutation| relevant(mutation, change))
        .collect();
    let count = |part: &[bool], wanted: bool| Share {
        part: part.iter().filter(|is| **is == wanted).count() as u64,
        whole: part.len() as u64,
    };
    let affected = requests(&answer["after"]["requests"])?;
    // If a category is both kinds of mutation, its requests count once.
    let mut covered = std::collections::BTreeMap::new();
    for (mutation, _) in mutations.iter().zip(&is_relevant).filter(|(_, is)| **is) {
        let category = mutation["category"].as_str().unwrap_or_default();
        covered.insert(category, requests(&mutation["requests"]["after"])?);
    }
    Ok(Judged {
        of_first_ten: count(&is_relevant[..is_relevant.len().min(FIRST)], true),
        false_positives: count(&is_relevant, false),
        coverage: Share {
            part: covered.values().sum(),
            whole: affected,
        },
        rank: causes
            .iter()
            .position(|cause| change.is_of(cause))
            .map(|at| at + 1),
        first: causes.first().map_or("none".to_owned(), name_of),
        explained: None,
    })
}

fn relevant(mutation: &Value, change: &Change) -> bool {
    let of = |list: &str| mutation[list].as_array().map_or(&[][..], Vec::as_slice);
    let is_slower = of("edges")
        .iter()
        .any(|edge| edge["change_ns"].as_f64().is_some_and(|ns| ns > 0.0) && change.is_of(edge));
    let has_parted = of("precursors").iter().any(|precursor| {
        precursor["divergence"]
            .as_str()
            .is_some_and(|divergence| change.is_parted_at(divergence))
    });
    // If the structure stays, categories appear or disappear by chance only.
    is_slower || (has_parted && !change.keeps_structure)
}

/// Returns the rows of a list. Fails if the answer lacks the list.
pub(crate) fn rows<'a>(answer: &'a Value, list: &str) -> Result<&'a [Value], Failure> {
    let rows = answer[list].as_array();
    Ok(rows.ok_or_else(|| format!("compare's answer has no list {list:?}"))?)
}

/// Returns the operation of a cause.
pub(crate) fn name_of(cause: &Value) -> String {
    let text = |key: &str| cause[key].as_str().unwrap_or("?").to_owned();
    format!("{}:{}", text("service"), text("operation"))
}

/// Reports whether any text of an explanation contains the attribute as a whole word. Underscores
/// are parts of words.
pub(crate) fn names(explanation: &Value, parameter: &str) -> bool {
    match explanation {
        Value::String(text) => text
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .any(|word| word == parameter),
        Value::Array(values) => values.iter().any(|value| names(value, parameter)),
        Value::Object(fields) => fields.values().any(|value| names(value, parameter)),
        _ => false,
    }
}

fn requests(count: &Value) -> Result<u64, Failure> {
    Ok(count
        .as_u64()
        .ok_or_else(|| format!("compare's answer has {count} in place of a number of requests"))?)
}
