//! Provenance of a data item: metadata that travels with one item and no further.

use super::{Value, wire};
use crate::header_list::{Members, ReadLimit};

/// Header (or gRPC metadata key) of a message that is one data item.
pub const PROVENANCE: &str = "stroboscope-provenance";

/// Typed key-value pairs about one data item, such as its source and the algorithm that made it
/// (Chow, dissertation, §4.3.1). The pairs are unordered. Components are black boxes, so code that
/// makes an item from others declares what the new item inherits ([`merge`](Self::merge)).
///
/// Provenance is data, not context. Keep it with the item, and send it in the item's own message:
/// either in a field of the message ([`to_text`](Self::to_text)) or in its headers
/// ([`attach`](Self::attach)).
///
/// ```
/// use stroboscope::baggage::Provenance;
/// let candidate = Provenance::default().with("generator", "friends").with("score", 0.75);
/// let sent = candidate.to_text();
/// assert_eq!(Provenance::from_text(&sent), candidate);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provenance(std::collections::BTreeMap<String, Value>);

impl Provenance {
    /// Adds a pair, or replaces the value of an existing key. Omits a pair whose key is not a token
    /// (see [`Entry::key`](super::Entry::key)), and counts it as a dropped member.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        let key = key.into();
        if wire::is_token(&key) {
            self.0.insert(key, value.into());
        } else {
            wire::count_dropped(1);
        }
        self
    }

    /// Adds the pairs of another item. For keys that both have, this item's value stays.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        for (key, value) in &other.0 {
            self.0.entry(key.clone()).or_insert_with(|| value.clone());
        }
        self
    }

    /// Returns the value of a key; `None` if there is none.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Returns all pairs, sorted by key.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Formats the pairs as a header value of visible ASCII, at most
    /// [`BYTES_MAX`](super::BYTES_MAX) long. Omits pairs that do not fit, and counts them as
    /// dropped members.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.0 {
            let mut member = key.clone();
            wire::format_value(value, &mut member);
            let separator = if text.is_empty() { "" } else { "," };
            if text.len() + separator.len() + member.len() > wire::BYTES_MAX {
                wire::count_dropped(1);
                continue;
            }
            text.push_str(separator);
            text.push_str(&member);
        }
        text
    }

    /// Parses the output of [`to_text`](Self::to_text). Omits malformed pairs and counts them as
    /// dropped members. Stops at the maximum length, and counts the remainder as one pair.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let mut provenance = Self::default();
        let limit = ReadLimit {
            bytes: wire::BYTES_MAX,
            members: wire::BYTES_MAX,
            fields: 1,
        };
        let mut members = Members::new([text.as_bytes()], limit);
        for member in members.by_ref() {
            let member = std::str::from_utf8(member).unwrap_or_default();
            let pair = member.split_once('=').and_then(|(key, rest)| {
                let (value, letter) = rest.split_once(";t=").unwrap_or((rest, ""));
                Some((key, wire::parse_value(value, letter)?))
            });
            match pair {
                Some((key, value)) => provenance = provenance.with(key, value),
                None => wire::count_dropped(1),
            }
        }
        wire::count_dropped(usize::from(members.is_cut()));
        provenance
    }

    /// Adds the provenance to the headers of the item's message.
    pub fn attach(&self, headers: &mut http::HeaderMap) {
        if !self.0.is_empty()
            && let Ok(value) = http::HeaderValue::from_str(&self.to_text())
        {
            headers.insert(PROVENANCE, value);
        }
    }

    /// Reads the provenance from the headers of the item's message; empty if there is none, or if
    /// its header is not UTF-8.
    #[must_use]
    pub fn of(headers: &http::HeaderMap) -> Self {
        let value = headers.get(PROVENANCE).map(http::HeaderValue::as_bytes);
        let text = value.and_then(|value| std::str::from_utf8(value).ok());
        text.map_or_else(Self::default, Self::from_text)
    }
}
