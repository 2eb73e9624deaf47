//! Tests the search for changes against obvious computations, and on simulated series.

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
        // Divides by the part of the variance that depends on the place.
        let square = (larger - pairs / 2.0).powi(2) * 4.0 / pairs;
        if best.is_none_or(|(_, known)| square > known + 1e-9) {
            best = Some((at, square));
        }
    }
    best.filter(|(_, square)| *square > 0.0)
}

/// Makes each value a block of its own. The block's score is twice the value's rank; equal values
/// share their mean rank.
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
    let ratios =
        places.map(|at| likelihood(&series[..at]) + likelihood(&series[at..]) - likelihood(series));
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
            // A mixture of two distributions over few values.
            2 => f64::from(u8::from(noise.uniform() < 0.3)) * 5.0 + (noise.uniform() * 3.0).floor(),
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
    // A change that does not matter is not returned, and does not hide others.
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
