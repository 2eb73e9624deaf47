//! Baggage: typed values that travel with a request, so that a service can decide by what happened elsewhere.
//!
//! Source: Chow, "Analyzing complex distributed systems" (dissertation), chapter IV (DQBarge), §4.3.1. Its three
//! scopes:
//!
//! | scope | lives | here |
//! |---|---|---|
//! | [`Scope::Request`] | to the end of the request, through all components on its way | [`set`], [`get`] |
//! | [`Scope::Component`] | while one component works, and in all it calls meanwhile; dropped when execution leaves it | [`set`], [`enter_component`], [`ComponentExt::in_component`] |
//! | data | as long as one data item | [`Provenance`], which is attached to the item's own message |
//!
//! What is put there: load metrics ([`Load`]: throughput, CPU, memory, measured by the SDK), predictions of slack
//! ([`SlackPrediction`]), the tradeoffs made so far ([`Tradeoff`]), and whatever the service wants to say.
//!
//! Between processes it is a W3C `baggage` header: one member per value, keys prefixed with `sb.`, values
//! percent-encoded, type, scope and importance as properties. Members of others are passed on unchanged. Over the
//! limits of the specification ([`BYTES_MAX`], [`MEMBERS_MAX`]) the least important members are dropped and counted
//! ([`LossCause::BaggageDropped`](crate::LossCause::BaggageDropped)). A header travels with the call and not back:
//! what a callee sets is seen by the callee and what it calls.
//!
//! ```
//! use stroboscope::baggage::{self, Baggage, Scope, Tradeoff, TradeoffKind};
//!
//! // `tower::ServerLayer` does this for each request; elsewhere it is done by hand.
//! let _request = baggage::enter_request(Baggage::default());
//! baggage::set(Scope::Request, "user.kind", "free");
//! {
//!     let _component = baggage::enter_component();
//!     baggage::set(Scope::Component, "candidates", 300u64);
//!     baggage::note(&Tradeoff::new("ranker", "features", TradeoffKind::Omit).proactive());
//! }
//! assert_eq!(baggage::get("user.kind"), Some("free".into()));
//! assert_eq!(baggage::get("candidates"), None);
//! assert_eq!(baggage::tradeoffs().len(), 1);
//! ```

pub(crate) mod ambient;
pub(crate) mod exploring;
mod limits;
pub(crate) mod load;
mod provenance;
mod slack;
mod tradeoff;
pub(crate) mod wire;

pub use ambient::{
    ComponentExt, ComponentScope, InComponent, RequestScope, WithBaggage, carry_load,
    enter_component, enter_request, get, is_duplicate, note, predict_slack, remove, set,
    set_with_importance, slack, snapshot, tradeoffs,
};
pub use exploring::EXPLORE;
pub use load::{Load, count_request, load};
pub use provenance::{PROVENANCE, Provenance};
pub use slack::SlackPrediction;
pub use tradeoff::{Tradeoff, TradeoffKind};
pub use wire::{BYTES_MAX, MEMBERS_MAX, VALUE_BYTES_MAX};

/// The key that a copy of a request carries, see [`is_duplicate`].
pub const DUPLICATE: &str = "duplicate";

/// How long a value lives. (Values of a data item live in its [`Provenance`].)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// To the end of the request, in every component it passes from now on.
    #[default]
    Request,
    /// Until execution leaves the component that set it; what it calls meanwhile sees it, too.
    Component,
}

/// A typed value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A number on a continuous scale.
    Double(f64),
    /// Yes or no.
    Bool(bool),
    /// A text; on the wire, anything that is not plain ASCII takes three bytes for one.
    Text(String),
}

macro_rules! value_from {
    ($($type:ty => |$v:ident| $value:expr;)*) => {$(
        impl From<$type> for Value {
            fn from($v: $type) -> Self {
                $value
            }
        }
    )*};
}

value_from! {
    i32 => |v| Self::Int(v.into());
    i64 => |v| Self::Int(v);
    u32 => |v| Self::Uint(v.into());
    u64 => |v| Self::Uint(v);
    usize => |v| Self::Uint(v as u64);
    f64 => |v| Self::Double(v);
    bool => |v| Self::Bool(v);
    &str => |v| Self::Text(v.to_owned());
    String => |v| Self::Text(v);
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(v) => v.fmt(f),
            Self::Uint(v) => v.fmt(f),
            Self::Double(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::Text(v) => v.fmt(f),
        }
    }
}

