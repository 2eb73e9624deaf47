//! Attribute names: lists those that requests have, and builds the error for a name that a query
//! did not find.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::attribute::{Attribute, KNOWN_OF_ALL};
use stroboscope_analysis::record::{RecordOwner, TraceRecords};

use super::query_error::QueryError;
use super::source::{Selection, Source};
use stroboscope_store::tables::{AttributeKeys, IdRange, StoreTable, attribute_fields};

/// Maximum number of distinct attributes that are counted.
const COUNTED_MAX: usize = 4096;
/// Maximum number of recorded attributes that an error lists, besides [`KNOWN_OF_ALL`].
const LISTED_MAX: usize = 20;
/// Minimum Jaro-Winkler similarity (0 to 1) at which a known name is suggested for an unknown one.
const ALIKE_MIN: f64 = 0.7;

/// Returns the names of attributes that a user can enter to distinguish requests: the properties
/// that every span has, and the attributes with a column of their own. Reads only the metadata of
/// files, no rows. Rare attributes have no column and are not listed.
#[must_use]
pub fn attribute_choices(source: &Source) -> Vec<String> {
    let mut choices: BTreeSet<String> = KNOWN_OF_ALL.map(str::to_owned).into();
    for table in [StoreTable::Spans, StoreTable::Events] {
        let fields = attribute_fields(source.store(), table).unwrap_or_default();
        let keys = fields
            .iter()
            .filter_map(|field| field.name().split_once(':'));
        choices.extend(keys.map(|(_, key)| called(key)));
    }
    choices.into_iter().collect()
}

/// Returns the name that a user has to enter for an attribute: its key, prefixed with `recorded:`
/// if the key alone would name a property that every span has, such as `host.name`.
fn called(key: &str) -> String {
    match Attribute::named(key) {
        Attribute::Recorded(_) => key.to_owned(),
        _ => format!("recorded:{key}"),
    }
}

/// Returns the error for an attribute that a query did not find. Reads the selected traces to list
/// their attributes, and returns the error of this reading if it fails.
pub(super) fn no_such_attribute(
    source: &Source,
    selection: Selection,
    attribute: &str,
) -> QueryError {
    match attribute_counts(source, selection, &IdRange::ALL) {
        Ok(counts) => counts.no_such_attribute(attribute),
        Err(error) => error,
    }
}

/// Counts the attributes of the selected traces whose ids are in `ids`.
pub(super) fn attribute_counts(
    source: &Source,
    selection: Selection,
    ids: &IdRange,
) -> Result<AttributeCounts, QueryError> {
    let times_ns = selection.range.records_ns();
    let parts = source.parts_between(times_ns, Some(ids), &AttributeKeys::all())?;
    let workers = vec![AttributeCounts::default(); parts.count()];
    let what = "looking for attributes";
    let (workers, _) = source.fold(what, selection, &parts, workers, |counts, records, _| {
        counts.observe(records);
    })?;
    let mut counts = AttributeCounts::default();
    workers.iter().for_each(|part| counts.merge(part));
    Ok(counts)
}

/// Number of traces in which each attribute occurs, for at most [`COUNTED_MAX`] attributes.
/// Attributes of events inside spans are not counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct AttributeCounts(BTreeMap<Arc<str>, u64>);

