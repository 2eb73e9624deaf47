//! Whether two sides of an experiment differ, by how much, and with what certainty (Modeling the performance of a large
//! system, 004 §3.1–3.2): requests of control and test, recorded at the same time.
//!
//! Requests are not independent. Those of one user (or of one process: whatever was assigned to a side) are alike, and
//! users differ by orders of magnitude; those of one burst meet the same load. So what counts are *clusters*: the variance is
//! the jackknife's, over units, and over bursts, less what both count (two-way clusters: Cameron, Gelbach and Miller,
//! 2011). Student's t takes as many degrees of freedom as there are units that matter, not as there are requests.
//!
//! A percentile is compared by counting: if test is δ slower, then of test's requests, each made faster by δ, as many are
//! above the percentile of all as of control's. The interval is every δ for which that is not refused; no density is
//! guessed, and nothing is drawn at random.

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
pub struct Observed {
    /// What was assigned to a side, by any number: a user, a process. Each request its own, where that is not known.
    pub unit: u64,
    /// Those of one number were recorded in the same burst.
    pub burst: u64,
    /// Of the test, or of the control.
    pub is_test: bool,
    /// How long it took.
    pub latency_ns: u64,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// The mean of all requests.
    Mean,
    /// That part of the requests is at most so slow: 0.5 is the median.
    Quantile(f64),
}

/// Why a metric is not compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unanswered {
    /// One side has no requests, or one of its units has them all.
    OneSided {
        /// Units of the control.
        control: usize,
        /// Units of the test.
        test: usize,
    },
    /// So few units, or bursts, make the difference that what they share by chance cannot be told from the change.
    FewClusters {
        /// As many equal ones would vary as these do.
        effective: f64,
        /// Whether they are units; otherwise bursts.
        of_units: bool,
    },
    /// Fewer requests of a side are above the percentile than can be counted with.
    FewAbove {
        /// Requests of the side with fewer.
        requests: usize,
        /// As many as are needed.
        needed: usize,
    },
}

/// How a metric differs between the sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The control's.
    pub control_ns: f64,
    /// The test's.
    pub test_ns: f64,
    /// Test to control, less 1: 0.05 is slower by 5 %. Between these it is, with the certainty that was asked; an end that
    /// the data do not bound is infinite, or −1.
    pub interval: (f64, f64),
    /// The probability of such a difference where there is none.
    pub p_value: f64,
    /// As many equal units, and bursts, would vary as these do.
    pub effective_clusters: f64,
    /// The standard error of the logarithm of test to control.
    pub standard_error: f64,
}

impl Effect {
    /// Test to control, less 1.
    pub fn difference(&self) -> f64 {
        self.test_ns / self.control_ns - 1.0
    }

    /// The probability that an experiment of as many requests, units and bursts shows a difference of this part.
    pub fn power(&self, difference: f64, alpha: f64) -> f64 {
        let freedom = (self.effective_clusters - 1.0).max(1.0);
        power(
            (1.0 + difference).ln().abs() / self.standard_error,
            freedom,
            alpha,
        )
    }

