//! Statistical tests of waiting: they decide whether one instant follows another.

/// Minimum number of observations for a test or an estimate.
pub(super) const POINTS_MIN: usize = 20;
/// Maximum distance from 1 of a slope that counts as 1. The next constant is the maximum standard
/// error of the slope.
const SLOPE_OFF_MAX: f64 = 0.1;
const SLOPE_ERROR_MAX: f64 = 0.05;
/// Minimum fraction of the variance of y that x must explain.
const EXPLAINED_MIN: f64 = 0.5;

/// Fit of `y = x + gap`. Both are times after one start: x of an event, and y of an end that
/// follows the event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    /// Standard deviation of the gaps.
    pub(super) spread_ns: f64,
    /// Median gap of the half of the points with the greatest x, where work before the event has
    /// the least influence.
    pub(super) usual_gap_ns: u64,
    /// Smallest x, at least 0.
    pub(super) least_ns: u64,
    mean_gap_ns: f64,
    /// Standard deviation of y.
    length_spread_ns: f64,
    mean_length_ns: f64,
}

/// Ratio of the gaps' standard deviation to their mean up to which gaps are regular. A real gap is
/// work or the transfer of a message, and these vary by less than their length. A gap after the
/// last of several unrelated ends varies by about its length.
const GAP_VARIES_MAX: f64 = 0.6;

impl Fit {
    /// Reports whether only x has a noticeable influence on y.
    pub(super) fn is_exact(&self) -> bool {
        self.spread_ns < 0.01 * self.length_spread_ns
    }

    /// Reports whether the gaps are due to one cause, and not to chance.
    pub(super) fn is_regular(&self) -> bool {
        self.spread_ns <= GAP_VARIES_MAX * self.mean_gap_ns
            || self.spread_ns <= 0.01 * self.mean_length_ns
    }
}

/// Number, means, and sums of squares and products around the means, of points (x, y). `of_gap` is
/// for y - x.
struct Moments {
    count: f64,
    mean_x: f64,
    mean_y: f64,
    of_x: f64,
    of_y: f64,
    both: f64,
    of_gap: f64,
}

impl Moments {
    fn of(points: &[(f64, f64)]) -> Moments {
        let count = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let (mut of_x, mut of_y, mut both, mut of_gap) = (0.0, 0.0, 0.0, 0.0);
        for (x, y) in points {
            let (dx, dy) = (x - mean_x, y - mean_y);
            of_x += dx * dx;
            of_y += dy * dy;
            both += dx * dy;
            of_gap += (dy - dx) * (dy - dx);
        }
        Moments {
            count,
            mean_x,
            mean_y,
            of_x,
            of_y,
            both,
            of_gap,
        }
    }
}

/// Reports whether y certainly grows by less than x does, if at all.
pub(super) fn stays(points: &[(f64, f64)]) -> bool {
    let Moments {
        count,
        of_x,
        of_y,
        both,
        ..
    } = Moments::of(points);
    let slope = both / of_x;
    let error = ((of_y - slope * both).max(0.0) / count / of_x).sqrt();
    slope + 2.0 * error < 1.0 - SLOPE_OFF_MAX
}

/// Tests whether y follows x, i.e. grows by as much as x does. Returns `None` if it does not, or if
/// there are too few points.
pub(super) fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    if points.len() < POINTS_MIN {
        return None;
    }
    let Moments {
        count,
        mean_x,
        mean_y,
        of_x,
        of_y,
        both,
        of_gap,
    } = Moments::of(points);
    let spread_ns = (of_gap / count).sqrt();
    let length_spread_ns = (of_y / count).sqrt();
    if (of_x / count).sqrt() <= 1e-3 * mean_y {
        // All points have nearly the same x, so only equal x and y can be recognised.
        let ends_together = (mean_y - mean_x).abs() <= 0.01 * mean_y && spread_ns <= 1e-3 * mean_y;
        if !ends_together {
            return None;
        }
    } else {
        let slope = both / of_x;
        let explained = 1.0 - of_gap / of_y.max(f64::MIN_POSITIVE);
        let slope_error = ((of_gap / count) / of_x).sqrt();
        let follows = (slope - 1.0).abs() <= SLOPE_OFF_MAX
            && slope_error <= SLOPE_ERROR_MAX
            && explained >= EXPLAINED_MIN;
        if !follows {
            return None;
        }
    }
    let mut by_x = points.to_vec();
    by_x.sort_unstable_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut gaps: Vec<f64> = by_x[..by_x.len().div_ceil(2)]
        .iter()
        .map(|(x, y)| y - x)
        .collect();
    gaps.sort_unstable_by(f64::total_cmp);
    let least = points
        .iter()
        .map(|(x, _)| x.max(0.0))
        .fold(f64::INFINITY, f64::min);
    Some(Fit {
        spread_ns,
        usual_gap_ns: gaps[gaps.len() / 2] as u64,
        least_ns: least as u64,
        mean_gap_ns: mean_y - mean_x,
        length_spread_ns,
        mean_length_ns: mean_y,
    })
}

/// Reports whether x usually lies far closer to y than by chance; `false` if there are too few
/// points. A point has the time x of the last segment end up to y, y, and the number of segment
/// ends after 0 and up to y.
pub(super) fn is_close(points: &[(f64, f64, u32)]) -> bool {
    if points.len() < POINTS_MIN {
        return false;
    }
    let mut parts: Vec<f64> = points
        .iter()
        .map(|(x, y, ended)| {
            if *y > 0.0 {
                (y - x) * (f64::from(*ended) + 1.0) / y
            } else {
                1.0
            }
        })
        .collect();
    parts.sort_unstable_by(f64::total_cmp);
    parts[parts.len() / 2] <= 0.1 && parts[parts.len() * 3 / 4] <= 0.3
}
