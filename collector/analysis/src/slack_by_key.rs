//! Slack of each component in the last request of each key, from which an ingress predicts the
//! slack of the key's next request. A key is a value of one attribute, such as a user's id.
//!
//! Source: Chow et al., "The Mystery Machine" (OSDI 2014), §5.2. A component's slack in a request
//! is the least slack of its segments before the answer: any one of them may be late by that much.

use rustc_hash::FxHashMap;
use stroboscope_tradeoff::{KEYS_MAX, SLACK_COMPONENTS_MAX, SlackModel};

use crate::critical_path::TracePath;
use crate::distribution::Distribution;
use crate::label::Labels;
use crate::prediction::{PredictionQuality, SlackHistory};
use crate::task_path::{JOINT, unescape, unnumbered};

/// Components that the segments belong to, and the calls between components. A component is a
/// service or an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Components {
    names: Vec<String>,
    /// Indices of the components that each segment belongs to, by the segment's number.
    of_segment: Vec<Vec<usize>>,
    edges: Vec<(usize, usize)>,
    left_out: Vec<String>,
}

fn service(operation: &str) -> &str {
    operation
        .split_once(':')
        .map_or(operation, |(name, _)| name)
}

impl Components {
    /// Finds the segments of the services (`ranker`) and operations (`ranker:score`) in `wanted`.
    /// An empty list selects all services. Of more than [`SLACK_COMPONENTS_MAX`] components, the
    /// first by name are kept.
    #[must_use]
    pub fn of(labels: &Labels, wanted: &[String]) -> Self {
        let operations: Vec<String> = labels.iter().map(|(_, label)| label.operation()).collect();
        let mut names: Vec<String> = match wanted {
            [] => operations
                .iter()
                .map(|operation| service(operation).to_owned())
                .collect(),
            _ => wanted.to_vec(),
        };
        names.sort_unstable();
        names.dedup();
        let left_out = names.split_off(names.len().min(SLACK_COMPONENTS_MAX));
        let of_operation = |operation: &str| -> Vec<usize> {
            let is_of = |name: &&str| *name == operation || *name == service(operation);
            let places = names.iter().enumerate();
            places
                .filter(|(_, name)| is_of(&name.as_str()))
                .map(|(place, _)| place)
                .collect()
        };
        let mut found = Self {
            of_segment: operations
                .iter()
                .map(|operation| of_operation(operation))
                .collect(),
            ..Self::default()
        };
        for (_, label) in labels.iter() {
            let mut caller: Option<usize> = None;
            for operation in label.task.split(JOINT) {
                // The operation's own component comes before its service's: the longer name wins.
                let operation = unescape(unnumbered(operation));
                let of = of_operation(&operation);
                let Some(at) = of.into_iter().max_by_key(|place| names[*place].len()) else {
                    continue;
                };
                if let Some(caller) = caller.filter(|caller| *caller != at) {
                    found.add_edge(caller, at);
                }
                caller = Some(at);
            }
        }
        found.names = names;
        found.left_out = left_out;
        found
    }

    /// Adds a call between two components, unless it would close a cycle.
    fn add_edge(&mut self, before: usize, after: usize) {
        let (mut reached, mut next) = (vec![after], vec![after]);
        while let Some(at) = next.pop() {
            for (_, to) in self.edges.iter().filter(|(from, _)| *from == at) {
                if !reached.contains(to) {
                    reached.push(*to);
                    next.push(*to);
                }
            }
        }
        if !reached.contains(&before) && !self.edges.contains(&(before, after)) {
            self.edges.push((before, after));
        }
    }

    /// Returns the names of the components, sorted.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the names that were left out because there were too many components.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Iterates over the components that no segment belongs to.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        let is_known = |place: usize| self.of_segment.iter().flatten().any(|of| *of == place);
        let names = self.names.iter().enumerate();
        names
            .filter(move |(place, _)| !is_known(*place))
            .map(|(_, name)| name.as_str())
    }

    /// Returns the slack of each component in a request, in ns; `None` for a component without
    /// segments before the answer.
    fn slack_ns(&self, path: &TracePath) -> Vec<Option<u64>> {
        let mut slack = vec![None::<u64>; self.names.len()];
        for timing in path.segments.iter().filter(|timing| !timing.after_answer) {
            let of = self.of_segment.get(timing.segment.index());
            for place in of.into_iter().flatten() {
                let least = &mut slack[*place];
                *least = Some(least.map_or(timing.slack_ns, |known| known.min(timing.slack_ns)));
            }
        }
        slack
    }
}

