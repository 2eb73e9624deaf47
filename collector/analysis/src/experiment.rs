//! Measures the difference between the two sides of an experiment, and its significance (Ardelean
//! et al., NSDI 2018, §3.1 and §3.2). The sides are the control and the test, whose requests are
//! recorded at the same time.
//!
//! Requests are not independent. A *unit* is what was assigned to a side, such as a user or a
//! process. The requests of one unit are alike, while units may differ by orders of magnitude. The
//! requests of one burst meet the same load. The analysis therefore works with *clusters* of
//! requests. The variance is the jackknife's over units plus that over bursts, minus the part that
//! both include, but at least the larger of the two (two-way clusters: Cameron, Gelbach and Miller,
//! 2011). The degrees of freedom of Student's t follow from the effective number of clusters, not
//! from the number of requests.
//!
//! A percentile is compared by counting. Suppose that the test is slower by a factor e^δ. Once each
//! of its requests is made faster by e^δ, equal shares of both sides' requests must exceed the
//! percentile of all requests. The confidence interval is the range of δ around the estimate that
//! this test does not reject. The method needs no estimate of a density and no random draws. The
//! interval excludes 0 if and only if the p-value is below the level of significance.

use crate::statistics::student_two_sided;
use std::collections::HashMap;

mod clusters;
mod interval;
mod noise;
mod one_off;

#[cfg(test)]
mod tests;

use clusters::{Clusters, Count, Spread};
use interval::interval_of;
pub use noise::{NOISE_UNITS_MIN, Noise, noise};
pub use one_off::{LeftOutTime, OneOff, TimedRequest, one_offs};

/// One request of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExperimentRequest {
    /// Number of the unit that was assigned to a side, such as a user or a process. If units are
    /// unknown, each request has its own number.
    pub unit: u64,
    /// Number of the last burst that opened by the request's start. If fewer than two bursts were
    /// recorded, number of the block of time in which the request began.
    pub burst: u64,
    /// True for a request of the test side, false for one of the control side.
    pub is_test: bool,
    /// Latency of the request in nanoseconds.
    pub latency_ns: u64,
}

/// The statistic to compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// The mean latency of a side's requests.
    Mean,
    /// The latency at this quantile (0 to 1) of a side's requests: 0.5 is the median.
    Quantile(f64),
}

/// Reason why a metric cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoComparison {
    /// A side has no requests, or a single unit has all of its requests.
    OneSided {
        /// Number of units of the control.
        control: usize,
        /// Number of units of the test.
        test: usize,
    },
    /// Too few units or bursts account for the difference. The variation between them cannot be
    /// distinguished from the change.
    FewClusters {
        /// Effective number of clusters: the number of equal clusters with the same variation.
        effective: f64,
        /// True if the clusters are units, false if they are bursts.
        of_units: bool,
    },
    /// A side has too few requests above or below the percentile.
    FewAbove {
        /// Number of requests of the side with fewer requests.
        requests: usize,
        /// Number of requests that the side needs.
        needed: usize,
    },
}

/// Difference of a metric between the sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The control's value, in ns.
    pub control_ns: f64,
    /// The test's value, in ns.
    pub test_ns: f64,
    /// Confidence interval of the ratio of test to control, minus 1: 0.05 is slower by 5 %. An
    /// upper limit that the data do not bound is infinite, and a lower one is −1. Excludes 0 if and
    /// only if `p_value` is below the level of significance.
    pub interval: (f64, f64),
    /// Probability of a difference of this size or more without effect; 1 if both sides are equal.
    pub p_value: f64,
    /// Effective number of clusters: the smaller of the effective numbers of units and of bursts.
    pub effective_clusters: f64,
    /// Standard error of the logarithm of the ratio of test to control; infinite if the data do not
    /// bound `interval`.
    pub standard_error: f64,
}

impl Effect {
    /// Returns the ratio of test to control, minus 1.
    pub fn difference(&self) -> f64 {
        self.test_ns / self.control_ns - 1.0
    }

    /// Returns the probability that an experiment with the same numbers of requests, units and
    /// bursts detects a relative difference of `difference` at the significance level `alpha`.
    pub fn power(&self, difference: f64, alpha: f64) -> f64 {
        let freedom = (self.effective_clusters - 1.0).max(1.0);
        let away = (1.0 + difference).ln().abs() / self.standard_error;
        power(away, freedom, alpha)
    }

