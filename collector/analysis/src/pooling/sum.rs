//! Distribution of a sum of independent values, from samples of each.

use super::percentile_of;

/// Number of steps from the first to the last bin of the widest input distribution.
const PLACES: usize = 512;
/// Tail probability beyond which values are moved to the edge of the bins. For percentiles of the
/// sum up to the 99th, the exact position of such a value hardly matters.
const FAR: f64 = 0.0005;

/// A distribution over bins of equal width.
#[derive(Debug)]
pub(super) struct SumOf {
    least: f64,
    step: f64,
    weights: Vec<f64>,
}

impl SumOf {
    /// Computes the distribution of the sum of one value from each list. Each list must be
    /// ascending and not empty.
    pub(super) fn independent(values: &[Vec<f64>]) -> SumOf {
        let ends =
            |values: &Vec<f64>| (percentile_of(values, FAR), percentile_of(values, 1.0 - FAR));
        let ends: Vec<(f64, f64)> = values.iter().map(ends).collect();
        let widest = ends
            .iter()
            .map(|(least, most)| most - least)
            .fold(0.0, f64::max);
        // If every distribution's two ends are equal, each has one bin.
        let step = match widest > 0.0 {
            true => widest / PLACES as f64,
            false => 1.0,
        };
        let mut weights = vec![1.0];
        for (values, ends) in values.iter().zip(&ends) {
            weights = convolved(&weights, &weights_of(values, *ends, step));
        }
        SumOf {
            least: ends.iter().map(|(least, _)| least).sum(),
            step,
            weights,
        }
    }

    /// Returns the value that the sum stays below with probability `part`.
    pub(super) fn percentile(&self, part: f64) -> f64 {
        let mut seen = 0.0;
        for (place, weight) in self.weights.iter().enumerate() {
            if seen + weight >= part && *weight > 0.0 {
                // A bin represents the values nearest to its middle.
                let within = match self.weights.len() {
                    1 => 0.0,
                    _ => (part - seen) / weight - 0.5,
                };
                return self.least + self.step * (place as f64 + within);
            }
            seen += weight;
        }
        self.least + self.step * (self.weights.len() as f64 - 1.0)
    }
}

/// Returns the share of the values in each bin. Values beyond `least` or `most` move there first. A
/// value between two bins is split between them by its distance to each, which preserves its mean.
/// A value past the last bin belongs to that bin.
fn weights_of(values: &[f64], (least, most): (f64, f64), step: f64) -> Vec<f64> {
    let places = ((most - least) / step).round() as usize;
    let each = 1.0 / values.len() as f64;
    let mut weights = vec![0.0; places + 1];
    for value in values {
        let at = (value.clamp(least, most) - least) / step;
        let below = (at as usize).min(places);
        let above = (below + 1).min(places);
        let part = at - below as f64;
        weights[below] += each * (1.0 - part);
        weights[above] += each * part;
    }
    weights
}

fn convolved(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; a.len() + b.len() - 1];
    for (i, a) in a.iter().enumerate() {
        for (sum, b) in sums[i..].iter_mut().zip(b) {
            *sum += a * b;
        }
    }
    sums
}