/// Slack in the last request of each key, with the data to judge predictions from it.
#[derive(Clone, Debug, Default)]
pub struct SlackByKey {
    /// Last request of each key, by the key's hash: its start in nanoseconds, and the slack of each
    /// component in µs, 0 if unknown.
    last: FxHashMap<u64, (i64, Vec<u32>)>,
    /// Distribution and history of the slack of each component.
    seen: Vec<(Distribution, SlackHistory)>,
    forgotten: u64,
}

/// Quality of the prediction of a component's slack.
#[derive(Clone, Debug)]
pub struct ComponentSlack {
    /// Name of the component.
    pub component: String,
    /// Slack of the component in the observed requests in which it has segments before the answer.
    pub slack: Distribution,
    /// Threshold above which the component has slack, in nanoseconds.
    pub threshold_ns: u64,
    /// Quality of predicting the slack from its previous value for the key.
    pub quality: PredictionQuality,
}

impl SlackByKey {
    /// Adds one request of a key.
    pub fn observe(&mut self, components: &Components, key: &str, start_ns: i64, path: &TracePath) {
        let slack_ns = components.slack_ns(path);
        self.seen.resize_with(slack_ns.len(), Default::default);
        for ((slack, history), ns) in self.seen.iter_mut().zip(&slack_ns) {
            if let Some(ns) = *ns {
                slack.record(ns);
                history.observe(key, start_ns, ns);
            }
        }
        let us = |ns: Option<u64>| u32::try_from(ns.unwrap_or(0) / 1_000).unwrap_or(u32::MAX);
        let request = (start_ns, slack_ns.into_iter().map(us).collect());
        self.take(SlackModel::hash(key), request);
    }

    fn take(&mut self, key: u64, request: (i64, Vec<u32>)) {
        let last = self.last.entry(key).or_insert_with(|| request.clone());
        // Of simultaneous requests, the one with the larger list of slacks is kept, so that the
        // result does not depend on their order.
        if *last < request {
            *last = request;
        }
        if self.last.len() >= 2 * KEYS_MAX {
            self.forget();
        }
    }

    /// Evicts all but the [`KEYS_MAX`] keys whose last requests are the latest.
    fn forget(&mut self) {
        let excess = self.last.len().saturating_sub(KEYS_MAX);
        if excess == 0 {
            return;
        }
        let mut starts: Vec<(i64, u64)> = self.last.iter().map(|(key, of)| (of.0, *key)).collect();
        starts.select_nth_unstable(excess - 1);
        for (_, key) in &starts[..excess] {
            self.last.remove(key);
        }
        self.forgotten += excess as u64;
    }

    /// Adds the requests of `other`.
    pub fn merge(&mut self, other: Self) {
        self.seen
            .resize_with(self.seen.len().max(other.seen.len()), Default::default);
        for ((slack, history), (other_slack, other_history)) in
            self.seen.iter_mut().zip(&other.seen)
        {
            slack.merge(other_slack);
            history.merge(other_history);
        }
        self.forgotten += other.forgotten;
        for (key, request) in other.last {
            self.take(key, request);
        }
    }