    /// Returns the factor by which the numbers of requests, units and bursts must change to detect
    /// a relative difference of `difference`; at most e³⁰. At the significance level `alpha`, four
    /// of five such experiments then detect it. The factor accounts for the uncertainty of the
    /// standard error, now and in the other experiment.
    pub fn times_needed(&self, difference: f64, alpha: f64) -> f64 {
        const WANTED: f64 = 0.8;
        let away = (1.0 + difference).ln().abs() / self.standard_error;
        let freedom = (self.effective_clusters - 1.0).max(1.0);
        let of_times = |times: f64| {
            let then = freedom * times;
            // The logarithm of a standard error with n degrees of freedom has variance ≈ 1/(2n).
            // Integrate over a normal distribution with the three points of Gauss and Hermite.
            let apart = (3.0 * (0.5 / freedom + 0.5 / then)).sqrt();
            let at = |by: f64| power(away * times.sqrt() * by.exp(), then, alpha);
            at(0.0) * 2.0 / 3.0 + (at(-apart) + at(apart)) / 6.0
        };
        // Keep `CLUSTERS_MIN` degrees of freedom, or all if there are fewer, so that a comparison
        // stays possible.
        let (mut low, mut high) = ((CLUSTERS_MIN / freedom).ln().min(0.0), 30.0_f64);
        while high - low > 0.001 {
            let middle = (low + high) / 2.0;
            match of_times(middle.exp()) < WANTED {
                true => low = middle,
                false => high = middle,
            }
        }
        high.exp()
    }
}

/// Returns the probability of detecting an effect that is `away` standard errors from 0.
fn power(away: f64, freedom: f64, alpha: f64) -> f64 {
    let certain = quantile_of_student(alpha, freedom);
    let beyond = |t: f64| {
        let tail = student_two_sided(t.abs(), freedom) / 2.0;
        if t > 0.0 { tail } else { 1.0 - tail }
    };
    beyond(certain - away) + beyond(certain + away)
}

/// Returns the significance level for the k-th look at a running experiment. Looks after the first
/// have 6/(π²k²) of `alpha`, which would sum up to `alpha` over all k. The first look has all of
/// `alpha`, as it is assumed to be the only one.
pub fn alpha_of_look(alpha: f64, look: u32) -> f64 {
    match look {
        0 | 1 => alpha,
        look => alpha * 6.0 / (std::f64::consts::PI * f64::from(look)).powi(2),
    }
}

/// Minimum effective number of clusters. Fewer do not show how other clusters would vary.
pub const CLUSTERS_MIN: f64 = 2.0;

/// Minimum number of a side's requests expected above a percentile, and below it. With fewer, its
/// value is too uncertain.
pub const ABOVE_MIN: usize = 10;

/// Requests of both sides, ready for comparison.
#[derive(Debug)]
pub struct Experiment {
    /// Requests of the control. They are in ascending order of latency, like those of the test.
    control: Vec<ClusteredRequest>,
    test: Vec<ClusteredRequest>,
    units: usize,
    bursts: usize,
    cells: usize,
    units_of: (usize, usize),
}

/// A request with the numbers of its clusters.
#[derive(Clone, Copy, Debug)]
struct ClusteredRequest {
    latency_ns: f64,
    unit: u32,
    burst: u32,
    /// Number of the pair of unit and burst.
    cell: u32,
}

/// Returns the number of a key. New keys get the next number, from 0 on.
fn number<K: std::hash::Hash + Eq>(known: &mut HashMap<K, u32>, key: K) -> u32 {
    let next = known.len() as u32;
    *known.entry(key).or_insert(next)
}

impl Experiment {
    /// Creates an experiment from requests in any order. A unit on both sides counts as two.
    pub fn new(requests: impl IntoIterator<Item = ExperimentRequest>) -> Experiment {
        let (mut units, mut bursts, mut cells) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (mut control, mut test) = (Vec::new(), Vec::new());
        for request in requests {
            let unit = number(&mut units, (request.unit, request.is_test));
            let burst = number(&mut bursts, request.burst);
            let cell = number(&mut cells, (unit, burst));
            let side = match request.is_test {
                true => &mut test,
                false => &mut control,
            };
            side.push(ClusteredRequest {
                latency_ns: request.latency_ns as f64,
                unit,
                burst,
                cell,
            });
        }
        for side in [&mut control, &mut test] {
            side.sort_by(|a, b| a.latency_ns.total_cmp(&b.latency_ns));
        }
        let of_test = units.keys().filter(|(_, is_test)| *is_test).count();
        Experiment {
            control,
            test,
            units: units.len(),
            bursts: bursts.len(),
            cells: cells.len(),
            units_of: (units.len() - of_test, of_test),
        }
    }

    /// Returns the numbers of requests of the control and of the test.
    pub fn requests(&self) -> (usize, usize) {
        (self.control.len(), self.test.len())
    }

    /// Returns the numbers of units of the control and of the test.
    pub fn units(&self) -> (usize, usize) {
        self.units_of
    }

    /// Returns the number of bursts that recorded any request.
    pub fn bursts(&self) -> usize {
        self.bursts
    }

