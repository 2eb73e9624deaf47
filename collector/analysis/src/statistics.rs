//! Tests, effect sizes, percentiles, density estimates, regression and change points.

mod change_point;
mod density;
mod kolmogorov_smirnov;
pub mod regression;
mod sample_percentile;
mod shares;
pub mod stratified;

pub use change_point::{Block, CHANGE_SIDE_MIN, ChangePoint, Scores, clearest_change, last_change};
pub use density::{BandwidthRule, Density, GRID as DENSITY_GRID, Mode, density, density_of_sample};
pub use kolmogorov_smirnov::{KolmogorovSmirnov, kolmogorov_smirnov};
pub use sample_percentile::{median, percentile};
pub(crate) use shares::DEVIATIONS_95;
pub use shares::{Share, differ_by_at_least, fisher_two_sided, is_testable};

use crate::sampling::{Weight, WeightedCount};

/// A sample of shares (0 to 1), weighted by the numbers of requests that they represent, as sums in
/// fixed point. Merging is commutative and associative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ShareSample {
    requests: WeightedCount,
    /// Weighted sum of the shares, in units of 2⁻³¹.
    sum: u128,
    /// Weighted sum of the squares of the shares, in units of 2⁻⁶²; at most `u128::MAX`.
    squares: u128,
}

impl ShareSample {
    /// Records `part` of `whole` as a share of at most 1, rounded down to 2⁻³¹; 0 if `whole` is 0.
    pub fn record(&mut self, part: u64, whole: u64, weight: Weight) {
        let share = if whole == 0 {
            0
        } else {
            // At most 2³¹, because the part is at most the whole.
            ((u128::from(part.min(whole)) << 31) / u128::from(whole)) as u64
        };
        self.requests.count(weight);
        self.sum += weight.times(share);
        self.squares = self.squares.saturating_add(weight.times_square(share));
    }

    /// Pads the sample with zeros to these requests, which must include its own.
    #[must_use]
    pub fn padded_to(self, requests: WeightedCount) -> ShareSample {
        ShareSample { requests, ..self }
    }

    /// Adds the shares of `other`.
    pub fn merge(&mut self, other: &ShareSample) {
        self.requests += other.requests;
        self.sum += other.sum;
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// Returns the number of equally weighted shares whose mean is as uncertain.
    pub fn effective(&self) -> f64 {
        self.requests.effective()
    }

    /// Returns the weighted mean of the shares; 0 if there are none.
    pub fn mean(&self) -> f64 {
        let units = self.requests.mean(self.sum as f64);
        units / (1u64 << 31) as f64
    }

    /// Returns the sample variance of the shares, with divisor n - 1, where n is
    /// [`effective`](Self::effective); 0 if n is below 2.
    pub fn variance(&self) -> f64 {
        let n = self.effective();
        if n < 2.0 {
            return 0.0;
        }
        let scale = n / self.requests.estimate();
        let squares = self.squares as f64 / (1u64 << 62) as f64 * scale;
        ((squares - n * self.mean() * self.mean()) / (n - 1.0)).max(0.0)
    }
}

/// Difference between two samples of shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Mean of the first sample minus mean of the second.
    pub mean: f64,
    /// Cohen's d: the difference of the means in units of the pooled standard deviation. It is
    /// infinite if neither sample varies but their means differ, and 0 if a sample has fewer than
    /// two shares (by [`ShareSample::effective`], also below).
    pub effect_size: f64,
    /// Two-sided p-value of Welch's t-test. It assumes independent requests and approximately
    /// normal means, for which tens of requests in each sample usually suffice. It is 1 if a sample
    /// has fewer than two shares.
    pub p_value: f64,
}