impl AttributeCounts {
    pub(super) fn observe(&mut self, records: &TraceRecords) {
        let attributes = records.attributes.iter();
        let of_records = attributes.filter(|said| !matches!(said.owner, RecordOwner::InSpan(..)));
        let keys: BTreeSet<&Arc<str>> = of_records.map(|said| &said.key).collect();
        for key in keys {
            self.add(&called(key).into(), 1);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let others = other.0.iter();
        others.for_each(|(key, count)| self.add(key, *count));
    }

    pub(super) fn add(&mut self, key: &Arc<str>, count: u64) {
        if self.0.len() < COUNTED_MAX || self.0.contains_key(key) {
            *self.0.entry(key.clone()).or_default() += count;
        }
    }

    pub(super) fn has(&self, attribute: &str) -> bool {
        self.0.contains_key(attribute)
    }

    /// Returns up to `most` counted attributes, those that occur in the most traces first, and the
    /// number of the other counted attributes.
    pub(super) fn most_common(&self, most: usize) -> (Vec<String>, usize) {
        let mut counts: Vec<(&Arc<str>, u64)> =
            self.0.iter().map(|(key, count)| (key, *count)).collect();
        // The sort is stable, so equals stay in order of name.
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let not_tried = counts.len().saturating_sub(most);
        let first = counts.into_iter().take(most);
        (first.map(|(key, _)| key.to_string()).collect(), not_tried)
    }

    pub(super) fn no_such_attribute(&self, attribute: &str) -> QueryError {
        let (recorded, more) = self.most_common(LISTED_MAX);
        let known = KNOWN_OF_ALL.map(str::to_owned).into_iter().chain(recorded);
        let known: Vec<_> = known.filter(|name| name != attribute).collect();
        let mut known = known.join(", ");
        if more > 0 {
            known += &format!(" and {more} more");
        }
        let nearest = self
            .nearest(attribute)
            .map_or_else(String::new, |name| format!(" (is it {name}?)"));
        QueryError::NoSuchAttribute {
            attribute: attribute.to_owned(),
            nearest,
            known,
        }
    }

    /// Returns the name most similar, but not equal, to `name` among the counted attributes and
    /// [`KNOWN_OF_ALL`]; `None` if no similarity reaches [`ALIKE_MIN`].
    fn nearest(&self, name: &str) -> Option<String> {
        let counted = self.0.keys().map(|key| &**key);
        nearest(name, KNOWN_OF_ALL.into_iter().chain(counted))
    }
}

/// Returns the known name that is most similar, but not equal, to `name`; `None` if no similarity
/// reaches 0.7 (Jaro-Winkler, ignoring case).
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let like = known
        .map(|known| {
            (
                strsim::jaro_winkler(&known.to_lowercase(), &name.to_lowercase()),
                known,
            )
        })
        .filter(|(alike, known)| *alike >= ALIKE_MIN && *known != name);
    like.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(a.1)))
        .map(|(_, known)| known.to_owned())
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::AttributeRecord;

    use super::*;
    use crate::predict::ATTRIBUTES_MAX;

    #[test]
    fn attributes_that_most_requests_have_are_tried() {
        let mut counts = AttributeCounts::default();
        for trace in 0..30 {
            let said = |key: String, owner| AttributeRecord {
                owner,
                key: key.into(),
                value: "v".into(),
            };
            let mut attributes = vec![
                said("user".into(), RecordOwner::Span(1)),
                said("user".into(), RecordOwner::Span(2)),
                said(format!("rare {trace:02}"), RecordOwner::Event(1)),
                said("inside".into(), RecordOwner::InSpan(1, 0)),
            ];
            attributes.truncate(if trace == 0 { 4 } else { 3 });
            counts.observe(&TraceRecords {
                attributes,
                ..TraceRecords::default()
            });
        }
        let (tried, not_tried) = counts.most_common(ATTRIBUTES_MAX);
        assert_eq!(
            (tried.len(), &*tried[0], &*tried[1], not_tried),
            (ATTRIBUTES_MAX, "user", "rare 00", 15)
        );
        assert!(counts.has("user") && !counts.has("inside"));
    }

    #[test]
    fn the_nearest_name_is_found() {
        let mut counts = AttributeCounts::default();
        ["user", "user_agent", "size"]
            .into_iter()
            .for_each(|key| counts.add(&key.into(), 1));
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(counts.nearest(name).as_deref(), expected, "{name}");
        };
        check("usr", Some("user"));
        check("userAgent", Some("user_agent"));
        check("sevice", Some("service"));
        check("Kind", Some("kind"));
        check("zzz", None);
    }
}
