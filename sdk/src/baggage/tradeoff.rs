//! Tradeoffs made while the request is processed, so that later components and people know what the answer lacks.

use super::{Entry, Scope, Value};

/// What was done in place of the full work (001 §4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TradeoffKind {
    /// A value was left out of an aggregate.
    Omit,
    /// A default was taken.
    Default,
    /// A value of lower fidelity was taken.
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

/// One explicit choice to return data of lower fidelity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tradeoff {
    /// Who chose.
    pub component: String,
    /// About which data.
    pub what: String,
    /// What was done.
    pub kind: TradeoffKind,
    /// Decided before trying (`true`), or after a timeout or an error (`false`).
    pub proactive: bool,
}

impl Tradeoff {
    const KEY: &str = "tradeoff.";
    /// The record of what an answer lacks goes late when there is too much to carry.
    const IMPORTANCE: u8 = 8;

    /// A reactive tradeoff.
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

    /// The same, decided before trying.
    #[must_use]
    pub fn proactive(mut self) -> Self {
        self.proactive = true;
        self
    }

    /// `tradeoff.7=omit proactive ranker features`, with tabs.
    pub(super) fn entry(&self, number: usize) -> Entry {
        let when = if self.proactive {
            "proactive"
        } else {
            "reactive"
        };
        let text = format!(
            "{}\t{when}\t{}\t{}",
            self.kind.name(),
            self.component,
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
