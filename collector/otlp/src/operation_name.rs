//! Chooses names for operations. Spans of database statements and functions may have names that do
//! not distinguish them, but attributes that do.

use super::code_place::CodePlace;
use super::message::{AnyKind, KeyValue};
use super::query::Query;

/// Attribute that contains the original name of a span whose name was replaced.
pub const SPAN_NAME: &str = "otel.span_name";

/// Attributes of a span from which its operation may get a name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NameSources<'a> {
    place: CodePlace<'a>,
    query: Query<'a>,
}

impl<'a> NameSources<'a> {
    pub(super) fn of(attributes: &'a [KeyValue]) -> Self {
        let mut sources = Self::default();
        for pair in attributes {
            if Self::may_use(&pair.key)
                && let Some(AnyKind::Text(text)) =
                    pair.value.as_ref().and_then(|value| value.kind.as_ref())
            {
                sources.see(&pair.key, text);
            }
        }
        sources
    }

    /// Reports whether [`see`](Self::see) may use an attribute with this key.
    pub(super) fn may_use(key: &str) -> bool {
        key.starts_with("code.") || key.starts_with("db.")
    }

    /// Stores the text of an attribute; ignores keys that do not matter.
    pub(super) fn see(&mut self, key: &str, text: &'a str) {
        self.place.see(key, text);
        self.query.see(key, text);
    }

    /// Returns a name that distinguishes the operation better than the span's own `name`; `None` if
    /// the attributes give none.
    pub(super) fn name(&self, name: &str) -> Option<String> {
        self.query.name(name).or_else(|| self.place.qualified(name))
    }
}
