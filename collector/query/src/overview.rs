//! Overview of the time of requests, for the page that the subcommand `report` writes.

use std::collections::BTreeMap;

use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::breakdown::Breakdown;
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::slack_validation::ServerTime;

use super::categories::{Categories, CategoryEvidence, CategoryRule, CategoryTotals, totals};
use super::notes::Notes;
use super::paths::TraceAnswer;
use super::query_error::QueryError;
use super::sampled_notes::WeightUse;
use super::study::{Question, StudyInput};
use stroboscope_store::tables::AttributeKeys;

/// Quantiles of latency for which an example request is shown.
const EXAMPLES: [f64; 2] = [0.5, 0.95];
/// Category whose slack is shown, if it exists under the category rule.
const SERVER: &str = "server";

/// Request whose latency is nearest to a quantile.
#[derive(Debug)]
pub struct Example {
    /// Quantile of latency to which the request is nearest, 0 to 1.
    pub quantile: f64,
    /// Critical path of the request.
    pub answer: TraceAnswer,
}

/// Time of requests by category, with example requests.
#[derive(Debug)]
pub struct Overview {
    /// Statistics of critical paths, per segment.
    pub aggregate: PathAggregate,
    /// Categories of segments.
    pub categories: Categories,
    /// Time per category, the largest part of the critical path first.
    pub totals: Vec<CategoryTotals>,
    /// Breakdown of the requests' time by category.
    pub breakdown: Breakdown,
    /// Slack of each request's last server segment before its answer; omits requests without one.
    pub server_slack: Distribution,
    /// Examples from the fastest to the slowest.
    pub examples: Vec<Example>,
    /// Notes about the data that the query read.
    pub notes: Notes,
}

/// Asks for the time of requests, with categories by this rule.
#[derive(Clone, Debug, Default)]
pub struct OverviewQuestion(pub CategoryRule);

impl Question for OverviewQuestion {
    type Records = CategoryEvidence;
    type Preparation = Categories;
    type Paths<'a> = OverviewState<'a>;
    type Answer = Overview;

    fn what(&self) -> &'static str {
        "finding critical paths"
    }

    fn record_keys(&self) -> AttributeKeys {
        self.0.keys([])
    }

    fn records(&self) -> CategoryEvidence {
        CategoryEvidence::new(&self.0)
    }

    fn prepare(
        &self,
        studied: StudyInput<'_>,
        records: CategoryEvidence,
    ) -> Result<Categories, QueryError> {
        records.categories(studied)
    }

    fn paths<'a>(
        &'a self,
        studied: StudyInput<'a>,
        categories: &'a Categories,
    ) -> OverviewState<'a> {
        let latency = studied.inference.roots.headline();
        OverviewState {
            categories,
            server: categories.number(SERVER).ok(),
            wanted_ns: EXAMPLES.map(|quantile| latency.quantile_ns(quantile)),
            aggregate: PathAggregate::new(),
            breakdown: Breakdown::default(),
            server_slack: Distribution::default(),
            examples: Nearest::default(),
        }
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        categories: &Categories,
        paths: OverviewState<'_>,
        notes: Notes,
    ) -> Result<Overview, QueryError> {
        Ok(Overview {
            totals: totals(&paths.aggregate, categories),
            aggregate: paths.aggregate,
            categories: categories.clone(),
            breakdown: paths.breakdown,
            server_slack: paths.server_slack,
            examples: paths.examples.into_examples(),
            notes: notes.weighing(WeightUse::Everything),
        })
    }
}

/// Pass that collects the overview from critical paths.
pub struct OverviewState<'a> {
    categories: &'a Categories,
    server: Option<usize>,
    wanted_ns: [u64; EXAMPLES.len()],
    aggregate: PathAggregate,
    breakdown: Breakdown,
    server_slack: Distribution,
    examples: Nearest,
}

