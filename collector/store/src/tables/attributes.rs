//! Selection of the attributes that a reader wants, and their extraction from records.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Attribute that names the data element of a span or event.
pub const ELEMENT: &str = "element";
/// Attribute that stores the W3C `tracestate` of a span.
pub const TRACE_STATE: &str = "w3c.tracestate";

/// Set of attributes to read. If it is empty and without sampling weights, the columns of
/// attributes are not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeKeys {
    keys: Arc<[Arc<str>]>,
    all: bool,
    as_json: bool,
    weights: bool,
}

impl AttributeKeys {
    /// Selects no attributes.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Selects all attributes.
    #[must_use]
    pub fn all() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    /// Makes the reader return values as JSON: texts are quoted, which distinguishes them from
    /// numbers, and nulls are included.
    #[must_use]
    pub fn as_json(self) -> Self {
        Self {
            as_json: true,
            ..self
        }
    }

    /// Reports whether values are returned as JSON.
    pub(super) fn are_json(&self) -> bool {
        self.as_json
    }

    /// Selects the attributes with these keys. Removes duplicates.
    pub fn of<Key: AsRef<str>>(keys: impl IntoIterator<Item = Key>) -> Self {
        let mut keys: Vec<Arc<str>> = keys.into_iter().map(|key| key.as_ref().into()).collect();
        keys.sort_unstable();
        keys.dedup();
        Self {
            keys: keys.into(),
            ..Self::default()
        }
    }

    /// Returns the selection extended by [`ELEMENT`]. Drops the setting of
    /// [`as_json`](Self::as_json), unless all attributes are selected.
    #[must_use]
    pub fn with_elements(&self) -> Self {
        if self.all {
            return self.clone();
        }
        Self {
            weights: self.weights,
            ..Self::of(self.keys.iter().map(|key| &**key).chain([ELEMENT]))
        }
    }

    /// Returns the selection with the sampling weights of traces. [`add_span`](super::add_span)
    /// computes them from [`TRACE_STATE`], but keeps this attribute of a span only if it is
    /// selected. If no attributes are selected, weights are read only from the attribute's own
    /// column, which a file may lack.
    #[must_use]
    pub fn with_weights(self) -> Self {
        Self {
            weights: true,
            ..self
        }
    }

    /// Reports whether sampling weights are read.
    pub(super) fn are_weighted(&self) -> bool {
        self.weights
    }

    /// Returns the union of both selections, without the setting of [`as_json`](Self::as_json).
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        let both = if self.all || others.all {
            Self::all()
        } else {
            Self::of(self.keys.iter().chain(&*others.keys))
        };
        Self {
            weights: self.weights || others.weights,
            ..both
        }
    }

    /// Reports whether no attributes are selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.all
    }

    /// Returns the keys of the attributes that are selected by key.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.keys.iter().map(ToString::to_string)
    }

    /// Reports whether an attribute is read, because it is selected or needed for weights.
    pub(super) fn has(&self, key: &str) -> bool {
        self.asks(key) || self.weights && key == TRACE_STATE
    }

    /// Reports whether an attribute is selected.
    pub(super) fn asks(&self, key: &str) -> bool {
        self.all || self.keys.iter().any(|wanted| **wanted == *key)
    }

    /// Reports whether a JSON object without escapes may contain an attribute that is selected by
    /// key or needed for weights.
    fn may_be_in(&self, json: &str) -> bool {
        self.keys.iter().any(|key| json.contains(&**key))
            || self.weights && json.contains(TRACE_STATE)
    }

    /// Returns the key if the attribute is read; otherwise `None`.
    pub(super) fn get(&self, key: &str, intern: impl FnOnce(&str) -> Arc<str>) -> Option<Arc<str>> {
        if self.all {
            return Some(intern(key));
        }
        let asked = self.keys.iter().find(|wanted| &***wanted == key).cloned();
        asked.or_else(|| self.has(key).then(|| intern(key)))
    }
}

/// Keys and values of attributes. Values are texts: numbers as they were written, booleans as
/// `true` and `false`, lists and objects as JSON. Nulls are left out. With
/// [`AttributeKeys::as_json`], all values are JSON.
pub type AttributeValues = Vec<(Arc<str>, Arc<str>)>;

