//! Evidence from the section of a period in which a property occurs.
//!
//! Suppose that few requests of one period have a property, and that it begins or ends in the
//! middle of the other period. It may then vary so much between that period's slices that the
//! difference between the whole periods is not significant. The difference still counts if it is
//! significant between the section in which the property occurs and the whole period in which few
//! requests have it.

use super::RankEvidence;
use crate::compare::rows::Period;

/// Maximum ratio of the smaller to the larger frequency of the property.
const RARER_MAX: f64 = 0.25;
/// Maximum probability that requests with the property, placed at random times, would leave as long
/// a stretch without them at one end of the period.
const CHANCE_MAX: f64 = 0.01;

/// Evidence that a property differs between a section of one period and the whole other period.
#[derive(Clone, Debug)]
pub(in crate::compare) struct SectionEvidence {
    /// Period of the section.
    pub(in crate::compare) period: Period,
    pub(in crate::compare) evidence: RankEvidence,
}

impl SectionEvidence {
    /// Computes evidence from the arguments of [`RankEvidence::of_shares`]. If most requests have
    /// the property, uses its absence. Returns `None` if the ratio of its lower to its higher
    /// frequency exceeds [`RARER_MAX`]. Also returns `None` if, in the period where it is more
    /// frequent, it occurs throughout, in too few requests to tell, or in no sampled request, or if
    /// [`RankEvidence::of_shares`] returns `None` for the section.
    pub(in crate::compare) fn of_shares(
        has: &[(Period, bool)],
        with: [u64; 2],
        of: [u64; 2],
    ) -> Option<SectionEvidence> {
        let is_usual = 2 * (with[0] + with[1]) > of[0] + of[1];
        let rare = [0, 1].map(|at: usize| match is_usual {
            true => of[at] - with[at],
            false => with[at],
        });
        let shares = [0, 1].map(|at: usize| rare[at] as f64 / of[at].max(1) as f64);
        let period = match shares[0] > shares[1] {
            true => Period::Before,
            false => Period::After,
        };
        let number = period as usize;
        if shares[1 - number] > RARER_MAX * shares[number] {
            return None;
        }
        let earlier = has.partition_point(|(period, _)| *period == Period::Before);
        let bounds = match period {
            Period::Before => 0..earlier,
            Period::After => earlier..has.len(),
        };
        let own = &has[bounds.clone()];
        let is_rare = |(_, has): &(Period, bool)| *has != is_usual;
        let first = own.iter().position(is_rare)?;
        let after_last = own.iter().rposition(is_rare)? + 1;
        let empty = match first >= own.len() - after_last {
            true => bounds.start..bounds.start + first,
            false => bounds.start + after_last..bounds.end,
        };
        let kept = (own.len() - empty.len()) as f64;
        let occurrences = own.iter().filter(|one| is_rare(one)).count();
        if (kept / own.len() as f64).powf(occurrences as f64) > CHANCE_MAX {
            return None;
        }
        let rows = [&has[..empty.start], &has[empty.end..]].concat();
        // The rows are a sample, so the number of requests in the section is an estimate.
        let others = of[number] - rare[number];
        let kept_others = (kept - occurrences as f64) / (own.len() - occurrences).max(1) as f64;
        let others = (others as f64 * kept_others).round() as u64;
        let (mut with, mut of) = (with, of);
        with[number] = if is_usual { others } else { rare[number] };
        of[number] = rare[number] + others;
        Some(SectionEvidence {
            period,
            evidence: RankEvidence::of_shares(&rows, with, of)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::evidence::Variability;

    /// Returns requests of a period. `has` reports whether the request with this number has the
    /// property.
    fn rows(period: Period, requests: usize, has: fn(usize) -> bool) -> Vec<(Period, bool)> {
        (0..requests).map(|at| (period, has(at))).collect()
    }

    fn counts(rows: &[(Period, bool)]) -> [[u64; 2]; 2] {
        [Period::Before, Period::After].map(|period| {
            let own = rows.iter().filter(|(of, _)| *of == period);
            let with = own.clone().filter(|(_, has)| *has).count();
            [with as u64, own.count() as u64]
        })
    }

    #[test]
    fn a_section_counts_alike_in_both_periods_and_for_absence() {
        let often = |at: usize| at >= 150 && at.is_multiple_of(8);
        let earlier = [
            rows(Period::Before, 420, often),
            rows(Period::After, 340, |_| false),
        ]
        .concat();
        let later = [
            rows(Period::Before, 340, |_| false),
            rows(Period::After, 420, often),
        ]
        .concat();
        let mut p_values = Vec::new();
        for (rows, period) in [(earlier, Period::Before), (later, Period::After)] {
            for is_absence in [false, true] {
                let rows: Vec<_> = rows
                    .iter()
                    .map(|(period, has)| (*period, *has != is_absence))
                    .collect();
                let [before, after] = counts(&rows);
                let (with, of) = ([before[0], after[0]], [before[1], after[1]]);
                let found = SectionEvidence::of_shares(&rows, with, of).expect("a section");
                assert_eq!(found.period, period);
                let whole = RankEvidence::of_shares(&rows, with, of).expect("testable");
                let p_value = |of: &RankEvidence| of.verdict(&Variability::default()).p_value;
                assert!(
                    p_value(&whole) > 1e-3 && p_value(&found.evidence) < 1e-6,
                    "{} {}",
                    p_value(&whole),
                    p_value(&found.evidence)
                );
                p_values.push(p_value(&found.evidence));
            }
        }
        assert!(
            p_values
                .iter()
                .all(|p| (p / p_values[0] - 1.0).abs() < 1e-6),
            "{p_values:?}"
        );
    }

    #[test]
    fn a_property_throughout_a_period_or_in_both_has_no_section() {
        let check = |before: fn(usize) -> bool, after: fn(usize) -> bool| {
            let rows = [
                rows(Period::Before, 420, before),
                rows(Period::After, 340, after),
            ]
            .concat();
            let [before, after] = counts(&rows);
            let found =
                SectionEvidence::of_shares(&rows, [before[0], after[0]], [before[1], after[1]]);
            assert!(found.is_none(), "{found:?}");
        };
        check(|at| at % 8 == 3, |_| false);
        check(
            |at| at >= 150 && at.is_multiple_of(8),
            |at| at.is_multiple_of(20),
        );
        check(|_| false, |_| false);
    }
}
