//! Change points: the places where the values of a series start to differ from the values before.
//!
//! The series consists of blocks of values that lie close together in time. A score such as its
//! rank replaces each value, so that one enormous value is not a change. The statistic is the one
//! of Hawkins and Deng (2010, "A nonparametric change-point control chart"). At each place, it is
//! the standardised difference between the scores before the place and the scores from the place
//! on. The place with the largest statistic is the candidate. Pettitt's test does not standardise,
//! and hardly finds changes in the last tenth.
//!
//! Shuffling whole blocks yields the probability of so large a statistic without a change. Values
//! of one burst resemble each other, so shuffling single values would mistake a few unusual bursts
//! for a change. Neighbouring blocks may also resemble each other, because load drifts. So the
//! statistic is divided by a variance ratio: the variance of sums of neighbouring blocks, relative
//! to that of independent blocks, from the residuals on both sides. Shuffled series have their own
//! ratios.
//!
//! For values of 0 or 1, such as outcomes of requests, the statistic is the likelihood ratio of two
//! shares against one. Often the share on one side is 0, where a standardised difference and the
//! variance ratio find half as many changes. Outcomes have no variance ratio: a share that drifts
//! has changed.
//!
//! Binary segmentation finds the last of several changes. A series that rises and falls again has
//! no clear change as a whole, so the last half and the last quarter are searched as well, each
//! with its part of the false alarms. The caller decides which changes matter. A change that does
//! not matter is not returned; the search continues on both sides of it.

use std::ops::Range;

/// Minimum number of blocks on either side of a change.
pub const CHANGE_SIDE_MIN: usize = 3;
/// Number of shuffles. The smallest probability that can be reported is 1 / (`SHUFFLES` + 1).
const SHUFFLES: u32 = 1_999;
/// Parts to search: the whole, its last half, and its last quarter. Each entry has the number of
/// halvings and the part's share of the false alarms.
const PARTS: [(u32, f64); 3] = [(0, 0.6), (1, 0.2), (2, 0.2)];
/// Seed of the shuffles. It is fixed, so that equal series yield equal results.
const SEED: u64 = 0x5eed_0f57_e950_0001;

/// Kind of a series' scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// Ranks, or other numbers without extreme values.
    Ranks,
    /// Outcomes: each score is 0 or 1.
    Outcomes,
}

/// Neighbouring values of a series, given by their number and the sum of their scores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Block {
    /// Number of values; at least 1.
    pub values: f64,
    /// Sum of the scores of the values.
    pub scores: f64,
}

/// A place in a series of blocks where values start to differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// First block of the reference values: 0, or the first block after the previous change.
    pub from: usize,
    /// First block of the new values.
    pub at: usize,
    /// Probability, 0 to 1, of finding so clear a change anywhere in a series without a change.
    pub p_value: f64,
    /// Square of the standardised statistic, divided by the variance ratio but not by the variance
    /// of a single score. For outcomes, the logarithm of the likelihood ratio.
    pub square: f64,
}

/// Finds the last change. `matters` gets the blocks before a change and the blocks from it on, and
/// returns `false` for changes to ignore. Returns `None` if no change that matters has a p-value of
/// at most `p_max`.
#[must_use]
pub fn last_change(
    blocks: &[Block],
    scores: Scores,
    p_max: f64,
    matters: impl Fn(Range<usize>, Range<usize>) -> bool,
) -> Option<ChangePoint> {
    let search = Search {
        scores,
        p_max,
        matters,
    };
    let last = search.anywhere(blocks)?;
    // The earlier change only limits the search; its probability is not reported.
    let earlier = Search {
        scores,
        p_max: p_max / 10.0,
        matters: &search.matters,
    };
    let before = earlier.anywhere(&blocks[..last.at]);
    let from = before.map_or(0, |before| before.at);
    // A half may begin just before a change, with too few values before it.
    let again = search.clearest(blocks, from, p_max);
    Some(again.unwrap_or(ChangePoint { from, ..last }))
}

struct Search<M> {
    scores: Scores,
    p_max: f64,
    matters: M,
}

