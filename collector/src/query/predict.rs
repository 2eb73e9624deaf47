//! Slack foretold by the last request of the same key (The Mystery Machine, §5.2, figure 11), and which attributes are
//! keys that tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::prediction::{PredictionQuality, SlackHistory, rank};
use stroboscope_analysis::record::{RecordOwner, TraceRecords};
use stroboscope_analysis::slack_validation::ServerTime;

use super::categories::{Categories, CategoryChoice};
use super::infer::Inference;
use super::paths::{Visit, fold_traces};
use super::source::{Notes, QueryError, Selection, Source};
use crate::store::AttributeKeys;

/// Most attributes that are tried, as each needs memory for a history of all requests: those that most requests have.
pub const ATTRIBUTES_MAX: usize = 16;
/// Attributes that are told apart while they are counted.
const COUNTED_MAX: usize = 4096;

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
    let see = AttributeCounts::observe;
    let (categories, parts) =
        Categories::find(source, selection, (rule, labels), &keys, AttributeCounts::default, see)?;
    let mut counts = AttributeCounts::default();
    parts.iter().for_each(|part| counts.merge(part));
    let server = categories.number(&settings.server.name)?;
    let (attributes, not_tried) = if all { counts.most_common() } else { (settings.attributes.clone(), 0) };
    if let Some(missing) = settings.attributes.iter().find(|attribute| !counts.has(attribute)) {
        return Err(QueryError::NoSuchAttribute { data: source.name(), attribute: missing.clone() });
    }
    if attributes.is_empty() {
        return Err(QueryError::NoAttributes);
    }
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
            if let Some(value) = records.attribute(attribute) {
                history.observe(value, trace.start_ns, request.slack_ns);
            }
        }
    };
    let keys = AttributeKeys::of(&attributes);
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

/// In how many traces each attribute occurs.
#[derive(Debug, Default)]
struct AttributeCounts(BTreeMap<Arc<str>, u64>);

impl AttributeCounts {
    fn observe(&mut self, records: &TraceRecords) {
        let of_records =
            records.attributes.iter().filter(|said| !matches!(said.owner, RecordOwner::InSpan(_)));
        let keys: BTreeSet<&Arc<str>> = of_records.map(|said| &said.key).collect();
        keys.into_iter().for_each(|key| self.add(key, 1));
    }

    fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(key, count)| self.add(key, *count));
    }

    fn add(&mut self, key: &Arc<str>, count: u64) {
        if self.0.len() < COUNTED_MAX || self.0.contains_key(key) {
            *self.0.entry(key.clone()).or_default() += count;
        }
    }

    fn has(&self, attribute: &str) -> bool {
        self.0.contains_key(attribute)
    }

    /// The attributes that most traces have, and how many more there are.
    fn most_common(&self) -> (Vec<String>, usize) {
        let mut counts: Vec<(&Arc<str>, u64)> = self.0.iter().map(|(key, count)| (key, *count)).collect();
        // A stable sort: equals stay in order of name.
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let not_tried = counts.len().saturating_sub(ATTRIBUTES_MAX);
        (counts.into_iter().take(ATTRIBUTES_MAX).map(|(key, _)| key.to_string()).collect(), not_tried)
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::AttributeRecord;

    use super::*;

    #[test]
    fn attributes_that_most_requests_have_are_tried() {
        let mut counts = AttributeCounts::default();
        for trace in 0..30 {
            let said = |key: String, owner| AttributeRecord { owner, key: key.into(), value: "v".into() };
            let mut attributes = vec![
                said("user".into(), RecordOwner::Span(1)),
                said("user".into(), RecordOwner::Span(2)),
                said(format!("rare {trace:02}"), RecordOwner::Event(1)),
                said("inside".into(), RecordOwner::InSpan(1)),
            ];
            attributes.truncate(if trace == 0 { 4 } else { 3 });
            counts.observe(&TraceRecords { attributes, ..TraceRecords::default() });
        }
        let (tried, not_tried) = counts.most_common();
        assert_eq!((tried.len(), &*tried[0], &*tried[1], not_tried), (ATTRIBUTES_MAX, "user", "rare 00", 15));
        assert!(counts.has("user") && !counts.has("inside"));
    }
}