    /// How many times the requests (of as many more units, in as many more bursts) would show a difference of this part in
    /// four of five experiments. That the standard error is itself an estimate, here and then, is counted in.
    pub fn times_needed(&self, difference: f64, alpha: f64) -> f64 {
        const WANTED: f64 = 0.8;
        let away = (1.0 + difference).ln().abs() / self.standard_error;
        let freedom = (self.effective_clusters - 1.0).max(1.0);
        let of_times = |times: f64| {
            let then = freedom * times;
            // The logarithm of a standard error of n degrees of freedom varies by 1/2n; normal, by three points of Gauss and
            // Hermite.
            let apart = (3.0 * (0.5 / freedom + 0.5 / then)).sqrt();
            let at = |by: f64| power(away * times.sqrt() * by.exp(), then, alpha);
            at(0.0) * 2.0 / 3.0 + (at(-apart) + at(apart)) / 6.0
        };
        // Of fewer clusters nothing is said at all.
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

/// The probability that what lies so many standard errors from 0 is seen to.
fn power(away: f64, freedom: f64, alpha: f64) -> f64 {
    let certain = quantile_of_student(alpha, freedom);
    let beyond = |t: f64| {
        let tail = student_two_sided(t.abs(), freedom) / 2.0;
        if t > 0.0 { tail } else { 1.0 - tail }
    };
    beyond(certain - away) + beyond(certain + away)
}

/// What is left for this look of an error that all looks share: 6/π²k² of it, which for all k sums up to it. The first is taken
/// to be the only one.
pub fn alpha_of_look(alpha: f64, look: u32) -> f64 {
    match look {
        0 | 1 => alpha,
        look => alpha * 6.0 / (std::f64::consts::PI * f64::from(look)).powi(2),
    }
}

/// Fewer clusters than this say nothing of how others would vary.
pub const CLUSTERS_MIN: f64 = 2.0;

/// Fewer requests of a side above a percentile say nothing of where it lies.
pub const ABOVE_MIN: usize = 10;

/// Requests of both sides, ready to be compared.
#[derive(Debug)]
pub struct Experiment {
    /// Ascending.
    control: Vec<Placed>,
    test: Vec<Placed>,
    units: usize,
    bursts: usize,
    cells: usize,
    units_of: (usize, usize),
}

/// A request, by the numbers of its clusters.
#[derive(Clone, Copy, Debug)]
struct Placed {
    latency_ns: f64,
    unit: u32,
    burst: u32,
    /// Unit and burst.
    cell: u32,
}

/// Numbers from 0, in the order of their first use.
fn number<K: std::hash::Hash + Eq>(known: &mut HashMap<K, u32>, key: K) -> u32 {
    let next = known.len() as u32;
    *known.entry(key).or_insert(next)
}

impl Experiment {
    /// Puts requests in order. A unit that has requests on both sides counts as two.
    pub fn new(requests: impl IntoIterator<Item = Observed>) -> Experiment {
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
            side.push(Placed {
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

    /// Requests of control and test.
    pub fn requests(&self) -> (usize, usize) {
        (self.control.len(), self.test.len())
    }

    /// Units of control and test.
    pub fn units(&self) -> (usize, usize) {
        self.units_of
    }

    /// Bursts in which there is any request.
    pub fn bursts(&self) -> usize {
        self.bursts
    }

    /// How a metric differs, between limits that hold the truth with probability 1 − `alpha`.
    ///
    /// # Errors
    /// [`Unanswered`], where these requests cannot say.
    pub fn effect(&self, metric: Metric, alpha: f64) -> Result<Effect, Unanswered> {
        let (control, test) = self.units_of;
        if control < 2 || test < 2 {
            return Err(Unanswered::OneSided { control, test });
        }
        self.enough_above(metric)?;
        let at_none = self.spread(metric, 0.0);
        for (of_units, effective) in [(true, at_none.units), (false, at_none.bursts)] {
            if effective < CLUSTERS_MIN {
                return Err(Unanswered::FewClusters {
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

    /// Only the probability of such a difference where there is none: as [`Experiment::effect`] says it, sooner.
    pub fn p_value(&self, metric: Metric) -> f64 {
        self.spread(metric, 0.0).p_value()
    }

    fn enough_above(&self, metric: Metric) -> Result<(), Unanswered> {
        let Metric::Quantile(part) = metric else {
            return Ok(());
        };
        let requests = self.control.len().min(self.test.len());
        let needed = (ABOVE_MIN as f64 / part.min(1.0 - part).max(1e-9)).round() as usize;
        match requests < needed {
            true => Err(Unanswered::FewAbove { requests, needed }),
            false => Ok(()),
        }
    }

    /// How far the sides are apart, and how much that varies by cluster, when each of test's requests is made faster by a
    /// factor of e^shift.
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

    /// The quantile of both sides together, each of the same weight.
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

/// Of requests in ascending order.
fn value(sorted: &[Placed], metric: Metric) -> f64 {
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

/// The t that is exceeded, on either side, with probability `alpha`.
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
