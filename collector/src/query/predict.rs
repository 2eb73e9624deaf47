//! Slack foretold by the last request of the same key (The Mystery Machine, §5.2, figure 11), and which attributes are
//! keys that tell.

use std::collections::BTreeMap;

use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::prediction::{PredictionQuality, SlackHistory, rank};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::slack_validation::ServerTime;

use super::attribute_names::{AttributeCounts, no_such_attribute};
use super::categories::{Categories, CategoryChoice, CategoryRule};
use super::infer::Inference;
use super::paths::{Visit, fold_traces};
use super::source::{Notes, QueryError, Selection, Source};
use crate::store::AttributeKeys;

/// Most attributes that are tried, as each needs memory for a history of all requests: those that most requests have.
pub const ATTRIBUTES_MAX: usize = 16;

/// What to predict, and by what.
#[derive(Clone, Debug, Default)]
pub struct PredictSettings {
    /// Attributes to try as the key. None: all that requests have, at most [`ATTRIBUTES_MAX`].
    pub attributes: Vec<String>,
    /// Slack means more than this. None: more than the median, so that requests with slack are about half of all.
    pub threshold_ns: Option<u64>,
    /// Whose slack: that of the last segment of the server in a request.
    pub server: CategoryChoice,
}

/// How well attributes foretell slack.
#[derive(Debug)]
pub struct PredictReport {
    /// Slack means more than this.
    pub threshold_ns: u64,
    /// Slack of all requests.
    pub slack: Distribution,
    /// The attributes, best first: what each foretold, and how many requests of it found no room in its history.
    pub ranked: Vec<(String, PredictionQuality, u64)>,
    /// Attributes that were not tried, as there were too many.
    pub not_tried: usize,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// Tries attributes as keys of slack. Reads the selected traces twice: for attributes and categories, then for slack.
///
/// # Errors
/// When the store cannot be read, no segment is of the server's category, or no request has an attribute.
pub fn predict(
    source: &Source,
    selection: Selection,
    inference: &Inference,
    settings: &PredictSettings,
) -> Result<PredictReport, QueryError> {
    let rule = &settings.server.rule;
    let labels = inference.model.labels();
    let all = settings.attributes.is_empty();
    let keys =
        if all { AttributeKeys::all() } else { rule.keys(settings.attributes.iter().map(|key| &**key)) };
    let wanted: Vec<(&str, Attribute)> =
        settings.attributes.iter().map(|name| (&**name, Attribute::named(name))).collect();
    let see = |counts: &mut AttributeCounts, records: &TraceRecords| {
        if all {
            counts.observe(records);
        } else {
            let said = wanted.iter().filter(|(_, attribute)| attribute.of_request(records).is_some());
            said.for_each(|(name, _)| counts.add(&(*name).into(), 1));
        }
    };
    let (categories, parts) =
        Categories::find(source, selection, (rule, labels), &keys, AttributeCounts::default, see)?;
    let mut counts = AttributeCounts::default();
    parts.iter().for_each(|part| counts.merge(part));
    let server = categories.number(&settings.server.name)?;
    let (attributes, not_tried) =
        if all { counts.most_common(ATTRIBUTES_MAX) } else { (settings.attributes.clone(), 0) };
    if let Some(missing) = settings.attributes.iter().find(|attribute| !counts.has(attribute)) {
        return Err(no_such_attribute(source, selection, missing));
    }
    if attributes.is_empty() {
        return Err(QueryError::NoAttributes);
    }
    let named: BTreeMap<&str, Attribute> =
        attributes.iter().map(|name| (&**name, Attribute::named(name))).collect();
    let new = || {
        let histories: Histories<'_> =
            attributes.iter().map(|attribute| (&**attribute, SlackHistory::default())).collect();
        (Distribution::default(), histories)
    };
    let take = |(slack, histories): &mut (Distribution, Histories<'_>), visit: Visit<'_>| {
        let Visit { records, trace, path, .. } = visit;
        let is_server = |segment| categories.of(segment) == server;
        let Some(request) = ServerTime::of(&path, is_server) else { return };
        slack.record(request.slack_ns);
        for (attribute, history) in histories {
            if let Some(value) = named[attribute].of_request(records) {
                history.observe(&value, trace.start_ns, request.slack_ns);
            }
        }
    };
    let keys = CategoryRule::Kinds.keys(named.keys().copied());
    let (parts, notes) = fold_traces("foretelling slack", source, selection, inference, &keys, new, take)?;
    let (mut slack, mut histories) = new();
    for (slack_of_part, histories_of_part) in parts {
        slack.merge(&slack_of_part);
        for (attribute, history) in histories_of_part {
            histories.entry(attribute).or_default().merge(&history);
        }
    }
    let threshold_ns = settings.threshold_ns.unwrap_or_else(|| slack.percentiles().p50_ns);
    let ranked = rank(histories.iter().map(|(attribute, history)| (*attribute, history)), threshold_ns);
    let ranked = ranked
        .into_iter()
        .map(|(attribute, quality)| (attribute.to_owned(), quality, histories[attribute].refused()));
    Ok(PredictReport { threshold_ns, ranked: ranked.collect(), slack, not_tried, notes })
}

/// A history of each attribute.
type Histories<'a> = BTreeMap<&'a str, SlackHistory>;
