//! Which parameters tell two categories of requests apart: those of a mutation and those of its precursor (Spectroscope,
//! §5.5).
//!
//! A [decision tree](crate::decision_tree) is grown from two thirds of a sample of both; the other third judges each leaf. Only
//! leaves that hold there, by more than chance, are said: the tree always finds something.
//!
//! The sample is of at least 100 requests and at most a tenth of each category, as in the paper, and no more than
//! [`SAMPLE_MAX`]. One category has at most [`IMBALANCE_MAX`] times as many as the other, or 100: how many requests they have
//! says nothing of what tells them apart. Which requests are in it follows from their ids and a seed, not from their order.
//!
//! The sample says what is asked, and [all requests](StoredRows) the rest: a threshold is where it tells most of them, and a leaf's
//! precision and recall are counted among them. Of a sample in which both categories are about as frequent, a leaf would
//! seem far more precise than it is where one of them is rare.
//!
//! What tells requests apart, and nothing of why they differ, is left out: see [`Why`].

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

use crate::decision_tree::{DecisionTree, TreeSettings};
use crate::record::TraceId;
use crate::statistics::{Share, fisher_two_sided};
use parameters::Parameters;
use sample::Drawn;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use stored::AskedColumn;

/// Something that requests say of themselves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parameter {
    /// Which operation says it; empty: the request.
    pub operation: Arc<str>,
    /// What it is called; empty: that the operation ran.
    pub key: Arc<str>,
}

/// `count (web:read)`.
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
    /// Its id.
    pub id: TraceId,
    /// When it began.
    pub start_ns: i64,
    /// True for a request of the mutation, false for one of its precursor.
    pub is_mutation: bool,
    /// How many requests of its category it stands for.
    pub weight: f64,
    /// Latency of the whole request, ns.
    pub latency_ns: u64,
    /// What it says. Where it says several texts of one parameter, none is known; of several numbers the extremes are.
    pub parameters: Vec<(Parameter, Arc<str>)>,
}

/// How to explain.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainSettings {
    /// The kind of change, whose consequences are left out.
    pub subject: Subject,
    /// Another seed takes other requests.
    pub seed: u64,
    /// Parameters to leave out: keys, or keys with operations as they are [shown](Parameter).
    pub without: BTreeSet<String>,
    /// Parameters that were [found](Incarnations) to be identities of processes.
    pub identities: BTreeSet<Parameter>,
    /// How the tree is grown.
    pub tree: TreeSettings,
    /// The probability that anything is said where nothing tells the categories apart.
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

/// Why there is no explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// Nothing can be learned of so few, and held out.
    #[error(
        "{mutation} requests with the change and {precursor} without are too few to tell them apart: \
         at least {least} of each are needed"
    )]
    TooFew {
        /// Requests of the mutation.
        mutation: usize,
        /// Requests of the precursor.
        precursor: usize,
        /// How many of each are needed.
        least: usize,
    },
}

/// What was not looked at because of a bound, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Parameters over [`PARAMETERS_MAX`], those that fewest requests say.
    pub parameters: usize,
    /// Texts over [`VALUES_MAX`](crate::decision_tree::VALUES_MAX) of a parameter, which are not told apart.
    pub texts: usize,
    /// Texts that requests do not agree with themselves on, by request and parameter.
    pub several_values: usize,
}

/// What tells the categories apart. Of pairs, the precursor's is first, the mutation's second.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// How many requests there are.
    pub requests: [u64; 2],
    /// From how many of them the tree was grown.
    pub learned_from: [usize; 2],
    /// How many others judged it.
    pub held_out: [usize; 2],
    /// How many of all requests were counted; fewer, where there was no room for all.
    pub counted: [u64; 2],
    /// What holds: the mutation first, then by recall. Nothing, if no parameter tells them apart.
    pub leaves: Vec<ExplainedLeaf>,
    /// What was asked about.
    pub parameters: Vec<Parameter>,
    /// What was not asked about, and why.
    pub left_out: Vec<LeftOut>,
    /// What was not looked at.
    pub unseen: Unseen,
}

/// Requests of each category that are needed.
pub const REQUESTS_MIN: usize = 12;

/// A leaf that holds for requests that were held out.
#[derive(Clone, Debug)]
struct HoldingLeaf {
    /// Its place in the tree.
    place: usize,
    class: bool,
    learned_from: [f64; 2],
    held_out: [usize; 2],
    p_value: f64,
}

/// What a sample has shown to tell the categories apart; all requests say how well.
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

