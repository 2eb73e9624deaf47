//! Tradeoffs made while a request is processed. They show later components and people what a
//! response lacks.

use super::{Entry, Scope, Value};

/// Shortcut taken in place of the full work (Chow, dissertation, §4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TradeoffKind {
    /// A value was omitted from an aggregate.
    Omit,
    /// A default was used.
    Default,
    /// A value of lower fidelity was used.
    LowFidelity,
}

impl TradeoffKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Omit => "omit",
            Self::Default => "default",
            Self::LowFidelity => "low_fidelity",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Omit, Self::Default, Self::LowFidelity]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// Explicit choice to return data of lower quality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tradeoff {
    /// Component that made the choice.
    pub component: String,
    /// Data that the choice is about.
    pub what: String,
    /// Kind of replacement.
    pub kind: TradeoffKind,
    /// True if decided before the full work was tried, false if decided after a timeout or an
    /// error.
    pub proactive: bool,
}

impl Tradeoff {
    const KEY: &str = "tradeoff.";
    /// Importance of tradeoffs in baggage. It is high, so that the record of missing data is among
    /// the last entries to be dropped.
    const IMPORTANCE: u8 = 8;

    /// Creates a reactive tradeoff: one decided after a timeout or an error. Tabs in the texts
    /// become spaces.
    pub fn new(component: impl Into<String>, what: impl Into<String>, kind: TradeoffKind) -> Self {
        // Tabs separate the parts on the wire.
        let text = |text: String| text.replace('\t', " ");
        Self {
            component: text(component.into()),
            what: text(what.into()),
            kind,
            proactive: false,
        }
    }

    /// Marks the tradeoff as proactive: decided before the full work was tried.
    #[must_use]
    pub fn proactive(mut self) -> Self {
        self.proactive = true;
        self
    }

    /// Creates an entry such as `tradeoff.7=omit proactive ranker features`, separated by tabs.
    pub(super) fn entry(&self, number: usize) -> Entry {
        let when = if self.proactive {
            "proactive"
        } else {
            "reactive"
        };
        let text = format!(
            "{}\t{when}\t{}\t{}",
            self.kind.name(),
            // The public field may have tabs.
            self.component.replace('\t', " "),
            self.what
        );
        Entry::new(Scope::Request, format!("{}{number}", Self::KEY), text)
            .with_importance(Self::IMPORTANCE)
    }

    pub(super) fn from_entry(entry: &Entry) -> Option<Self> {
        entry.key.strip_prefix(Self::KEY)?.parse::<usize>().ok()?;
        let Value::Text(text) = &entry.value else {
            return None;
        };
        let mut parts = text.splitn(4, '\t');
        let kind = TradeoffKind::from_name(parts.next()?)?;
        let proactive = match parts.next()? {
            "proactive" => true,
            "reactive" => false,
            _ => return None,
        };
        Some(Self {
            component: parts.next()?.to_owned(),
            what: parts.next()?.to_owned(),
            kind,
            proactive,
        })
    }
}
