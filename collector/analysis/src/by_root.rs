//! Counts requests by root operation, with their latencies, and requests for which a caller waits.
//!
//! One distribution of the latencies of different operations describes none of them: a job that
//! runs for seconds once a minute could become every user's p99. [`ByRoot`] therefore keeps one
//! distribution for each root operation (see [`root`](crate::root)). A report that needs a single
//! figure uses [`ByRoot::headline`], which covers only root operations with known callers. If no
//! root operation with latencies has known callers, it covers all.

use crate::distribution::Distribution;
use crate::sampling::{Weight, WeightedCount};
use std::collections::BTreeMap;

/// Maximum number of named root operations. Requests of further ones go to [`OTHER_ROOTS`].
pub const ROOTS_MAX: usize = 256;
/// Name that stands for all root operations beyond the first [`ROOTS_MAX`].
pub const OTHER_ROOTS: &str = "(other)";

/// Statistics of one root operation's requests.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RootStatistics {
    /// Number of requests that were recorded completely.
    pub complete: WeightedCount,
    /// Number of requests of which a part is known to be missing.
    pub incomplete: WeightedCount,
    /// Number of complete and incomplete requests that are known to have a caller waiting for them.
    pub with_caller: WeightedCount,
    /// Latencies of the requests that analyses use, without latencies of 0.
    pub latency: Distribution,
    /// Times after the answer, of the requests that analyses use and that continued after it.
    pub after_answer: Distribution,
}

impl RootStatistics {
    fn merge(&mut self, other: &RootStatistics) {
        self.complete += other.complete;
        self.incomplete += other.incomplete;
        self.with_caller += other.with_caller;
        self.latency.merge(&other.latency);
        self.after_answer.merge(&other.after_answer);
    }

    /// Reports whether any of the requests is known to have a caller.
    pub fn has_caller(&self) -> bool {
        !self.with_caller.is_zero()
    }

    /// Returns the number of requests recorded, completely or not.
    pub fn requests(&self) -> WeightedCount {
        self.complete + self.incomplete
    }
}

/// Statistics of requests by root operation. Merging is commutative and associative while all root
/// operations fit [`ROOTS_MAX`].
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ByRoot {
    roots: BTreeMap<String, RootStatistics>,
}

impl FromIterator<(String, RootStatistics)> for ByRoot {
    fn from_iter<T: IntoIterator<Item = (String, RootStatistics)>>(roots: T) -> ByRoot {
        let mut by_root = ByRoot::default();
        for (root, statistics) in roots {
            by_root.of(&root).merge(&statistics);
        }
        by_root
    }
}

impl ByRoot {
    /// Counts a recorded request.
    pub fn count(&mut self, root: &str, has_caller: bool, is_complete: bool, weight: Weight) {
        let statistics = self.of(root);
        match is_complete {
            true => statistics.complete.count(weight),
            false => statistics.incomplete.count(weight),
        }
        if has_caller {
            statistics.with_caller.count(weight);
        }
    }

    /// Adds the latency and the time after the answer of a request that analyses use, unless 0.
    pub fn observe(&mut self, root: &str, latency_ns: u64, after_answer_ns: u64, weight: Weight) {
        let statistics = self.of(root);
        if latency_ns > 0 {
            statistics.latency.record_weighted(latency_ns, weight);
        }
        if after_answer_ns > 0 {
            let after_answer = &mut statistics.after_answer;
            after_answer.record_weighted(after_answer_ns, weight);
        }
    }

    /// Adds the statistics of `other`.
    pub fn merge(&mut self, other: &ByRoot) {
        for (root, statistics) in &other.roots {
            self.of(root).merge(statistics);
        }
    }

    fn of(&mut self, root: &str) -> &mut RootStatistics {
        let fits = self.roots.len() < ROOTS_MAX || self.roots.contains_key(root);
        let root = if fits { root } else { OTHER_ROOTS };
        self.roots.entry(root.to_string()).or_default()
    }

    /// Returns the statistics of each root operation, by name.
    pub fn roots(&self) -> &BTreeMap<String, RootStatistics> {
        &self.roots
    }

