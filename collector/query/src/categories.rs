//! Categories of segments, such as server, network and client time. Their totals are given on the
//! critical path, and as sums that ignore concurrency (The Mystery Machine, figure 5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::aggregate::{PathAggregate, ShareSum};
use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::category::{OperationValues, SpanKinds};
use stroboscope_analysis::label::{Labels, SegmentId, SegmentLabel};
use stroboscope_analysis::pass::Pass;
use stroboscope_analysis::record::TraceRecords;

use super::inference::Inference;
use super::notes::Notes;
use super::query_error::QueryError;
use super::study::{Question, StudyInput};
use stroboscope_store::tables::AttributeKeys;

/// Name of the category of operations without the attribute.
const NO_CATEGORY: &str = "(none)";

/// Rule that assigns categories to segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CategoryRule {
    /// Server, network or client, by the kinds of spans: see [`SpanKinds`].
    #[default]
    Kinds,
    /// Value of this [attribute](Attribute::named): see [`OperationValues`].
    Attribute(String),
}

impl CategoryRule {
    /// Returns the attribute that defines the categories; `None` for the rule by kinds of spans.
    fn attribute(&self) -> Option<Attribute> {
        match self {
            Self::Kinds => None,
            Self::Attribute(name) => Some(Attribute::named(name)),
        }
    }

    /// Returns the name of the attribute that defines the categories; empty for the rule by kinds
    /// of spans.
    pub(super) fn attribute_name(&self) -> &str {
        match self {
            Self::Kinds => "",
            Self::Attribute(name) => name,
        }
    }

    /// Returns the attributes to read: the rule's own, and those named in `others`.
    pub(super) fn keys<'a>(&self, others: impl IntoIterator<Item = &'a str>) -> AttributeKeys {
        let others = others.into_iter().map(Attribute::named);
        let attributes = self.attribute().into_iter().chain(others);
        let keys = attributes.filter_map(|attribute| attribute.recorded_key().map(str::to_owned));
        AttributeKeys::of(keys)
    }
}

/// Category that a user chose, with the rule that defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CategoryChoice {
    /// Rule that assigns categories to segments.
    pub rule: CategoryRule,
    /// Name of the chosen category.
    pub name: String,
}

impl Default for CategoryChoice {
    /// Returns the category `server` of the rule by kinds of spans.
    fn default() -> Self {
        Self {
            rule: CategoryRule::Kinds,
            name: "server".to_owned(),
        }
    }
}

/// Asks for the categories of segments by this rule.
#[derive(Clone, Debug, Default)]
pub struct CategoriesQuestion(pub CategoryRule);

impl Question for CategoriesQuestion {
    type Records = CategoryEvidence;
    type Preparation = Categories;
    type Paths<'a> = ();
    type Answer = Categories;

    fn what(&self) -> &'static str {
        "finding categories"
    }

    fn record_keys(&self) -> AttributeKeys {
        self.0.keys([])
    }

    fn records(&self) -> CategoryEvidence {
        CategoryEvidence::new(&self.0)
    }

    fn prepare(
        &self,
        studied: StudyInput<'_>,
        records: CategoryEvidence,
    ) -> Result<Categories, QueryError> {
        records.categories(studied)
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, _: &'a Categories) {}

    fn answer(
        &self,
        _: StudyInput<'_>,
        found: &Categories,
        (): (),
        _: Notes,
    ) -> Result<Categories, QueryError> {
        Ok(found.clone())
    }
}

/// Evidence from traces about the categories of their operations.
#[derive(Debug, Serialize, Deserialize)]
pub struct CategoryEvidence {
    rule: CategoryRule,
    /// Attribute values by operation; `None` for the rule by kinds of spans, which the inference of
    /// the model collects.
    values: Option<OperationValues>,
}

impl CategoryEvidence {
    pub(super) fn new(rule: &CategoryRule) -> Self {
        Self {
            rule: rule.clone(),
            values: rule.attribute().map(OperationValues::new),
        }
    }

