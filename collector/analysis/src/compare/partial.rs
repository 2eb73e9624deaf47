//! Determines which of the later requests changed, if only a part of them did. An explanation must
//! then separate these from the other later requests. Separating the periods is not enough: a
//! property of every second user, for example, is equally frequent in both.
//!
//! The boundary is the time beyond which the fraction of the later requests exceeds that of the
//! earlier ones most, the point of the one-sided Kolmogorov–Smirnov statistic. For faster requests,
//! it is the time below which it does.

/// Boundary between the times of unchanged and of changed later requests.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PartialChange {
    /// Boundary in ns. Changed requests take longer than this, or less if they became faster.
    pub boundary_ns: f64,
    /// True if changed requests take longer.
    pub is_slower: bool,
    /// Fractions of the sampled earlier and of the sampled later requests beyond the boundary.
    pub shares: [f64; 2],
}

/// Minimum excess of the later fraction over the earlier one. A smaller change is negligible.
const EXCESS_MIN: f64 = 0.02;
/// Maximum ratio of the earlier fraction beyond the boundary to the later one.
const UNCHANGED_MAX: f64 = 0.25;
/// Maximum fraction of the later requests beyond the boundary of a partial change.
const SHARE_MAX: f64 = 0.9;

impl PartialChange {
    /// Finds the boundary from the times of earlier and of later requests, in ns. Returns `None` if
    /// a period has no requests, if too few or nearly all of the later requests are beyond the
    /// boundary, or if too many earlier ones are.
    pub(super) fn of([mut earlier, mut later]: [Vec<f64>; 2]) -> Option<PartialChange> {
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        if earlier.is_empty() || later.is_empty() {
            return None;
        }
        let is_slower = mean(&later) > mean(&earlier);
        // Negation turns faster requests into slower ones.
        for times in [&mut earlier, &mut later] {
            if !is_slower {
                times.iter_mut().for_each(|time| *time = -*time);
            }
            times.sort_unstable_by(f64::total_cmp);
        }
        let (boundary, shares) = parting(&earlier, &later);
        let is_partial = shares[1] - shares[0] >= EXCESS_MIN
            && shares[0] <= UNCHANGED_MAX * shares[1]
            && shares[1] <= SHARE_MAX;
        is_partial.then_some(PartialChange {
            boundary_ns: boundary.abs(),
            is_slower,
            shares,
        })
    }

    /// Reports whether a request with this time is a changed one.
    pub fn holds(&self, time_ns: f64) -> bool {
        if self.is_slower {
            time_ns > self.boundary_ns
        } else {
            time_ns < self.boundary_ns
        }
    }
}

/// Returns the time beyond which the fraction of `later` exceeds that of `earlier` most, and the
/// fractions of both. Of several such times, returns the largest. Both lists are sorted.
fn parting(earlier: &[f64], later: &[f64]) -> (f64, [f64; 2]) {
    let (mut at_earlier, mut at_later) = (0, 0);
    let mut best = (f64::NEG_INFINITY, i128::MIN, [1.0, 1.0]);
    while at_earlier < earlier.len() || at_later < later.len() {
        let next = |times: &[f64], at: usize| times.get(at).copied().unwrap_or(f64::INFINITY);
        let time = next(earlier, at_earlier).min(next(later, at_later));
        let passed =
            |times: &[f64], at: usize| at + times[at..].partition_point(|own| *own <= time);
        at_earlier = passed(earlier, at_earlier);
        at_later = passed(later, at_later);
        let beyond = [earlier.len() - at_earlier, later.len() - at_later];
        // Difference of the fractions times both counts, as an exact integer, so that ties are
        // exact.
        let excess =
            beyond[1] as i128 * earlier.len() as i128 - beyond[0] as i128 * later.len() as i128;
        if excess >= best.1 {
            let share = |at: usize, of: &[f64]| beyond[at] as f64 / of.len() as f64;
            best = (time, excess, [share(0, earlier), share(1, later)]);
        }
    }
    (best.0, best.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(earlier: &[f64], later: &[f64]) -> Option<PartialChange> {
        PartialChange::of([earlier.to_vec(), later.to_vec()])
    }

    #[test]
    fn a_part_of_the_later_requests_is_told() {
        let earlier: Vec<f64> = (0..100).map(f64::from).collect();
        let half: Vec<f64> = (0..100).map(|at| f64::from(at + at % 2 * 200)).collect();
        let expected = PartialChange {
            boundary_ns: 99.0,
            is_slower: true,
            shares: [0.0, 0.5],
        };
        assert_eq!(of(&earlier, &half), Some(expected));
        // One in twenty.
        let few: Vec<f64> = (0..100)
            .map(|at| f64::from(at + i32::from(at % 20 == 0) * 200))
            .collect();
        assert_eq!(of(&earlier, &few).map(|it| it.shares), Some([0.0, 0.05]));
        // All or nearly all of them, and none at all.
        let all = |by: f64| -> Vec<f64> { earlier.iter().map(|time| time + by).collect() };
        assert_eq!(of(&earlier, &all(200.0)), None);
        assert_eq!(of(&earlier, &all(95.0)), None);
        assert_eq!(of(&earlier, &earlier), None);
        assert_eq!(of(&earlier, &[]), None);
        // Some became faster.
        let slow = all(500.0);
        let faster: Vec<f64> = (0..100)
            .map(|at| f64::from(500 + at - at % 2 * 510))
            .collect();
        let found = of(&slow, &faster).unwrap();
        assert!(!found.is_slower && found.shares == [0.0, 0.5], "{found:?}");
        assert_eq!(faster.iter().filter(|time| found.holds(**time)).count(), 50);
        assert_eq!(slow.iter().filter(|time| found.holds(**time)).count(), 0);
    }

    /// Returns the largest difference of the fractions beyond a time, by trying each time.
    fn parting_one_by_one(earlier: &[f64], later: &[f64]) -> f64 {
        let beyond = |times: &[f64], boundary: f64| {
            times.iter().filter(|time| **time > boundary).count() as f64 / times.len() as f64
        };
        let all = earlier.iter().chain(later);
        all.map(|time| beyond(later, *time) - beyond(earlier, *time))
            .fold(f64::NEG_INFINITY, f64::max)
    }

    #[test]
    fn it_parts_where_one_by_one_finds_it() {
        let mut state = 7u64;
        let mut below = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        for _ in 0..500 {
            // Few values, so that many are alike.
            let mut times = |from: u64| -> Vec<f64> {
                let count = 1 + below(30);
                let mut times: Vec<f64> = (0..count).map(|_| (from + below(12)) as f64).collect();
                times.sort_unstable_by(f64::total_cmp);
                times
            };
            let (earlier, later) = (times(0), times(3));
            let (boundary, shares) = parting(&earlier, &later);
            let expected = parting_one_by_one(&earlier, &later);
            assert!((shares[1] - shares[0] - expected).abs() < 1e-9);
            let beyond = later.iter().filter(|time| **time > boundary).count();
            assert!((shares[1] - beyond as f64 / later.len() as f64).abs() < 1e-9);
        }
    }
}