impl<M: Fn(Range<usize>, Range<usize>) -> bool> Search<M> {
    /// Returns the latest change of the whole, its last half and its last quarter.
    fn anywhere(&self, blocks: &[Block]) -> Option<ChangePoint> {
        let changes = PARTS.iter().filter_map(|(halvings, share)| {
            let from = blocks.len() - (blocks.len() >> halvings);
            self.last_within(blocks, from, from..blocks.len(), self.p_max * share)
        });
        changes.max_by(|a, b| a.at.cmp(&b.at).then(b.p_value.total_cmp(&a.p_value)))
    }

    /// Returns the last change in `part` that matters. Reference values begin at block `from`, also
    /// beyond changes that do not matter.
    fn last_within(
        &self,
        blocks: &[Block],
        from: usize,
        part: Range<usize>,
        p_max: f64,
    ) -> Option<ChangePoint> {
        let (begin, end) = (part.start, part.end);
        let change = clearest_change(&blocks[part], self.scores, p_max)?;
        let at = begin + change.at;
        let change = ChangePoint { from, at, ..change };
        let matters = (self.matters)(from..at, at..blocks.len());
        let later_from = if matters { at } else { from };
        let later = self.last_within(blocks, later_from, at..end, p_max);
        later.or_else(|| match matters {
            true => Some(change),
            false => self.last_within(blocks, from, begin..at, p_max),
        })
    }

    fn clearest(&self, blocks: &[Block], from: usize, p_max: f64) -> Option<ChangePoint> {
        let change = clearest_change(&blocks[from..], self.scores, p_max)?;
        let at = from + change.at;
        (self.matters)(from..at, at..blocks.len()).then_some(ChangePoint { from, at, ..change })
    }
}

/// Finds the clearest change of a series; `None` without a change of p-value `p_max` or less.
#[must_use]
pub fn clearest_change(blocks: &[Block], scores: Scores, p_max: f64) -> Option<ChangePoint> {
    let (at, square) = largest(blocks, scores)?;
    let ratio = |blocks: &[Block], at: usize| match scores {
        Scores::Ranks => variance_ratio(blocks, at),
        Scores::Outcomes => 1.0,
    };
    let square = square / ratio(blocks, at);
    let mut shuffled = blocks.to_vec();
    // The series itself counts as one of the shuffles.
    let mut as_large = 1u32;
    let bearable = p_max * f64::from(SHUFFLES + 1);
    let mut random = SEED;
    for _ in 0..SHUFFLES {
        shuffle(&mut shuffled, &mut random);
        // Most statistics are smaller even before the division, so that it can be skipped.
        let is_as_large = largest(&shuffled, scores).is_some_and(|(place, of_shuffled)| {
            let least = square * (1.0 - ROUNDING);
            of_shuffled >= least && of_shuffled / ratio(&shuffled, place) >= least
        });
        as_large += u32::from(is_as_large);
        if f64::from(as_large) > bearable {
            return None;
        }
    }
    let p_value = f64::from(as_large) / f64::from(SHUFFLES + 1);
    (p_value <= p_max).then_some(ChangePoint {
        from: 0,
        at,
        p_value,
        square,
    })
}

/// Relative tolerance for sums that differ only by the order of their additions.
const ROUNDING: f64 = 1e-9;

fn sum(blocks: &[Block]) -> Block {
    blocks.iter().fold(Block::default(), |sum, block| Block {
        values: sum.values + block.values,
        scores: sum.scores + block.scores,
    })
}

/// Returns the first place with the largest statistic, and its value; `None` if no place differs.
/// For ranks, it is the square, without a factor that all orders of the same blocks share.
fn largest(blocks: &[Block], scores: Scores) -> Option<(usize, f64)> {
    let statistic = match scores {
        Scores::Ranks => standardised_square,
        Scores::Outcomes => likelihood_ratio,
    };
    let all = sum(blocks);
    let mut before = Block::default();
    let mut best: Option<(usize, f64)> = None;
    for (place, block) in blocks.iter().enumerate() {
        if place >= CHANGE_SIDE_MIN && place + CHANGE_SIDE_MIN <= blocks.len() {
            let square = statistic(before, all);
            if best.is_none_or(|(_, known)| square > known * (1.0 + ROUNDING)) {
                best = Some((place, square));
            }
        }
        before.values += block.values;
        before.scores += block.scores;
    }
    best.filter(|(_, square)| *square > 0.0)
}

fn standardised_square(before: Block, all: Block) -> f64 {
    // Multiplying before dividing makes the result exactly 0 for ranks without a difference.
    let off = (before.scores * all.values - before.values * all.scores) / all.values;
    off * off / (before.values * (all.values - before.values))
}