/// Explains a mutation by what its requests and those of its precursor say of themselves: all requests that there are.
pub fn explain(
    requests: &[ExplainedRequest],
    settings: &ExplainSettings,
) -> Result<Explanation, ExplainError> {
    let learned = LearnedTree::of(requests, settings)?;
    let mut rows = StoredRows::default();
    for request in requests {
        learned.observe(&mut rows, request.into(), &request.parameters);
    }
    Ok(learned.explanation(&rows))
}

impl LearnedTree {
    /// Learns from requests, of which a sample is drawn.
    pub fn of(
        requests: &[ExplainedRequest],
        settings: &ExplainSettings,
    ) -> Result<LearnedTree, ExplainError> {
        let of = |is_mutation| {
            requests
                .iter()
                .filter(|request| request.is_mutation == is_mutation)
                .count()
        };
        let counts = [of(false), of(true)];
        if counts.iter().any(|count| *count < REQUESTS_MIN) {
            return Err(ExplainError::TooFew {
                mutation: counts[1],
                precursor: counts[0],
                least: REQUESTS_MIN,
            });
        }
        let sample = Drawn::of(requests, settings.seed);
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

    /// Whether anything tells the categories apart.
    pub fn tells(&self) -> bool {
        !self.leaves.is_empty()
    }

    /// The names under which requests say what is asked about.
    pub fn keys(&self) -> BTreeSet<Arc<str>> {
        self.columns.iter().map(AskedColumn::recorded_key).collect()
    }

    /// Counts a request of the mutation or of its precursor, and what it says.
    pub fn observe(
        &self,
        rows: &mut StoredRows,
        request: CountedRequest,
        said: &[(Parameter, Arc<str>)],
    ) {
        rows.observe(&self.columns, request, said);
    }

    /// Adds rows that another one has counted.
    pub fn merge(&self, rows: &mut StoredRows, other: StoredRows) {
        rows.merge(other, self.columns.len());
    }

    /// What tells all these requests apart, and how well.
    pub fn explanation(&self, rows: &StoredRows) -> Explanation {
        let table = rows.table(&self.columns);
        let all: Vec<usize> = (0..table.classes().len()).collect();
        let mut tree = self.tree.clone();
        tree.refine(&table, &all);
        let leaves = tree.leaves();
        let mut counts = vec![[0u64; 2]; leaves.len()];
        let (requests, weights) = (rows.seen(), rows.weights());
        let mut latencies = Vec::new();
        for (row, latency_ns) in all.into_iter().zip(rows.latencies_ns()) {
            let class = usize::from(table.classes()[row]);
            let place = tree.leaf_met(&table, row);
            if let Some(place) = place {
                counts[place][class] += 1;
            }
            latencies.push((latency_ns, weights[class], place));
        }
        latencies.sort_unstable_by_key(|of| of.0);
        let stored = |counts: [u64; 2]| {
            [0, 1].map(|class| (counts[class] as f64 * weights[class]).round() as u64)
        };
        let explained = self.leaves.iter().filter_map(|leaf| {
            let explained = ExplainedLeaf {
                conditions: stored::in_words(
                    &self.columns,
                    &table,
                    &leaves.get(leaf.place)?.conditions,
                )?,
                is_mutation: leaf.class,
                learned_from: leaf.learned_from,
                held_out: leaf.held_out,
                stored: stored(counts[leaf.place]),
                stored_all: requests,
                p_value: leaf.p_value,
                matching: Typical::of(&latencies, |place| place == Some(leaf.place)),
                others: Typical::of(&latencies, |place| place != Some(leaf.place)),
            };
            let class = usize::from(leaf.class);
            let share = requests[class] as f64 / requests.iter().sum::<u64>().max(1) as f64;
            (explained.precision() > share).then_some(explained)
        });
        let mut explained: Vec<ExplainedLeaf> = explained.collect();
        explained.sort_by(|a, b| {
            b.is_mutation
                .cmp(&a.is_mutation)
                .then_with(|| b.recall().total_cmp(&a.recall()))
        });
        Explanation {
            requests,
            learned_from: self.learned_from,
            held_out: self.held_out,
            counted: [0, 1].map(|class| (requests[class] as f64 / weights[class].max(1.0)) as u64),
            leaves: explained,
            parameters: self.parameters.clone(),
            left_out: self.left_out.clone(),
            unseen: self.unseen,
        }
    }
}

/// The leaves that hold for requests that were held out.
fn holding(
    tree: &DecisionTree,
    sample: &Drawn<'_>,
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