/// Compares two samples by Welch's t-test.
pub fn welch(one: &ShareSample, other: &ShareSample) -> Difference {
    let mean = one.mean() - other.mean();
    let (n, m) = (one.effective(), other.effective());
    if n < 2.0 || m < 2.0 || mean == 0.0 {
        return Difference {
            mean,
            effect_size: 0.0,
            p_value: 1.0,
        };
    }
    let (v, w) = (one.variance(), other.variance());
    let pooled = (((n - 1.0) * v + (m - 1.0) * w) / (n + m - 2.0)).sqrt();
    let effect_size = mean / pooled;
    let (a, b) = (v / n, w / m);
    if a + b == 0.0 {
        return Difference {
            mean,
            effect_size,
            p_value: 0.0,
        };
    }
    let freedom = (a + b).powi(2) / (a * a / (n - 1.0) + b * b / (m - 1.0));
    Difference {
        mean,
        effect_size,
        p_value: student_two_sided(mean / (a + b).sqrt(), freedom),
    }
}

/// Returns the probability that a value of Student's t distribution with `freedom` degrees of
/// freedom is at least as far from 0 as `t`.
pub fn student_two_sided(t: f64, freedom: f64) -> f64 {
    if !(t.is_finite() && freedom > 0.0) {
        return if t.is_infinite() { 0.0 } else { 1.0 };
    }
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t)).clamp(0.0, 1.0)
}

/// Returns the distance from the mean, in standard deviations, that a normal value exceeds with
/// two-sided probability `p_value`; at most 38.
pub fn normal_deviation(p_value: f64) -> f64 {
    let (mut low, mut high) = (0.0, 38.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if normal_two_sided(middle) > p_value {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// Returns the approximate probability that a normal value lies at least this many standard
/// deviations from its mean: that of Student's t with 10⁹ degrees of freedom.
pub fn normal_two_sided(deviations: f64) -> f64 {
    student_two_sided(deviations, 1e9)
}

/// Computes the regularised incomplete beta function I_x(a, b), by its continued fraction
/// (Abramowitz and Stegun, 26.5.8).
pub(crate) fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    // The fraction converges fast only for such x.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

/// Evaluates the continued fraction by Lentz's method. The number of steps grows at most like
/// √max(a, b); `STEPS_MAX` also ends the loop for NaN.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const STEPS_MAX: usize = 20_000;
    let away_from_zero = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..STEPS_MAX {
        let m = step as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            fraction *= d * c;
        }
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    fraction
}

/// Computes the logarithm of the gamma function for x > 0, by Lanczos' approximation (g = 7, 9
/// terms).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        let pi = std::f64::consts::PI;
        return (pi / (pi * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let sum = TERMS
        .iter()
        .zip(1..)
        .fold(0.999_999_999_999_809_9, |sum, (term, i)| {
            sum + term / (x + f64::from(i))
        });
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// Corrects the p-values of many tests for their number (Benjamini and Hochberg, 1995). If the
/// tests are independent, and all hypotheses with a corrected value of at most q are rejected, the
/// expected fraction of true hypotheses among the rejected ones is at most q. Results are in the
/// order of the input.
pub fn benjamini_hochberg(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut least: f64 = 1.0;
    for (rank, index) in order.into_iter().enumerate().rev() {
        least = least.min(p_values[index] * p_values.len() as f64 / (rank + 1) as f64);
        corrected[index] = least;
    }
    corrected
}

/// Returns Pearson's correlation coefficient of the pairs; `None` for fewer than two pairs, or if
/// either component is constant.
pub fn correlation(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Option<f64> {
    // Differences from the first pair, so that a constant component is exactly 0.
    let first = pairs.clone().next()?;
    let pairs = pairs.map(move |pair| (pair.0 - first.0, pair.1 - first.1));
    let n = pairs.clone().count() as f64;
    let (x, y) = pairs
        .clone()
        .fold((0.0, 0.0), |(x, y), pair| (x + pair.0 / n, y + pair.1 / n));
    // Deviations from the mean, in a second pass, for precision.
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (a, b) in pairs {
        (xx, yy, xy) = (
            xx + (a - x) * (a - x),
            yy + (b - y) * (b - y),
            xy + (a - x) * (b - y),
        );
    }
    (xx > 0.0 && yy > 0.0).then(|| (xy / (xx.sqrt() * yy.sqrt())).clamp(-1.0, 1.0))
}
