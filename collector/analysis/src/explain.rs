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
//! What tells requests apart, and nothing of why they differ, is left out: see [`Why`].

mod parameters;
mod sample;
mod sentence;
mod template;

pub use parameters::{LeftOut, PARAMETERS_MAX, Why};
pub use sample::{IMBALANCE_MAX, SAMPLE_MAX, SAMPLE_MIN};
pub use sentence::{ExplainedLeaf, ParameterCondition, ParameterTest};
pub use template::Template;

use crate::decision_tree::{DecisionTree, TreeSettings};
use crate::record::TraceId;
use crate::statistics::{Share, fisher_two_sided};
use parameters::Parameters;
use sample::Drawn;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

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
    /// Whether it is of the mutation, or of its precursor.
    pub is_mutation: bool,
    /// What it says. Where it says several texts of one parameter, none is known; of several numbers the extremes are.
    pub parameters: Vec<(Parameter, Arc<str>)>,
}

/// How to explain.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainSettings {
    /// Another seed takes other requests.
    pub seed: u64,
    /// Parameters to leave out: keys, or keys with operations as they are [shown](Parameter).
    pub without: BTreeSet<String>,
    /// How the tree is grown.
    pub tree: TreeSettings,
    /// The probability that anything is said where nothing tells the categories apart.
    pub false_alarms: f64,
}

impl Default for ExplainSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            without: BTreeSet::new(),
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
        "{mutation} requests of the mutation and {precursor} of its precursor are too few to tell them apart: \
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
    pub requests: [usize; 2],
    /// From how many of them the tree was grown.
    pub learned_from: [usize; 2],
    /// How many others judged it.
    pub held_out: [usize; 2],
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
const REQUESTS_MIN: usize = 12;

/// Explains a mutation by what its requests and those of its precursor say of themselves.
pub fn explain(
    requests: &[ExplainedRequest],
    settings: &ExplainSettings,
) -> Result<Explanation, ExplainError> {
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
    let sample = Drawn::of(requests, counts, settings.seed);
    let parameters = Parameters::of(&sample.requests, &settings.without);
    let tree = DecisionTree::grow(&parameters.table, &sample.learn, &settings.tree);
    let leaves = judged(&tree, &sample, &parameters, counts, settings.false_alarms);
    Ok(Explanation {
        requests: counts,
        learned_from: sample.count(&sample.learn),
        held_out: sample.count(&sample.held_out),
        leaves,
        parameters: parameters.asked_about(),
        left_out: parameters.left_out,
        unseen: parameters.unseen,
    })
}

/// The leaves that hold for requests that were held out.
fn judged(
    tree: &DecisionTree,
    sample: &Drawn<'_>,
    parameters: &Parameters,
    requests: [usize; 2],
    false_alarms: f64,
) -> Vec<ExplainedLeaf> {
    let leaves = tree.leaves();
    let mut seen = vec![[0usize; 2]; leaves.len()];
    for row in &sample.held_out {
        let class = usize::from(sample.requests[*row].is_mutation);
        seen[tree.leaf_of(&parameters.table, *row)][class] += 1;
    }
    let held_out = sample.count(&sample.held_out);
    // Both categories are sampled, but not to the same part.
    let weight = |class: usize| requests[class] as f64 / held_out[class].max(1) as f64;
    let explained = leaves.iter().zip(&seen).filter_map(|(leaf, seen)| {
        let class = usize::from(leaf.class);
        let right = seen[class] as f64 * weight(class);
        let wrong = seen[1 - class] as f64 * weight(1 - class);
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
        holds.then(|| ExplainedLeaf {
            conditions: leaf
                .conditions
                .iter()
                .filter_map(|condition| parameters.condition(condition))
                .collect(),
            is_mutation: leaf.class,
            learned_from: leaf.rows,
            held_out: *seen,
            held_out_all: held_out,
            precision: right / (right + wrong),
            recall: seen[class] as f64 / held_out[class].max(1) as f64,
            p_value,
        })
    });
    let mut explained: Vec<ExplainedLeaf> = explained.collect();
    explained.sort_by(|a, b| {
        b.is_mutation
            .cmp(&a.is_mutation)
            .then_with(|| b.recall.total_cmp(&a.recall))
    });
    explained
}

#[cfg(test)]
mod tests;
