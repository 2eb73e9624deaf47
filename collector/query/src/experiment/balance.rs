//! Checks that the sides are comparable: their shares of the users, their numbers of requests per
//! user, and their shares of operations.

use std::collections::HashMap;

use stroboscope_analysis::experiment::{Experiment, ExperimentRequest, Metric};
use stroboscope_analysis::statistics::{benjamini_hochberg, student_two_sided};

use super::gathered::SeenRequest;

/// Share of one root operation in the requests of each side, 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct MixOf {
    /// Root operation as `service:name`.
    pub root: String,
    /// Share of the control's requests.
    pub control: f64,
    /// Share of the test's requests.
    pub test: f64,
    /// Probability of a difference at least as large if users of both sides make the same requests.
    /// It is corrected for the number of operations.
    pub q_value: f64,
}

/// Comparison of the units found with the units assigned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UserBalance {
    /// Share of the units that was assigned to the test.
    pub assigned: f64,
    /// Share of the units that was found in the test.
    pub found: f64,
    /// Probability of a difference between `assigned` and `found` that is at least as large by
    /// chance.
    pub p_value: f64,
}

/// Comparison of the numbers of requests per unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadBalance {
    /// Geometric mean of the requests per unit of the control.
    pub control: f64,
    /// Geometric mean of the requests per unit of the test.
    pub test: f64,
    /// Probability of a difference at least as large if the units of both sides make requests
    /// equally often.
    pub p_value: f64,
}

/// Degrees of freedom at which Student's t distribution is practically normal.
const AS_NORMAL: f64 = 1e7;

impl UserBalance {
    pub(super) fn of((control, test): (usize, usize), assigned: f64) -> UserBalance {
        let count = (control + test) as f64;
        let found = test as f64 / count.max(1.0);
        let deviation = (assigned * (1.0 - assigned) / count.max(1.0)).sqrt();
        UserBalance {
            assigned,
            found,
            p_value: student_two_sided((found - assigned) / deviation, AS_NORMAL),
        }
    }
}

impl LoadBalance {
    pub(super) fn of(seen: &[SeenRequest]) -> Option<LoadBalance> {
        let mut counts: HashMap<(u64, bool), u64> = HashMap::new();
        for one in seen {
            let unit = (one.observed.unit, one.observed.is_test);
            *counts.entry(unit).or_default() += 1;
        }
        // Some units make a thousand times as many requests as others, so this compares logarithms,
        // in millionths.
        let scaled = |count: u64| (1e6 * (count as f64).ln()) as u64;
        let units = || {
            counts
                .iter()
                .map(|((unit, is_test), count)| ExperimentRequest {
                    unit: *unit,
                    burst: *unit,
                    is_test: *is_test,
                    latency_ns: scaled(*count),
                })
        };
        let average = |wanted: bool| {
            let own = units().filter(|one| one.is_test == wanted);
            let (count, sum) = own.fold((0_u64, 0.0), |(count, sum), one| {
                (count + 1, sum + one.latency_ns as f64 / 1e6)
            });
            (count > 0).then(|| (sum / count as f64).exp())
        };
        Some(LoadBalance {
            control: average(false)?,
            test: average(true)?,
            p_value: Experiment::new(units()).p_value(Metric::Mean),
        })
    }
}

/// Compares how often users of both sides request each operation. A request counts as a latency of
/// 1 if it is of the operation, and of 0 otherwise.
pub(super) fn mix(
    seen: &[SeenRequest],
    names: &[String],
    roots: &[u32],
    (control, test): (usize, usize),
) -> Vec<MixOf> {
    let parts = roots.iter().map(|root| {
        let is_own = |seen: &SeenRequest| ExperimentRequest {
            latency_ns: u64::from(seen.root == *root),
            ..seen.observed
        };
        let own = |is_test: bool| {
            let own = |seen: &&SeenRequest| seen.root == *root && seen.observed.is_test == is_test;
            seen.iter().filter(own).count() as f64
        };
        MixOf {
            root: names[*root as usize].clone(),
            control: own(false) / control.max(1) as f64,
            test: own(true) / test.max(1) as f64,
            q_value: Experiment::new(seen.iter().map(is_own)).p_value(Metric::Mean),
        }
    });
    let mut parts: Vec<MixOf> = parts.collect();
    let p_values: Vec<f64> = parts.iter().map(|part| part.q_value).collect();
    for (part, q_value) in parts.iter_mut().zip(benjamini_hochberg(&p_values)) {
        part.q_value = q_value;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_users_as_were_assigned_are_no_surprise() {
        let even = UserBalance::of((5_020, 4_980), 0.5);
        assert!(even.p_value > 0.5 && even.found == 0.498, "{even:?}");
        let lost = UserBalance::of((5_020, 4_600), 0.5);
        assert!(lost.p_value < 1e-4, "{lost:?}");
        assert!(UserBalance::of((9_010, 990), 0.1).p_value > 0.5);
    }

    #[test]
    fn users_who_ask_twice_as_often_are_another_load() {
        let seen = |twice: u64| -> Vec<SeenRequest> {
            let of = |unit: u64| {
                let is_test = unit % 2 == 1;
                let count = (1 + unit % 7) * if is_test { twice } else { 1 };
                (0..count).map(move |_| SeenRequest {
                    at_ns: 0,
                    root: 0,
                    observed: ExperimentRequest {
                        unit,
                        burst: 0,
                        is_test,
                        latency_ns: 1,
                    },
                })
            };
            (0..280).flat_map(of).collect()
        };
        let same = LoadBalance::of(&seen(1)).unwrap();
        assert!(same.p_value > 0.5, "{same:?}");
        let other = LoadBalance::of(&seen(2)).unwrap();
        assert!(other.p_value < 1e-6, "{other:?}");
        assert!((other.test / other.control - 2.0).abs() < 0.01);
        assert_eq!(LoadBalance::of(&[]), None);
    }
}
