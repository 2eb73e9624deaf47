//! Leaves of an explanation, as data and as sentences.

use super::Parameter;
use crate::decision_tree::Test;
use std::fmt;

/// Condition on a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum ParameterTest {
    /// Condition on the parameter's value.
    Value(Test),
    /// True if requests must record exactly one value of the parameter, or at least one number for
    /// the largest or smallest of several. False if they must not.
    Recorded(bool),
}

/// A parameter, and a condition on it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterCondition {
    /// The parameter.
    pub parameter: Parameter,
    /// The condition on the parameter.
    pub test: ParameterTest,
}

impl ParameterCondition {
    /// Formats the condition without its operation: `count <= 4096`.
    #[must_use]
    pub fn without_operation(&self) -> String {
        let key = &self.parameter.key;
        match &self.test {
            ParameterTest::Value(test) => test.of(key),
            ParameterTest::Recorded(true) => format!("{key} recorded"),
            ParameterTest::Recorded(false) => format!("{key} not recorded"),
        }
    }
}

/// Formats the condition with its operation: `count <= 4096 (web:read)`.
impl fmt::Display for ParameterCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_operation())?;
        match &*self.parameter.operation {
            "" => Ok(()),
            operation => write!(f, " ({operation})"),
        }
    }
}

/// Percentiles of the latency of requests, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typical {
    /// Median latency.
    pub p50_ns: u64,
    /// 95th percentile of the latency.
    pub p95_ns: u64,
}

impl Typical {
    /// Computes the percentiles of the requests whose leaf is wanted, or `None` if there are none.
    /// `sorted` holds the latency, the number of requests represented, and the leaf of each
    /// request, in order of latency.
    pub(super) fn of(
        sorted: &[(u64, f64, Option<usize>)],
        is_wanted: impl Fn(Option<usize>) -> bool,
    ) -> Option<Typical> {
        let wanted = || sorted.iter().filter(|of| is_wanted(of.2));
        let all: f64 = wanted().map(|of| of.1).sum();
        let at = |part: f64| {
            let mut seen = 0.0;
            let mut reached = wanted().skip_while(|of| {
                seen += of.1;
                seen < part * all * (1.0 - 1e-9)
            });
            reached.next().map(|of| of.0)
        };
        Some(Typical {
            p50_ns: at(0.5)?,
            p95_ns: at(0.95)?,
        })
    }
}

/// A leaf: requests that the tree assigns to one category. In pairs of values, the first is that of
/// the requests without the change.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedLeaf {
    /// Conditions that the leaf's requests meet.
    pub conditions: Vec<ParameterCondition>,
    /// True if the tree assigns these requests to those with the change.
    pub is_mutation: bool,
    /// Number of requests in this leaf when the tree was grown. Those of unknown value are divided.
    pub learned_from: [f64; 2],
    /// Number of held-out requests in this leaf, before thresholds were moved.
    pub held_out: [usize; 2],
    /// Number of requests in this leaf, estimated if not all were recorded and kept.
    pub stored: [u64; 2],
    /// Number of all requests, estimated if not all were recorded.
    pub stored_all: [u64; 2],
    /// P-value of the leaf's separation of the held-out requests (two-sided Fisher's exact test).
    pub p_value: f64,
    /// Latency of requests in this leaf.
    pub matching: Option<Typical>,
    /// Latency of the other requests, of both categories.
    pub others: Option<Typical>,
    /// Latency of earlier requests that meet these conditions; `None` if none were counted.
    pub earlier: Option<Typical>,
}

/// Truncates to three decimal places, so that a share below 1 is never displayed as 1.
fn cut(share: f64) -> f64 {
    (share * 1e3 + 1e-9).floor() / 1e3
}

impl ExplainedLeaf {
    /// Returns the fractions of this leaf's requests, and of all others, that have the change.
    pub fn changed_shares(&self) -> [f64; 2] {
        let others = [0, 1].map(|class| self.stored_all[class].saturating_sub(self.stored[class]));
        [self.stored, others].map(|[without, with]| with as f64 / (with + without).max(1) as f64)
    }

    /// Returns the fraction of the requests in this leaf that are of the leaf's category.
    pub fn precision(&self) -> f64 {
        let [wrong, right] = self.stored_by_side();
        right as f64 / (wrong + right).max(1) as f64
    }

    /// Returns the fraction of the category's requests that are in this leaf.
    pub fn recall(&self) -> f64 {
        let all = self.stored_all[usize::from(self.is_mutation)];
        self.stored_by_side()[1] as f64 / all.max(1) as f64
    }

    /// Returns the numbers of this leaf's requests outside and inside the leaf's category.
    fn stored_by_side(&self) -> [u64; 2] {
        let [precursor, mutation] = self.stored;
        match self.is_mutation {
            true => [precursor, mutation],
            false => [mutation, precursor],
        }
    }

    /// Formats the leaf as a sentence.
    pub fn sentence(&self) -> String {
        let have = match self.is_mutation {
            true => "have the change",
            false => "do not have the change",
        };
        self.sentence_of("requests", have)
    }

    /// Formats the leaf as a sentence about categories of the later period only. `do_what` holds
    /// the behaviour of requests without and with the change, such as "take longer than 5 ms".
    pub fn sentence_among_later(&self, do_what: [&str; 2]) -> String {
        let did = do_what[usize::from(self.is_mutation)];
        self.sentence_of("of the later requests, those", did)
    }

    /// Formats the leaf as a sentence: `requests` with the conditions, and the predicate `are`.
    pub fn sentence_of(&self, requests: &str, are: &str) -> String {
        let conditions = self.conditions.iter().map(ParameterCondition::to_string);
        let conditions: Vec<String> = conditions.collect();
        format!(
            "{requests} with {} {are}: precision {:.3}, recall {:.3}, {} of {} requests",
            conditions.join(" and "),
            cut(self.precision()),
            cut(self.recall()),
            self.stored.iter().sum::<u64>(),
            self.stored_all.iter().sum::<u64>(),
        )
    }
}
