//! Difference between the two sides of an experiment, with its certainty (Ardelean et al., NSDI
//! 2018, §3.1 and §3.2). The requests of control and test are recorded at the same time.
//!
//! Requests are not independent. The requests of one user (or of one process: the unit that was
//! assigned to a side) are alike, and users differ by orders of magnitude; the requests of one
//! burst meet the same load. So the analysis counts *clusters*: the variance is the jackknife's,
//! over units, and over bursts, minus the part that both count (two-way clusters: Cameron, Gelbach
//! and Miller, 2011). Student's t takes as many degrees of freedom as there are units that matter,
//! not as there are requests.
//!
//! A percentile is compared by counting. If test is δ slower, then of test's requests, each made
//! faster by δ, as many exceed the percentile of all as of control's. The interval is every δ that
//! this test does not reject. It needs no estimate of a density and no random draws.

use std::collections::HashMap;

use crate::statistics::student_two_sided;

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
    /// Number of the unit that was assigned to a side, such as a user or a process. Each request
    /// has its own number where the unit is not known.
    pub unit: u64,
    /// Number of the burst that recorded the request.
    pub burst: u64,
    /// True for a request of the test, false for one of the control.
    pub is_test: bool,
    /// Latency of the request.
    pub latency_ns: u64,
}

/// The statistic to compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// The mean of all requests.
    Mean,
    /// The quantile at this fraction of the requests (0 to 1): 0.5 is the median.
    Quantile(f64),
}

/// Reason why a metric cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoComparison {
    /// One side has no requests, or one of its units has them all.
    OneSided {
        /// Units of the control.
        control: usize,
        /// Units of the test.
        test: usize,
    },
    /// Too few units, or bursts, account for the difference: their common random variation cannot
    /// be distinguished from the change.
    FewClusters {
        /// Number of equal clusters that would vary as much.
        effective: f64,
        /// True if the clusters are units, false if they are bursts.
        of_units: bool,
    },
    /// Too few requests of a side are above the percentile for a reliable count.
    FewAbove {
        /// Requests of the side with fewer.
        requests: usize,
        /// Number of requests needed.
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
    /// Confidence interval of the ratio of test to control, minus 1: 0.05 is slower by 5 %. A limit
    /// that the data do not bound is infinite, or −1.
    pub interval: (f64, f64),
    /// Probability of such a difference if there is no effect.
    pub p_value: f64,
    /// Number of equal clusters, of units and bursts, that would vary as much.
    pub effective_clusters: f64,
    /// Standard error of the logarithm of the ratio of test to control.
    pub standard_error: f64,
}

impl Effect {
    /// Returns the ratio of test to control, minus 1.
    pub fn difference(&self) -> f64 {
        self.test_ns / self.control_ns - 1.0
    }

    /// Returns the probability that an experiment of as many requests, units and bursts detects a
    /// relative difference of `difference`.
    pub fn power(&self, difference: f64, alpha: f64) -> f64 {
        let freedom = (self.effective_clusters - 1.0).max(1.0);
        power(
            (1.0 + difference).ln().abs() / self.standard_error,
            freedom,
            alpha,
        )
    }

    /// Returns the factor by which requests must grow (with units and bursts in proportion) to
    /// detect a relative difference of `difference` in four of five experiments. It accounts for
    /// the uncertainty of the standard error, now and in the larger experiment.
    pub fn times_needed(&self, difference: f64, alpha: f64) -> f64 {
        const WANTED: f64 = 0.8;
        let away = (1.0 + difference).ln().abs() / self.standard_error;
        let freedom = (self.effective_clusters - 1.0).max(1.0);
        let of_times = |times: f64| {
            let then = freedom * times;
            // The logarithm of a standard error of n degrees of freedom has variance 1/2n.
            // Integrate over a normal distribution, by Gauss and Hermite's three points.
            let apart = (3.0 * (0.5 / freedom + 0.5 / then)).sqrt();
            let at = |by: f64| power(away * times.sqrt() * by.exp(), then, alpha);
            at(0.0) * 2.0 / 3.0 + (at(-apart) + at(apart)) / 6.0
        };
        // Fewer clusters allow no statement at all.
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

/// Returns the probability of detecting an effect that lies that many standard errors from 0.
fn power(away: f64, freedom: f64, alpha: f64) -> f64 {
    let certain = quantile_of_student(alpha, freedom);
    let beyond = |t: f64| {
        let tail = student_two_sided(t.abs(), freedom) / 2.0;
        if t > 0.0 { tail } else { 1.0 - tail }
    };
    beyond(certain - away) + beyond(certain + away)
}

/// Returns the share of the error budget for this look: 6/π²k² of it, which over all k sums up to
/// the whole. The first look is assumed to be the only one.
pub fn alpha_of_look(alpha: f64, look: u32) -> f64 {
    match look {
        0 | 1 => alpha,
        look => alpha * 6.0 / (std::f64::consts::PI * f64::from(look)).powi(2),
    }
}

/// Minimum number of effective clusters; fewer do not show how others would vary.
pub const CLUSTERS_MIN: f64 = 2.0;

/// Minimum number of a side's requests above a percentile; fewer do not show where it lies.
pub const ABOVE_MIN: usize = 10;

/// Requests of both sides, ready for comparison.
#[derive(Debug)]
pub struct Experiment {
    /// Requests of the control, ascending by latency; so are those of the test.
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

/// Numbers keys from 0, in the order of their first use.
fn number<K: std::hash::Hash + Eq>(known: &mut HashMap<K, u32>, key: K) -> u32 {
    let next = known.len() as u32;
    *known.entry(key).or_insert(next)
}

impl Experiment {
    /// Sorts and numbers the requests. A unit that has requests on both sides counts as two.
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

    /// Returns the number of requests of control and test.
    pub fn requests(&self) -> (usize, usize) {
        (self.control.len(), self.test.len())
    }

    /// Returns the number of units of control and test.
    pub fn units(&self) -> (usize, usize) {
        self.units_of
    }

    /// Returns the number of bursts with any request.
    pub fn bursts(&self) -> usize {
        self.bursts
    }

    /// Computes the difference of a metric, between limits that hold the true value with
    /// probability 1 − `alpha`.
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
        let p_of = |shift: f64| self.spread(metric, shift).p_value();
        let found = (test_ns.max(1.0) / control_ns.max(1.0)).ln();
        let (low, high) = interval_of(p_of, found, alpha);
        let freedom = at_none.freedom();
        let standard_error = (high - low) / 2.0 / quantile_of_student(alpha, freedom);
        Ok(Effect {
            control_ns,
            test_ns,
            interval: (low.exp_m1(), high.exp_m1()),
            p_value: at_none.p_value(),
            effective_clusters: freedom + 1.0,
            standard_error,
        })
    }

    /// Computes only the p-value of [`Experiment::effect`], which is faster.
    pub fn p_value(&self, metric: Metric) -> f64 {
        self.spread(metric, 0.0).p_value()
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

    /// Computes the distance between the sides, and its variation by cluster, with each of test's
    /// requests made faster by a factor of e^shift.
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

    /// Returns the quantile of both sides together, with equal total weights.
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

/// Computes the metric of requests in ascending order.
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

/// Returns the t that is exceeded, on either side, with probability `alpha`.
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