    /// Computes the difference of a metric, with a confidence interval of level 1 − `alpha`.
    ///
    /// # Errors
    /// [`NoComparison`] if these requests do not suffice.
    pub fn effect(&self, metric: Metric, alpha: f64) -> Result<Effect, NoComparison> {
        let (control, test) = self.units_of;
        if control < 2 || test < 2 {
            return Err(NoComparison::OneSided { control, test });
        }
        self.enough_above(metric)?;
        let at_none = self.spread(metric, 0.0);
        for (of_units, effective) in [(true, at_none.units), (false, at_none.bursts)] {
            if effective < CLUSTERS_MIN {
                return Err(NoComparison::FewClusters {
                    effective,
                    of_units,
                });
            }
        }
        let control_ns = value(&self.control, metric);
        let test_ns = value(&self.test, metric);
        let found = (test_ns.max(1.0) / control_ns.max(1.0)).ln();
        let p_value = p_value(&at_none, (control_ns, test_ns));
        let is_held = |shift: f64| self.spread(metric, shift).p_value() >= alpha;
        let (low, high) = interval_of(is_held, found, p_value >= alpha);
        let freedom = at_none.freedom();
        let standard_error = (high - low) / 2.0 / quantile_of_student(alpha, freedom);
        Ok(Effect {
            control_ns,
            test_ns,
            interval: (low.exp_m1(), high.exp_m1()),
            p_value,
            effective_clusters: freedom + 1.0,
            standard_error,
        })
    }

    /// Computes only the p-value of [`Experiment::effect`], which is faster. Does not check that
    /// the requests suffice.
    pub fn p_value(&self, metric: Metric) -> f64 {
        let values = (value(&self.control, metric), value(&self.test, metric));
        p_value(&self.spread(metric, 0.0), values)
    }

    fn enough_above(&self, metric: Metric) -> Result<(), NoComparison> {
        let Metric::Quantile(part) = metric else {
            return Ok(());
        };
        let requests = self.control.len().min(self.test.len());
        let needed = (ABOVE_MIN as f64 / part.min(1.0 - part).max(1e-9)).round() as usize;
        match requests < needed {
            true => Err(NoComparison::FewAbove { requests, needed }),
            false => Ok(()),
        }
    }

    /// Computes the difference between the sides and its variation between clusters, with each
    /// latency of the test divided by e^`shift`. The difference is between the means, or between
    /// the shares of requests above the quantile of all requests.
    fn spread(&self, metric: Metric, shift: f64) -> Spread {
        let scale = (-shift).exp();
        let above = match metric {
            Metric::Mean => None,
            Metric::Quantile(part) => Some(self.quantile_of_all(part, scale)),
        };
        let count = |latency_ns: f64| match above {
            None => latency_ns,
            Some(limit) => f64::from(u8::from(latency_ns > limit)),
        };
        let mut clusters = Clusters::new(self.units, self.bursts, self.cells);
        for one in &self.control {
            clusters.add(one, Count::of_control(count(one.latency_ns)));
        }
        for one in &self.test {
            clusters.add(one, Count::of_test(count(one.latency_ns * scale)));
        }
        clusters.spread()
    }

    /// Returns the quantile of both sides together, in which both sides have equal total weight.
    /// Multiplies the latencies of the test by `scale`.
    fn quantile_of_all(&self, part: f64, scale: f64) -> f64 {
        let (n, m) = (self.control.len(), self.test.len());
        let (of_control, of_test) = (0.5 / n as f64, 0.5 / m as f64);
        let (mut i, mut j, mut seen) = (0, 0, 0.0);
        loop {
            let own = self.control.get(i).map(|one| one.latency_ns);
            let other = self.test.get(j).map(|one| one.latency_ns * scale);
            let latency_ns = match (own, other) {
                (Some(own), Some(other)) if own <= other => own,
                (_, Some(other)) => other,
                (Some(own), None) => own,
                (None, None) => return f64::INFINITY,
            };
            if own == Some(latency_ns) {
                (i, seen) = (i + 1, seen + of_control);
            } else {
                (j, seen) = (j + 1, seen + of_test);
            }
            if seen >= part - 1e-12 {
                return latency_ns;
            }
        }
    }
}

/// Returns the p-value of the difference of control and test; 1 if both are equal. If many
/// latencies are equal, the shares above a percentile can differ although the percentile does not.
fn p_value(at_none: &Spread, (control, test): (f64, f64)) -> f64 {
    match control == test {
        true => 1.0,
        false => at_none.p_value(),
    }
}

/// Computes a metric of requests in ascending order of latency, in ns.
fn value(sorted: &[ClusteredRequest], metric: Metric) -> f64 {
    match metric {
        Metric::Mean => {
            sorted.iter().map(|one| one.latency_ns).sum::<f64>() / sorted.len().max(1) as f64
        }
        Metric::Quantile(part) => {
            let place = (part * sorted.len() as f64).ceil() as usize;
            let place = place.clamp(1, sorted.len().max(1)) - 1;
            sorted.get(place).map_or(0.0, |one| one.latency_ns)
        }
    }
}

/// Returns the value that the magnitude of Student's t exceeds with probability `alpha`; at most
/// 10,000.
fn quantile_of_student(alpha: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e4);
    for _ in 0..80 {
        let middle: f64 = (low + high) / 2.0;
        match student_two_sided(middle, freedom) > alpha {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}