/// Parses the selected attributes from a JSON object. Returns `None` if the text is not a JSON
/// object. For a text that cannot contain any key that is read, returns no attributes without
/// parsing it.
pub fn parse_attributes(
    json: &str,
    keys: &AttributeKeys,
    intern: impl FnMut(&str) -> Arc<str>,
) -> Option<AttributeValues> {
    // Most records have none of the selected attributes. A text without escapes contains the keys
    // literally, so a search shows this.
    if !keys.all && !json.contains('\\') && !keys.may_be_in(json) {
        return Some(AttributeValues::new());
    }
    let mut json = serde_json::Deserializer::from_str(json);
    let values = json.deserialize_map(AttributeVisitor { keys, intern });
    let values = values.ok()?;
    json.end().ok().map(|()| values)
}

struct AttributeVisitor<'a, F> {
    keys: &'a AttributeKeys,
    intern: F,
}

impl<'de, F: FnMut(&str) -> Arc<str>> Visitor<'de> for AttributeVisitor<'_, F> {
    type Value = AttributeValues;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of attributes")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<AttributeValues, A::Error> {
        let mut values = AttributeValues::new();
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let Some(key) = self.keys.get(&key, &mut self.intern) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value: &RawValue = map.next_value()?;
            let value = match value.get() {
                text if self.keys.as_json => (self.intern)(text),
                "null" => continue,
                text if text.starts_with('"') => {
                    let text: String =
                        serde_json::from_str(text).map_err(serde::de::Error::custom)?;
                    (self.intern)(&text)
                }
                text => (self.intern)(text),
            };
            values.push((key, value));
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, keys: &[&str], expected: Option<&[(&str, &str)]>) {
        let values = parse_attributes(json, &AttributeKeys::of(keys), |text| text.into());
        let texts = values.as_ref().map(|values| {
            values
                .iter()
                .map(|(key, value)| (&**key, &**value))
                .collect::<Vec<_>>()
        });
        assert_eq!(texts.as_deref(), expected, "{json}");
    }

    #[test]
    fn only_what_was_asked_for_is_read() {
        let json = r#"{"user":"ann \"\u00e9","n":-1.50,"on":true,"gone":null,"list":[1, 2],"deep":{"user":"no"}}"#;
        check(json, &["user"], Some(&[("user", "ann \"é")]));
        check(
            json,
            &["on", "n", "n"],
            Some(&[("n", "-1.50"), ("on", "true")]),
        );
        check(
            json,
            &["list", "gone", "absent"],
            Some(&[("list", "[1, 2]")]),
        );
        check(json, &[], Some(&[]));
        check(r#"{"us\u0065r":1}"#, &["user"], Some(&[("user", "1")]));
        check(r#"{"username":1}"#, &["user"], Some(&[]));
        check("{}", &["user"], Some(&[]));
    }

    #[test]
    fn all_can_be_read() {
        let values = parse_attributes(
            r#"{"user":"ann","n":1,"gone":null}"#,
            &AttributeKeys::all(),
            |text| text.into(),
        )
        .unwrap();
        let texts: Vec<_> = values
            .iter()
            .map(|(key, value)| (&**key, &**value))
            .collect();
        assert_eq!(texts, [("user", "ann"), ("n", "1")]);
        assert!(
            !AttributeKeys::all().is_empty()
                && AttributeKeys::all().with_elements() == AttributeKeys::all()
        );
    }

    #[test]
    fn what_is_no_object_is_said() {
        for broken in [
            r#"{"user":}"#,
            r#"["user"]"#,
            r#"{"user":1} x"#,
            r#"{"user":1"#,
            r#""user""#,
        ] {
            check(broken, &["user"], None);
        }
    }

    #[test]
    fn elements_are_added_once() {
        let keys = AttributeKeys::of(["user", ELEMENT]);
        assert_eq!(
            (keys.with_elements(), AttributeKeys::none().with_elements()),
            (keys, AttributeKeys::of([ELEMENT]))
        );
    }
}