    /// Ranks the root operations: those with known callers first, then by total latency and by
    /// number of requests, the largest first.
    pub fn ranked(&self) -> Vec<(&str, &RootStatistics)> {
        let roots = self.roots.iter();
        let mut ranked: Vec<_> = roots.map(|(root, of)| (root.as_str(), of)).collect();
        // The sort is stable: equals stay in order of name.
        ranked.sort_by_key(|(_, of)| {
            let requests = of.requests().rounded();
            std::cmp::Reverse((of.has_caller(), of.latency.sum_ns(), requests))
        });
        ranked
    }

    /// Returns the fraction (0 to 1) of all latency that this root operation's requests take.
    pub fn share(&self, root: &str) -> f64 {
        let all_ns: u128 = self.roots.values().map(|of| of.latency.sum_ns()).sum();
        let own_ns = self.roots.get(root).map_or(0, |of| of.latency.sum_ns());
        own_ns as f64 / all_ns.max(1) as f64
    }

    /// Reports whether some requests with a latency have a root operation with known callers, and
    /// others have one without.
    pub fn is_mixed(&self) -> bool {
        let used = || self.roots.values().filter(|of| of.latency.count() > 0);
        used().any(|of| of.has_caller()) && used().any(|of| !of.has_caller())
    }

    /// Returns the latencies of the requests whose root operation is known to have callers. If
    /// there are no such latencies, returns those of all requests.
    pub fn headline(&self) -> Distribution {
        let mut latency = Distribution::default();
        for (_, of) in self.headline_roots() {
            latency.merge(&of.latency);
        }
        latency
    }

    /// Iterates over the root operations that [`headline`](Self::headline) covers.
    pub fn headline_roots(&self) -> impl Iterator<Item = (&String, &RootStatistics)> {
        let is_mixed = self.is_mixed();
        let roots = self.roots.iter();
        roots.filter(move |(_, of)| !is_mixed || of.has_caller())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_root(requests: &[(&str, bool, bool, u64, u64)]) -> ByRoot {
        let mut by_root = ByRoot::default();
        for (root, has_caller, is_complete, latency_ns, after_answer_ns) in requests {
            by_root.count(root, *has_caller, *is_complete, Weight::ONE);
            if *is_complete {
                by_root.observe(root, *latency_ns, *after_answer_ns, Weight::ONE);
            }
        }
        by_root
    }

    #[test]
    fn a_job_is_not_in_the_users_latency() {
        let requests = [
            ("web:get", true, true, 10, 0),
            ("job:sweep", false, true, 1_000, 0),
            ("web:get", true, true, 20, 500),
            ("web:put", true, false, 9, 9),
            ("web:get", true, true, 0, 0),
        ];
        let whole = by_root(&requests);
        assert!(whole.is_mixed());
        let headline = whole.headline();
        assert_eq!((headline.count(), headline.max_ns()), (2, 20));
        let get = &whole.roots()["web:get"];
        assert_eq!(
            [get.requests(), get.complete, get.with_caller].map(WeightedCount::rounded),
            [3; 3]
        );
        assert_eq!(
            (get.after_answer.count(), get.after_answer.sum_ns()),
            (1, 500)
        );
        assert_eq!(
            (
                whole.roots()["web:put"].complete.rounded(),
                whole.roots()["web:put"].incomplete.rounded()
            ),
            (0, 1)
        );
        let ranked: Vec<&str> = whole.ranked().iter().map(|(root, _)| *root).collect();
        assert_eq!(ranked, ["web:get", "web:put", "job:sweep"]);
        assert!((whole.share("job:sweep") - 1_000.0 / 1_030.0).abs() < 1e-9);
        let mut merged = by_root(&requests[2..]);
        merged.merge(&by_root(&requests[..2]));
        assert_eq!(merged, whole);
        // Without known callers, the headline covers all requests.
        let unknown = by_root(&[("a:x", false, true, 10, 0), ("a:y", false, true, 30, 0)]);
        assert!(!unknown.is_mixed() && unknown.headline().count() == 2);
        assert_eq!(
            (
                ByRoot::default().headline().count(),
                ByRoot::default().share("a:x")
            ),
            (0, 0.0)
        );
    }

    #[test]
    fn roots_are_bounded() {
        let mut many = ByRoot::default();
        for number in 0..2 * ROOTS_MAX {
            many.count(&format!("a:{number:04}"), false, true, Weight::ONE);
        }
        assert_eq!(many.roots().len(), ROOTS_MAX + 1);
        assert_eq!(
            many.roots()[OTHER_ROOTS].complete.rounded(),
            ROOTS_MAX as u64
        );
    }
}
