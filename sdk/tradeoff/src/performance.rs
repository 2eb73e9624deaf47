//! Models latency as a function of request rate and tradeoff rate.

/// Fraction of a point's data to give up, with its predicted latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Fraction, 0 (full fidelity) to 1.
    pub rate: f64,
    /// Predicted latency in ns. Infinite if the load exceeds the measurements at this rate.
    pub predicted_ns: f64,
    /// True if the predicted latency meets the limit, or if there is no limit. If false, `rate` is
    /// the highest rate considered.
    pub is_met: bool,
}

/// One measurement of a load sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CurvePoint {
    /// Requests that arrived per second.
    pub requests_per_second: f64,
    /// Latency at the model's quantile, in ns.
    pub latency_ns: f64,
    /// Number of requests measured; 0 or 1 if unknown.
    pub requests: u64,
    /// Half the width of the latency's 95 % interval, in ns; 0 if unknown.
    pub error_ns: f64,
}

/// Latency by request rate at one tradeoff rate.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Curve {
    /// Fraction of items or calls that was given up, 0 to 1.
    pub tradeoff_rate: f64,
    /// Measurements by ascending request rate. In the result of [`of`](Self::of), latency never
    /// falls as the rate rises.
    pub points: Vec<CurvePoint>,
}

impl Curve {
    /// Creates a curve from pairs of request rate and latency (ns), in any order. If noise makes
    /// latency fall as the rate rises, the neighbouring points get their common mean (isotonic
    /// regression by pooling adjacent violators).
    #[must_use]
    pub fn new(tradeoff_rate: f64, measured: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = measured
            .into_iter()
            .map(|(requests_per_second, latency_ns)| CurvePoint {
                requests_per_second,
                latency_ns,
                requests: 1,
                error_ns: 0.0,
            });
        Self::of(tradeoff_rate, points.collect())
    }

    /// Creates a curve from measurements in any order, like [`new`](Self::new), but weights each
    /// measurement by its number of requests. A measurement of 0 requests has the weight 1.
    #[must_use]
    pub fn of(tradeoff_rate: f64, mut points: Vec<CurvePoint>) -> Self {
        points.sort_by(|a, b| a.requests_per_second.total_cmp(&b.requests_per_second));
        pool_adjacent_violators(&mut points);
        Self {
            tradeoff_rate,
            points,
        }
    }

    /// Returns the latency in ns at a request rate, by linear interpolation between measurements.
    /// Below the lowest measured rate, it is that measurement's latency; above the highest, it is
    /// infinite.
    #[must_use]
    pub fn latency_ns(&self, requests_per_second: f64) -> f64 {
        let next = self
            .points
            .partition_point(|point| point.requests_per_second < requests_per_second);
        let Some(right) = self.points.get(next) else {
            return f64::INFINITY;
        };
        let Some(left) = next.checked_sub(1).and_then(|left| self.points.get(left)) else {
            return right.latency_ns;
        };
        let width = right.requests_per_second - left.requests_per_second;
        let share = (requests_per_second - left.requests_per_second) / width;
        left.latency_ns + share * (right.latency_ns - left.latency_ns)
    }

    /// Returns the highest measured request rate; 0 if there is none.
    #[must_use]
    pub fn highest(&self) -> f64 {
        self.points
            .last()
            .map_or(0.0, |point| point.requests_per_second)
    }

    /// Returns the request rate, at most the highest measured one, up to which the latency does not
    /// exceed a limit, by linear interpolation. Returns `None` if every measurement exceeds the
    /// limit, or if there are no measurements.
    #[must_use]
    pub fn requests_per_second_within(&self, limit_ns: f64) -> Option<f64> {
        let beyond = self
            .points
            .partition_point(|point| point.latency_ns <= limit_ns);
        let left = self.points.get(beyond.checked_sub(1)?)?;
        let Some(right) = self.points.get(beyond) else {
            return Some(left.requests_per_second);
        };
        let share = (limit_ns - left.latency_ns) / (right.latency_ns - left.latency_ns);
        Some(
            left.requests_per_second
                + share * (right.requests_per_second - left.requests_per_second),
        )
    }
}

