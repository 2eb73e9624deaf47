//! Distribution of latencies: a kernel density estimate of their binary logarithm, and its modes.
//!
//! The bandwidth is that of Botev, Grotowski and Kroese (Kernel density estimation via diffusion,
//! 2010, the improved Sheather-Jones rule). Unlike rules of thumb and the older plug-in rules, it
//! does not assume that the density is close to normal. That assumption merges the modes of a
//! mixture, such as the hits and misses of a cache. If the rule's equation has no usable root, as
//! with few values, Silverman's rule of thumb replaces it. [`Density::rule`] states the rule used.
//!
//! Values are first spread over a grid of [`GRID`] places. The time of all further steps depends on
//! the grid, not on the number of values.

use std::f64::consts::{PI, TAU};

mod modes;

pub use modes::Mode;

/// Number of places of the grid.
pub const GRID: usize = 2_048;

/// Rule that determined a bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandwidthRule {
    /// The improved Sheather-Jones rule of Botev, Grotowski and Kroese.
    Diffusion,
    /// Silverman's rule of thumb.
    Silverman,
    /// Minimum bandwidth that the grid can represent. It is used if the chosen rule yields less,
    /// for example because nearly all values are equal.
    Grid,
}

/// Density estimate of a sample of latencies.
#[derive(Clone, Debug, PartialEq)]
pub struct Density {
    /// Size of the sample; for a weighted sample, its effective size.
    pub count: u64,
    /// Binary logarithm of the value in nanoseconds at the first place of the grid.
    pub start_log2: f64,
    /// Step of the grid, in binary logarithms.
    pub step_log2: f64,
    /// Standard deviation of the kernel, in binary logarithms.
    pub bandwidth_log2: f64,
    /// Rule that determined the bandwidth.
    pub rule: BandwidthRule,
    /// Density at each place, per doubling of the latency.
    pub densities: Vec<f64>,
    /// Maxima of the density that are not noise, the shortest latency first. If all are noise, the
    /// highest one.
    pub modes: Vec<Mode>,
}

impl Density {
    /// Returns the latency at a place of the grid, in ns.
    pub fn value_ns(&self, place: usize) -> f64 {
        (self.start_log2 + place as f64 * self.step_log2).exp2()
    }
}

/// Returns the binary logarithm of a value; values of less than 1 ns count as 1 ns.
fn log2(value_ns: u64) -> f64 {
    (value_ns.max(1) as f64).log2()
}

/// Estimates the density of latencies, given as (value in nanoseconds, count). Returns `None`
/// without latencies.
pub fn density(values: &[(u64, u64)]) -> Option<Density> {
    let size = values.iter().map(|(_, count)| count).sum();
    density_of_sample(values, size)
}

/// Estimates the density of a weighted sample, given as (value in nanoseconds, sum of weights).
/// `size` is its effective size. Returns `None` for an empty sample.
pub fn density_of_sample(values: &[(u64, u64)], size: u64) -> Option<Density> {
    let values: Vec<(f64, u64)> = values
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(value, count)| (log2(*value), *count))
        .collect();
    let count: u64 = values.iter().map(|(_, count)| count).sum();
    let extreme = |of: fn(f64, f64) -> f64| values.iter().map(|(at, _)| *at).reduce(of);
    let (least, most) = (extreme(f64::min)?, extreme(f64::max)?);
    let thumb = silverman(&values, count, size);
    // The margin leaves at least four bandwidths beyond the first and the last value.
    let margin = ((most - least) / 2.0)
        .max(0.5)
        .max(REACH * TOO_WIDE * thumb / 2.0);
    let grid = Grid {
        start: least - margin,
        step: (most - least + 2.0 * margin) / GRID as f64,
    };
    let masses = grid.masses(&values, count);
    let (bandwidth, rule) = bandwidth(&masses, values.len(), thumb, &grid);
    let densities = smoothed(&masses, bandwidth, grid.step);
    let mut density = Density {
        count: size,
        start_log2: grid.start,
        step_log2: grid.step,
        bandwidth_log2: bandwidth,
        rule,
        densities,
        modes: Vec::new(),
    };
    density.modes = modes::modes(&density);
    Some(density)
}

struct Grid {
    start: f64,
    step: f64,
}

impl Grid {
    /// Spreads each value's fraction of the total over the two places around it (linear binning).
    fn masses(&self, values: &[(f64, u64)], count: u64) -> Vec<f64> {
        let mut masses = vec![0.0; GRID];
        for (at, of) in values {
            let place = (at - self.start) / self.step;
            let (below, mass) = (place.floor(), *of as f64 / count as f64);
            let index = (below as usize).min(GRID - 2);
            masses[index] += mass * (1.0 - (place - below));
            masses[index + 1] += mass * (place - below);
        }
        masses
    }
}

/// Minimum bandwidth, in steps of the grid. The grid cannot represent a narrower kernel.
const STEPS_MIN: f64 = 2.0;

/// Maximum ratio of the bandwidth of the diffusion rule to that of the rule of thumb. A larger
/// bandwidth comes from an equation without a meaningful root, as for a few similar values.
const TOO_WIDE: f64 = 1.5;

