//! Tests whether the share of requests that have a property, such as a failure, differs between two
//! periods.

use super::slices::{Slice, difference, slice_count};
use crate::statistics::{Share, fisher_two_sided};

/// Returns the two-sided p-value of the difference between the shares in two periods. Each period
/// is given as the shares of consecutive intervals.
///
/// Fisher's exact test assumes independent requests, but failures come in outages. A second test
/// therefore compares the difference with the differences between slices of one period. The
/// function returns the larger p-value; 1 if a period fills fewer than two slices.
#[must_use]
pub fn share_change(before: &[Share], after: &[Share]) -> f64 {
    let wholes = [before, after].map(|pieces| Share {
        part: pieces.iter().map(|piece| piece.part).sum(),
        of: pieces.iter().map(|piece| piece.of).sum(),
    });
    let rows = wholes.map(|whole| usize::try_from(whole.of).unwrap_or(usize::MAX));
    let slices = [slices(before, rows[0]), slices(after, rows[1])];
    let (of_slices, _) = difference((&slices[0], rows[0]), (&slices[1], rows[1]));
    of_slices.max(fisher_two_sided(wholes[0], wholes[1]))
}

/// Joins neighbouring intervals to slices of about equally many requests.
fn slices(pieces: &[Share], requests: usize) -> Vec<Slice> {
    let mut slices = vec![Slice::default(); slice_count(requests)];
    let mut seen = 0u64;
    for piece in pieces.iter().filter(|piece| piece.of > 0) {
        // The middle of an interval determines its slice.
        let place = (seen + piece.of / 2) as usize * slices.len() / requests.max(1);
        seen += piece.of;
        let last = slices.len() - 1;
        let slice = &mut slices[place.min(last)];
        slice.add(1.0, piece.part as f64);
        slice.add(0.0, (piece.of - piece.part.min(piece.of)) as f64);
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_noise::Noise;

    impl Noise {
        /// Returns pieces of five requests, which fail at the rate of each piece.
        fn period(&mut self, pieces: usize, mut rate: impl FnMut(&mut Self) -> f64) -> Vec<Share> {
            let mut piece = || {
                let rate = rate(self);
                let part = (0..5).filter(|_| self.uniform() < rate).count() as u64;
                Share { part, of: 5 }
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
        assert_eq!(share_change(&[], &[Share { part: 1, of: 9 }]), 1.0);
    }
}
