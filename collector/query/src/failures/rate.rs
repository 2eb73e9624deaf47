//! Error rates: the share of failed requests, and its last change.
//!
//! Requests are counted in columns of time, which are grouped into
//! [blocks](super::super::time_blocks::blocks). The search for
//! [changes](stroboscope_analysis::statistics::last_change) of the failed share compares these
//! blocks.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::sampling::{Weight, WeightedCount};
use stroboscope_analysis::statistics::{Block, Scores, last_change};

use super::super::time_blocks::blocks;
use super::super::time_columns::{Limit, OfColumn, TimeColumns};

/// Maximum number of columns that contain requests.
const COLUMNS_MAX: usize = 512;
/// Minimum factor by which the share of failed or of successful requests must change.
const RATIO_MIN: f64 = 1.5;
/// Minimum number of failed requests on the side with the higher error rate. Fewer may be chance.
const FAILED_MIN: u64 = 5;

/// Number of requests, and number of failed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub requests: WeightedCount,
    pub failed: WeightedCount,
}

impl Outcomes {
    pub(super) fn observe(&mut self, has_failed: bool, weight: Weight) {
        self.requests.count(weight);
        if has_failed {
            self.failed.count(weight);
        }
    }

    /// Returns the part of the requests that failed, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.failed.share_of(self.requests)
    }
}

impl OfColumn for Outcomes {
    fn take_in(&mut self, other: Self) {
        self.requests += other.requests;
        self.failed += other.failed;
    }
}

/// Outcomes of one root operation's requests over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OutcomesOverTime(TimeColumns<Outcomes>);

impl Default for OutcomesOverTime {
    fn default() -> Self {
        Self(TimeColumns::within(Limit::Occupied(COLUMNS_MAX)))
    }
}

/// Change of the share of failed requests. The first element of each pair is before the change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RateChange {
    /// Root operation whose requests fail more or less often.
    pub root: String,
    /// Start of the time before the change: the start of the column with the first request, or the
    /// preceding change, in ns since the Unix epoch.
    pub before_from_ns: i64,
    /// Start of the first block after the change, in ns since the Unix epoch.
    pub at_ns: i64,
    /// End of the column with the last request, in ns since the Unix epoch.
    pub until_ns: i64,
    /// Shares of failed requests, 0 to 1.
    pub rates: [f64; 2],
    pub requests: [u64; 2],
    pub failed: [u64; 2],
    /// Probability of finding so clear a change if the rate is constant.
    pub p_value: f64,
}

