//! Explains a change by the parameters that separate two categories of requests: those with the
//! change, such as a mutation's, and those without it (Spectroscope, §5.5).
//!
//! A [decision tree](crate::decision_tree) is grown from two thirds of a sample of both categories.
//! The remaining third, the held-out requests, tests each leaf. A tree may find conditions by
//! chance, so the explanation includes only leaves that also separate the held-out requests
//! significantly.
//!
//! The sample takes as many requests of each category as a tenth of its weight, but at least 100,
//! as in the paper, and at most [`SAMPLE_MAX`]; all if there are fewer. A category with more than
//! 100 sampled requests has at most [`IMBALANCE_MAX`] times as many as the other. The categories'
//! sizes say nothing about their difference. The ids and weights of the requests and a seed
//! determine the sample, not the order of the requests.
//!
//! The sample determines the questions. [As many requests as fit](StoredRows) then determine each
//! threshold, and each leaf's precision and recall. The sample does not keep the ratio of the
//! categories. If one of them is rare, its leaves would seem far more precise in the sample than
//! they are.
//!
//! The analysis ignores parameters that separate requests without giving a reason: see [`Why`].

mod identity;
mod parameters;
mod sample;
mod sentence;
mod stored;
mod subject;
mod template;

pub use identity::{Incarnations, SaidText};
pub use parameters::{LeftOut, PARAMETERS_MAX, Why};
pub use sample::{IMBALANCE_MAX, SAMPLE_MAX, SAMPLE_MIN, place_of};
pub use sentence::{ExplainedLeaf, ParameterCondition, ParameterTest, Typical};
pub use stored::{CountedRequest, StoredRows};
pub use subject::Subject;
pub use template::Template;

use crate::decision_tree::{DecisionTree, Table, TreeSettings};
use crate::record::TraceId;
use crate::statistics::{Share, fisher_two_sided};
use parameters::Parameters;
use sample::ExplainSample;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use stored::AskedColumn;

/// A property that requests record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parameter {
    /// The operation that records the parameter; empty for the request itself.
    pub operation: Arc<str>,
    /// The recorded name, after `largest ` or `smallest ` if requests record several numbers. If it
    /// is empty, the parameter is the fact that the operation ran.
    pub key: Arc<str>,
}

/// Formats as `count (web:read)`, or as `count` for the request itself.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        match &*self.operation {
            "" => Ok(()),
            operation => write!(f, " ({operation})"),
        }
    }
}

/// A request of one of the categories.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedRequest {
    /// Id of the request.
    pub id: TraceId,
    /// Start of the request, in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// True for a request with the change, such as a mutation's; false for one without it.
    pub is_mutation: bool,
    /// Number of requests of its category that this request represents.
    pub weight: f64,
    /// Latency of the whole request in nanoseconds.
    pub latency_ns: u64,
    /// Recorded values. If a request records several texts of one parameter, the value is unknown.
    /// If all values of the parameter are numbers, their minimum and maximum count instead.
    pub parameters: Vec<(Parameter, Arc<str>)>,
}

/// Options of an explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainSettings {
    /// The kind of change. Parameters that are its consequences are ignored.
    pub subject: Subject,
    /// Seed of the sample; another seed draws other requests.
    pub seed: u64,
    /// Parameters to ignore: keys, or keys with operations as [`Parameter`] displays them.
    pub without: BTreeSet<String>,
    /// Parameters that were [found](Incarnations) to be identities.
    pub identities: BTreeSet<Parameter>,
    /// Limits on the growth of the tree.
    pub tree: TreeSettings,
    /// Maximum probability of reporting a leaf if no parameter separates the categories.
    pub false_alarms: f64,
}

impl Default for ExplainSettings {
    fn default() -> Self {
        Self {
            subject: Subject::default(),
            seed: 0,
            without: BTreeSet::new(),
            identities: BTreeSet::new(),
            tree: TreeSettings::default(),
            false_alarms: 0.01,
        }
    }
}

/// Reason why there is no explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// There are too few requests to grow a tree and to test its leaves.
    #[error(
        "{mutation} requests with the change and {precursor} without are too few to tell them apart: \
         at least {least} of each are needed"
    )]
    TooFew {
        /// Number of requests with the change.
        mutation: usize,
        /// Number of requests without the change.
        precursor: usize,
        /// Minimum number of requests of each category.
        least: usize,
    },
}

/// Amounts of data that the explanation ignores, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Number of parameters beyond the [`PARAMETERS_MAX`] with most recorded values.
    pub parameters: usize,
    /// Number of texts beyond [`VALUES_MAX`](crate::decision_tree::VALUES_MAX) of a parameter. They
    /// are not distinguished.
    pub texts: usize,
    /// Number of times that one request recorded several texts of one parameter whose values are
    /// not all numbers.
    pub several_values: usize,
}

