//! Finds the maxima of a density that are not noise.

use super::Density;

/// A latency around which many values lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    /// Place of the maximum on the grid.
    pub place: usize,
    /// Latency of the maximum, in ns.
    pub value_ns: f64,
    /// Density at the maximum, per doubling of the latency.
    pub density: f64,
    /// Rise of the maximum above the higher of the valleys that separate it from higher densities,
    /// in standard errors. The highest maximum rises from 0.
    pub prominence: f64,
    /// Fraction of all values between the valleys to the neighbouring modes, or the grid's ends.
    pub share: f64,
}

/// Minimum prominence; a maximum below it is noise.
const PROMINENCE_MIN: f64 = 3.0;

pub(super) fn modes(density: &Density) -> Vec<Mode> {
    let heights = &density.densities;
    let mut kept: Vec<(usize, f64)> = maxima(heights)
        .into_iter()
        .map(|peak| (peak, prominence(density, peak)))
        .filter(|(_, prominence)| *prominence >= PROMINENCE_MIN)
        .collect();
    // With only a few values, the highest maximum still counts as a mode.
    if kept.is_empty() {
        let highest = maxima(heights)
            .into_iter()
            .max_by(|a, b| heights[*a].total_cmp(&heights[*b]).then(b.cmp(a)));
        kept.extend(highest.map(|peak| (peak, prominence(density, peak))));
    }
    let valley = |from: usize, to: usize| {
        let between = (from..=to).min_by(|a, b| heights[*a].total_cmp(&heights[*b]));
        between.unwrap_or(from)
    };
    let mut modes = Vec::with_capacity(kept.len());
    let mut start = 0;
    for (at, (place, prominence)) in kept.iter().enumerate() {
        let end = kept
            .get(at + 1)
            .map_or(heights.len(), |(next, _)| valley(*place, *next));
        modes.push(Mode {
            place: *place,
            value_ns: density.value_ns(*place),
            density: heights[*place],
            prominence: *prominence,
            share: heights[start..end].iter().sum::<f64>() * density.step_log2,
        });
        start = end;
    }
    modes
}

/// Returns the places of local maxima. Of equal neighbouring heights, the first counts.
fn maxima(heights: &[f64]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut rose_at = Some(0);
    for at in 1..heights.len() {
        if heights[at] > heights[at - 1] {
            rose_at = Some(at);
        } else if heights[at] < heights[at - 1]
            && let Some(peak) = rose_at.take()
        {
            found.push(peak);
        }
    }
    found
}

/// Returns the rise of a maximum above the higher of its valleys, in standard errors of the
/// difference.
fn prominence(density: &Density, peak: usize) -> f64 {
    let heights = &density.densities;
    let height = heights[peak];
    let valley = |side: &mut dyn Iterator<Item = usize>| {
        let mut lowest = height;
        for at in side {
            if heights[at] > height {
                return Some(lowest);
            }
            lowest = lowest.min(heights[at]);
        }
        // No place is higher on this side.
        None
    };
    let sides = [
        valley(&mut (0..peak).rev()),
        valley(&mut (peak + 1..heights.len())),
    ];
    let saddle = sides.into_iter().flatten().fold(0.0, f64::max);
    // The variance of an estimate is f ∫K² / (n h), for a normal kernel with ∫K² = 1 / (2 √π).
    let per_height =
        1.0 / (2.0 * std::f64::consts::PI.sqrt() * density.count as f64 * density.bandwidth_log2);
    (height - saddle) / ((height + saddle) * per_height).sqrt()
}
