//! Baggage: typed values that travel with a request, on which services further down the call path
//! can base decisions.
//!
//! Source: Chow, "Scaling causality analysis for production systems" (dissertation, 2016), chapter
//! IV (DQBarge), §4.3.1. That section defines three scopes:
//!
//! | scope | lifetime | API |
//! |---|---|---|
//! | [`Scope::Request`] | until the request ends, across all components it passes | [`set`], [`get`] |
//! | [`Scope::Component`] | while one component works, including its calls; dropped when execution leaves it | [`set`], [`enter_component`], [`ComponentExt::in_component`] |
//! | data | as long as one data item | [`Provenance`], attached to the item's own message |
//!
//! Baggage carries load metrics ([`Load`]: throughput, CPU and memory, measured by the SDK), slack
//! predictions ([`SlackPrediction`]), the tradeoffs made so far ([`Tradeoff`]), and any values of
//! the service.
//!
//! Between processes, baggage is a W3C `baggage` header with one member per value. Keys have the
//! prefix `sb.`, values are percent-encoded, and type, scope and importance are properties. Members
//! of other vendors are forwarded unchanged. If the baggage exceeds the limits ([`BYTES_MAX`],
//! [`MEMBERS_MAX`]), the least important members are dropped and counted
//! ([`LossCause::BaggageDropped`](crate::LossCause::BaggageDropped)). The header travels with calls
//! but not with responses: a value that a callee sets is visible only to the callee and its own
//! calls.
//!
//! ```
//! use stroboscope::baggage::{self, Baggage, Scope, Tradeoff, TradeoffKind};
//!
//! // `tower::ServerLayer` does this for each request; without it, do it by hand.
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

use crate::sampling;

/// Baggage key that marks a copy of a request, see [`is_duplicate`].
pub const DUPLICATE: &str = "duplicate";

/// Lifetime of a value. (Values of a data item are in its [`Provenance`].)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// Until the request ends, in every component it passes from now on.
    #[default]
    Request,
    /// Until execution leaves the component that set the value. The component's calls see it, too.
    Component,
}

/// Typed value of baggage or provenance.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Signed integer; its type on the wire is `i`.
    Int(i64),
    /// Unsigned integer; its type on the wire is `u`.
    Uint(u64),
    /// Floating-point number; its type on the wire is `d`.
    Double(f64),
    /// Boolean; its type on the wire is `b`.
    Bool(bool),
    /// Text, without a type on the wire. Each space, `"`, `,`, `;`, `%`, `\`, and each byte that is
    /// not visible ASCII, takes three bytes there.
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

/// Default importance of a value. If not all values fit, those with the lowest importance, from 0
/// to 9, are dropped first; members of other vendors are dropped last.
pub const IMPORTANCE_DEFAULT: u8 = 5;
pub(crate) const IMPORTANCE_MAX: u8 = 9;

/// Value of baggage with its key, scope and importance.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Token as in HTTP header names (letters, digits, `.`, `_`, `-` and some more). On the wire,
    /// `sb.` precedes it.
    pub key: String,
    /// Value; its type travels with it.
    pub value: Value,
    /// Lifetime of the value.
    pub scope: Scope,
    /// Importance from 0 to 9, see [`IMPORTANCE_DEFAULT`].
    pub importance: u8,
    /// Unparsed properties that another party added on the way, each preceded by a semicolon.
    pub(crate) properties: String,
}

impl Entry {
    /// Creates an entry with the default importance.
    pub fn new(scope: Scope, key: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
            scope,
            importance: IMPORTANCE_DEFAULT,
            properties: String::new(),
        }
    }

    /// Sets the importance, from 0 (dropped first if not all entries fit) to 9. A higher one counts
    /// as 9.
    #[must_use]
    pub fn with_importance(mut self, importance: u8) -> Self {
        self.importance = importance.min(IMPORTANCE_MAX);
        self
    }
}

