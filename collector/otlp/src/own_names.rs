//! Handles own attributes of a span, event or log record whose names collide with attributes
//! synthesized from its other fields.
//!
//! Services may themselves set `error`, `span.kind` or `resource.x`. Such an attribute stays in
//! place, and `otel.own_names` lists its name. If a synthesized attribute already has the name, the
//! own one is in `otel.shadowed` instead, in the notation of OTLP's JSON. The origin of each
//! attribute is thus known.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::exact::{any_json, note_inexact};
use super::message::{AnyValue, KeyValue};
use super::value;
use crate::{Attributes, TakeSpans};

/// Attribute that lists the own attributes whose names a synthesized one could have, but none has.
pub(super) const OWN_NAMES: &str = "otel.own_names";
/// Attribute that contains those own attributes whose names synthesized attributes already have, or
/// whose name is `otel.exact`, `otel.own_names` or `otel.shadowed`.
pub(super) const SHADOWED: &str = "otel.shadowed";

/// Reports whether a synthesized attribute of a span may have this name.
pub(super) fn is_made_of_span(key: &str) -> bool {
    let prefixes = ["otel.", "w3c.", "resource.", "scope."];
    prefixes.iter().any(|prefix| key.starts_with(prefix))
        || ["error", "span.kind", "links"].contains(&key)
}

/// Reports whether a synthesized attribute of a log record may have this name.
pub(super) fn is_made_of_log(key: &str) -> bool {
    let prefixes = ["otel.", "resource.", "scope."];
    prefixes.iter().any(|prefix| key.starts_with(prefix))
        || [
            "log.body",
            "log.severity_text",
            "log.severity_number",
            "log.observed_time_unix_nano",
        ]
        .contains(&key)
}

/// Reports whether a synthesized attribute of an event may have this name.
pub(super) fn is_made_of_event(key: &str) -> bool {
    key.starts_with("otel.")
}

/// Inserts own attributes whose names may collide, after all synthesized attributes. If a name
/// occurs twice, the last value counts.
pub(super) fn put_own(
    attributes: &mut Attributes,
    own: &[&KeyValue],
    line: u64,
    take: &mut dyn TakeSpans,
) {
    let mut by_name: Vec<(&str, Option<&AnyValue>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for pair in own {
        let place = *places.entry(&pair.key).or_insert(by_name.len());
        match by_name.get_mut(place) {
            Some((name, former)) => {
                take.not_taken(line, &format!("attribute {name}, given twice"), 1);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::Unheard;

    /// Comparing each name with each other one would take minutes.
    #[test]
    fn many_names_are_put() {
        let pair = |number: u32| KeyValue {
            key: format!("otel.{number:09}"),
            value: None,
        };
        let pairs: Vec<KeyValue> = (0..100_000).map(pair).collect();
        let own: Vec<&KeyValue> = pairs.iter().collect();
        let mut attributes = Attributes::new();
        put_own(&mut attributes, &own, 1, &mut Unheard);
        assert_eq!(attributes.len(), pairs.len() + 1);
    }
}
