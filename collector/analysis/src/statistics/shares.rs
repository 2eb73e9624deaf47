//! Tests whether two shares differ (Fisher's exact test), and estimates their minimum difference.

use super::ln_gamma;

/// A share as a count out of a total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Share {
    /// Number of members with the property; at most `of`.
    pub part: u64,
    /// Total number of members.
    pub of: u64,
}

impl Share {
    /// Returns the share's value; 0 if the total is 0.
    pub fn value(self) -> f64 {
        if self.of == 0 {
            0.0
        } else {
            self.part as f64 / self.of as f64
        }
    }

    /// Returns Wilson's interval for the true share behind this sample. `deviations` is half of the
    /// interval's width, in standard deviations.
    fn interval(self, deviations: f64) -> (f64, f64) {
        if self.of == 0 {
            return (0.0, 1.0);
        }
        let (n, share, z2) = (self.of as f64, self.value(), deviations * deviations);
        let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half =
            deviations / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
        ((middle - half).max(0.0), (middle + half).min(1.0))
    }
}

/// Half-width of a 95 % interval in standard deviations.
pub(crate) const DEVIATIONS_95: f64 = 1.959_963_984_540_054;

/// Returns the minimum difference of two shares at 95 % confidence; 0 if they may be equal. It is
/// the lower end of Newcombe's interval for the difference of two proportions (method 10, 1998).
pub fn differ_by_at_least(one: Share, other: Share) -> f64 {
    let (high, low) = if one.value() >= other.value() {
        (one, other)
    } else {
        (other, one)
    };
    let below = high.value() - high.interval(DEVIATIONS_95).0;
    let above = low.interval(DEVIATIONS_95).1 - low.value();
    (high.value() - low.value() - below.hypot(above)).max(0.0)
}

/// Reports whether Fisher's test may find a difference. It cannot if a sample is empty, or if no
/// member or every member has the property: the p-value is then 1.
pub fn is_testable(one: Share, other: Share) -> bool {
    let (parts, of) = (
        one.part.min(one.of) + other.part.min(other.of),
        one.of + other.of,
    );
    one.of > 0 && other.of > 0 && parts > 0 && parts < of
}

/// Returns the two-sided p-value of Fisher's exact test. It is the probability of all tables that
/// are at most as probable as this one, if both are samples of one share. The test assumes that
/// members are independent.
///
/// The time grows with the standard deviation of the parts, not with the parts themselves.
pub fn fisher_two_sided(one: Share, other: Share) -> f64 {
    if !is_testable(one, other) {
        return 1.0;
    }
    let table = Table {
        n: one.of,
        m: other.of,
        parts: one.part.min(one.of) + other.part.min(other.of),
    };
    let seen = one.part.min(one.of);
    let (lowest, highest) = (
        table.parts.saturating_sub(table.m),
        table.parts.min(table.n),
    );
    let mode = table.mode().clamp(lowest, highest);
    if seen == mode {
        return 1.0;
    }
    let ln_seen = table.ln_probability(seen);
    // Probabilities fall from the mode to both sides. The values beyond the mode that are at most
    // as probable as the observed one therefore form a tail.
    let is_rarer = |x: u64| table.ln_probability(x) <= ln_seen + 1e-7;
    let near = table.tail(seen, seen > mode);
    let far = if seen > mode {
        first(lowest, mode, |back| is_rarer(mode - (back - lowest)))
            .map(|back| mode - (back - lowest))
    } else {
        first(mode, highest, is_rarer)
    };
    let far = far.map_or(0.0, |x| {
        (table.ln_probability(x) - ln_seen).exp() * table.tail(x, seen < mode)
    });
    (ln_seen.exp() * (near + far)).min(1.0)
}

/// Returns the least number in `from..=to` for which `holds` is true; `None` if there is none. The
/// condition must also hold for all numbers after that one.
fn first(mut from: u64, to: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    let mut above = to + 1;
    while from < above {
        let middle = from + (above - from) / 2;
        if holds(middle) {
            above = middle;
        } else {
            from = middle + 1;
        }
    }
    (from <= to).then_some(from)
}

/// Sizes of both samples, and the total number of members with the property. The number of such
/// members in the first sample has a hypergeometric distribution.
struct Table {
    n: u64,
    m: u64,
    parts: u64,
}

impl Table {
    fn mode(&self) -> u64 {
        ((u128::from(self.parts) + 1) * (u128::from(self.n) + 1)
            / (u128::from(self.n + self.m) + 2)) as u64
    }

    fn ln_probability(&self, x: u64) -> f64 {
        ln_choose(self.n, x) + ln_choose(self.m, self.parts - x)
            - ln_choose(self.n + self.m, self.parts)
    }

    /// Returns the sum of the probabilities of `x` and all values beyond it, relative to the
    /// probability of `x`. `upwards` gives the direction.
    fn tail(&self, x: u64, upwards: bool) -> f64 {
        let (n, m, parts) = (self.n as f64, self.m as f64, self.parts as f64);
        let (mut x, mut term, mut sum) = (x as f64, 1.0, 1.0);
        loop {
            let rest = m - parts;
            term *= if upwards {
                (n - x) * (parts - x) / ((x + 1.0) * (rest + x + 1.0))
            } else {
                x * (rest + x) / ((n - x + 1.0) * (parts - x + 1.0))
            };
            // At the end of the range, the next term is 0.
            if term <= sum * 1e-17 {
                return sum;
            }
            sum += term;
            x += if upwards { 1.0 } else { -1.0 };
        }
    }
}

fn ln_choose(n: u64, k: u64) -> f64 {
    let ln_factorial = |x: u64| ln_gamma(x as f64 + 1.0);
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}