fn pool_adjacent_violators(points: &mut [CurvePoint]) {
    // Blocks of equal latency: (sum of weighted latencies, sum of weights, number of points).
    let mut blocks: Vec<(f64, f64, usize)> = Vec::with_capacity(points.len());
    for point in &*points {
        let weight = point.requests.max(1) as f64;
        let mut block = (point.latency_ns * weight, weight, 1);
        while let Some(&(sum, of, count)) = blocks.last()
            && sum / of > block.0 / block.1
        {
            blocks.pop();
            block = (block.0 + sum, block.1 + of, block.2 + count);
        }
        blocks.push(block);
    }
    let levels = blocks
        .iter()
        .flat_map(|&(sum, weight, count)| std::iter::repeat_n(sum / weight, count));
    for (point, level) in points.iter_mut().zip(levels) {
        point.latency_ns = level;
    }
}

/// Relative processing cost of the items of one class.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClassCost {
    /// Value of the discrete feature that defines the class.
    pub class: String,
    /// Cost relative to the mean of all items, which is 1.
    pub relative_cost: f64,
}

/// Latency by request rate and tradeoff rate (§4.3.2).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PerformanceModel {
    /// Quantile of the latencies in the curves; 0.5 is the median.
    pub quantile: f64,
    /// Curves by ascending tradeoff rate.
    pub curves: Vec<Curve>,
    /// Name of the discrete feature by which items differ in cost, and the cost of each of its
    /// values. `None` if no difference is known.
    pub class_costs: Option<(String, Vec<ClassCost>)>,
}

/// Step between the tradeoff rates that [`PerformanceModel::least_rate`] considers.
const STEP: f64 = 0.01;
/// Maximum relative error of a computed utilization.
const ROUNDING: f64 = 1e-9;

impl PerformanceModel {
    /// Creates a model from curves in any order, in which all items cost the same.
    #[must_use]
    pub fn new(quantile: f64, mut curves: Vec<Curve>) -> Self {
        curves.sort_by(|a, b| a.tradeoff_rate.total_cmp(&b.tradeoff_rate));
        Self {
            quantile,
            curves,
            class_costs: None,
        }
    }

    /// Returns the latency in ns at a request rate and a tradeoff rate.
    ///
    /// Between two curves, it reads both at the same utilization and interpolates linearly.
    /// Utilization is the request rate divided by the highest rate, whose reciprocal (the service
    /// time) is interpolated linearly. Outside all curves, the nearest curve applies. Above the
    /// highest request rate, the latency is unknown, so the result is infinite.
    #[must_use]
    pub fn latency_ns(&self, requests_per_second: f64, tradeoff_rate: f64) -> f64 {
        let next = self
            .curves
            .partition_point(|curve| curve.tradeoff_rate < tradeoff_rate);
        let left = next.checked_sub(1).and_then(|left| self.curves.get(left));
        let (left, right) = match (left, self.curves.get(next)) {
            (None, None) => return f64::INFINITY,
            (Some(only), None) | (None, Some(only)) => return only.latency_ns(requests_per_second),
            (Some(left), Some(right)) => (left, right),
        };
        let share =
            (tradeoff_rate - left.tradeoff_rate) / (right.tradeoff_rate - left.tradeoff_rate);
        if share >= 1.0 {
            return right.latency_ns(requests_per_second);
        }
        let (of_left, of_right) = (left.highest(), right.highest());
        let highest = 1.0 / ((1.0 - share) / of_left + share / of_right);
        let utilisation = requests_per_second / highest;
        // The highest rate of a curve without measurements is 0, so the utilization is NaN or too
        // high.
        if utilisation.is_nan() || utilisation > 1.0 + ROUNDING {
            return f64::INFINITY;
        }
        (1.0 - share) * left.latency_ns((utilisation * of_left).min(of_left))
            + share * right.latency_ns((utilisation * of_right).min(of_right))
    }

