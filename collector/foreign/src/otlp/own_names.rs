//! A span's own attributes whose names are those of attributes that are made here of its other fields.
//!
//! Services say `error` and `span.kind` themselves, and may say `resource.x`. Such an attribute stays where it is, and
//! `otel.own_names` lists its name; where one that is made has the name already, it is in `otel.shadowed` instead, as OTLP's
//! JSON writes it. So it is known of each attribute what it was.

use serde_json::{Map, Value};

use super::exact::{any_json, note_inexact};
use super::message::{AnyValue, KeyValue};
use super::value;
use crate::{Attributes, TakeSpans};

/// A list of names.
pub(super) const OWN_NAMES: &str = "otel.own_names";
/// Values by name.
pub(super) const SHADOWED: &str = "otel.shadowed";

/// Whether an attribute of a span may have the name of one that is made of something else.
pub(super) fn is_made_of_span(key: &str) -> bool {
    let prefixes = ["otel.", "w3c.", "resource.", "scope."];
    prefixes.iter().any(|prefix| key.starts_with(prefix))
        || ["error", "span.kind", "links"].contains(&key)
}

/// The same of an event.
pub(super) fn is_made_of_event(key: &str) -> bool {
    key.starts_with("otel.")
}

/// Puts attributes in that have such names, when all that are made are there; of a name that comes twice, the last.
pub(super) fn put_own(
    attributes: &mut Attributes,
    own: &[&KeyValue],
    line: u64,
    take: &mut dyn TakeSpans,
) {
    let mut by_name: Vec<(&str, Option<&AnyValue>)> = Vec::new();
    for pair in own {
        match by_name.iter_mut().find(|(name, _)| *name == pair.key) {
            Some((name, former)) => {
                take.not_taken(line, &format!("attribute {name}, told twice"), 1);
                *former = pair.value.as_ref();
            }
            None => by_name.push((&pair.key, pair.value.as_ref())),
        }
    }
    let (mut names, mut shadowed) = (Vec::<Value>::new(), Map::new());
    for (name, said) in by_name {
        let is_ours = [OWN_NAMES, SHADOWED, super::exact::EXACT].contains(&name);
        if is_ours || attributes.contains_key(name) {
            let exactly = any_json(said.unwrap_or(&AnyValue::default()));
            shadowed.insert(name.to_owned(), exactly);
        } else {
            attributes.insert(name.to_owned(), value(said));
            note_inexact(attributes, name, said);
            names.push(name.into());
        }
    }
    if !names.is_empty() {
        attributes.insert(OWN_NAMES.to_owned(), names.into());
    }
    if !shadowed.is_empty() {
        attributes.insert(SHADOWED.to_owned(), shadowed.into());
    }
}
