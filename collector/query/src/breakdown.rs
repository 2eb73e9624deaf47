//! Breaks the time of requests down by category and, if requested, by stratum. A stratum holds the
//! requests with one value of an attribute, with values in one quantile of a numeric attribute, or
//! without a usable value; beyond 64 strata, `(other)` holds the rest. See The Mystery Machine,
//! §5.1, figures 5 to 7.

use std::collections::BTreeSet;
use std::sync::Arc;

use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::breakdown::{
    Breakdown, QuantileSample, StratifiedBreakdown, quantile_stratum,
};
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::TraceRecords;

use super::categories::{Categories, CategoryEvidence, CategoryRule};
use super::notes::Notes;
use super::query_error::QueryError;
use super::sampled_notes::WeightUse;
use super::study::{Question, StudyInput};
use stroboscope_store::tables::AttributeKeys;

/// Name of the stratum of requests without the attribute.
const NO_STRATUM: &str = "(none)";
/// Name of the stratum of values that are not finite numbers, if strata are quantiles.
const NOT_A_NUMBER: &str = "(not a number)";
/// Maximum number of values of a numeric attribute that are strata of their own by default. With
/// more values, the strata are quantiles.
const VALUES_SHOWN_MAX: usize = 10;

/// Rule that assigns requests to strata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrataRule {
    /// Name of the attribute that defines the strata.
    pub attribute: String,
    /// Number of quantiles that define the strata. With `None`, an attribute with more than 10
    /// values that are all numbers has five quantiles, and any other attribute has one stratum per
    /// value, up to 64.
    pub quantiles: Option<usize>,
}

/// Default number of quantiles into which the values of a numeric attribute are divided.
pub const QUANTILES_DEFAULT: usize = 5;

/// Time of requests by category, over all requests and by stratum.
#[derive(Debug)]
pub struct BreakdownReport {
    /// Categories to which the numbers in the breakdowns refer.
    pub categories: Categories,
    /// Breakdown of all requests.
    pub whole: Breakdown,
    /// Breakdown by stratum; empty if not requested.
    pub strata: StratifiedBreakdown,
    /// Upper edges of the quantiles, without the last one, in ascending order; `None` if strata are
    /// not quantiles.
    pub edges: Option<Vec<f64>>,
    /// Notes about the data that the query read.
    pub notes: Notes,
}

/// Asks for the time of requests by category and, if requested, by stratum.
#[derive(Clone, Debug, Default)]
pub struct BreakdownQuestion {
    /// Rule that assigns categories to segments.
    pub rule: CategoryRule,
    /// Rule of the strata; `None` for no strata.
    pub by: Option<StrataRule>,
}

/// Categories, and the attribute and edges that define the strata.
#[derive(Debug)]
pub struct Strata {
    categories: Categories,
    attribute: Option<Attribute>,
    edges: Option<Vec<f64>>,
}

impl Question for BreakdownQuestion {
    type Records = (CategoryEvidence, Option<Values>);
    type Preparation = Strata;
    type Paths<'a> = Broken<'a>;
    type Answer = BreakdownReport;

    fn what(&self) -> &'static str {
        "breaking requests down"
    }

    fn record_keys(&self) -> AttributeKeys {
        self.rule.keys(self.by.iter().map(|by| &*by.attribute))
    }

    fn records(&self) -> Self::Records {
        let values = self.by.as_ref().map(|by| Values::of(&by.attribute));
        (CategoryEvidence::new(&self.rule), values)
    }

    fn prepare(
        &self,
        studied: StudyInput<'_>,
        records: Self::Records,
    ) -> Result<Strata, QueryError> {
        let (evidence, values) = records;
        let categories = evidence.categories(studied)?;
        let edges = match (&self.by, &values) {
            (Some(by), Some(values)) if values.is_empty() => {
                return Err(studied.no_such_attribute(&by.attribute));
            }
            (Some(by), Some(values)) => values.edges(by.quantiles),
            _ => None,
        };
        Ok(Strata {
            categories,
            attribute: values.map(|values| values.attribute),
            edges,
        })
    }

    fn path_keys(&self, _: &Strata) -> AttributeKeys {
        CategoryRule::Kinds.keys(self.by.iter().map(|by| &*by.attribute))
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, strata: &'a Strata) -> Broken<'a> {
        Broken {
            by: strata,
            whole: Breakdown::default(),
            strata: StratifiedBreakdown::default(),
        }
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        by: &Strata,
        paths: Broken<'_>,
        notes: Notes,
    ) -> Result<BreakdownReport, QueryError> {
        Ok(BreakdownReport {
            categories: by.categories.clone(),
            whole: paths.whole,
            strata: paths.strata,
            edges: by.edges.clone(),
            notes: notes.weighing(WeightUse::Everything),
        })
    }
}