    /// Returns the lowest tradeoff rate, in steps of 0.01 up to `rate_max`, at which the latency
    /// stays within a limit. If no rate suffices, returns the last one, with [`Rate::is_met`]
    /// false.
    #[must_use]
    pub fn least_rate(&self, requests_per_second: f64, limit_ns: f64, rate_max: f64) -> Rate {
        // The last step is `rate_max` itself, also between two multiples.
        let steps = (rate_max / STEP - 1e-9).ceil() as u32;
        let mut last = Rate {
            rate: rate_max,
            predicted_ns: f64::INFINITY,
            is_met: false,
        };
        for step in 0..=steps {
            let rate = (f64::from(step) * STEP).min(rate_max);
            let predicted_ns = self.latency_ns(requests_per_second, rate);
            last = Rate {
                rate,
                predicted_ns,
                is_met: predicted_ns <= limit_ns,
            };
            if last.is_met {
                break;
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> PerformanceModel {
        PerformanceModel::new(
            0.5,
            vec![
                Curve::new(0.8, [(10.0, 4.0), (40.0, 8.0), (80.0, 20.0)]),
                Curve::new(0.0, [(30.0, 90.0), (10.0, 20.0)]),
            ],
        )
    }

    #[test]
    fn linear_between_what_was_measured_and_unknown_beyond() {
        let model = model();
        assert_eq!(model.latency_ns(20.0, 0.0), 55.0);
        assert_eq!(model.latency_ns(5.0, 0.0), 20.0);
        // At half the tradeoff rate, the highest load is 1 / mean(1/30, 1/80) requests per second.
        let highest = 2.0 / (1.0 / 30.0 + 1.0 / 80.0);
        assert!((model.latency_ns(highest * 0.999_999, 0.4) - 55.0).abs() < 0.001);
        assert!((model.latency_ns(highest / 2.0, 0.4) - (37.5 + 8.0) / 2.0).abs() < 0.001);
        assert_eq!(model.latency_ns(highest * 1.001, 0.4), f64::INFINITY);
        assert_eq!(model.latency_ns(31.0, 0.0), f64::INFINITY);
        // At the highest request rate itself, rounding makes no load too high.
        let half = Curve::new(0.5, [(10.0, 12.0), (30.0, 25.0)]);
        let of_both = PerformanceModel::new(0.5, vec![half, Curve::new(0.0, [(30.0, 90.0)])]);
        assert!((of_both.latency_ns(30.0, 0.23) - 60.1).abs() < 1e-6);
        let empty = PerformanceModel::new(
            0.5,
            vec![Curve::new(0.0, []), Curve::new(1.0, [(1.0, 1.0)])],
        );
        assert_eq!(empty.latency_ns(0.5, 0.5), f64::INFINITY);
        assert_eq!(model.latency_ns(40.0, 0.8), 8.0);
        assert_eq!(model.latency_ns(40.0, 1.0), 8.0);
        assert_eq!(
            PerformanceModel::new(0.5, vec![]).latency_ns(1.0, 0.0),
            f64::INFINITY
        );
    }

    #[test]
    fn the_least_rate_is_found_or_the_most_is_given() {
        let model = model();
        let full = model.least_rate(10.0, 25.0, 1.0);
        assert_eq!((full.rate, full.is_met), (0.0, true));
        let some = model.least_rate(20.0, 30.0, 1.0);
        assert!(some.is_met && some.predicted_ns <= 30.0);
        assert!(model.latency_ns(20.0, some.rate - STEP) > 30.0);
        let most = model.least_rate(20.0, 1.0, 0.6);
        assert_eq!((most.rate, most.is_met), (0.6, false));
        let beyond = model.least_rate(50.0, 30.0, 1.0);
        assert!(
            beyond.is_met && beyond.rate > 0.5 && beyond.rate < 0.8,
            "{beyond:?}"
        );
    }

    #[test]
    fn a_curve_never_falls_and_keeps_its_mean() {
        let curve = Curve::new(
            0.0,
            [(1.0, 5.0), (2.0, 9.0), (3.0, 6.0), (4.0, 3.0), (5.0, 20.0)],
        );
        let latencies: Vec<f64> = curve.points.iter().map(|point| point.latency_ns).collect();
        assert_eq!(latencies, [5.0, 6.0, 6.0, 6.0, 20.0]);
        assert_eq!(curve.requests_per_second_within(13.0), Some(4.5));
        assert_eq!(curve.requests_per_second_within(4.0), None);
        assert_eq!(curve.requests_per_second_within(99.0), Some(5.0));
    }
}
