//! Slack predictions: how much longer each component may take without delaying the request.

use super::Value;
use super::wire::{percent_decode, percent_encode};

/// Maximum number of components in a prediction, so that a set of them fits one word.
const COMPONENTS_MAX: usize = 64;
/// Maximum number of edges in a prediction.
const EDGES_MAX: usize = 256;

/// Predicted slack of components, and the order of the components: a directed acyclic graph (Chow,
/// dissertation, §4.3.1) of at most 64 components and 256 edges. Components on the critical path
/// have no slack. The prediction is made where the request enters, from the durations of earlier
/// requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlackPrediction {
    components: Vec<(String, u64)>,
    /// Pairs of positions in `components`: the earlier component, and the one that begins after it.
    edges: Vec<(usize, usize)>,
}

impl SlackPrediction {
    /// Key of the prediction in baggage.
    pub(super) const KEY: &str = "slack";

    pub(super) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Self::parse(text),
            _ => None,
        }
    }

    /// Adds a component with its slack in ns, or replaces its slack. Ignores components beyond the
    /// maximum of 64.
    #[must_use]
    pub fn with(mut self, component: impl Into<String>, slack_ns: u64) -> Self {
        let component = component.into();
        if let Some(position) = self.position(&component) {
            self.components[position].1 = slack_ns;
        }
        self
    }

    /// Adds an edge: `after` begins only when `before` is done. Unknown components are added with a
    /// slack of 0. Ignores an edge that exists, or that would close a cycle, exceed the maximum of
    /// 256, or need a component beyond the maximum of 64.
    #[must_use]
    pub fn with_edge(mut self, before: &str, after: &str) -> Self {
        let Some(edge) = self.position(before).zip(self.position(after)) else {
            return self;
        };
        if self.edges.len() < EDGES_MAX && !self.edges.contains(&edge) {
            self.edges.push(edge);
            if !self.is_acyclic() {
                self.edges.pop();
            }
        }
        self
    }

    /// Returns the position of a component, adding it if needed. Returns `None` if there is no
    /// space.
    fn position(&mut self, component: &str) -> Option<usize> {
        let known = self
            .components
            .iter()
            .position(|(name, _)| name == component);
        if known.is_none() && self.components.len() < COMPONENTS_MAX {
            self.components.push((component.to_owned(), 0));
            return Some(self.components.len() - 1);
        }
        known
    }

    /// Reports whether the edges form no cycle. Each round removes all components without
    /// predecessors (Kahn's algorithm), so at most 65 rounds are needed.
    fn is_acyclic(&self) -> bool {
        let mut before = [0u64; COMPONENTS_MAX];
        for &(earlier, later) in &self.edges {
            before[later] |= 1 << earlier;
        }
        let count = self.components.len();
        let mut left = u64::MAX.checked_shr(64 - count as u32).unwrap_or(0);
        loop {
            let first = (0..count).filter(|&at| before[at] & left == 0);
            let next = left & !first.fold(0, |set, at| set | 1 << at);
            if next == left {
                return left == 0;
            }
            left = next;
        }
    }

    /// Returns the predicted slack of a component in ns, or `None` if there is no prediction for
    /// it.
    #[must_use]
    pub fn slack_ns(&self, component: &str) -> Option<u64> {
        self.components
            .iter()
            .find(|(known, _)| known == component)
            .map(|&(_, slack_ns)| slack_ns)
    }

    /// Returns the components with their slack in ns.
    pub fn components(&self) -> impl Iterator<Item = (&str, u64)> {
        self.components
            .iter()
            .map(|(component, slack_ns)| (component.as_str(), *slack_ns))
    }

    /// Returns the edges as (before, after) pairs.
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

    /// Formats the prediction as `web:0|ranker:1200000/0>1`. Names are percent-encoded, including
    /// `:`, `|` and `/`.
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

    /// Parses the output of [`format`](Self::format). Returns `None` if the text is malformed, has
    /// a cycle, or exceeds the limits of components or edges.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (components, edges) = text.split_once('/').unwrap_or((text, ""));
        let mut prediction = Self::default();
        for component in components.split('|').filter(|part| !part.is_empty()) {
            if prediction.components.len() == COMPONENTS_MAX {
                return None;
            }
            let (name, slack_ns) = component.split_once(':')?;
            prediction
                .components
                .push((percent_decode(name)?, slack_ns.parse().ok()?));
        }
        let known = prediction.components.len();
        for edge in edges.split('|').filter(|part| !part.is_empty()) {
            let (before, after) = edge.split_once('>')?;
            let (before, after): (usize, usize) = (before.parse().ok()?, after.parse().ok()?);
            if before >= known || after >= known || prediction.edges.len() == EDGES_MAX {
                return None;
            }
            prediction.edges.push((before, after));
        }
        prediction.is_acyclic().then_some(prediction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    /// Reports whether edges lead from one component to another.
    fn leads_to(edges: &[(usize, usize)], from: usize, to: usize) -> bool {
        from == to
            || edges
                .iter()
                .any(|&(before, after)| before == from && leads_to(edges, after, to))
    }

    proptest! {
        /// Checks that a prediction is accepted exactly if no edge closes a cycle with those before
        /// it.
        #[test]
        fn circles_are_refused(edges in prop::collection::vec((0usize..7, 0usize..7), 0..12)) {
            let mut text = "a:1|b:2|c:3|d:4|e:5|f:6|g:7/".to_owned();
            for (before, after) in &edges {
                text.push_str(&format!("{before}>{after}|"));
            }
            let closes = |at: usize| leads_to(&edges[..at], edges[at].1, edges[at].0);
            let has_circle = (0..edges.len()).any(closes);
            let read = SlackPrediction::parse(&text);
            prop_assert_eq!(read.is_none(), has_circle);
            if let Some(read) = read {
                prop_assert_eq!(read.edges, edges);
            }
        }
    }

    /// Checks the limits: building ignores further components, and parsing rejects further
    /// components and edges.
    #[test]
    fn a_prediction_is_bounded() {
        let name = |n: usize| format!("c{n}");
        let full = (0..2 * COMPONENTS_MAX).fold(SlackPrediction::default(), |made, n| {
            made.with(name(n), n as u64)
                .with_edge(&name(n / 2), &name(n))
        });
        assert_eq!(full.components.len(), COMPONENTS_MAX);
        let chain =
            (1..COMPONENTS_MAX).fold(full, |made, n| made.with_edge(&name(n - 1), &name(n)));
        assert!(chain.edges().any(|edge| edge == ("c62", "c63")));
        assert_eq!(SlackPrediction::parse(&chain.format()), Some(chain));

        let many = "a:1|".repeat(COMPONENTS_MAX + 1);
        assert_eq!(SlackPrediction::parse(&many), None);
        let edges = "0>1|".repeat(EDGES_MAX + 1);
        assert_eq!(SlackPrediction::parse(&format!("a:1|b:2/{edges}")), None);
    }
}
