//! A model that foretells each component's slack by a request's key.

use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::slack_by_key::{ComponentSlack, Components, SlackByKey};
use stroboscope_tradeoff::SlackModel;

use super::attribute_names::no_such_attribute;
use super::categories::CategoryRule;
use super::notes::Notes;
use super::query_error::QueryError;
use super::study::{Question, Studied};
use stroboscope_store::tables::AttributeKeys;

/// What slack is to be foretold by, and whose.
#[derive(Clone, Debug, Default)]
pub struct SlackModelSettings {
    /// The attribute whose values are the keys.
    pub key: String,
    /// Services and operations; none: all services.
    pub components: Vec<String>,
    /// Slack means more than this, where it is judged how well it is foretold; none: more than the component's median.
    pub threshold_ns: Option<u64>,
}

/// A model of slack.
#[derive(Debug)]
pub struct SlackModelReport {
    /// What services foretell by.
    pub model: SlackModel,
    /// How well it would have foretold what was recorded.
    pub components: Vec<ComponentSlack>,
    /// Services that found no room in a model.
    pub left_out: Vec<String>,
    /// Keys that found no room; those seen last are in the model.
    pub forgotten: u64,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// What slack did each component have in the last request of each key?
impl Question for SlackModelSettings {
    type Records = IsKeySaid;
    type Prepared = (Attribute, Components);
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
        studied: Studied<'_>,
        records: IsKeySaid,
    ) -> Result<(Attribute, Components), QueryError> {
        if !records.is_said {
            return Err(no_such_attribute(
                studied.source,
                studied.selection,
                &self.key,
            ));
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

    fn paths<'a>(&'a self, _: Studied<'a>, (key, of): &'a (Attribute, Components)) -> ByKey<'a> {
        ByKey {
            key,
            of,
            seen: SlackByKey::default(),
        }
    }

    fn answer(
        &self,
        _: Studied<'_>,
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

/// Whether any request has the key.
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

/// The last request of each key, as a pass.
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
