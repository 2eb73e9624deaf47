//! Tests whether the share of requests that have a property, such as a failure, differs between two
//! periods.

use super::slices::{Slice, difference, slice_count};
use crate::sampling::WeightedCount;
use crate::statistics::{Share, fisher_two_sided};

/// Number of members with a property, and number of all members.
type Part = [WeightedCount; 2];

/// Returns the two-sided p-value of the difference between the shares in two periods. Each period
/// is given as consecutive intervals: for each, the number of members with the property, and the
/// number of all members.
///
/// Fisher's exact test assumes independent requests, but failures come in outages. A second test
/// therefore compares the difference with the differences between slices of one period. The
/// function returns the larger p-value; 1 if a period fills fewer than two slices.
#[must_use]
pub fn share_change(before: &[Part], after: &[Part]) -> f64 {
    let wholes = [before, after].map(whole);
    let shares = [0, 1].map(|at: usize| share_of_sample(wholes[at], wholes[1 - at]));
    let rows = shares.map(|share| usize::try_from(share.of).unwrap_or(usize::MAX));
    let slices = [before, after].map(slices);
    let of_slices = difference((&slices[0], rows[0]), (&slices[1], rows[1]));
    of_slices.max(fisher_two_sided(shares[0], shares[1]))
}

fn whole(pieces: &[Part]) -> Part {
    [0, 1].map(|at: usize| pieces.iter().map(|piece| piece[at]).sum())
}

/// Returns the share in an unweighted sample whose odds are as uncertain as the weighted ones. If
/// all weights are 1, that is the share itself. If no member of the sample has the property, a
/// member with it would have the same weight as in `other`.
pub(super) fn share_of_sample([with, all]: Part, [in_other, _]: Part) -> Share {
    let share = with.share_of(all);
    // Sum of the squared weights.
    let squares = |count: WeightedCount| match count.is_zero() {
        true => 0.0,
        false => count.estimate() * count.estimate() / count.effective(),
    };
    let without = all.estimate() - with.estimate();
    let size = if with.is_zero() && !in_other.is_zero() {
        all.estimate() * in_other.recorded() as f64 / in_other.estimate()
    } else if with.is_zero() || without <= 0.0 {
        all.effective()
    } else {
        // The variance of the logarithm of the odds, by the delta method.
        let variance =
            1.0 / with.effective() + (squares(all) - squares(with)) / (without * without);
        1.0 / (share * (1.0 - share) * variance)
    };
    Share {
        part: (share * size).round() as u64,
        of: size.round() as u64,
    }
}

/// Joins neighbouring intervals to slices of about equally many recorded requests.
fn slices(pieces: &[Part]) -> Vec<Slice> {
    let recorded = |[_, all]: &Part| usize::try_from(all.recorded()).unwrap_or(usize::MAX);
    let requests: usize = pieces.iter().map(recorded).sum();
    let mut slices = vec![Slice::default(); slice_count(requests)];
    let mut seen = 0;
    for piece in pieces.iter().filter(|piece| recorded(piece) > 0) {
        // The middle of an interval determines its slice.
        let place = (seen + recorded(piece) / 2) * slices.len() / requests;
        seen += recorded(piece);
        let slice = &mut slices[place];
        let [with, all] = piece.map(WeightedCount::estimate);
        slice.add(1.0, with);
        slice.add(0.0, (all - with).max(0.0));
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::Weight;
    use crate::test_noise::Noise;

    fn counted(requests: usize, weight: Weight) -> WeightedCount {
        let mut count = WeightedCount::default();
        (0..requests).for_each(|_| count.count(weight));
        count
    }

    impl Noise {
        /// Returns pieces of five requests, which fail at the rate of each piece.
        fn period(&mut self, pieces: usize, mut rate: impl FnMut(&mut Self) -> f64) -> Vec<Part> {
            let mut piece = || {
                let rate = rate(self);
                let part = (0..5).filter(|_| self.uniform() < rate).count();
                [part, 5].map(|requests| counted(requests, Weight::ONE))
            };
            (0..pieces).map(|_| piece()).collect()
        }
    }

    #[test]
    fn equal_periods_rarely_differ() {
        const PAIRS: usize = 1_000;
        let mut noise = Noise(20_261_127);
        for rate in [0.01f64, 0.05, 0.3] {
            for in_outages in [false, true] {
                let mut alarm = || {
                    // In a tenth of the runs of four pieces, requests fail ten times as often, or
                    // always.
                    let mut minute = 0usize;
                    let mut of_minute = rate;
                    let mut of_piece = |noise: &mut Noise| {
                        if in_outages && minute.is_multiple_of(4) {
                            let is_bad = noise.uniform() < 0.1;
                            of_minute = if is_bad { (10.0 * rate).min(1.0) } else { rate };
                        }
                        minute += 1;
                        of_minute
                    };
                    let periods = [(); 2].map(|()| noise.period(80, &mut of_piece));
                    share_change(&periods[0], &periods[1]) <= 0.05
                };
                let alarms = (0..PAIRS).filter(|_| alarm()).count();
                println!("{rate} in outages {in_outages}: {alarms} of {PAIRS}");
                assert!(alarms * 100 <= PAIRS * 7, "{rate}: {alarms}");
            }
        }
    }

    #[test]
    fn a_rise_to_five_percent_is_found() {
        const PAIRS: usize = 200;
        let mut noise = Noise(7);
        let mut find = || {
            let periods = [0.0, 0.05].map(|rate| noise.period(60, |_| rate));
            share_change(&periods[0], &periods[1]) <= 0.03
        };
        let found = (0..PAIRS).filter(|_| find()).count();
        println!("{found} of {PAIRS}");
        assert!(found * 10 >= PAIRS * 8, "{found}");
        let one_of_nine = [1, 9].map(|requests| counted(requests, Weight::ONE));
        assert_eq!(share_change(&[], &[one_of_nine]), 1.0);
    }

    /// Thinning keeps all failed requests, and here one in ten of the others. The recorded requests
    /// of both periods fail equally often, while all requests fail ten times as often in the later
    /// one; and the other way round.
    #[test]
    fn thinned_requests_count_by_their_weights() {
        let tenth = Weight::of_threshold((1 << 56) - (1u64 << 56) / 10);
        let period = |failed: usize, others: usize, weight: Weight| -> Vec<Part> {
            let failed = counted(failed, Weight::ONE);
            vec![[failed, failed + counted(others, weight)]; 60]
        };
        let thinned = period(1, 10, tenth);
        let recorded = period(1, 100, Weight::ONE);
        assert!(share_change(&thinned, &period(1, 10, Weight::ONE)) <= 1e-3);
        assert!(share_change(&thinned, &recorded) > 0.5);
        // Failed requests would have been kept.
        assert!(share_change(&period(0, 10, tenth), &thinned) <= 1e-3);
        let expected = Share {
            part: 60,
            of: 6_060,
        };
        let recorded = whole(&recorded);
        assert_eq!(share_of_sample(recorded, recorded), expected);
    }
}
