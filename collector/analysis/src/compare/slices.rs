//! Tests whether a difference between two periods exceeds the variation within each period.
//!
//! Requests are not independent: concurrent work, caches and queues make neighbours alike, and
//! machines are faster in one minute than in the next. A test that assumes independence would find
//! negligible differences significant in thousands of requests. Each period is therefore cut into
//! time slices. The test compares the difference between the periods with the differences between
//! slices of one period (batch means; Law, Simulation modeling and analysis, §9.5).
//! Correlated neighbouring slices reduce the certainty further.

use crate::statistics::student_two_sided;

/// Maximum number of slices of a period. With more, neighbouring slices would be too alike.
const SLICES_MAX: usize = 12;
/// Minimum number of requests of a slice, and of half a period, if the period has at least twice as
/// many.
pub(super) const REQUESTS_PER_SLICE: usize = 6;
/// Maximum factor by which correlated neighbours increase the variance.
const INFLATION_MAX: f64 = 4.0;

/// Returns the number of slices for this number of requests.
pub(super) fn slice_count(requests: usize) -> usize {
    (requests / REQUESTS_PER_SLICE).clamp(2, SLICES_MAX)
}

/// Returns the slice of a request of this period (0 or 1). `place` is its place among the requests
/// of both periods, in order of period and time.
pub(super) fn slice_of(
    place: usize,
    period: usize,
    counts: [usize; 2],
    slices: [usize; 2],
) -> usize {
    (place - [0, counts[0]][period]) * slices[period] / counts[period]
}

/// Sums for the weighted mean of one slice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slice {
    pub(super) weight: f64,
    pub(super) sum: f64,
    pub(super) squares: f64,
}

impl Slice {
    pub(super) fn add(&mut self, value: f64, weight: f64) {
        self.weight += weight;
        self.sum += weight * value;
        self.squares += weight * value * value;
    }

    /// Returns the weighted mean; NaN for an empty slice.
    fn mean(&self) -> f64 {
        self.sum / self.weight
    }
}

/// Mean of a period, and its precision.
#[derive(Clone, Copy, Debug)]
struct Sureness {
    mean: f64,
    /// Variance of the mean.
    variance: f64,
    freedom: f64,
}

/// Computes mean and variance over slices. `rows` is the effective number of values in the slices,
/// which may differ from their weights. Returns `None` if fewer than two slices have weight.
fn sureness(slices: &[Slice], rows: usize) -> Option<Sureness> {
    let used: Vec<&Slice> = slices.iter().filter(|of| of.weight > 0.0).collect();
    let count = used.len() as f64;
    if used.len() < 2 {
        return None;
    }
    let weight: f64 = used.iter().map(|slice| slice.weight).sum();
    let mean = used.iter().map(|slice| slice.sum).sum::<f64>() / weight;
    let squares = used.iter().map(|slice| slice.squares).sum::<f64>() / weight;
    let residuals: Vec<f64> = used
        .iter()
        .map(|slice| (slice.mean() - mean) * (slice.weight * count / weight).sqrt())
        .collect();
    let between: f64 = residuals.iter().map(|r| r * r).sum::<f64>() / (count - 1.0);
    let products = residuals.windows(2).map(|pair| pair[0] * pair[1]);
    let alike = products.sum::<f64>() / (count - 1.0);
    // Two or three slices are too few to estimate a correlation.
    let correlation = if between > 0.0 && used.len() > 3 {
        (alike / between).clamp(0.0, 0.9)
    } else {
        0.0
    };
    let inflation = ((1.0 + correlation) / (1.0 - correlation)).min(INFLATION_MAX);
    // The variance is at least that of independent values: few slices may be alike by chance.
    let independent = (squares - mean * mean).max(0.0) / rows.max(1) as f64;
    Some(Sureness {
        mean,
        variance: (between / count * inflation).max(independent),
        freedom: count - 1.0,
    })
}

/// Returns the two-sided p-value of the difference between the periods' means, by Welch's test over
/// slices; 1 if there are too few slices.
pub(super) fn difference(
    (before, rows_before): (&[Slice], usize),
    (after, rows_after): (&[Slice], usize),
) -> f64 {
    let before = sureness(before, rows_before);
    let Some((before, after)) = before.zip(sureness(after, rows_after)) else {
        return 1.0;
    };
    let difference = after.mean - before.mean;
    let variance = before.variance + after.variance;
    if variance <= 0.0 {
        // Nothing varies at all.
        return if difference == 0.0 { 1.0 } else { 0.0 };
    }
    let freedom = variance * variance
        / (before.variance.powi(2) / before.freedom + after.variance.powi(2) / after.freedom);
    student_two_sided(difference / variance.sqrt(), freedom)
}

/// Returns the standard error of the difference of two periods' means; `None` for too few slices.
pub(super) fn error(
    (before, rows_before): (&[Slice], usize),
    (after, rows_after): (&[Slice], usize),
) -> Option<f64> {
    let both = [sureness(before, rows_before)?, sureness(after, rows_after)?];
    Some((both[0].variance + both[1].variance).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fraction of 4,000 pairs of equal periods that differ at 5 %. Neighbouring slices are
    /// correlated by `alike`.
    fn false_alarms(alike: f64) -> f64 {
        let mut seed = 1u64;
        let mut normal = || {
            let mut unit = || {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                ((seed >> 11) as f64 + 1.0) / (1u64 << 53) as f64
            };
            (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()
        };
        const TRIALS: usize = 4_000;
        let mut alarm = || {
            let mut period = || {
                let mut last = normal();
                let mut next = || {
                    last = alike * last + (1.0 - alike * alike).sqrt() * normal();
                    let mut slice = Slice::default();
                    slice.add(last, 3.0);
                    slice
                };
                (0..SLICES_MAX).map(|_| next()).collect::<Vec<_>>()
            };
            let (before, after) = (period(), period());
            difference((&before, 1_000), (&after, 1_000)) <= 0.05
        };
        (0..TRIALS).filter(|_| alarm()).count() as f64 / TRIALS as f64
    }

    #[test]
    fn equal_periods_differ_as_often_as_the_probability_says() {
        let independent = false_alarms(0.0);
        assert!(independent <= 0.06, "{independent}");
        // Correlated neighbours make a difference less certain.
        let alike = false_alarms(0.3);
        assert!(alike <= 0.12, "{alike}");
    }
}