/// Pass that breaks requests down by category and stratum.
#[derive(Debug)]
pub struct Broken<'a> {
    by: &'a Strata,
    whole: Breakdown,
    strata: StratifiedBreakdown,
}

impl Pass<TraceView<'_>> for Broken<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let (by, weight) = (self.by, seen.weight());
        let category = |segment| by.categories.of(segment);
        self.whole.observe(seen.path, weight, category);
        if let Some(attribute) = &by.attribute {
            let value = attribute.of_request(seen.records);
            let stratum = stratum(value.as_deref(), by.edges.as_deref());
            self.strata.observe(&stratum, seen.path, weight, category);
        }
    }

    fn merge(&mut self, other: Self) {
        self.whole.merge(&other.whole);
        self.strata.merge(&other.strata);
    }
}

fn stratum(value: Option<&str>, edges: Option<&[f64]>) -> String {
    match (value, edges) {
        (None, _) => NO_STRATUM.to_owned(),
        (Some(value), None) => value.to_owned(),
        (Some(value), Some(edges)) => number(value).map_or_else(
            || NOT_A_NUMBER.to_owned(),
            |value| quantile_stratum(edges, value),
        ),
    }
}

fn number(text: &str) -> Option<f64> {
    let number: f64 = text.trim().parse().ok()?;
    number.is_finite().then_some(number)
}

/// Pass that collects the values of an attribute: a sample of the numbers, and the first few
/// distinct values.
#[derive(Debug)]
pub struct Values {
    attribute: Attribute,
    sample: QuantileSample,
    some: BTreeSet<Arc<str>>,
    has_texts: bool,
}

impl Pass<TraceRecords> for Values {
    fn observe(&mut self, records: &TraceRecords) {
        let Some(value) = self.attribute.of_request(records) else {
            return;
        };
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
        // The merged set may exceed the maximum. `edges` only checks whether it does.
        self.some.extend(other.some);
    }
}

impl Values {
    fn of(attribute: &str) -> Self {
        Self {
            attribute: Attribute::named(attribute),
            sample: QuantileSample::default(),
            some: BTreeSet::new(),
            has_texts: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.some.is_empty()
    }

    fn edges(&self, quantiles: Option<usize>) -> Option<Vec<f64>> {
        let is_continuous = !self.has_texts && self.some.len() > VALUES_SHOWN_MAX;
        let quantiles = quantiles.or(is_continuous.then_some(QUANTILES_DEFAULT))?;
        // If many requests have the same value, edges are equal, and there are fewer strata.
        Some(self.sample.edges(quantiles))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fall_into_strata() {
        let check = |value, edges: Option<&[f64]>, expected: &str| {
            assert_eq!(stratum(value, edges), expected);
        };
        check(None, None, NO_STRATUM);
        check(Some("3g"), None, "3g");
        let edges = [1.0, 2.0, 3.0];
        check(None, Some(&edges), NO_STRATUM);
        check(Some("3g"), Some(&edges), NOT_A_NUMBER);
        check(Some("inf"), Some(&edges), NOT_A_NUMBER);
        check(Some("-7"), Some(&edges), "p025");
        check(Some("2"), Some(&edges), "p050");
        check(Some(" 1e9"), Some(&edges), "p100");
        // Three fifths of the values are 0.
        let edges = [0.0, 0.0, 0.0, 5.0];
        check(Some("0"), Some(&edges), "p060");
        check(Some("1"), Some(&edges), "p080");
        check(Some("6"), Some(&edges), "p100");
    }
}
