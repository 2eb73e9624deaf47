//! Learns a model that predicts the slack of services and operations from an attribute of the
//! request, its key.

use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::slack_by_key::{ComponentSlack, Components, SlackByKey};
use stroboscope_tradeoff::SlackModel;

use super::categories::CategoryRule;
use super::notes::Notes;
use super::query_error::QueryError;
use super::study::{Question, StudyInput};
use stroboscope_store::tables::AttributeKeys;

/// Key and components of a slack model.
#[derive(Clone, Debug, Default)]
pub struct SlackModelSettings {
    /// Attribute whose values are the keys.
    pub key: String,
    /// Services and operations whose slack is predicted; empty for all services.
    pub components: Vec<String>,
    /// Slack in ns above which a component counts as having slack, predicted or actual; `None` for
    /// each component's median.
    pub threshold_ns: Option<u64>,
}

/// Model of slack, with the quality of its predictions.
#[derive(Debug)]
pub struct SlackModelReport {
    /// Model from which services predict slack.
    pub model: SlackModel,
    /// Quality of the predictions for the recorded requests, by component.
    pub components: Vec<ComponentSlack>,
    /// Services and operations that exceed the limit on components of a model.
    pub left_out: Vec<String>,
    /// Number of evictions of keys at the limit. The model keeps the keys with the latest requests.
    pub forgotten: u64,
    /// Notes about the data that the query read.
    pub notes: Notes,
}

/// Asks for a model with the slack of each component in the last request of each key.
impl Question for SlackModelSettings {
    type Records = IsKeySaid;
    type Preparation = (Attribute, Components);
    type Paths<'a> = ByKey<'a>;
    type Answer = SlackModelReport;

    fn what(&self) -> &'static str {
        "learning slack"
    }

    fn record_keys(&self) -> AttributeKeys {
        CategoryRule::Kinds.keys([&*self.key])
    }

    fn records(&self) -> IsKeySaid {
        IsKeySaid {
            key: Attribute::named(&self.key),
            is_said: false,
        }
    }

    fn prepare(
        &self,
        studied: StudyInput<'_>,
        records: IsKeySaid,
    ) -> Result<(Attribute, Components), QueryError> {
        if !records.is_said {
            return Err(studied.no_such_attribute(&self.key));
        }
        let components = Components::of(studied.inference.model.labels(), &self.components);
        if let Some(unknown) = components.unknown().next() {
            return Err(QueryError::NoComponent(unknown.to_owned()));
        }
        Ok((records.key, components))
    }

    fn path_keys(&self, _: &(Attribute, Components)) -> AttributeKeys {
        self.record_keys()
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, (key, of): &'a (Attribute, Components)) -> ByKey<'a> {
        ByKey {
            key,
            of,
            seen: SlackByKey::default(),
        }
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        (_, of): &(Attribute, Components),
        paths: ByKey<'_>,
        notes: Notes,
    ) -> Result<SlackModelReport, QueryError> {
        let (model, components, forgotten) = paths.seen.finish(&self.key, of, self.threshold_ns);
        Ok(SlackModelReport {
            model,
            components,
            left_out: of.left_out().to_vec(),
            forgotten,
            notes,
        })
    }
}

/// Pass that checks whether any request has the key.
#[derive(Debug)]
pub struct IsKeySaid {
    key: Attribute,
    is_said: bool,
}

impl Pass<TraceRecords> for IsKeySaid {
    fn observe(&mut self, records: &TraceRecords) {
        self.is_said = self.is_said || self.key.of_request(records).is_some();
    }

    fn merge(&mut self, other: Self) {
        self.is_said |= other.is_said;
    }
}

/// Pass that keeps the last request of each key.
#[derive(Debug)]
pub struct ByKey<'a> {
    key: &'a Attribute,
    of: &'a Components,
    seen: SlackByKey,
}

impl Pass<TraceView<'_>> for ByKey<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        if let Some(key) = self.key.of_request(seen.records) {
            self.seen
                .observe(self.of, &key, seen.trace.start_ns, seen.path);
        }
    }

    fn merge(&mut self, other: Self) {
        self.seen.merge(other.seen);
    }
}
