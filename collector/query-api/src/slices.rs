//! Splits a range of time into slices, the latest first. A client that requests the last few traces
//! of a week rarely needs more than an hour of it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use stroboscope_store::tables::Hour;

/// Returns slices that together cover a range of ns since the Unix epoch. Each slice except the
/// last has twice as many hours with recordings as the slice before it. So reading all slices in
/// turn opens hardly more files than reading the whole range at once.
pub(crate) fn slices(
    begins_ns: &RangeInclusive<i64>,
    recorded: &BTreeSet<Hour>,
) -> Vec<RangeInclusive<i64>> {
    let (from_ns, mut to_ns) = (*begins_ns.start(), *begins_ns.end());
    let mut slices = Vec::new();
    let (mut hours, mut hours_max) = (0, 1);
    let within =
        |hour: &&Hour| hour.begin_ns() <= *begins_ns.end() && hour.end_ns() > *begins_ns.start();
    for hour in recorded.iter().rev().filter(within) {
        hours += 1;
        if hours == hours_max && hour.begin_ns() > from_ns {
            slices.push(hour.begin_ns()..=to_ns);
            to_ns = hour.begin_ns() - 1;
            (hours, hours_max) = (0, hours_max * 2);
        }
    }
    slices.push(from_ns..=to_ns);
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;

    fn of(begins_ns: RangeInclusive<i64>, hours: &[i64]) -> Vec<RangeInclusive<i64>> {
        let hours = hours.iter().map(|hour| Hour::of(hour * HOUR_NS));
        slices(&begins_ns, &hours.collect())
    }

    #[test]
    fn they_are_all_of_it_and_the_latest_comes_first() {
        let always = || i64::MIN..=i64::MAX;
        assert_eq!(of(always(), &[]), [always()]);
        assert_eq!(
            of(always(), &[10, 12, 13, 14, 20]),
            [
                20 * HOUR_NS..=i64::MAX,
                13 * HOUR_NS..=20 * HOUR_NS - 1,
                i64::MIN..=13 * HOUR_NS - 1,
            ]
        );
        // Hours outside the range do not count. Hour 12 begins before the range, so there is no cut
        // at its beginning.
        let some = 12 * HOUR_NS + 5..=14 * HOUR_NS + 7;
        assert_eq!(
            of(some, &[3, 12, 13, 14, 20]),
            [
                14 * HOUR_NS..=14 * HOUR_NS + 7,
                12 * HOUR_NS + 5..=14 * HOUR_NS - 1
            ]
        );
        assert_eq!(of(5..=7, &[0]), [5..=7]);
        // Slices follow each other without a gap, whatever was recorded.
        for hours in 0..60 {
            let recorded: Vec<i64> = (0..hours).map(|hour| hour * hour % 97).collect();
            let whole = -5 * HOUR_NS + 1..=80 * HOUR_NS + 3;
            let slices = of(whole.clone(), &recorded);
            assert_eq!(slices[0].end(), whole.end());
            assert_eq!(slices[slices.len() - 1].start(), whole.start());
            for pair in slices.windows(2) {
                assert_eq!(pair[0].start() - 1, *pair[1].end());
            }
            assert!(slices.iter().all(|slice| !slice.is_empty()));
        }
    }
}