/// Returns the log-likelihood ratio of a share for each side against one share for all.
fn likelihood_ratio(before: Block, all: Block) -> f64 {
    let likelihood = |of: Block| {
        let part = |count: f64| match count > 0.0 {
            true => count * (count / of.values).ln(),
            false => 0.0,
        };
        part(of.scores) + part(of.values - of.scores)
    };
    let after = Block {
        values: all.values - before.values,
        scores: all.scores - before.scores,
    };
    (likelihood(before) + likelihood(after) - likelihood(all)).max(0.0)
}

/// Returns the ratio of the variance of sums of neighbouring blocks to that of independent blocks,
/// at least 1. It is the largest ratio over runs of 2, 4, 8 … blocks on either side of block `at`,
/// after each side's mean was removed.
fn variance_ratio(blocks: &[Block], at: usize) -> f64 {
    let residuals = [&blocks[..at], &blocks[at..]].map(|side| {
        let all = sum(side);
        let off = |block: &Block| block.scores - block.values * all.scores / all.values;
        side.iter().map(off).collect::<Vec<f64>>()
    });
    let squares: f64 = residuals.iter().flatten().map(|off| off * off).sum();
    let variance = squares / (blocks.len().max(3) - 2) as f64;
    if variance <= 0.0 {
        return 1.0;
    }
    let mut ratio: f64 = 1.0;
    let mut length = 2;
    loop {
        let (mut squares, mut runs) = (0.0, 0.0);
        for side in residuals.iter().filter(|side| length * 4 <= side.len()) {
            // The residuals of a side add up to zero, so sums of long runs vary less.
            let independent = length as f64 * (1.0 - length as f64 / side.len() as f64);
            let mut sum: f64 = side[..length].iter().sum();
            for (out, off) in side.iter().zip(&side[length..]) {
                squares += sum * sum / independent;
                runs += 1.0;
                sum += off - out;
            }
            squares += sum * sum / independent;
            runs += 1.0;
        }
        if runs == 0.0 {
            return ratio;
        }
        ratio = ratio.max(squares / runs / variance);
        length *= 2;
    }
}