/// Conditions that separate the categories. In pairs of values, the first is that of the requests
/// without the change.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Number of requests of each category, by weight.
    pub requests: [u64; 2],
    /// Number of requests from which the tree was grown.
    pub learned_from: [usize; 2],
    /// Number of held-out requests, which tested the leaves.
    pub held_out: [usize; 2],
    /// Number of requests that were counted: fewer than `requests` if the memory limit was reached,
    /// or if a request represents several.
    pub counted: [u64; 2],
    /// Leaves that separate the held-out requests significantly, and whose precision exceeds their
    /// category's share of all requests. Leaves with the change come first; each category's leaves
    /// are in descending order of recall.
    pub leaves: Vec<ExplainedLeaf>,
    /// Parameters that were considered.
    pub parameters: Vec<Parameter>,
    /// Parameters that were ignored for a reason in [`Why`].
    pub left_out: Vec<LeftOut>,
    /// Amounts of data that were ignored.
    pub unseen: Unseen,
}

/// Minimum number of requests of each category.
pub const REQUESTS_MIN: usize = 12;

/// A leaf that separates the held-out requests significantly.
#[derive(Clone, Debug)]
struct HoldingLeaf {
    /// Index of the leaf in the tree.
    place: usize,
    class: bool,
    learned_from: [f64; 2],
    held_out: [usize; 2],
    p_value: f64,
}

/// Tree learned from a sample. [`observe`](Self::observe) then adds requests, to measure how well
/// the tree separates them.
#[derive(Clone, Debug)]
pub struct LearnedTree {
    tree: DecisionTree,
    columns: Vec<AskedColumn>,
    leaves: Vec<HoldingLeaf>,
    learned_from: [usize; 2],
    held_out: [usize; 2],
    parameters: Vec<Parameter>,
    left_out: Vec<LeftOut>,
    unseen: Unseen,
}

/// Explains a change by the recorded values of requests with it and without it. Precision and
/// recall are those for `requests`. Fails as [`LearnedTree::of`] does.
pub fn explain(
    requests: &[ExplainedRequest],
    settings: &ExplainSettings,
) -> Result<Explanation, ExplainError> {
    let learned = LearnedTree::of(requests, settings)?;
    let mut rows = StoredRows::default();
    for request in requests {
        learned.observe(&mut rows, request.into(), &request.parameters);
    }
    Ok(learned.explanation(&rows, None))
}

/// Returns the latency in ns, the weight and the leaf of each request, in order of latency. Calls
/// `count` with the leaf and the class of each request whose leaf is known.
fn latencies_by_leaf(
    tree: &DecisionTree,
    table: &Table,
    rows: &StoredRows,
    mut count: impl FnMut(usize, usize),
) -> Vec<(u64, f64, Option<usize>)> {
    let weights = rows.weights();
    let of_row = |(row, latency_ns)| {
        let class = usize::from(table.classes()[row]);
        let place = tree.leaf_met(table, row);
        if let Some(place) = place {
            count(place, class);
        }
        (latency_ns, weights[class], place)
    };
    let rows = (0..table.classes().len()).zip(rows.latencies_ns());
    let mut latencies: Vec<_> = rows.map(of_row).collect();
    latencies.sort_unstable_by_key(|of| of.0);
    latencies
}

impl LearnedTree {
    /// Learns a tree from a sample of the requests. Returns [`ExplainError::TooFew`] if a category
    /// has fewer than [`REQUESTS_MIN`] requests.
    pub fn of(
        requests: &[ExplainedRequest],
        settings: &ExplainSettings,
    ) -> Result<LearnedTree, ExplainError> {
        let changed = requests.iter().filter(|request| request.is_mutation);
        let mutation = changed.count();
        let counts = [requests.len() - mutation, mutation];
        if counts.iter().any(|count| *count < REQUESTS_MIN) {
            return Err(ExplainError::TooFew {
                mutation,
                precursor: counts[0],
                least: REQUESTS_MIN,
            });
        }
        let sample = ExplainSample::of(requests, settings.seed);
        let parameters = Parameters::of(&sample.requests, settings);
        let mut tree = DecisionTree::grow(&parameters.table, &sample.learn, &settings.tree);
        let leaves = holding(&tree, &sample, &parameters, settings.false_alarms);
        let asked = tree.only_columns_asked();
        let column = |place: &usize| {
            let column = parameters.table.columns().get(*place)?;
            Some(AskedColumn::of(column, parameters.asked.get(*place)?))
        };
        Ok(LearnedTree {
            tree,
            columns: asked.iter().filter_map(column).collect(),
            leaves,
            learned_from: sample.count(&sample.learn),
            held_out: sample.count(&sample.held_out),
            parameters: parameters.asked_about(),
            left_out: parameters.left_out,
            unseen: parameters.unseen,
        })
    }