/// Baggage of a request: the SDK's entries, and members of other vendors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baggage {
    pub(crate) entries: Vec<Entry>,
    /// Members of other vendors, and those with the SDK's prefix that this version cannot parse,
    /// all unchanged.
    pub(crate) foreign: Vec<String>,
}

impl Baggage {
    /// Returns the value of a key; `None` if there is none. A component's entry takes precedence
    /// over the request's.
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

    /// Sets an entry, replacing any entry with the same key and scope. An importance above 9 counts
    /// as 9.
    ///
    /// Returns `false` and counts a dropped member if the key is not a token or the encoded entry
    /// is longer than [`VALUE_BYTES_MAX`].
    pub fn set(&mut self, entry: Entry) -> bool {
        if !wire::is_token(&entry.key) || wire::encoded_bytes(&entry) > VALUE_BYTES_MAX {
            wire::count_dropped(1);
            return false;
        }
        exploring::seen(&entry.key);
        let importance = entry.importance;
        let entry = entry.with_importance(importance);
        let same = |known: &&mut Entry| known.scope == entry.scope && known.key == entry.key;
        match self.entries.iter_mut().find(same) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
        true
    }

    /// Returns the slack prediction in this baggage, or `None` if it is missing or malformed.
    #[must_use]
    pub fn slack(&self) -> Option<SlackPrediction> {
        SlackPrediction::of(self.get(SlackPrediction::KEY)?)
    }

    /// Sets the slack prediction, replacing an existing one. Returns `false` if it is too long.
    pub fn set_slack(&mut self, prediction: &SlackPrediction) -> bool {
        self.set(Entry::new(
            Scope::Request,
            SlackPrediction::KEY,
            prediction.format(),
        ))
    }

    /// Removes the entries of a key in every scope. Returns `false` if there were none.
    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.key != key);
        self.entries.len() < before
    }

    /// Merges other baggage into this one. The other's entries replace entries with the same key
    /// and scope. Its members of other vendors are added, unless this one has them.
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

    /// Returns the entries, in the order in which each was first set. A replaced value keeps its
    /// position.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Returns the members of other vendors, and those of the SDK that this version cannot parse,
    /// as they appear in the header.
    pub fn foreign(&self) -> impl Iterator<Item = &str> {
        self.foreign.iter().map(String::as_str)
    }

    /// Reports whether there are neither [`entries`](Self::entries) nor
    /// [`foreign`](Self::foreign) members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.foreign.is_empty()
    }

    /// Parses a W3C `baggage` header. It drops and counts malformed members, entries longer than
    /// [`VALUE_BYTES_MAX`], and those that no longer fit when encoded again. It stops at the limits
    /// ([`BYTES_MAX`], [`MEMBERS_MAX`]) and counts the remainder as one dropped member.
    #[must_use]
    pub fn parse(header: &str) -> Self {
        Self::parse_fields([header.as_bytes()])
    }

    /// Parses all header fields named `baggage`, like [`parse`](Self::parse).
    pub(crate) fn parse_fields<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut baggage = wire::parse(fields);
        limits::fit(&mut baggage);
        baggage
    }

    /// Drops the SDK's members if callers are [public](crate::Builder::public_callers), and counts
    /// them as dropped.
    pub(crate) fn of_caller(mut self) -> Self {
        if sampling::are_callers_public() {
            let before = self.entries.len() + self.foreign.len();
            self.entries.clear();
            // Those that cannot be parsed count as foreign.
            self.foreign.retain(|member| !wire::has_prefix(member));
            wire::count_dropped(before - self.foreign.len());
        }
        self
    }

    /// Formats a W3C `baggage` header within the limits, or returns `None` if the baggage is empty.
    /// It omits members that do not fit, least important first, and counts them as dropped.
    #[must_use]
    pub fn to_header(&self) -> Option<String> {
        let mut fitting = std::borrow::Cow::Borrowed(self);
        if !limits::fits(self) {
            limits::fit(fitting.to_mut());
        }
        wire::format(&fitting)
    }
}