    /// Returns the categories of the model's segments.
    ///
    /// # Errors
    /// Fails if the model has segments and none of their operations has the attribute of the rule.
    pub(super) fn categories(&self, studied: StudyInput<'_>) -> Result<Categories, QueryError> {
        let known = self.known_categories(studied.inference);
        known.ok_or_else(|| studied.no_such_attribute(self.rule.attribute_name()))
    }

    /// Returns the categories of the model's segments; `None` if the model has segments and none of
    /// their operations has the attribute of the rule.
    pub(super) fn known_categories(&self, inference: &Inference) -> Option<Categories> {
        let labels = inference.model.labels();
        let is_known = |values: &OperationValues| {
            let mut each = labels.iter();
            labels.is_empty() || each.any(|(_, label)| values.value(label).is_some())
        };
        let is_known = self.values.as_ref().is_none_or(is_known);
        is_known.then(|| self.categories_of(labels, &inference.kinds))
    }

    fn categories_of(&self, labels: &Labels, kinds: &SpanKinds) -> Categories {
        let name = |label: &SegmentLabel| match &self.values {
            None => kinds.category(label).to_string(),
            Some(values) => values
                .value(label)
                .map_or_else(|| NO_CATEGORY.to_owned(), |value| value.to_string()),
        };
        let names_of: Vec<String> = labels.iter().map(|(_, label)| name(label)).collect();
        let mut names = names_of.clone();
        names.sort_unstable();
        names.dedup();
        if self.rule == CategoryRule::Kinds {
            // Order in which a request passes the categories.
            let order = ["client", "network", "server"];
            names.sort_by_key(|name| order.iter().position(|known| known == name));
        }
        let number = |name: &String| names.iter().position(|known| known == name);
        let of_segment = names_of.iter().filter_map(number).collect();
        Categories { names, of_segment }
    }
}

/// The observed records must have the attributes of [`CategoryRule::keys`].
impl Pass<TraceRecords> for CategoryEvidence {
    fn observe(&mut self, records: &TraceRecords) {
        if let Some(values) = &mut self.values {
            values.observe(records);
        }
    }

    fn merge(&mut self, other: Self) {
        if let (Some(values), Some(others)) = (&mut self.values, &other.values) {
            values.merge(others);
        }
    }

    fn is_idle(&self) -> bool {
        self.values.is_none()
    }
}

/// Categories of a model's segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Categories {
    names: Vec<String>,
    of_segment: Vec<usize>,
}

impl Categories {
    /// Returns the names of the categories, in order of the categories' numbers.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the number of a segment's category; 0 for a segment that the model does not know.
    #[must_use]
    pub fn of(&self, segment: SegmentId) -> usize {
        let number = self.of_segment.get(segment.index());
        number.copied().unwrap_or_default()
    }

    /// Returns the number of the category with this name.
    ///
    /// # Errors
    /// Fails if there is no such category.
    pub fn number(&self, name: &str) -> Result<usize, QueryError> {
        let number = self.names.iter().position(|known| known == name);
        let known = || self.names.join(", ");
        number.ok_or_else(|| QueryError::NoSuchCategory {
            category: name.to_owned(),
            known: known(),
        })
    }
}

/// Times of one category of segments, as weighted sums over requests that took time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CategoryTotals {
    pub category: String,
    /// Sum of the durations of the category's segments on the critical path, in ns.
    pub critical_duration_ns: u128,
    /// Sum of the waits for the category's segments on the critical path, in ns.
    pub critical_wait_ns: u128,
    /// Sum of the durations of the category's segments that ended no later than the answer, in ns.
    /// A breakdown that ignores causality would attribute this sum to the category.
    pub summed_delay_ns: u128,
    /// Sum of the durations of the category's segments that ended after the answer, in ns.
    pub after_answer_ns: u128,
    /// Shares of the critical path by duration and wait. For each request, the shares of all
    /// categories and of the tail add up to 1, or to 0 if the path has no length.
    pub shares: ShareSum,
}

