//! What was found, as data and as a sentence.

use super::Parameter;
use crate::decision_tree::Test;
use std::fmt;

/// What is true of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum ParameterTest {
    /// What it says.
    Value(Test),
    /// Whether it is said at all.
    Recorded(bool),
}

/// A parameter, and what is true of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterCondition {
    /// Which.
    pub parameter: Parameter,
    /// What is true.
    pub test: ParameterTest,
}

impl ParameterCondition {
    /// `count <= 4096`.
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

/// `count <= 4096 (web:read)`.
impl fmt::Display for ParameterCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_operation())?;
        match &*self.parameter.operation {
            "" => Ok(()),
            operation => write!(f, " ({operation})"),
        }
    }
}

/// Latency of requests, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typical {
    /// The median.
    pub p50_ns: u64,
    /// 95 % are at most this long.
    pub p95_ns: u64,
}

impl Typical {
    /// Computes the latency of the requests whose leaf is wanted; `None` where there are none. The requests are in order of latency, each
    /// with the number of requests that it stands for.
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

/// Requests that one category is told by. Of pairs, the precursor's is first, the mutation's second.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedLeaf {
    /// What is true of them.
    pub conditions: Vec<ParameterCondition>,
    /// Whether they are told to be of the mutation, or of its precursor.
    pub is_mutation: bool,
    /// How many the tree was grown from; where it was not known whether they are of these, by parts.
    pub learned_from: [f64; 2],
    /// How many of those that were held out are of these, before thresholds were moved.
    pub held_out: [usize; 2],
    /// How many of all requests are of these.
    pub stored: [u64; 2],
    /// How many requests there are.
    pub stored_all: [u64; 2],
    /// How probable it is that so many or more are told by chance (Fisher's exact test, of those held out).
    pub p_value: f64,
    /// Latency of such requests.
    pub matching: Option<Typical>,
    /// Latency of all others, of both categories.
    pub others: Option<Typical>,
}

/// To three digits, towards 0: what is not all is not said to be 1.
fn cut(share: f64) -> f64 {
    (share * 1e3 + 1e-9).floor() / 1e3
}

impl ExplainedLeaf {
    /// The parts of such requests, and of all others, that have the change.
    pub fn changed_shares(&self) -> [f64; 2] {
        let others = [0, 1].map(|class| self.stored_all[class].saturating_sub(self.stored[class]));
        [self.stored, others].map(|[without, with]| with as f64 / (with + without).max(1) as f64)
    }

    /// The part of all such requests that is of the category.
    pub fn precision(&self) -> f64 {
        let [wrong, right] = self.stored_by_side();
        right as f64 / (wrong + right).max(1) as f64
    }

    /// The part of the category's requests that is such.
    pub fn recall(&self) -> f64 {
        let all = self.stored_all[usize::from(self.is_mutation)];
        self.stored_by_side()[1] as f64 / all.max(1) as f64
    }

    /// How many such requests are not of the category, and how many are.
    fn stored_by_side(&self) -> [u64; 2] {
        let [precursor, mutation] = self.stored;
        if self.is_mutation {
            [precursor, mutation]
        } else {
            [mutation, precursor]
        }
    }

    /// As a sentence.
    pub fn sentence(&self) -> String {
        let have = if self.is_mutation {
            "have the change"
        } else {
            "do not have the change"
        };
        self.sentence_of("requests", have)
    }

    /// As a sentence, where both categories are of the later period, with what requests of either do: "take longer than 5 ms".
    pub fn sentence_among_later(&self, do_what: [&str; 2]) -> String {
        let did = do_what[usize::from(self.is_mutation)];
        self.sentence_of("of the later requests, those", did)
    }

    /// As a sentence about these requests, and what they are or do.
    pub fn sentence_of(&self, requests: &str, are: &str) -> String {
        let conditions: Vec<String> = self
            .conditions
            .iter()
            .map(ParameterCondition::to_string)
            .collect();
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
