//! Change points: from where on the values of a series are others than before.
//!
//! The statistic is that of Hawkins and Deng (2010, "A nonparametric change-point control chart"): at each place, the
//! Mann–Whitney statistic of what is before it against what is from it on, standardised; the place with the largest is the
//! candidate. Only ranks count, so that one enormous value is no change. How likely so large a one is without any change is
//! found by shuffling the series: if nothing changed, all orders are as likely, and the test keeps its level for each
//! distribution and length. Pettitt's test, which does not standardise, finds changes in the middle as well, and hardly
//! any in the last tenth, which are those that are asked about.
//!
//! Of several changes the last is found by binary segmentation: what follows a change is looked at in the same way. What
//! rises and falls again halfway has no clear change as a whole, so the last half and the last quarter are looked at by
//! themselves as well, each with its part of the probability of a false alarm.

/// Values on either side of a change, at least.
pub const CHANGE_SIDE_MIN: usize = 3;
/// Shuffles: the smallest probability that can be said is one in so many, and one.
const SHUFFLES: u32 = 1_999;
/// The whole, its last half, and its last quarter are looked at.
const HALVINGS: u32 = 3;
/// The same series has the same answer.
const SEED: u64 = 0x5eed_0f57_e950_0001;

/// From where on values are others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// Where those begin that are compared with: 0, or the change before this one.
    pub from: usize,
    /// The first of the new values.
    pub at: usize,
    /// How likely so clear a change is anywhere in a series without one, 0 to 1.
    pub p_value: f64,
    /// How likely a new value is larger than an old one, 0 to 1; of equal ones, half of them are.
    pub larger: f64,
}

/// The last change of a series: `None` where none is as unlikely to be chance as `p_max` says.
#[must_use]
pub fn last_change(series: &[f64], p_max: f64) -> Option<ChangePoint> {
    let last = last_anywhere(series, p_max)?;
    let before = last_anywhere(&series[..last.at], p_max);
    let from = before.map_or(0, |before| before.at);
    // A half may begin just before a change, and know too little of what was before.
    let again = clearest_change(&series[from..], p_max);
    let (place, change) = again.map_or((last.at, last), |again| (from + again.at, again));
    Some(ChangePoint {
        from,
        at: place,
        ..change
    })
}

/// The last one, of the whole and of what is left of it when its first half goes, and that of the rest.
fn last_anywhere(series: &[f64], p_max: f64) -> Option<ChangePoint> {
    let parts = (0..HALVINGS).map(|halving| series.len() - (series.len() >> halving));
    let changes = parts.filter_map(|from| last_of(series, from, p_max / f64::from(HALVINGS)));
    changes.max_by(|a, b| a.at.cmp(&b.at).then(b.p_value.total_cmp(&a.p_value)))
}

/// The last one from some place on. What follows a change is shorter than what it was found in.
fn last_of(series: &[f64], mut from: usize, p_max: f64) -> Option<ChangePoint> {
    let mut last = None;
    while let Some(change) = clearest_change(&series[from..], p_max) {
        let at = from + change.at;
        last = Some(ChangePoint { from, at, ..change });
        from = at;
    }
    last
}

/// The clearest change of a series: `None` where it is not as unlikely to be chance as `p_max` says.
#[must_use]
pub fn clearest_change(series: &[f64], p_max: f64) -> Option<ChangePoint> {
    let mut ranks = doubled_ranks(series);
    let (at, square) = largest(&ranks)?;
    let before: u64 = ranks[..at].iter().sum();
    // Among the shuffled ones the series itself counts as one.
    let mut as_large = 1u32;
    let bearable = p_max * f64::from(SHUFFLES + 1);
    let mut random = SEED;
    for _ in 0..SHUFFLES {
        shuffle(&mut ranks, &mut random);
        if largest(&ranks).is_some_and(|(_, shuffled)| shuffled >= square) {
            as_large += 1;
        }
        if f64::from(as_large) > bearable {
            return None;
        }
    }
    let p_value = f64::from(as_large) / f64::from(SHUFFLES + 1);
    let (n, k) = (ranks.len() as f64, at as f64);
    // Of all pairs, those whose earlier one is larger.
    let smaller = (before as f64 / 2.0 - k * (k + 1.0) / 2.0) / (k * (n - k));
    (p_value <= p_max).then_some(ChangePoint {
        from: 0,
        at,
        p_value,
        larger: 1.0 - smaller,
    })
}

