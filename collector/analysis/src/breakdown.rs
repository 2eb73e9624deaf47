//! Breaks down the time of requests by category of segment and by stratum of requests (The Mystery
//! Machine, §5, figures 5 to 8).

use crate::critical_path::TracePath;
use crate::distribution::Distribution;
use crate::label::SegmentId;
use crate::sampling::{Weight, WeightedCount};
use std::collections::{BTreeMap, BTreeSet};

/// Resolution of a distribution of shares: the number of steps from 0 to 1.
pub const SHARE_STEPS: usize = 200;
/// Maximum number of named strata. Requests of further strata go to [`OTHER_STRATUM`].
pub const STRATA_MAX: usize = 64;
/// Name of the stratum of requests beyond the first [`STRATA_MAX`] strata.
pub const OTHER_STRATUM: &str = "(other)";
/// Maximum number of values that a [`QuantileSample`] keeps.
pub const SAMPLE_MAX: usize = 1 << 14;

/// Time of one category of segments, over many requests.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct CategoryTime {
    /// Total duration of the category's segments that ended by the answer, without regard to
    /// concurrency: the "summed delay" of figure 5.
    pub summed_delay_ns: u128,
    /// Total duration of the segments on the critical path.
    pub critical_duration_ns: u128,
    /// Total wait before the segments on the critical path.
    pub critical_wait_ns: u128,
    /// Number of requests by the category's share of the critical path, duration plus wait, in
    /// [`SHARE_STEPS`] steps, rounded down. Requests in which the share is 0 are not listed.
    shares: BTreeMap<usize, WeightedCount>,
    /// Slack of the category's segments that ended by the answer.
    pub slack: Distribution,
}

/// Time of many requests, by category of segment.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Breakdown {
    /// Number of requests.
    pub requests: WeightedCount,
    /// Latency of the requests.
    pub latency: Distribution,
    /// Total of [`TracePath::tail_wait_ns`].
    pub tail_wait_ns: u128,
    /// Time after the answer, of the requests that continued after it.
    pub after_answer: Distribution,
    /// Time of each category with segments that ended by the answer, by its number.
    pub categories: BTreeMap<usize, CategoryTime>,
}

impl Breakdown {
    /// Counts one request. `category` returns the number of a segment's category.
    pub fn observe(
        &mut self,
        path: &TracePath,
        weight: Weight,
        category: impl Fn(SegmentId) -> usize,
    ) {
        self.requests.count(weight);
        self.latency.record_weighted(path.latency_ns, weight);
        self.tail_wait_ns += weight.times(path.tail_wait_ns);
        let mut critical_ns: BTreeMap<usize, u64> = BTreeMap::new();
        if let Some(after) = &path.after_answer {
            self.after_answer.record_weighted(after.duration_ns, weight);
        }
        for timing in path.segments.iter().filter(|timing| !timing.after_answer) {
            let number = category(timing.segment);
            let time = self.categories.entry(number).or_default();
            time.summed_delay_ns += weight.times(timing.duration_ns());
            time.slack.record_weighted(timing.slack_ns, weight);
            if timing.critical {
                time.critical_duration_ns += weight.times(timing.duration_ns());
                time.critical_wait_ns += weight.times(timing.wait_ns);
                *critical_ns.entry(number).or_default() += timing.weight_ns();
            }
        }
        for (number, part_ns) in critical_ns.into_iter().filter(|(_, part_ns)| *part_ns > 0) {
            let whole_ns = u128::from(path.critical_path_ns);
            let step = u128::from(part_ns) * SHARE_STEPS as u128 / whole_ns;
            let shares = &mut self.categories.entry(number).or_default().shares;
            shares.entry(step as usize).or_default().count(weight);
        }
    }

    /// Adds the times of `other`, which must number categories alike; commutative and associative.
    pub fn merge(&mut self, other: &Breakdown) {
        self.requests += other.requests;
        self.latency.merge(&other.latency);
        self.tail_wait_ns += other.tail_wait_ns;
        self.after_answer.merge(&other.after_answer);
        for (number, time) in &other.categories {
            let own = self.categories.entry(*number).or_default();
            own.summed_delay_ns += time.summed_delay_ns;
            own.critical_duration_ns += time.critical_duration_ns;
            own.critical_wait_ns += time.critical_wait_ns;
            own.slack.merge(&time.slack);
            for (step, requests) in &time.shares {
                *own.shares.entry(*step).or_default() += *requests;
            }
        }
    }

