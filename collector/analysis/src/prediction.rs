//! Predicts slack from the last request of the same key (The Mystery Machine, §5.2, figure 11).
//!
//! A request is predicted to have slack above a threshold if the previous request of its key (a
//! user, say) had slack above it. Any attribute can serve as the key. [`rank`] orders attributes by
//! their predictive value.

use crate::statistics::correlation;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};

/// Maximum number of requests in a history, at 24 bytes each. Further requests are counted but not
/// used.
pub const REQUESTS_MAX: usize = 1 << 22;

/// One request: hash of its key, start in nanoseconds, slack in nanoseconds.
type Request = (u64, i64, u64);

/// Requests, each with a key: its value of one attribute. A 64-bit hash identifies a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlackHistory {
    requests: Vec<Request>,
    refused: u64,
}

/// Numbers of right and wrong predictions. A request has slack if its slack exceeds the threshold.
/// Fields other than `keys` concern only requests whose key had a previous request.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct PredictionQuality {
    /// Number of different keys.
    pub keys: u64,
    /// Number of predictions: requests whose key had a previous request.
    pub predicted: u64,
    /// Number of requests with slack that was predicted.
    pub true_positives: u64,
    /// Number of requests without slack for which none was predicted.
    pub true_negatives: u64,
    /// Type I errors: number of requests without slack for which slack was predicted.
    pub false_positives: u64,
    /// Type II errors: number of requests with slack that was not predicted.
    pub false_negatives: u64,
    /// Correlation of a request's slack with the slack of the key's previous request; `None` if it
    /// is undefined.
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

    /// Returns the fraction of predictions that were right; 0 without predictions.
    pub fn accuracy(&self) -> f64 {
        Self::part(self.true_positives + self.true_negatives, self.predicted)
    }

    /// Returns the fraction of all predictions that predicted slack which did not occur.
    pub fn type_i(&self) -> f64 {
        Self::part(self.false_positives, self.predicted)
    }

    /// Returns the fraction of all predictions that missed slack.
    pub fn type_ii(&self) -> f64 {
        Self::part(self.false_negatives, self.predicted)
    }

    /// Returns Youden's J: the fraction of requests with slack for which slack was predicted, minus
    /// the fraction of requests without slack for which it was predicted. It is about 0 for a key
    /// without predictive value, however common slack is, and 1 for a perfect key. It is also 0 if
    /// all requests with a prediction have slack, or none.
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
    /// Adds one request with its key, start and slack.
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

    /// Adds the requests of `other`.
    pub fn merge(&mut self, other: &SlackHistory) {
        other
            .requests
            .iter()
            .for_each(|request| self.take(*request));
        self.refused += other.refused;
    }

    /// Returns the number of requests left out because the history was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Evaluates the prediction for each request from the previous request of its key. Slack counts
    /// if it exceeds `threshold_ns`.
    pub fn quality(&self, threshold_ns: u64) -> PredictionQuality {
        let mut requests = self.requests.clone();
        requests.sort_unstable();
        let pairs = || {
            let same_key = requests.windows(2).filter(|pair| pair[0].0 == pair[1].0);
            same_key.map(|pair| (pair[0].2, pair[1].2))
        };
        let mut quality = PredictionQuality {
            keys: requests.chunk_by(|a, b| a.0 == b.0).count() as u64,
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

/// Ranks attributes, each given as its name and history: the most informedness first, then the
/// highest accuracy, then by name.
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