/// How much a value matters when not all fit, from 0 (dropped first) to 9. Members of others are dropped last.
pub const IMPORTANCE_DEFAULT: u8 = 5;
pub(crate) const IMPORTANCE_MAX: u8 = 9;

/// One value with its key.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// A token as in HTTP header names (letters, digits, `.`, `_`, `-` and some more); on the wire `sb.` precedes it.
    pub key: String,
    /// What it says.
    pub value: Value,
    /// How long it lives.
    pub scope: Scope,
    /// 0 to 9; see [`IMPORTANCE_DEFAULT`].
    pub importance: u8,
    /// Properties that somebody on the way added, as they came, each after a semicolon.
    pub(crate) properties: String,
}

impl Entry {
    /// An entry of middling importance.
    pub fn new(scope: Scope, key: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
            scope,
            importance: IMPORTANCE_DEFAULT,
            properties: String::new(),
        }
    }

    /// The same, dropped earlier or later when not all fit.
    #[must_use]
    pub fn with_importance(mut self, importance: u8) -> Self {
        self.importance = importance.min(IMPORTANCE_MAX);
        self
    }
}

/// All that travels with a request, as a value: entries of ours by key, and members of others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baggage {
    pub(crate) entries: Vec<Entry>,
    /// Members of others, as they came.
    pub(crate) foreign: Vec<String>,
}

impl Baggage {
    /// The value of a key; of two entries with one key, the component's.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        let of_scope = |scope| {
            self.entries
                .iter()
                .find(|entry| entry.scope == scope && entry.key == key)
                .map(|e| &e.value)
        };
        of_scope(Scope::Component).or_else(|| of_scope(Scope::Request))
    }

    /// Sets an entry, in place of one with the same key and scope. `false`, and nothing is changed: its key is no
    /// token, or its value is longer than [`VALUE_BYTES_MAX`]; that is counted as a dropped member.
    pub fn set(&mut self, entry: Entry) -> bool {
        if !wire::is_token(&entry.key) || wire::encoded_bytes(&entry) > VALUE_BYTES_MAX {
            wire::count_dropped(1);
            return false;
        }
        let same = |known: &&mut Entry| known.scope == entry.scope && known.key == entry.key;
        match self.entries.iter_mut().find(same) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
        true
    }

    /// The prediction of slack that it carries.
    #[must_use]
    pub fn slack(&self) -> Option<SlackPrediction> {
        SlackPrediction::of(self.get(SlackPrediction::KEY)?)
    }

    /// Sets the prediction of slack, in place of one that it carries. `false`: it is too long.
    pub fn set_slack(&mut self, prediction: &SlackPrediction) -> bool {
        self.set(Entry::new(
            Scope::Request,
            SlackPrediction::KEY,
            prediction.format(),
        ))
    }

    /// Takes the entries of a key out, in every scope. `false`: there were none.
    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.key != key);
        self.entries.len() < before
    }

    /// This, with what another adds to it; where both have an entry, the other's counts.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for member in other.foreign {
            if !self.foreign.contains(&member) {
                self.foreign.push(member);
            }
        }
        for entry in other.entries {
            self.set(entry);
        }
        self
    }

    /// The entries, in the order in which they were set.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Members of others, as they are in the header.
    pub fn foreign(&self) -> impl Iterator<Item = &str> {
        self.foreign.iter().map(String::as_str)
    }

    /// Nothing travels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.foreign.is_empty()
    }

    /// Reads a W3C `baggage` header. Members that are none are left out and counted. No more is read than the limits
    /// ([`BYTES_MAX`], [`MEMBERS_MAX`]) allow; the rest counts as one member.
    #[must_use]
    pub fn parse(header: &str) -> Self {
        Self::parse_fields([header.as_bytes()])
    }

    /// Reads all fields of the name `baggage`, as [`parse`](Self::parse).
    pub(crate) fn parse_fields<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut baggage = wire::parse(fields);
        limits::fit(&mut baggage);
        baggage
    }

    /// Writes a W3C `baggage` header, within the limits; `None` when there is nothing to say. What does not fit is
    /// left out, least important first, and counted.
    #[must_use]
    pub fn to_header(&self) -> Option<String> {
        let mut fitting = std::borrow::Cow::Borrowed(self);
        if !limits::fits(self) {
            limits::fit(fitting.to_mut());
        }
        wire::format(&fitting)
    }
}
