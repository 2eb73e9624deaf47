//! Measures chance differences between equal sides (Ardelean et al., NSDI 2018, §3.1, figure 10),
//! for given requests and metrics. The units of the experiment, such as users, are assigned to two
//! sides at random, up to 200 times.

use super::{ExperimentRequest, Metric, number};
use std::collections::HashMap;

/// Maximum number of random assignments.
const DEALS: usize = 200;
/// Maximum number of requests counted over all assignments, for each metric. Exceeded only if
/// [`DEALS_MIN`] assignments count more.
const COUNTED_MAX: usize = 40_000_000;
const DEALS_MIN: usize = 40;
/// Minimum number of units on a side. Fewer units do not allow a conclusion about other units.
pub const NOISE_UNITS_MIN: usize = 10;

/// Chance difference between equal sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Metric that was compared.
    pub metric: Metric,
    /// Number of units on each side, rounded down.
    pub units: usize,
    /// Average number of requests on each side, rounded down.
    pub requests: usize,
    /// Relative difference that half of all assignments reach: 0.05 is 5 %.
    pub half: f64,
    /// Relative difference that one assignment in twenty reaches.
    pub twentieth: f64,
    /// Root mean square of the logarithm of the ratio of the sides' values.
    pub standard_error: f64,
}

impl Noise {
    /// Returns the standard error for sides with these numbers of units.
    pub fn at(&self, control: usize, test: usize) -> f64 {
        let each = |units: usize| 1.0 / units.max(1) as f64;
        self.standard_error * ((each(control) + each(test)) / (2.0 * each(self.units))).sqrt()
    }
}

/// Requests that were all treated alike, in ascending order of latency.
struct Equal {
    /// Latency in nanoseconds, and index of the request's unit.
    requests: Vec<(f64, u32)>,
    units: usize,
}

/// Measures, for requests that were all treated alike, the chance difference between sides of half
/// of their units each. Returns one result per metric. It is `None` if there are fewer than twice
/// [`NOISE_UNITS_MIN`] units.
pub fn noise(
    requests: impl IntoIterator<Item = ExperimentRequest>,
    metrics: &[Metric],
) -> Vec<Option<Noise>> {
    let mut units = HashMap::new();
    let requests = requests.into_iter();
    let found = requests.map(|one| (one.latency_ns as f64, number(&mut units, one.unit)));
    let mut found: Vec<(f64, u32)> = found.collect();
    found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let equal = Equal {
        requests: found,
        units: units.len(),
    };
    if equal.units < 2 * NOISE_UNITS_MIN {
        return metrics.iter().map(|_| None).collect();
    }
    let deals = (COUNTED_MAX / equal.requests.len()).clamp(DEALS_MIN, DEALS);
    let mut apart = vec![Vec::with_capacity(deals); metrics.len()];
    let mut state = 0x5eed;
    let mut sides: Vec<usize> = (0..equal.units).map(|unit| unit % 2).collect();
    for _ in 0..deals {
        shuffle(&mut sides, &mut state);
        for (metric, apart) in metrics.iter().zip(&mut apart) {
            apart.extend(equal.apart(*metric, &sides));
        }
    }
    let measured = metrics.iter().zip(apart);
    let noise = measured.map(|(metric, apart)| equal.noise(*metric, apart));
    noise.collect()
}

impl Equal {
    /// Returns the logarithm of the ratio of the sides' values; `None` if a side is empty.
    fn apart(&self, metric: Metric, sides: &[usize]) -> Option<f64> {
        let mut counts = [0_usize; 2];
        for (_, unit) in &self.requests {
            counts[sides[*unit as usize]] += 1;
        }
        let mut values = [0.0; 2];
        match metric {
            Metric::Mean => {
                for (latency, unit) in &self.requests {
                    values[sides[*unit as usize]] += latency;
                }
                values[0] /= counts[0] as f64;
                values[1] /= counts[1] as f64;
            }
            Metric::Quantile(part) => {
                let place = |count: usize| ((part * count as f64).ceil() as usize).max(1);
                let mut left = counts.map(place);
                for (latency, unit) in &self.requests {
                    let side = sides[*unit as usize];
                    left[side] = left[side].wrapping_sub(1);
                    if left[side] == 0 {
                        values[side] = *latency;
                    }
                }
            }
        }
        let is_there = counts.iter().all(|count| *count > 0);
        is_there.then(|| (values[1].max(1.0) / values[0].max(1.0)).ln())
    }

    fn noise(&self, metric: Metric, mut apart: Vec<f64>) -> Option<Noise> {
        if apart.len() < DEALS_MIN {
            return None;
        }
        let squares: f64 = apart.iter().map(|apart| apart * apart).sum();
        let standard_error = (squares / apart.len() as f64).sqrt();
        for apart in &mut apart {
            *apart = apart.abs().exp_m1();
        }
        apart.sort_unstable_by(f64::total_cmp);
        Some(Noise {
            metric,
            units: self.units / 2,
            requests: self.requests.len() / 2,
            half: apart[apart.len() / 2],
            twentieth: apart[apart.len() * 19 / 20],
            standard_error,
        })
    }
}

/// Shuffles `sides` (Fisher–Yates).
fn shuffle(sides: &mut [usize], state: &mut u64) {
    for last in (1..sides.len()).rev() {
        // SplitMix64.
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        sides.swap(last, (z % (last as u64 + 1)) as usize);
    }
}