impl OutcomesOverTime {
    pub(super) fn observe(&mut self, start_ns: i64, has_failed: bool, weight: Weight) {
        self.0.at(start_ns).observe(has_failed, weight);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    /// Returns the numbers of failed and of all requests in each column of time.
    pub(super) fn counts(&self) -> Vec<[WeightedCount; 2]> {
        let columns = self.0.columns.values();
        columns.map(|of| [of.failed, of.requests]).collect()
    }

    /// Finds the last change of the error rate that is large enough to matter. Returns `None` if
    /// there is none; `p_max` limits the probability that a constant rate yields one.
    pub(super) fn last_change(&self, root: &str, p_max: f64) -> Option<RateChange> {
        let (starts, outcomes): (Vec<i64>, Vec<Outcomes>) = self.0.columns.iter().unzip();
        let recorded = outcomes.iter().map(|of| of.requests.recorded());
        let counts: Vec<(i64, u64)> = starts.iter().copied().zip(recorded).collect();
        let blocks = blocks(&counts);
        let sum = |blocks: &[Range<usize>]| {
            let mut sum = Outcomes::default();
            let columns = blocks.iter().flat_map(Clone::clone);
            columns.for_each(|column| sum.take_in(outcomes[column]));
            sum
        };
        let scored = |block: &Range<usize>| {
            let of = sum(std::slice::from_ref(block));
            Block {
                values: of.requests.estimate(),
                scores: of.failed.estimate(),
            }
        };
        let scored: Vec<Block> = blocks.iter().map(scored).collect();
        let change = last_change(&scored, Scores::Outcomes, p_max, |before, after| {
            differ([before, after].map(|side| sum(&blocks[side])))
        })?;
        let sides =
            [change.from..change.at, change.at..blocks.len()].map(|side| sum(&blocks[side]));
        let begin_ns = |block: usize| starts[blocks[block].start] << self.0.shift;
        Some(RateChange {
            root: root.to_owned(),
            before_from_ns: begin_ns(change.from),
            at_ns: begin_ns(change.at),
            until_ns: starts.last()?.saturating_add(1) << self.0.shift,
            rates: sides.map(|side| side.share()),
            requests: sides.map(|side| side.requests.rounded()),
            failed: sides.map(|side| side.failed.rounded()),
            p_value: change.p_value,
        })
    }
}

/// Reports whether the shares of two sides differ by enough to matter.
pub(super) fn differ(sides: [Outcomes; 2]) -> bool {
    let [before, after] = sides.map(|side| side.share());
    let (less, more) = (before.min(after), before.max(after));
    let ratio = |less: f64, more: f64| more >= RATIO_MIN * less;
    let worse = usize::from(after > before);
    sides[worse].failed.recorded() >= FAILED_MIN
        && (ratio(less, more) || ratio(1.0 - more, 1.0 - less))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_noise::Noise;

    impl Noise {
        /// Returns the outcomes of `requests` requests: about one per second or, with `in_bursts`,
        /// in bursts of 20. `rate` returns the probability that a request fails.
        fn requests(
            &mut self,
            requests: usize,
            in_bursts: bool,
            rate: impl Fn(usize) -> f64,
        ) -> OutcomesOverTime {
            let mut seen = OutcomesOverTime::default();
            let mut at = 0.0;
            for request in 0..requests {
                at -= self.uniform().ln() * if in_bursts { 0.001 } else { 1.0 };
                if in_bursts && request % 20 == 0 {
                    at += 20.0;
                }
                let has_failed = self.uniform() < rate(request);
                seen.observe((at * 1e9) as i64, has_failed, Weight::ONE);
            }
            seen
        }
    }

    const P_MAX: f64 = 0.03;

    #[test]
    fn of_constant_rates_at_most_one_in_twenty_changes() {
        const SERIES: usize = 200;
        let mut noise = Noise(20_261_127);
        for in_bursts in [false, true] {
            for rate in [0.002, 0.01, 0.05, 0.3, 0.9] {
                let found = (0..SERIES).filter(|at| {
                    let seen = noise.requests(60 + at * 37 % 1_500, in_bursts, |_| rate);
                    seen.last_change("r", P_MAX).is_some()
                });
                let found = found.count();
                println!("in bursts {in_bursts}, rate {rate}: {found} of {SERIES}");
                assert!(found * 20 <= SERIES, "{rate}: {found}");
            }
        }
    }

    #[test]
    fn a_jump_to_five_percent_is_found_within_a_few_hundred_requests() {
        const SERIES: usize = 100;
        let mut noise = Noise(777);
        for (before, after, least) in [(300, 300, 90), (1_000, 200, 90), (300, 200, 85)] {
            let (mut found, mut near) = (0, 0);
            for at in 0..SERIES {
                let in_bursts = at % 2 == 1;
                let rate = |request| if request < before { 0.0 } else { 0.05 };
                let seen = noise.requests(before + after, in_bursts, rate);
                let change = seen.last_change("r", P_MAX);
                // In a few series, the rate falls again later by chance.
                if let Some(change) = change.filter(|change| change.rates[1] > change.rates[0]) {
                    found += 1;
                    near += usize::from(change.requests[0].abs_diff(before as u64) <= 60);
                }
            }
            println!(
                "{before} and {after}: {found} of {SERIES}, {near} of them within 60 requests"
            );
            assert!(found >= least && near * 10 >= found * 8, "{found} {near}");
        }
    }

    #[test]
    fn the_last_change_is_told_with_what_was_before_it() {
        let mut noise = Noise(5);
        let outage = |request| match request {
            400..700 => 0.5,
            _ => 0.01,
        };
        let seen = noise.requests(1_100, false, outage);
        let change = seen.last_change("web:home", P_MAX).unwrap();
        assert!(
            change.rates[0] > 0.4 && change.rates[1] < 0.05,
            "{change:?}"
        );
        assert!(change.requests[0].abs_diff(300) < 30, "{change:?}");
        assert!(change.requests[1].abs_diff(400) < 30, "{change:?}");
        assert!(change.before_from_ns < change.at_ns && change.at_ns < change.until_ns);
        // A rate of 23 % after 20 % is no change, and neither are a few failures.
        let more = noise.requests(
            20_000,
            false,
            |request| if request < 10_000 { 0.2 } else { 0.23 },
        );
        assert_eq!(more.last_change("r", P_MAX), None);
        let few = noise.requests(300, false, |request| f64::from(u8::from(request > 296)));
        assert_eq!(few.last_change("r", P_MAX), None);
        assert_eq!(OutcomesOverTime::default().last_change("r", 1.0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn in_any_order_and_in_parts_it_is_the_same(
            requests in proptest::collection::vec((prop_oneof![0i64..1 << 30, 0i64..1 << 50], any::<bool>()), 0..600),
            cut in 0usize..600,
        ) {
            let seen = |some: &[(i64, bool)]| {
                let mut seen = OutcomesOverTime::default();
                some.iter().for_each(|(start_ns, has_failed)| seen.observe(*start_ns, *has_failed, Weight::ONE));
                seen
            };
            let (before, after) = requests.split_at(cut.min(requests.len()));
            let mut merged = seen(after);
            merged.merge(seen(before));
            prop_assert_eq!(merged, seen(&requests));
        }
    }
}
