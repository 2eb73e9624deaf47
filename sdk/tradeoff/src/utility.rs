//! Utility of latency, quality and instances, and the resulting decisions (§4.3.3.3).

use crate::performance::PerformanceModel;
use crate::quality::QualityModel;

/// Piecewise linear function: pairs of argument and value, by ascending argument. The function is
/// constant beyond its ends.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Piecewise(pub Vec<(f64, f64)>);

impl Piecewise {
    /// Returns the value at an argument, by linear interpolation; 0 if there are no pairs.
    #[must_use]
    pub fn at(&self, argument: f64) -> f64 {
        let next = self.0.partition_point(|(known, _)| *known < argument);
        let left = next.checked_sub(1).and_then(|left| self.0.get(left));
        match (left, self.0.get(next)) {
            (None, None) => 0.0,
            (Some(&(_, only)), None) | (None, Some(&(_, only))) => only,
            (Some(&(from, low)), Some(&(to, high))) => {
                low + (argument - from) / (to - from) * (high - low)
            }
        }
    }
}

/// Utility function of the operator. Its utilities and costs share one unit, which the operator
/// chooses.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Utility {
    /// Utility of one request, by its latency in ns.
    pub of_latency: Piecewise,
    /// Utility of one request, by its mean quality drop.
    pub of_drop: Piecewise,
    /// Cost of one instance per second.
    pub instance_per_second: f64,
    /// Current number of instances; 0 counts as 1. The service's requests are spread evenly over
    /// them.
    pub instances: u32,
    /// Maximum number of instances that the service may have.
    pub instances_max: u32,
}

/// Decision with the highest utility at a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UtilityDecision {
    /// Best tradeoff rate with the current instances.
    pub rate: f64,
    /// Predicted latency in ns; infinite if the load exceeds the measurements at every rate.
    pub predicted_ns: f64,
    /// Utility per second at this rate, minus the cost of instances.
    pub per_second: f64,
    /// Best utility per second with one more instance; `None` at the maximum number.
    pub with_one_more: Option<f64>,
    /// Best utility per second with one instance fewer; `None` if there is only one.
    pub with_one_less: Option<f64>,
}

/// Change of the number of instances that increases the utility.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capacity {
    /// Add one instance.
    Add,
    /// Remove one instance.
    Remove,
}

/// Minimum gain of a change, as a fraction of the current utility; a smaller gain is noise.
const WORTHWHILE: f64 = 0.02;

impl UtilityDecision {
    /// Returns the change of the number of instances that increases the utility by more than 2 %,
    /// if any.
    #[must_use]
    pub fn advised(&self) -> Option<Capacity> {
        let needed = self.per_second + WORTHWHILE * self.per_second.abs();
        let (more, less) = (self.with_one_more, self.with_one_less);
        match (more, less) {
            (Some(more), _) if more > needed && less.is_none_or(|less| more >= less) => {
                Some(Capacity::Add)
            }
            (_, Some(less)) if less > needed => Some(Capacity::Remove),
            _ => None,
        }
    }
}

impl Utility {
    /// Returns the best tradeoff rate, up to `rate_max`, and the utility with one instance more or
    /// less. `requests_per_second` is the load of one instance.
    #[must_use]
    pub fn decide(
        &self,
        performance: &PerformanceModel,
        quality: &QualityModel,
        rate_max: f64,
        requests_per_second: f64,
    ) -> UtilityDecision {
        let instances = self.instances.max(1);
        let all = requests_per_second * f64::from(instances);
        let with = |count: u32| self.best(performance, quality, rate_max, (all, count));
        let (rate, predicted_ns, per_second) = with(instances);
        UtilityDecision {
            rate,
            predicted_ns,
            per_second,
            with_one_more: (instances < self.instances_max).then(|| with(instances + 1).2),
            with_one_less: (instances > 1).then(|| with(instances - 1).2),
        }
    }

