//! What requests spend their time on, by category, and by stratum: the value of an attribute, or the quantile of a
//! numeric one (The Mystery Machine, §5.1, figures 5 to 7).

use std::collections::BTreeSet;
use std::sync::Arc;

use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::breakdown::{Breakdown, QuantileSample, Stratified, quantile_stratum};
use stroboscope_analysis::record::TraceRecords;

use super::attribute_names::no_such_attribute;
use super::categories::{Categories, CategoryRule};
use super::infer::Inference;
use super::paths::{Visit, fold_traces};
use super::source::{Notes, QueryError, Selection, Source};

/// The stratum of requests that say nothing of the attribute.
const NO_STRATUM: &str = "(none)";
/// The stratum of what is no number, where quantiles were asked for.
const NOT_A_NUMBER: &str = "(not a number)";
/// An attribute of numbers has strata by quantile if it has more than so many values.
const VALUES_SHOWN_MAX: usize = 10;

/// How to put requests into strata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrataRule {
    /// By this attribute of the request.
    pub attribute: String,
    /// By so many quantiles of it. None: by quantile if it has many values and all are numbers, and otherwise by value.
    pub quantiles: Option<usize>,
}

/// Quantiles of an attribute of which nothing else is said.
pub const QUANTILES_DEFAULT: usize = 5;

/// Requests broken down.
#[derive(Debug)]
pub struct BreakdownReport {
    /// What the numbers of the breakdowns' categories mean.
    pub categories: Categories,
    /// All requests.
    pub whole: Breakdown,
    /// By stratum, if that was asked for.
    pub strata: Stratified,
    /// The upper edges of the strata but the last, where they are quantiles.
    pub edges: Option<Vec<f64>>,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// Breaks all selected requests down. Reads them twice: for categories and quantiles, and then for their paths.
///
/// # Errors
/// When the store cannot be read, or no request has the attribute asked for.
pub fn breakdown(
    source: &Source,
    selection: Selection,
    inference: &Inference,
    rule: &CategoryRule,
    by: Option<&StrataRule>,
) -> Result<BreakdownReport, QueryError> {
    let keys = rule.keys(by.map(|by| &*by.attribute));
    let labels = inference.model.labels();
    let attribute = by.map(|by| Attribute::named(&by.attribute));
    let see = |values: &mut Values, records: &TraceRecords| {
        if let Some(attribute) = &attribute {
            values.observe(records, attribute);
        }
    };
    let (categories, parts) =
        Categories::find(source, selection, (rule, labels), &keys, Values::default, see)?;
    let mut values = Values::default();
    parts.into_iter().for_each(|part| values.merge(part));
    let edges = match by {
        Some(by) if values.is_empty() => {
            return Err(no_such_attribute(source, selection, &by.attribute));
        }
        Some(by) => values.edges(by.quantiles),
        None => None,
    };
    let new = || (Breakdown::default(), Stratified::default());
    let take = |(whole, strata): &mut (Breakdown, Stratified), Visit { records, path, .. }: Visit<'_>| {
        whole.observe(&path, |segment| categories.of(segment));
        if let Some(attribute) = &attribute {
            let value = attribute.of_request(records);
            let stratum = stratum(value.as_deref(), edges.as_deref());
            strata.observe(&stratum, &path, |segment| categories.of(segment));
        }
    };
    let (parts, notes) =
        fold_traces("breaking requests down", source, selection, inference, &keys, new, take)?;
    let (mut whole, mut strata) = new();
    for (whole_of_part, strata_of_part) in &parts {
        whole.merge(whole_of_part);
        strata.merge(strata_of_part);
    }
    Ok(BreakdownReport { categories, whole, strata, edges, notes })
}

fn stratum(value: Option<&str>, edges: Option<&[f64]>) -> String {
    match (value, edges) {
        (None, _) => NO_STRATUM.to_owned(),
        (Some(value), None) => value.to_owned(),
        (Some(value), Some(edges)) => {
            number(value).map_or_else(|| NOT_A_NUMBER.to_owned(), |value| quantile_stratum(edges, value))
        }
    }
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// What is known of an attribute's values.
#[derive(Debug, Default)]
struct Values {
    sample: QuantileSample,
    some: BTreeSet<Arc<str>>,
    has_texts: bool,
}

impl Values {
    fn observe(&mut self, records: &TraceRecords, attribute: &Attribute) {
        let Some(value) = attribute.of_request(records) else { return };
        match number(&value) {
            Some(number) => self.sample.observe(records.id, number),
            None => self.has_texts = true,
        }
        if self.some.len() <= VALUES_SHOWN_MAX {
            self.some.insert(value);
        }
    }

    fn merge(&mut self, other: Self) {
        self.sample.merge(&other.sample);
        self.has_texts |= other.has_texts;
        // More than are looked at stay more.
        self.some.extend(other.some);
    }

    fn is_empty(&self) -> bool {
        self.some.is_empty()
    }

    fn edges(&self, quantiles: Option<usize>) -> Option<Vec<f64>> {
        let is_continuous = !self.has_texts && self.some.len() > VALUES_SHOWN_MAX;
        let quantiles = quantiles.or(is_continuous.then_some(QUANTILES_DEFAULT))?;
        let mut edges = self.sample.edges(quantiles);
        // Where many requests have the same value, there are fewer strata.
        edges.dedup();
        Some(edges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fall_into_strata() {
        let check =
            |value, edges: Option<&[f64]>, expected: &str| assert_eq!(stratum(value, edges), expected);
        check(None, None, NO_STRATUM);
        check(Some("3g"), None, "3g");
        let edges = [1.0, 2.0, 3.0];
        check(None, Some(&edges), NO_STRATUM);
        check(Some("3g"), Some(&edges), NOT_A_NUMBER);
        check(Some("inf"), Some(&edges), NOT_A_NUMBER);
        check(Some("-7"), Some(&edges), "p025");
        check(Some("2"), Some(&edges), "p050");
        check(Some(" 1e9"), Some(&edges), "p100");
    }
}