impl CategoryTotals {
    /// Returns duration and wait on the critical path, in ns.
    #[must_use]
    pub fn critical_ns(&self) -> u128 {
        self.critical_duration_ns + self.critical_wait_ns
    }
}

/// Returns the categories that occur, those with the largest part of the critical path first.
///
/// Each category is the sum of its segments' statistics. The sums are computed after reading,
/// because the categories are known only then.
pub(super) fn totals(aggregate: &PathAggregate, categories: &Categories) -> Vec<CategoryTotals> {
    let mut by_category = BTreeMap::<usize, CategoryTotals>::new();
    for (id, statistics) in aggregate.segments() {
        let number = categories.of(id);
        let totals = by_category.entry(number).or_insert_with(|| CategoryTotals {
            category: categories.names[number].clone(),
            critical_duration_ns: 0,
            critical_wait_ns: 0,
            summed_delay_ns: 0,
            after_answer_ns: 0,
            shares: ShareSum::default(),
        });
        totals.critical_duration_ns += statistics.critical_duration_ns;
        totals.critical_wait_ns += statistics.critical_wait_ns;
        totals.summed_delay_ns += statistics.duration.sum_ns() - statistics.after_answer_ns;
        totals.after_answer_ns += statistics.after_answer_ns;
        totals.shares += statistics.shares();
    }
    let mut totals: Vec<_> = by_category.into_values().collect();
    // The sort is stable, so equals stay in order of their numbers.
    totals.sort_by_key(|totals| std::cmp::Reverse(totals.critical_ns()));
    totals
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::critical_path::analyse;
    use stroboscope_analysis::model::Model;
    use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceRecords};
    use stroboscope_analysis::sampling::Weight;
    use stroboscope_analysis::segment::segment;

    use super::*;

    fn span(span_id: u64, service: &str, flags: SpanFlags, interval_ns: (i64, i64)) -> SpanRecord {
        SpanRecord {
            span_id,
            parent_id: span_id - 1,
            service: service.into(),
            name: "get".into(),
            host: "h".into(),
            process: 0,
            start_ns: interval_ns.0,
            end_ns: interval_ns.1,
            flags,
            events: Vec::new(),
        }
    }

    #[test]
    fn time_goes_to_whom_it_belongs() {
        // The browser works for 20 ns, waits for the network for 10 + 10 ns, and the server works
        // for 60 ns.
        let none = SpanFlags::default();
        let spans = vec![
            span(1, "browser", none, (0, 100)),
            span(2, "http", SpanFlags::CLIENT, (10, 90)),
            span(3, "web", SpanFlags::SERVER, (20, 80)),
        ];
        let records = TraceRecords {
            spans,
            ..TraceRecords::default()
        };
        let (mut model, mut aggregate) = (Model::new(), PathAggregate::new());
        let mut kinds = SpanKinds::default();
        let (trace, _) = segment(&records, model.labels_mut());
        model.observe(&trace);
        kinds.observe(&records);
        aggregate.observe(&analyse(&trace, &model.relations(0.0)), Weight::ONE);
        let found: Vec<_> = totals(
            &aggregate,
            &CategoryEvidence::new(&CategoryRule::Kinds).categories_of(model.labels(), &kinds),
        )
        .iter()
        .map(|totals| {
            (
                totals.category.clone(),
                totals.critical_ns(),
                totals.summed_delay_ns,
                totals.shares.mean(aggregate.traces()),
            )
        })
        .collect();
        let expected = [
            ("server", 60, 60, 0.6),
            ("client", 20, 20, 0.2),
            ("network", 20, 20, 0.2),
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(
                (&*found.0, found.1, found.2),
                (expected.0, expected.1, expected.2)
            );
            assert!((found.3 - expected.3).abs() < 1e-12, "{found:?}");
        }
    }
}