    /// Returns the best rate, its latency and its utility per second if `all` requests per second
    /// are spread over `instances`. It compares 51 evenly spaced rates from 0 to `rate_max`.
    fn best(
        &self,
        performance: &PerformanceModel,
        quality: &QualityModel,
        rate_max: f64,
        (all, instances): (f64, u32),
    ) -> (f64, f64, f64) {
        const STEPS: u32 = 50;
        let share = all / f64::from(instances);
        let paid = f64::from(instances) * self.instance_per_second;
        let candidates = (0..=STEPS).filter_map(|step| {
            let rate = rate_max * f64::from(step) / f64::from(STEPS);
            let latency_ns = performance.latency_ns(share, rate);
            // At an infinite latency, the load exceeds the capacity: responses at the end of
            // growing queues are worth nothing, regardless of their quality.
            latency_ns.is_finite().then(|| {
                let drop = quality.mean_drop(rate);
                let of_request = self.of_latency.at(latency_ns) + self.of_drop.at(drop);
                (rate, latency_ns, all * of_request - paid)
            })
        });
        // Prefers the first of equal candidates, which gives up less. If the load exceeds the
        // capacity at every rate, it returns the maximum rate.
        let best = candidates.reduce(|best, next| if next.2 > best.2 { next } else { best });
        best.unwrap_or((rate_max, f64::INFINITY, -paid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Curve, Goal, PointPolicy, QualityDrop};

    fn point() -> PointPolicy {
        let drop = |tradeoff_rate, mean_drop| QualityDrop {
            tradeoff_rate,
            requests: 100,
            share_with_drop: 0.1,
            mean_drop,
            random_share_with_drop: 0.2,
            random_mean_drop: mean_drop * 2.0,
        };
        PointPolicy {
            point: "ranker.candidates".to_owned(),
            performance: PerformanceModel::new(
                0.5,
                vec![
                    Curve::new(0.0, [(10.0, 20e6), (20.0, 30e6), (25.0, 200e6)]),
                    Curve::new(0.5, [(10.0, 12e6), (40.0, 30e6), (45.0, 200e6)]),
                ],
            ),
            quality: QualityModel {
                schema: vec![],
                intercept: 0.0,
                weights: vec![],
                drops: vec![drop(0.5, 2.0)],
            },
            goal: Goal::Full,
            rate_max: 0.5,
        }
    }

    fn decide(utility: &Utility, point: &PointPolicy, per_second: f64) -> UtilityDecision {
        utility.decide(
            &point.performance,
            &point.quality,
            point.rate_max,
            per_second,
        )
    }

    fn utility() -> Utility {
        Utility {
            of_latency: Piecewise(vec![(30e6, 1.0), (100e6, 0.0)]),
            of_drop: Piecewise(vec![(0.0, 1.0), (2.0, 0.2)]),
            instance_per_second: 8.0,
            instances: 1,
            instances_max: 2,
        }
    }

    #[test]
    fn linear_inside_and_level_outside() {
        let function = Piecewise(vec![(1.0, 10.0), (3.0, 20.0)]);
        assert_eq!(
            [0.0, 1.0, 2.0, 3.0, 9.0].map(|x| function.at(x)),
            [10.0, 10.0, 15.0, 20.0, 20.0]
        );
        assert_eq!(function.at(f64::INFINITY), 20.0);
        assert_eq!(Piecewise::default().at(1.0), 0.0);
    }

    #[test]
    fn quiet_hours_need_no_tradeoff_and_a_rush_needs_a_machine() {
        let (point, utility) = (point(), utility());
        let quiet = decide(&utility, &point, 10.0);
        assert_eq!((quiet.rate, quiet.advised()), (0.0, None));
        let rush = decide(&utility, &point, 38.0);
        assert!(rush.rate > 0.4, "{rush:?}");
        assert_eq!(rush.advised(), Some(Capacity::Add));
        let two = Utility {
            instances: 2,
            ..utility
        };
        assert_eq!(decide(&two, &point, 19.0).advised(), None);
        assert_eq!(decide(&two, &point, 4.0).advised(), Some(Capacity::Remove));
    }

    #[test]
    fn answers_that_never_come_are_worth_nothing_however_good() {
        let (point, utility) = (point(), utility());
        // The load exceeds the capacity at full fidelity, but not at every tradeoff rate.
        let load = (10..1_000)
            .map(f64::from)
            .find(|load| point.performance.latency_ns(*load, 0.0).is_infinite())
            .expect("some load is too much");
        let decided = decide(&utility, &point, load);
        assert!(decided.rate > 0.0, "{decided:?}");
        assert!(decided.predicted_ns.is_finite(), "{decided:?}");
    }

    #[test]
    fn the_best_rate_is_the_best_of_a_fine_search() {
        let (point, utility) = (point(), utility());
        for load in [5.0, 15.0, 22.0, 30.0, 41.0, 60.0] {
            let best = (0..=500)
                .map(|step| 0.5 * f64::from(step) / 500.0)
                .filter(|rate| point.performance.latency_ns(load, *rate).is_finite())
                .map(|rate| {
                    let of_latency = utility
                        .of_latency
                        .at(point.performance.latency_ns(load, rate));
                    load * (of_latency + utility.of_drop.at(point.quality.mean_drop(rate))) - 8.0
                })
                .fold(f64::NEG_INFINITY, f64::max);
            if best == f64::NEG_INFINITY {
                let beyond = decide(&utility, &point, load);
                assert_eq!((beyond.rate, beyond.per_second), (0.5, -8.0));
                continue;
            }
            let decided = decide(&utility, &point, load).per_second;
            assert!(
                decided >= best - 0.02 * best.abs() && decided <= best + 1e-9,
                "{load}: {decided} {best}"
            );
        }
    }
}
