//! Predicts the slack of a request from the previous request with the same key, and finds the
//! attributes that are the best keys. See The Mystery Machine, §5.2, figure 11.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::prediction::{PredictionQuality, SlackHistory, rank};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::slack_validation::ServerTime;

use super::attribute_names::AttributeCounts;
use super::categories::{Categories, CategoryChoice, CategoryEvidence, CategoryRule};
use super::notes::Notes;
use super::query_error::QueryError;
use super::study::{Question, StudyInput};
use stroboscope_store::tables::AttributeKeys;

/// Maximum number of attributes that are tried if the user names none. Each needs memory for a
/// history of requests, so only those that occur in the most requests are tried.
pub const ATTRIBUTES_MAX: usize = 16;

/// Target and keys of a prediction.
#[derive(Clone, Debug, Default)]
pub struct PredictSettings {
    /// Attributes to try as the key. If empty, the [`ATTRIBUTES_MAX`] most common attributes are
    /// tried.
    pub attributes: Vec<String>,
    /// Slack in ns above which a request counts as having slack. `None` stands for the median, so
    /// that at most about half of the requests have slack.
    pub threshold_ns: Option<u64>,
    /// Category whose segments are the server's. The slack of a request is that of its last server
    /// segment.
    pub server: CategoryChoice,
}

/// Quality of attributes as predictors of slack.
#[derive(Debug)]
pub struct PredictReport {
    /// Slack in ns above which a request counts as having slack.
    pub threshold_ns: u64,
    /// Slack of the requests with a server segment that ended no later than the answer.
    pub slack: Distribution,
    /// Attributes, best first. Each has the quality of its predictions, and the number of requests
    /// that its bounded history left out.
    pub ranked: Vec<(String, PredictionQuality, u64)>,
    /// Number of attributes that were not tried because there were too many.
    pub not_tried: usize,
    /// Notes about the data that the query read.
    pub notes: Notes,
}

/// Asks how well attributes predict slack when used as keys.
impl Question for PredictSettings {
    type Records = (CategoryEvidence, AttributesSeen);
    type Preparation = Keys;
    type Paths<'a> = PredictionPass<'a>;
    type Answer = PredictReport;

    fn what(&self) -> &'static str {
        "predicting slack"
    }

    fn record_keys(&self) -> AttributeKeys {
        if self.attributes.is_empty() {
            AttributeKeys::all()
        } else {
            self.server
                .rule
                .keys(self.attributes.iter().map(|key| &**key))
        }
    }

    fn records(&self) -> Self::Records {
        let names = self.attributes.iter();
        let named = names.map(|name| (name.as_str().into(), Attribute::named(name)));
        let seen = AttributesSeen {
            wanted: named.collect(),
            counts: AttributeCounts::default(),
        };
        (CategoryEvidence::new(&self.server.rule), seen)
    }

    fn prepare(&self, studied: StudyInput<'_>, records: Self::Records) -> Result<Keys, QueryError> {
        let (evidence, AttributesSeen { counts, .. }) = records;
        let categories = evidence.categories(studied)?;
        let server = categories.number(&self.server.name)?;
        let (attributes, not_tried) = if self.attributes.is_empty() {
            counts.most_common(ATTRIBUTES_MAX)
        } else {
            (self.attributes.clone(), 0)
        };
        let mut wanted = self.attributes.iter();
        if let Some(missing) = wanted.find(|attribute| !counts.has(attribute)) {
            return Err(studied.no_such_attribute(missing));
        }
        if attributes.is_empty() {
            return Err(QueryError::NoAttributes);
        }
        let named = |name: String| (name.clone(), Attribute::named(&name));
        Ok(Keys {
            categories,
            server,
            attributes: attributes.into_iter().map(named).collect(),
            not_tried,
        })
    }

    fn path_keys(&self, keys: &Keys) -> AttributeKeys {
        CategoryRule::Kinds.keys(keys.attributes.keys().map(|name| &**name))
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, keys: &'a Keys) -> PredictionPass<'a> {
        let names = keys.attributes.keys();
        let histories = names.map(|name| (&**name, SlackHistory::default()));
        PredictionPass {
            keys,
            slack: Distribution::default(),
            histories: histories.collect(),
        }
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        keys: &Keys,
        paths: PredictionPass<'_>,
        notes: Notes,
    ) -> Result<PredictReport, QueryError> {
        let (slack, histories) = (paths.slack, paths.histories);
        let median_ns = || slack.percentiles().p50_ns;
        let threshold_ns = self.threshold_ns.unwrap_or_else(median_ns);
        let each = histories.iter();
        let each = each.map(|(attribute, history)| (*attribute, history));
        let ranked = rank(each, threshold_ns).into_iter();
        let ranked = ranked.map(|(attribute, quality)| {
            let refused = histories[attribute].refused();
            (attribute.to_owned(), quality, refused)
        });
        Ok(PredictReport {
            threshold_ns,
            ranked: ranked.collect(),
            slack,
            not_tried: keys.not_tried,
            notes,
        })
    }
}

/// Pass that counts the attributes that occur. If `wanted` is not empty, it counts only the
/// attributes in `wanted`.
#[derive(Debug)]
pub struct AttributesSeen {
    wanted: Vec<(Arc<str>, Attribute)>,
    counts: AttributeCounts,
}

impl Pass<TraceRecords> for AttributesSeen {
    fn observe(&mut self, records: &TraceRecords) {
        if self.wanted.is_empty() {
            return self.counts.observe(records);
        }
        let wanted = self.wanted.iter();
        let said = wanted.filter(|(_, attribute)| attribute.of_request(records).is_some());
        said.for_each(|(name, _)| self.counts.add(name, 1));
    }

    fn merge(&mut self, other: Self) {
        self.counts.merge(&other.counts);
    }
}

/// Attributes to try as keys, and the categories of segments.
#[derive(Debug)]
pub struct Keys {
    categories: Categories,
    server: usize,
    attributes: BTreeMap<String, Attribute>,
    not_tried: usize,
}

/// Pass that keeps a history of slack for each attribute.
#[derive(Debug)]
pub struct PredictionPass<'a> {
    keys: &'a Keys,
    slack: Distribution,
    histories: BTreeMap<&'a str, SlackHistory>,
}

impl Pass<TraceView<'_>> for PredictionPass<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let keys = self.keys;
        let is_server = |segment| keys.categories.of(segment) == keys.server;
        let Some(request) = ServerTime::of(seen.path, is_server) else {
            return;
        };
        self.slack.record(request.slack_ns);
        for (attribute, history) in &mut self.histories {
            if let Some(value) = keys.attributes[*attribute].of_request(seen.records) {
                history.observe(&value, seen.trace.start_ns, request.slack_ns);
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.slack.merge(&other.slack);
        for (attribute, history) in other.histories {
            self.histories.entry(attribute).or_default().merge(&history);
        }
    }
}