impl Pass<TraceView<'_>> for OverviewState<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let (categories, server) = (self.categories, self.server);
        let weight = seen.weight();
        self.aggregate.observe(seen.path, weight);
        self.breakdown
            .observe(seen.path, weight, |segment| categories.of(segment));
        let is_server = |segment| Some(categories.of(segment)) == server;
        if let Some(request) = ServerTime::of(seen.path, is_server) {
            self.server_slack.record_weighted(request.slack_ns, weight);
        }
        self.examples.offer(&self.wanted_ns, seen);
    }

    fn merge(&mut self, other: Self) {
        self.aggregate.merge(&other.aggregate);
        self.breakdown.merge(&other.breakdown);
        self.server_slack.merge(&other.server_slack);
        let answers = other.examples.0.into_values();
        answers.for_each(|(_, answer)| self.examples.offer_answer(&self.wanted_ns, &answer));
    }
}

/// Trace that is nearest to each of several latencies, with the distance in ns. Among equally near
/// traces, the trace with the lowest id is kept, so that the order of traces does not matter.
#[derive(Default)]
struct Nearest(BTreeMap<usize, (u64, TraceAnswer)>);

impl Nearest {
    /// Keeps a request for each wanted latency to which it is [`nearer`](Self::nearer). Converts
    /// only such requests to answers, because most requests are not nearer.
    fn offer(&mut self, wanted_ns: &[u64], seen: &TraceView<'_>) {
        let nearer = self.nearer(wanted_ns, seen.path.latency_ns, seen.trace.id);
        if !nearer.is_empty() {
            self.offer_answer(wanted_ns, &TraceAnswer::of(seen));
        }
    }

    fn offer_answer(&mut self, wanted_ns: &[u64], answer: &TraceAnswer) {
        for at in self.nearer(wanted_ns, answer.path.latency_ns, answer.id) {
            let distance_ns = wanted_ns[at].abs_diff(answer.path.latency_ns);
            self.0.insert(at, (distance_ns, answer.clone()));
        }
    }

    /// Returns the indexes of the wanted latencies to which a request is nearer than the request
    /// that is kept for them, or equally near with a lower id.
    fn nearer(&self, wanted_ns: &[u64], latency_ns: u64, id: TraceId) -> Vec<usize> {
        let is_nearer = |(at, wanted_ns): &(usize, &u64)| {
            let known = self.0.get(at);
            let known = known.map(|(known_ns, known)| (*known_ns, known.id));
            known.is_none_or(|known| (wanted_ns.abs_diff(latency_ns), id) < known)
        };
        let nearer = wanted_ns.iter().enumerate().filter(is_nearer);
        nearer.map(|(at, _)| at).collect()
    }

    /// Returns the examples, without repeating a trace that is nearest to several latencies.
    fn into_examples(self) -> Vec<Example> {
        let all = self.0.into_iter().map(|(at, (_, answer))| Example {
            quantile: EXAMPLES[at],
            answer,
        });
        let mut examples: Vec<Example> = all.collect();
        examples.dedup_by_key(|example| example.answer.id);
        examples
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::critical_path::TracePath;

    use super::*;

    #[test]
    fn the_nearest_examples_are_kept() {
        let answer = |id, latency_ns| {
            let path = TracePath {
                latency_ns,
                critical_path_ns: latency_ns,
                tail_wait_ns: 0,
                segments: vec![],
                after_answer: None,
            };
            TraceAnswer {
                id: TraceId(id),
                name: None,
                root: None,
                start_ns: 0,
                path,
            }
        };
        let check = |offered: &[(u128, u64)], expected: &[(f64, u128)]| {
            for offered in [offered.to_vec(), offered.iter().rev().copied().collect()] {
                let mut nearest = Nearest::default();
                for (id, latency_ns) in offered {
                    nearest.offer_answer(&[50, 90], &answer(id, latency_ns));
                }
                let found: Vec<_> = nearest
                    .into_examples()
                    .iter()
                    .map(|e| (e.quantile, e.answer.id.0))
                    .collect();
                assert_eq!(found, expected);
            }
        };
        check(&[], &[]);
        check(&[(1, 70)], &[(0.5, 1)]);
        check(
            &[(1, 10), (2, 40), (3, 60), (4, 95), (5, 70)],
            &[(0.5, 2), (0.95, 4)],
        );
    }
}
