//! Slack foretold by the last request of the same key (The Mystery Machine, §5.2, figure 11).
//!
//! A request of a key (a user, say) is foretold to have slack of more than a threshold if the key's request before had.
//! Any attribute can be tried as the key, and keys are ranked by how much they tell.

use crate::statistics::correlation;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};

/// How many requests a history holds, at 24 bytes each. Requests past that are counted and not used.
pub const REQUESTS_MAX: usize = 1 << 22;

/// One request: the key's hash, when it started, its slack.
type Request = (u64, i64, u64);

/// The requests of each key of one attribute, in any order. Keys are told apart by a 64-bit hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlackHistory {
    requests: Vec<Request>,
    refused: u64,
}

/// How often the prediction was right.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct PredictionQuality {
    /// Requests whose key had a request before.
    pub predicted: u64,
    /// Slack was foretold, and there was.
    pub true_positives: u64,
    /// No slack was foretold, and there was none.
    pub true_negatives: u64,
    /// Type I: slack was foretold, and there was none.
    pub false_positives: u64,
    /// Type II: no slack was foretold, though there was.
    pub false_negatives: u64,
    /// Correlation of a request's slack with that of the one before; `None`, where it is not defined.
    pub correlation: Option<f64>,
}

impl PredictionQuality {
    fn part(of: u64, all: u64) -> f64 {
        if all == 0 {
            0.0
        } else {
            of as f64 / all as f64
        }
    }

    /// The part of predictions that were right.
    pub fn accuracy(&self) -> f64 {
        Self::part(self.true_positives + self.true_negatives, self.predicted)
    }

    /// The part of predictions that foretold slack that was not there.
    pub fn type_i(&self) -> f64 {
        Self::part(self.false_positives, self.predicted)
    }

    /// The part of predictions that missed slack.
    pub fn type_ii(&self) -> f64 {
        Self::part(self.false_negatives, self.predicted)
    }

    /// Youden's J: the part of slack that was foretold, less the part of no slack that was called slack. 0 for a key
    /// that tells nothing, however common slack is; 1 for one that tells all.
    pub fn informedness(&self) -> f64 {
        let with_slack = self.true_positives + self.false_negatives;
        let without = self.true_negatives + self.false_positives;
        if with_slack == 0 || without == 0 {
            return 0.0;
        }
        Self::part(self.true_positives, with_slack) - Self::part(self.false_positives, without)
    }
}

impl SlackHistory {
    /// Takes one request into account.
    pub fn observe(&mut self, key: &str, start_ns: i64, slack_ns: u64) {
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        self.take((hasher.finish(), start_ns, slack_ns));
    }

    fn take(&mut self, request: Request) {
        if self.requests.len() < REQUESTS_MAX {
            self.requests.push(request);
        } else {
            self.refused += 1;
        }
    }

    /// Adds what another one has seen.
    pub fn merge(&mut self, other: &SlackHistory) {
        other
            .requests
            .iter()
            .for_each(|request| self.take(*request));
        self.refused += other.refused;
    }

    /// Requests that found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// How well each request is foretold by the one before of its key, where slack means more than `threshold_ns`.
    pub fn quality(&self, threshold_ns: u64) -> PredictionQuality {
        let mut requests = self.requests.clone();
        requests.sort_unstable();
        let pairs = || {
            let same_key = requests.windows(2).filter(|pair| pair[0].0 == pair[1].0);
            same_key.map(|pair| (pair[0].2, pair[1].2))
        };
        let mut quality = PredictionQuality {
            correlation: correlation(pairs().map(|(before, now)| (before as f64, now as f64))),
            ..PredictionQuality::default()
        };
        for (before, now) in pairs() {
            quality.predicted += 1;
            let outcome = match (before > threshold_ns, now > threshold_ns) {
                (true, true) => &mut quality.true_positives,
                (false, false) => &mut quality.true_negatives,
                (true, false) => &mut quality.false_positives,
                (false, true) => &mut quality.false_negatives,
            };
            *outcome += 1;
        }
        quality
    }
}

/// The attributes, best first: by how much they tell, then by how often they were right, then by name.
pub fn rank<'a>(
    histories: impl IntoIterator<Item = (&'a str, &'a SlackHistory)>,
    threshold_ns: u64,
) -> Vec<(&'a str, PredictionQuality)> {
    let quality = |(name, history): (&'a str, &SlackHistory)| (name, history.quality(threshold_ns));
    let mut ranked: Vec<_> = histories.into_iter().map(quality).collect();
    ranked.sort_by(|(a_name, a), (b_name, b)| {
        let told = b.informedness().total_cmp(&a.informedness());
        told.then_with(|| b.accuracy().total_cmp(&a.accuracy()))
            .then_with(|| a_name.cmp(b_name))
    });
    ranked
}