    /// Reports whether any leaf separates the held-out requests significantly.
    pub fn tells(&self) -> bool {
        !self.leaves.is_empty()
    }

    /// Returns the recorded names of the parameters that the tree asks about.
    pub fn keys(&self) -> BTreeSet<Arc<str>> {
        self.columns.iter().map(AskedColumn::recorded_key).collect()
    }

    /// Adds a request to `rows`, with its recorded values.
    pub fn observe(
        &self,
        rows: &mut StoredRows,
        request: CountedRequest,
        said: &[(Parameter, Arc<str>)],
    ) {
        rows.observe(&self.columns, request, said);
    }

    /// Adds the rows of `other` to `rows`.
    pub fn merge(&self, rows: &mut StoredRows, other: StoredRows) {
        rows.merge(other, self.columns.len());
    }

    /// Explains the difference between the categories of `rows`, with precision and recall.
    /// `earlier` holds requests from before the change, which this tree has observed. Their
    /// latencies become [`ExplainedLeaf::earlier`].
    pub fn explanation(&self, rows: &StoredRows, earlier: Option<&StoredRows>) -> Explanation {
        let table = rows.table(&self.columns);
        let all: Vec<usize> = (0..table.classes().len()).collect();
        let mut tree = self.tree.clone();
        tree.refine(&table, &all);
        let leaves = tree.leaves();
        let mut counts = vec![[0u64; 2]; leaves.len()];
        let (requests, weights) = (rows.seen(), rows.weights());
        let latencies = latencies_by_leaf(&tree, &table, rows, |place, class| {
            counts[place][class] += 1;
        });
        let earlier = earlier.map_or_else(Vec::new, |rows| {
            let table = rows.table(&self.columns);
            latencies_by_leaf(&tree, &table, rows, |_, _| ())
        });
        let stored = |counts: [u64; 2]| {
            [0, 1].map(|class| (counts[class] as f64 * weights[class]).round() as u64)
        };
        let explained = self.leaves.iter().filter_map(|leaf| {
            let conditions = &leaves.get(leaf.place)?.conditions;
            let explained = ExplainedLeaf {
                conditions: stored::in_words(&self.columns, &table, conditions)?,
                is_mutation: leaf.class,
                learned_from: leaf.learned_from,
                held_out: leaf.held_out,
                stored: stored(counts[leaf.place]),
                stored_all: requests,
                p_value: leaf.p_value,
                matching: Typical::of(&latencies, |place| place == Some(leaf.place)),
                others: Typical::of(&latencies, |place| place != Some(leaf.place)),
                earlier: Typical::of(&earlier, |place| place == Some(leaf.place)),
            };
            let class = usize::from(leaf.class);
            let share = requests[class] as f64 / requests.iter().sum::<u64>().max(1) as f64;
            (explained.precision() > share).then_some(explained)
        });
        let mut explained: Vec<ExplainedLeaf> = explained.collect();
        explained.sort_by(|a, b| {
            let by_class = b.is_mutation.cmp(&a.is_mutation);
            by_class.then_with(|| b.recall().total_cmp(&a.recall()))
        });
        Explanation {
            requests,
            learned_from: self.learned_from,
            held_out: self.held_out,
            counted: rows.kept(),
            leaves: explained,
            parameters: self.parameters.clone(),
            left_out: self.left_out.clone(),
            unseen: self.unseen,
        }
    }
}

/// Returns the leaves that separate the held-out requests significantly.
fn holding(
    tree: &DecisionTree,
    sample: &ExplainSample<'_>,
    parameters: &Parameters,
    false_alarms: f64,
) -> Vec<HoldingLeaf> {
    let leaves = tree.leaves();
    let mut seen = vec![[0usize; 2]; leaves.len()];
    for row in &sample.held_out {
        let class = usize::from(sample.requests[*row].is_mutation);
        seen[tree.leaf_of(&parameters.table, *row)][class] += 1;
    }
    let held_out = sample.count(&sample.held_out);
    let holding = leaves.iter().zip(&seen).enumerate();
    let holding = holding.filter_map(|(place, (leaf, seen))| {
        let class = usize::from(leaf.class);
        let inside = Share {
            part: seen[class] as u64,
            of: (seen[0] + seen[1]) as u64,
        };
        let outside = Share {
            part: (held_out[class] - seen[class]) as u64,
            of: (held_out[0] + held_out[1]) as u64 - inside.of,
        };
        let p_value = fisher_two_sided(inside, outside);
        let holds = inside.of > 0
            && inside.value() > outside.value()
            && p_value * leaves.len() as f64 <= false_alarms;
        holds.then_some(HoldingLeaf {
            place,
            class: leaf.class,
            learned_from: leaf.rows,
            held_out: *seen,
            p_value,
        })
    });
    holding.collect()
}

#[cfg(test)]
mod tests;