/// Chooses the bandwidth. `different` is the number of different values, and `thumb` the bandwidth
/// of the rule of thumb.
fn bandwidth(masses: &[f64], different: usize, thumb: f64, grid: &Grid) -> (f64, BandwidthRule) {
    let range = grid.step * GRID as f64;
    let by_diffusion = diffusion_time(masses, different).map(|time| time.sqrt() * range);
    let chosen = match by_diffusion.filter(|bandwidth| *bandwidth <= TOO_WIDE * thumb) {
        Some(bandwidth) => (bandwidth, BandwidthRule::Diffusion),
        None => (thumb, BandwidthRule::Silverman),
    };
    let least = STEPS_MIN * grid.step;
    if chosen.0 < least {
        (least, BandwidthRule::Grid)
    } else {
        chosen
    }
}

/// Returns the bandwidth of Silverman's rule of thumb, from the standard deviation.
fn silverman(values: &[(f64, u64)], count: u64, size: u64) -> f64 {
    let n = count as f64;
    let mean = values.iter().map(|(at, of)| at * *of as f64).sum::<f64>() / n;
    let squares = values
        .iter()
        .map(|(at, of)| (at - mean).powi(2) * *of as f64);
    0.9 * (squares.sum::<f64>() / n).sqrt() * (size as f64).powf(-0.2)
}

/// Returns the square of the ratio of the bandwidth to the range: the smallest root found of the
/// equation of Botev, Grotowski and Kroese. Returns `None` if none is found, or for fewer than
/// three different values. The number of values counts equal ones once, as in their program.
/// Otherwise, values that a clock's resolution makes equal would make the bandwidth vanish.
fn diffusion_time(masses: &[f64], different: usize) -> Option<f64> {
    if different < 3 {
        return None;
    }
    let squares = cosine_squares(masses);
    let off = |time: f64| time - fixed_point(time, different as f64, &squares);
    // Search bandwidths from about 1/30,000 of the range to about a third of it.
    const STEPS: i32 = 120;
    let time_at = |step: i32| 1e-9 * 1e8f64.powf(f64::from(step) / f64::from(STEPS));
    let rise =
        (1..=STEPS).find(|step| off(time_at(step - 1)) <= 0.0 && off(time_at(*step)) > 0.0)?;
    let (mut low, mut high) = (time_at(rise - 1), time_at(rise));
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if off(middle) > 0.0 {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// Returns the squared coefficients of the cosine series of the masses, without the constant term.
fn cosine_squares(masses: &[f64]) -> Vec<f64> {
    let period = 4 * GRID;
    let cosines: Vec<f64> = (0..period)
        .map(|at| (TAU * at as f64 / period as f64).cos())
        .collect();
    let used: Vec<(usize, f64)> = masses
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, mass)| *mass > 0.0)
        .collect();
    let coefficient = |k: usize| -> f64 {
        let terms = used
            .iter()
            .map(|(place, mass)| mass * cosines[k * (2 * place + 1) % period]);
        terms.sum()
    };
    (1..GRID).map(|k| coefficient(k).powi(2)).collect()
}

/// Returns the right side of the equation of Botev, Grotowski and Kroese: the diffusion time that
/// the density's derivatives, estimated with `time`, lead to.
fn fixed_point(time: f64, n: f64, squares: &[f64]) -> f64 {
    const STAGES: i32 = 7;
    let norm = |order: i32, time: f64| {
        let terms = squares.iter().zip(1..).map(|(square, k)| {
            let k = f64::from(k);
            k.powi(2 * order) * square * (-k * k * PI * PI * time).exp()
        });
        2.0 * PI.powi(2 * order) * terms.sum::<f64>()
    };
    let mut norm_found = norm(STAGES, time);
    for order in (2..STAGES).rev() {
        let odd: f64 = (1..=order).map(|i| f64::from(2 * i - 1)).product();
        let power = f64::from(order) + 0.5;
        let factor = (1.0 + 0.5f64.powf(power)) / 3.0;
        let time = (2.0 * factor * odd / TAU.sqrt() / n / norm_found).powf(1.0 / (1.0 + power));
        norm_found = norm(order, time);
    }
    (2.0 * n * PI.sqrt() * norm_found).powf(-0.4)
}

/// Distance from a value, in bandwidths, beyond which its kernel is negligible.
const REACH: f64 = 8.0;

fn smoothed(masses: &[f64], bandwidth: f64, step: f64) -> Vec<f64> {
    let reach = ((REACH * bandwidth / step).ceil() as usize).min(GRID);
    let kernel: Vec<f64> = (0..=reach)
        .map(|off| {
            let z = off as f64 * step / bandwidth;
            (-z * z / 2.0).exp() / (bandwidth * TAU.sqrt())
        })
        .collect();
    let mut densities = vec![0.0; masses.len()];
    for (place, mass) in masses.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
        let last = (place + reach).min(masses.len() - 1);
        for at in place.saturating_sub(reach)..=last {
            densities[at] += mass * kernel[at.abs_diff(place)];
        }
    }
    densities
}

#[cfg(test)]
mod tests;