/// Shuffles by Fisher and Yates, with numbers of SplitMix64.
fn shuffle(blocks: &mut [Block], state: &mut u64) {
    for last in (1..blocks.len()).rev() {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let place = (u128::from(z) * (last as u128 + 1)) >> 64;
        blocks.swap(last, place as usize);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_noise::Noise;

    /// Computes the statistic by its definition: counts all pairs.
    fn obvious(series: &[f64]) -> Option<(usize, f64)> {
        let n = series.len();
        let mut best: Option<(usize, f64)> = None;
        for at in CHANGE_SIDE_MIN..(n + 1).saturating_sub(CHANGE_SIDE_MIN) {
            let mut larger = 0.0;
            for before in &series[..at] {
                for after in &series[at..] {
                    larger += match after.total_cmp(before) {
                        std::cmp::Ordering::Greater => 1.0,
                        std::cmp::Ordering::Equal => 0.5,
                        std::cmp::Ordering::Less => 0.0,
                    };
                }
            }
            let pairs = (at * (n - at)) as f64;
            // The part of the statistic's variance that depends on the place.
            let square = (larger - pairs / 2.0).powi(2) * 4.0 / pairs;
            if best.is_none_or(|(_, known)| square > known + 1e-9) {
                best = Some((at, square));
            }
        }
        best.filter(|(_, square)| *square > 0.0)
    }

    /// Makes each value a block of its own. Its score is twice its rank; equal values share their
    /// mean rank.
    fn singles(series: &[f64]) -> Vec<Block> {
        let rank = |value: &f64| {
            let below = series.iter().filter(|other| *other < value).count();
            let until = series.iter().filter(|other| *other <= value).count();
            (below + until + 1) as f64
        };
        let block = |value| Block {
            values: 1.0,
            scores: rank(value),
        };
        series.iter().map(block).collect()
    }

    fn last(series: &[f64]) -> Option<ChangePoint> {
        last_change(&singles(series), Scores::Ranks, 0.02, |_, _| true)
    }

    proptest! {
        #[test]
        fn ranks_say_what_all_pairs_say(series in proptest::collection::vec((0u8..12).prop_map(f64::from), 0..40)) {
            check_ranks(&series);
        }
    }

    fn check_ranks(series: &[f64]) {
        let (fast, slow) = (largest(&singles(series), Scores::Ranks), obvious(series));
        assert_eq!(fast.map(|(at, _)| at), slow.map(|(at, _)| at), "{series:?}");
        if let (Some((_, fast)), Some((_, slow))) = (fast, slow) {
            assert!((fast - slow).abs() < 1e-6, "{series:?}: {fast} {slow}");
        }
    }

    /// Computes the likelihood ratio by its definition, from the probability of each outcome.
    fn obvious_of_outcomes(series: &[bool]) -> Option<f64> {
        let likelihood = |side: &[bool]| -> f64 {
            let share = side.iter().filter(|of| **of).count() as f64 / side.len() as f64;
            let each = side.iter().map(|of| if *of { share } else { 1.0 - share });
            each.map(f64::ln).sum()
        };
        let places = CHANGE_SIDE_MIN..(series.len() + 1).saturating_sub(CHANGE_SIDE_MIN);
        let ratios = places
            .map(|at| likelihood(&series[..at]) + likelihood(&series[at..]) - likelihood(series));
        ratios.max_by(f64::total_cmp).filter(|ratio| *ratio > 1e-9)
    }

    proptest! {
        #[test]
        fn outcomes_say_what_their_likelihood_says(series in proptest::collection::vec(any::<bool>(), 0..40)) {
            let outcome = |of: &bool| Block { values: 1.0, scores: f64::from(u8::from(*of)) };
            let blocks: Vec<Block> = series.iter().map(outcome).collect();
            let fast = largest(&blocks, Scores::Outcomes).map(|(_, ratio)| ratio);
            let (fast, slow) = (fast.unwrap_or(0.0), obvious_of_outcomes(&series).unwrap_or(0.0));
            prop_assert!((fast - slow).abs() < 1e-9, "{fast} {slow}");
        }
    }

    #[test]
    fn halves_of_equal_rank_sums_have_no_change() {
        check_ranks(&[0.0, 7.0, 1.0, 2.0, 2.0, 0.0]);
        assert_eq!(
            largest(&singles(&[0.0, 7.0, 1.0, 2.0, 2.0, 0.0]), Scores::Ranks),
            None
        );
    }

    /// Calls `each` with every order of the values from `place` on.
    fn orders(values: &mut Vec<f64>, place: usize, each: &mut impl FnMut(&[f64])) {
        if place == values.len() {
            return each(values);
        }
        for other in place..values.len() {
            values.swap(place, other);
            orders(values, place + 1, each);
            values.swap(place, other);
        }
    }

    #[test]
    fn shuffles_say_about_what_all_orders_say() {
        for series in [
            vec![1.0, 2.0, 3.0, 7.0, 8.0, 9.0, 6.5],
            vec![5.0, 1.0, 4.0, 2.0, 6.0, 3.0, 7.0],
            vec![2.0, 2.0, 1.0, 3.0, 3.0, 3.0, 2.0, 3.0],
        ] {
            let (_, own) = obvious(&series).unwrap();
            let (mut all, mut as_large) = (0.0, 0.0);
            orders(&mut series.clone(), 0, &mut |order| {
                all += 1.0;
                as_large += f64::from(u8::from(
                    obvious(order).is_some_and(|(_, square)| square >= own - 1e-9),
                ));
            });
            let exact: f64 = as_large / all;
            let found = clearest_change(&singles(&series), Scores::Ranks, 1.0)
                .unwrap()
                .p_value;
            let spread = (exact * (1.0 - exact) / f64::from(SHUFFLES)).sqrt();
            assert!(
                (found - exact).abs() < 4.0 * spread + 1e-3,
                "{series:?}: {found} {exact}"
            );
        }
    }

    impl Noise {
        /// Returns a standard normal number. Its exponential is skewed like latencies, and the
        /// quotient of two such numbers has no mean.
        fn normal(&mut self) -> f64 {
            let (a, b) = (self.uniform(), self.uniform());
            (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        }

        fn series(&mut self, kind: usize, length: usize) -> Vec<f64> {
            let value = |noise: &mut Noise| match kind % 4 {
                0 => (noise.normal() * 0.8).exp(),
                1 => noise.normal() / noise.normal(),
                // Two ways to sample, and few values at all.
                2 => {
                    f64::from(u8::from(noise.uniform() < 0.3)) * 5.0
                        + (noise.uniform() * 3.0).floor()
                }
                _ => noise.uniform(),
            };
            (0..length).map(|_| value(self)).collect()
        }
    }

    #[test]
    fn of_a_thousand_series_without_a_change_hardly_any_has_one() {
        let mut noise = Noise(0x1234_5678_9abc_def1);
        let mut found = 0;
        for at in 0..1_000 {
            let series = noise.series(at, 8 + at % 121);
            found += u32::from(last(&series).is_some());
        }
        println!("false alarms: {found} of 1000");
        assert!(found <= 30, "{found}");
        // The level must be kept, not undercut by a rule that finds nothing.
        let at_a_tenth = (0..1_000).filter(|at| {
            clearest_change(&singles(&noise.series(*at, 30)), Scores::Ranks, 0.1).is_some()
        });
        let at_a_tenth = at_a_tenth.count();
        println!("at a level of 0.1: {at_a_tenth} of 1000");
        assert!((70..=130).contains(&at_a_tenth), "{at_a_tenth}");
    }

    #[test]
    fn a_step_is_found_where_it_is() {
        let mut noise = Noise(0xfeed_beef_0bad_cafe);
        let (mut found, mut near) = (0, 0);
        for at in 0..200 {
            let (length, step) = (40 + at % 60, 10 + at % 25);
            let mut series = noise.series(0, length);
            series[step..].iter_mut().for_each(|value| *value *= 8.0);
            if let Some(change) = last(&series) {
                found += 1;
                near += u32::from(change.at.abs_diff(step) <= 3);
            }
        }
        println!("found {found} of 200, {near} of them within 3 places");
        assert!(found >= 190 && near >= 190, "{found} {near}");
    }

    #[test]
    fn of_several_changes_the_last_is_told_with_what_was_before_it() {
        let mut noise = Noise(77);
        let mut series: Vec<f64> = (0..90).map(|_| 10.0 + noise.uniform()).collect();
        series[30..60].iter_mut().for_each(|value| *value += 50.0);
        let change = last(&series).unwrap();
        assert_eq!((change.from, change.at), (30, 60));
        series.truncate(60);
        let change = last(&series).unwrap();
        assert_eq!((change.from, change.at), (0, 30));
        // One extreme value is no change.
        let mut calm: Vec<f64> = (0..60).map(|_| noise.uniform()).collect();
        calm[40] = 1e12;
        assert_eq!(last(&calm), None);
        // A change that does not matter is none, and hides none.
        series[45..].iter_mut().for_each(|value| *value += 3.0);
        let is_large = |before: Range<usize>, after: Range<usize>| {
            let mean = |side: Range<usize>| {
                let length = side.len() as f64;
                series[side].iter().sum::<f64>() / length
            };
            mean(after) > 2.0 * mean(before)
        };
        let large = last_change(&singles(&series), Scores::Ranks, 0.02, is_large).unwrap();
        assert_eq!((large.from, large.at), (0, 30));
        for nothing in [&[][..], &[1.0; 50], &[1.0, 2.0, 3.0]] {
            assert_eq!(last(nothing), None);
        }
    }

    #[test]
    fn a_change_that_matters_is_found_on_either_side_of_clearer_ones_that_do_not() {
        let check = |levels: &[(usize, f64)], at: usize| {
            let mut noise = Noise(77);
            let mut series = Vec::new();
            for (length, level) in levels {
                series.extend((0..*length).map(|_| level + noise.uniform()));
            }
            let doubles = |before: Range<usize>, after: Range<usize>| {
                let mean = |side: Range<usize>| {
                    let length = side.len() as f64;
                    series[side].iter().sum::<f64>() / length
                };
                mean(after) > 2.0 * mean(before)
            };
            let change = last_change(&singles(&series), Scores::Ranks, 0.02, doubles);
            let found = change.map(|change| (change.from, change.at));
            assert_eq!(found, Some((0, at)), "{levels:?}");
        };
        check(&[(120, 10.0), (55, 12.0), (15, 14.0), (10, 30.0)], 190);
        check(&[(20, 10.0), (40, 25.0), (40, 27.0)], 20);
    }
}