    /// Returns the cumulative distribution of a category's share of the critical path. Element `i`,
    /// from 0 to [`SHARE_STEPS`], is the fraction of requests (0 to 1) whose share is at most
    /// `i / SHARE_STEPS`. Shares are rounded down to multiples of 1/[`SHARE_STEPS`].
    pub fn share_cdf(&self, category: usize) -> Vec<f64> {
        let shares = self.categories.get(&category).map(|time| &time.shares);
        let of_step = |step: usize| shares.and_then(|shares| shares.get(&step));
        let listed: WeightedCount = shares.into_iter().flat_map(BTreeMap::values).copied().sum();
        // Requests in which the category is not critical at all have a share of 0.
        let mut upto = self.requests.estimate() - listed.estimate();
        let point = |step: usize| {
            upto += of_step(step).map_or(0.0, |requests| requests.estimate());
            self.requests.mean(upto)
        };
        (0..=SHARE_STEPS).map(point).collect()
    }
}

/// A [`Breakdown`] for each value of an attribute, or for each quantile of a numeric one.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StratifiedBreakdown {
    strata: BTreeMap<String, Breakdown>,
}

impl StratifiedBreakdown {
    /// Counts one request of this stratum.
    pub fn observe(
        &mut self,
        stratum: &str,
        path: &TracePath,
        weight: Weight,
        category: impl Fn(SegmentId) -> usize,
    ) {
        self.stratum(stratum).observe(path, weight, category);
    }

    /// Adds the times of `other`; commutative and associative while all strata fit [`STRATA_MAX`].
    pub fn merge(&mut self, other: &StratifiedBreakdown) {
        for (name, breakdown) in &other.strata {
            self.stratum(name).merge(breakdown);
        }
    }

    fn stratum(&mut self, name: &str) -> &mut Breakdown {
        let fits = self.strata.len() < STRATA_MAX || self.strata.contains_key(name);
        let name = if fits { name } else { OTHER_STRATUM };
        self.strata.entry(name.to_string()).or_default()
    }

    /// Returns the breakdown of each stratum, in order of name.
    pub fn strata(&self) -> &BTreeMap<String, Breakdown> {
        &self.strata
    }
}

/// Bounded sample of a numeric attribute, from which the edges between strata are computed. The
/// sample keeps the values of the traces with the lowest hashes. It therefore does not depend on
/// the order of requests, and samples of parts can be merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuantileSample {
    /// Pairs of the hash of a trace id and the bits of its value.
    kept: BTreeSet<(u64, u64)>,
}

impl QuantileSample {
    /// Adds one request's value. Ignores values that are not numbers (NaN).
    pub fn observe(&mut self, trace: crate::record::TraceId, value: f64) {
        if !value.is_nan() {
            // The ids of one source may be sequential; their hashes are not.
            let mixed = (trace.0 ^ (trace.0 >> 64)) as u64;
            let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            self.take((mixed ^ (mixed >> 31), value.to_bits()));
        }
    }

    fn take(&mut self, one: (u64, u64)) {
        self.kept.insert(one);
        if self.kept.len() > SAMPLE_MAX {
            self.kept.pop_last();
        }
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &QuantileSample) {
        other.kept.iter().for_each(|one| self.take(*one));
    }

    /// Divides the sample into this number of strata of about equally many values. Returns the
    /// upper edge of each but the last, which has none. Returns no edges if the sample is empty.
    pub fn edges(&self, strata: usize) -> Vec<f64> {
        let kept = self.kept.iter();
        let mut values: Vec<f64> = kept.map(|(_, bits)| f64::from_bits(*bits)).collect();
        values.sort_unstable_by(f64::total_cmp);
        let place = |number: usize| (values.len() * number / strata).max(1) - 1;
        let edges = (1..strata).filter_map(|number| values.get(place(number)).copied());
        edges.collect()
    }
}

/// Returns the name of a value's stratum: with five strata, `p020` is the lowest, then `p040` and
/// so on up to `p100`. If edges are equal, the highest of their names applies. `edges` are those of
/// [`QuantileSample::edges`].
pub fn quantile_stratum(edges: &[f64], value: f64) -> String {
    let first = edges.partition_point(|edge| *edge < value);
    let below = edges.get(first).map_or(edges.len() + 1, |upper| {
        edges.partition_point(|edge| edge <= upper)
    });
    format!("p{:03}", below * 100 / (edges.len() + 1))
}