/// Twice the rank of each, from 2 on; equal ones share the mean of theirs. What is no number is the largest.
fn doubled_ranks(series: &[f64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..series.len()).collect();
    order.sort_by(|a, b| series[*a].total_cmp(&series[*b]));
    let mut ranks = vec![0; series.len()];
    let mut from = 0;
    for of_equal in order.chunk_by(|a, b| series[*a] == series[*b]) {
        let until = from + of_equal.len();
        for place in of_equal {
            ranks[*place] = (from + 1 + until) as u64;
        }
        from = until;
    }
    ranks
}

/// Where the standardised statistic is largest, and its square but for a factor that is that of all orders of the same
/// values; the first of equal ones.
fn largest(ranks: &[u64]) -> Option<(usize, f64)> {
    let n = ranks.len();
    if ranks.first() == ranks.iter().max() && ranks.first() == ranks.iter().min() {
        return None;
    }
    let mut sum = 0u64;
    let mut best: Option<(usize, f64)> = None;
    for (before, rank) in ranks.iter().enumerate() {
        let is_place = before >= CHANGE_SIDE_MIN && before + CHANGE_SIDE_MIN <= n;
        let off = sum.abs_diff((before * (n + 1)) as u64) as f64;
        let square = off * off / (before * (n - before)) as f64;
        if is_place && best.is_none_or(|(_, known)| square > known) {
            best = Some((before, square));
        }
        sum += rank;
    }
    best
}

/// Fisher and Yates, with numbers of SplitMix64.
fn shuffle(ranks: &mut [u64], state: &mut u64) {
    for last in (1..ranks.len()).rev() {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let place = (u128::from(z) * (last as u128 + 1)) >> 64;
        ranks.swap(last, place as usize);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The statistic by its definition: all pairs are counted.
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
            // Of the statistic's variance, the part that depends on the place.
            let square = (larger - pairs / 2.0).powi(2) * 4.0 / pairs;
            if best.is_none_or(|(_, known)| square > known + 1e-9) {
                best = Some((at, square));
            }
        }
        best.filter(|_| series.iter().any(|value| *value != series[0]))
    }

    proptest! {
        #[test]
        fn ranks_say_what_all_pairs_say(series in proptest::collection::vec((0u8..12).prop_map(f64::from), 0..40)) {
            let (fast, slow) = (largest(&doubled_ranks(&series)), obvious(&series));
            prop_assert_eq!(fast.is_some(), slow.is_some());
            if let (Some((at, fast)), Some((slow_at, slow))) = (fast, slow) {
                prop_assert!((fast - slow).abs() < 1e-6, "{} {}", fast, slow);
                prop_assert_eq!(at, slow_at);
            }
        }
    }

    /// All orders of a short series, one by one.
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
                as_large += f64::from(u8::from(obvious(order).unwrap().1 >= own - 1e-9));
            });
            let exact: f64 = as_large / all;
            let found = clearest_change(&series, 1.0).unwrap().p_value;
            let spread = (exact * (1.0 - exact) / f64::from(SHUFFLES)).sqrt();
            assert!(
                (found - exact).abs() < 4.0 * spread + 1e-3,
                "{series:?}: {found} {exact}"
            );
        }
    }

    struct Noise(u64);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        }

        /// Normal; its exponential is skewed as latencies are, and its quotients have no mean at all.
        fn normal(&mut self) -> f64 {
            let (a, b) = (self.uniform(), self.uniform());
            (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        }

        fn series(&mut self, kind: usize, length: usize) -> Vec<f64> {
            let value = |noise: &mut Noise| match kind % 4 {
                0 => (noise.normal() * 0.8).exp(),
                1 => noise.normal() / noise.normal(),
                // Two ways to take, and few values at all.
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
            found += u32::from(last_change(&series, 0.005).is_some());
        }
        println!("false alarms: {found} of 1000");
        assert!(found <= 10, "{found}");
        // The level is kept, not undercut by a rule that finds nothing.
        let at_a_tenth =
            (0..1_000).filter(|at| clearest_change(&noise.series(*at, 30), 0.1).is_some());
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
            if let Some(change) = last_change(&series, 0.005) {
                found += 1;
                near += u32::from(change.at.abs_diff(step) <= 3 && change.larger > 0.75);
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
        let change = last_change(&series, 0.005).unwrap();
        assert_eq!((change.from, change.at), (30, 60));
        assert_eq!(change.larger, 0.0);
        series.truncate(60);
        let change = last_change(&series, 0.005).unwrap();
        assert_eq!((change.from, change.at, change.larger), (0, 30, 1.0));
        // One wild value is none.
        let mut calm: Vec<f64> = (0..60).map(|_| noise.uniform()).collect();
        calm[40] = 1e12;
        assert_eq!(last_change(&calm, 0.005), None);
        for nothing in [&[][..], &[1.0; 50], &[1.0, 2.0, 3.0]] {
            assert_eq!(last_change(nothing, 0.005), None);
        }
    }
}