    /// Returns the number of evictions of keys so far. The keys with the latest requests are kept.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns the model, its quality for the observed requests, and the number of evictions.
    /// `key` is the name of the attribute whose values are the keys. A component has slack in a
    /// request if the slack exceeds `threshold_ns`. If that is `None`, the threshold is the
    /// component's median slack.
    #[must_use]
    pub fn finish(
        mut self,
        key: &str,
        components: &Components,
        threshold_ns: Option<u64>,
    ) -> (SlackModel, Vec<ComponentSlack>, u64) {
        self.forget();
        let judged = components.names.iter().zip(self.seen).map(|(name, seen)| {
            let (slack, history) = seen;
            let threshold_ns = threshold_ns.unwrap_or_else(|| slack.percentiles().p50_ns);
            ComponentSlack {
                component: name.clone(),
                quality: history.quality(threshold_ns),
                slack,
                threshold_ns,
            }
        });
        let judged = judged.collect();
        let model = SlackModel {
            key: key.to_owned(),
            components: components.names.clone(),
            edges: components.edges.clone(),
            keys: self
                .last
                .into_iter()
                .map(|(key, (_, us))| (key, us))
                .collect(),
        };
        (model, judged, self.forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::critical_path::SegmentTiming;
    use crate::label::SegmentId;
    use proptest::prelude::*;

    fn labels() -> Labels {
        let mut labels = Labels::default();
        for task in [
            "client:page",
            "client:page > web:load",
            "client:page > web:load > ranker:rank",
            "client:page > web:load > ranker:rank > web:again",
        ] {
            labels
                .intern(&task.into(), &"start".into(), &"end".into())
                .expect("room");
        }
        labels
    }

    fn path(slack_ns: &[u64]) -> TracePath {
        let timing = |(segment, slack_ns): (usize, &u64)| SegmentTiming {
            segment: SegmentId(segment as u32),
            start_ns: 0,
            end_ns: 1,
            wait_ns: 0,
            critical: *slack_ns == 0,
            after_answer: false,
            slack_ns: *slack_ns,
            predecessor: None,
        };
        TracePath {
            latency_ns: 1,
            critical_path_ns: 1,
            tail_wait_ns: 0,
            segments: slack_ns.iter().enumerate().map(timing).collect(),
            after_answer: None,
        }
    }

    #[test]
    fn components_are_services_or_what_is_named() {
        let all = Components::of(&labels(), &[]);
        assert_eq!(all.names(), ["client", "ranker", "web"]);
        // The ranker calls the web again, which must not close a cycle.
        assert_eq!(all.edges, [(0, 2), (2, 1)]);
        assert_eq!(all.unknown().count(), 0);
        let some = ["web:again", "ranker", "store"].map(str::to_owned);
        let named = Components::of(&labels(), &some);
        assert_eq!(named.names(), ["ranker", "store", "web:again"]);
        assert_eq!(named.edges, [(0, 2)]);
        assert_eq!(named.unknown().collect::<Vec<_>>(), ["store"]);
        let mut numbered = Labels::default();
        let task = "client:page > web:load#2 > ranker:rank#*";
        numbered.intern(&task.into(), &"start".into(), &"end".into());
        let siblings = ["ranker:rank", "web:load"].map(str::to_owned);
        assert_eq!(Components::of(&numbered, &siblings).edges, [(1, 0)]);
    }

    #[test]
    fn the_least_of_its_segments_is_a_components_slack_and_the_last_request_counts() {
        let components = Components::of(&labels(), &[]);
        let mut seen = SlackByKey::default();
        seen.observe(&components, "7", 20, &path(&[0, 9_000, 4_000, 3_000]));
        seen.observe(&components, "7", 10, &path(&[0, 0, 0, 0]));
        seen.observe(&components, "8", 15, &path(&[0, 5_000]));
        let (model, judged, forgotten) = seen.finish("user", &components, Some(1_000));
        let of = |key: &str| model.of(key).map(|of| of.collect::<Vec<_>>());
        let expected = vec![("client", 0), ("ranker", 4_000), ("web", 3_000)];
        assert_eq!(of("7"), Some(expected));
        assert_eq!(
            of("8"),
            Some(vec![("client", 0), ("ranker", 0), ("web", 5_000)])
        );
        assert_eq!(of("9"), None);
        assert_eq!(forgotten, 0);
        // User 7's first request had no slack and the second had some, which the prediction missed.
        let web = &judged[2];
        assert_eq!((web.quality.predicted, web.quality.false_negatives), (1, 1));
        assert_eq!(judged[1].slack.count(), 2);
    }

    proptest! {
        #[test]
        fn order_and_parts_do_not_matter(
            requests in proptest::collection::vec((0u8..6, 0i64..20, 0u64..9), 0..60),
            cut in 0usize..60,
        ) {
            let components = Components::of(&labels(), &[]);
            let observe = |requests: &[(u8, i64, u64)]| {
                let mut seen = SlackByKey::default();
                for (key, start_ns, slack) in requests {
                    let path = path(&[0, slack * 1_000, slack * 2_000]);
                    seen.observe(&components, &key.to_string(), *start_ns, &path);
                }
                seen
            };
            let (whole, ..) = observe(&requests).finish("user", &components, None);
            let (left, right) = requests.split_at(cut.min(requests.len()));
            let mut parts = observe(right);
            parts.merge(observe(left));
            prop_assert_eq!(&parts.finish("user", &components, None).0, &whole);
            // Compares with the last request of each key.
            for key in 0u8..6 {
                let of_key = requests.iter().filter(|request| request.0 == key);
                let last = of_key.map(|(_, start_ns, slack)| (*start_ns, *slack)).max();
                let expected = last.map(|(_, slack)| vec![("client", 0), ("ranker", slack * 2_000), ("web", slack * 1_000)]);
                let found = whole.of(&key.to_string()).map(|of| of.collect::<Vec<_>>());
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn the_keys_seen_last_are_kept() {
        let components = Components::of(&labels(), &[]);
        let mut seen = SlackByKey::default();
        let path = path(&[1_000]);
        for number in 0..(2 * KEYS_MAX as i64 + 10) {
            seen.observe(&components, &number.to_string(), number, &path);
        }
        let (model, _, forgotten) = seen.finish("user", &components, None);
        assert_eq!(model.keys.len(), KEYS_MAX);
        assert_eq!(forgotten, KEYS_MAX as u64 + 10);
        assert!(model.of("9").is_none() && model.of(&(2 * KEYS_MAX + 9).to_string()).is_some());
    }
}
