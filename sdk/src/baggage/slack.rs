//! The slot for a prediction of slack: how much longer each component may take without delaying the request.

use super::Value;
use super::wire::{percent_decode, percent_encode};

/// Components with their predicted slack, and which comes before which: a directed acyclic graph (001 §4.3.1).
/// Components on the critical path have no slack. Made where the request enters, from what earlier requests took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlackPrediction {
    components: Vec<(String, u64)>,
    /// Pairs of positions in `components`.
    edges: Vec<(usize, usize)>,
}

impl SlackPrediction {
    /// Its key in baggage.
    pub(super) const KEY: &str = "slack";

    pub(super) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Self::parse(text),
            _ => None,
        }
    }

    /// Adds a component and the time it may lose, in ns; in place of what was said of it before.
    #[must_use]
    pub fn with(mut self, component: impl Into<String>, slack_ns: u64) -> Self {
        let component = component.into();
        match self
            .components
            .iter_mut()
            .find(|(known, _)| *known == component)
        {
            Some((_, known)) => *known = slack_ns,
            None => self.components.push((component, slack_ns)),
        }
        self
    }

    /// `before` must be done for `after` to begin. Components that were not added have no slack. An edge that would
    /// close a circle is left out.
    #[must_use]
    pub fn with_edge(mut self, before: &str, after: &str) -> Self {
        let (before, after) = (self.position(before), self.position(after));
        if !self.leads_to(after, before) && !self.edges.contains(&(before, after)) {
            self.edges.push((before, after));
        }
        self
    }

    fn position(&mut self, component: &str) -> usize {
        if let Some(position) = self
            .components
            .iter()
            .position(|(known, _)| known == component)
        {
            return position;
        }
        self.components.push((component.to_owned(), 0));
        self.components.len() - 1
    }

    fn leads_to(&self, from: usize, to: usize) -> bool {
        let (mut seen, mut next) = (vec![false; self.components.len()], vec![from]);
        while let Some(at) = next.pop() {
            if at == to {
                return true;
            }
            if !std::mem::replace(&mut seen[at], true) {
                next.extend(
                    self.edges
                        .iter()
                        .filter(|&&(before, _)| before == at)
                        .map(|&(_, after)| after),
                );
            }
        }
        false
    }

    /// The slack predicted for a component, in ns; `None`: nothing was predicted.
    #[must_use]
    pub fn slack_ns(&self, component: &str) -> Option<u64> {
        self.components
            .iter()
            .find(|(known, _)| known == component)
            .map(|&(_, slack_ns)| slack_ns)
    }

    /// The components with their slack in ns.
    pub fn components(&self) -> impl Iterator<Item = (&str, u64)> {
        self.components
            .iter()
            .map(|(component, slack_ns)| (component.as_str(), *slack_ns))
    }

    /// Which comes before which.
    pub fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        let name = |position: usize| {
            self.components
                .get(position)
                .map_or("", |(name, _)| name.as_str())
        };
        self.edges
            .iter()
            .map(move |&(before, after)| (name(before), name(after)))
    }

    /// `web:0|ranker:1200000/0>1`, names percent-encoded, `:`, `|` and `/` too.
    pub(super) fn format(&self) -> String {
        let mut text = String::new();
        for (i, (component, slack_ns)) in self.components.iter().enumerate() {
            if i > 0 {
                text.push('|');
            }
            let mut name = String::new();
            percent_encode(component, &mut name);
            text.push_str(
                &name
                    .replace(':', "%3A")
                    .replace('|', "%7C")
                    .replace('/', "%2F"),
            );
            text.push_str(&format!(":{slack_ns}"));
        }
        for (i, (before, after)) in self.edges.iter().enumerate() {
            text.push(if i == 0 { '/' } else { '|' });
            text.push_str(&format!("{before}>{after}"));
        }
        text
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (components, edges) = text.split_once('/').unwrap_or((text, ""));
        let mut prediction = Self::default();
        for component in components.split('|').filter(|part| !part.is_empty()) {
            let (name, slack_ns) = component.split_once(':')?;
            prediction
                .components
                .push((percent_decode(name)?, slack_ns.parse().ok()?));
        }
        for edge in edges.split('|').filter(|part| !part.is_empty()) {
            let (before, after) = edge.split_once('>')?;
            let (before, after): (usize, usize) = (before.parse().ok()?, after.parse().ok()?);
            let known = prediction.components.len();
            if before >= known || after >= known || prediction.leads_to(after, before) {
                return None;
            }
            prediction.edges.push((before, after));
        }
        Some(prediction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let prediction = SlackPrediction::default()
            .with("web", 0)
            .with("ranker: candidates|a/b", 1_200_000)
            .with_edge("web", "ranker: candidates|a/b")
            .with_edge("web", "store");
        assert_eq!(
            SlackPrediction::parse(&prediction.format()).as_ref(),
            Some(&prediction)
        );
        assert_eq!(prediction.slack_ns("store"), Some(0));
        assert_eq!(prediction.slack_ns("cache"), None);
        assert_eq!(prediction.edges().collect::<Vec<_>>()[1], ("web", "store"));
        let circle = prediction
            .clone()
            .with_edge("store", "web")
            .with_edge("web", "web");
        assert_eq!(circle, prediction);
        assert_eq!(SlackPrediction::parse(""), Some(SlackPrediction::default()));
        for wrong in [
            "web",
            "web:x",
            "web:1/0>1",
            "web:1/0>0",
            "a:1|b:2/0>1|1>0",
            "%zz:1",
        ] {
            assert_eq!(SlackPrediction::parse(wrong), None, "{wrong}");
        }
    }
}
