//! Converts one clock to another by a line through the best estimates.

use super::round_trip::RoundTrip;

/// Largest drift assumed between two clocks where nothing was measured, in parts per million.
/// Quartz clocks usually stay below 50 each.
pub const DRIFT_MAX_PPM: u64 = 100;

/// One instant as two clocks show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Anchor {
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
    pub(super) error_ns: u64,
}

impl Anchor {
    /// Creates an anchor from the server's clock to the client's. Timestamps up to `slop_ns` apart
    /// have no known order, so `slop_ns` adds to the error.
    pub(super) fn to_client(round_trip: &RoundTrip, slop_ns: u64) -> Anchor {
        Anchor {
            from_ns: round_trip.server_ns,
            to_ns: round_trip.client_ns,
            error_ns: round_trip.error_ns().saturating_add(slop_ns),
        }
    }

    pub(super) fn flipped(self) -> Anchor {
        Anchor {
            from_ns: self.to_ns,
            to_ns: self.from_ns,
            ..self
        }
    }
}

/// Returns the error bound after `over_ns` without a measurement.
fn drifted(error_ns: u64, over_ns: u64) -> u64 {
    let gained = u128::from(over_ns) * u128::from(DRIFT_MAX_PPM) / 1_000_000;
    error_ns.saturating_add(u64::try_from(gained).unwrap_or(u64::MAX))
}

/// A continuous map from one clock to another that never decreases, so it keeps a host's order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Anchors {
    /// Never empty; strictly increasing in both clocks.
    pub(super) list: Vec<Anchor>,
    /// Number of times that a clock was set: the offsets of two neighbouring estimates differ by
    /// more than drift and errors explain.
    pub(super) steps: usize,
}

impl Anchors {
    /// Creates the map from estimates in any order, or `None` if there are none.
    pub(super) fn of(mut found: Vec<Anchor>) -> Option<Anchors> {
        if found.is_empty() {
            return None;
        }
        found.sort_unstable_by_key(|a| (a.from_ns, a.error_ns, a.to_ns));
        drop_worse(&mut found);
        found.reverse();
        drop_worse(&mut found);
        found.reverse();
        let pairs = found.windows(2);
        let steps = pairs.filter(|pair| is_step(pair[0], pair[1])).count();
        // A clock that is set back shows the same times twice. Of two estimates for which `rises`
        // is false, keep the one with the smaller error, or the first at a tie.
        let mut list: Vec<Anchor> = Vec::with_capacity(found.len());
        for anchor in found {
            let rises = |list: &[Anchor]| list.last().is_none_or(|last| rises(*last, anchor));
            let is_better = |last: &mut Anchor| anchor.error_ns < last.error_ns;
            while !rises(&list) && list.pop_if(is_better).is_some() {}
            if rises(&list) {
                list.push(anchor);
            }
        }
        Some(Anchors { list, steps })
    }

    /// Returns the largest offset between the two clocks, taken as recorded, that the tightest
    /// estimate does not exclude.
    pub(super) fn agreed_ns(&self) -> u64 {
        let most = |anchor: &Anchor| {
            let offset_ns = anchor.from_ns.abs_diff(anchor.to_ns);
            offset_ns.saturating_add(anchor.error_ns)
        };
        self.list.iter().map(most).min().unwrap_or(0)
    }

    /// Returns the mean error bound of the estimates.
    pub(super) fn mean_error_ns(&self) -> u64 {
        let errors_ns = self.list.iter().map(|anchor| u128::from(anchor.error_ns));
        let sum: u128 = errors_ns.sum();
        (sum / self.list.len().max(1) as u128) as u64
    }

    /// Converts an instant to the other clock and returns it with its error bound in nanoseconds.
    pub(super) fn convert(&self, at_ns: i64) -> (i64, u64) {
        let after = self.list.partition_point(|anchor| anchor.from_ns <= at_ns);
        let before = after.checked_sub(1).map(|before| self.list[before]);
        match (before, self.list.get(after)) {
            (Some(before), Some(after)) => between(before, *after, at_ns),
            (Some(edge), None) => beyond(edge, at_ns),
            (None, Some(edge)) => beyond(*edge, at_ns),
            (None, None) => (at_ns, 0),
        }
    }

    /// Returns the relative rate of the two clocks in parts per million: the gain of `from` on
    /// `to`. Returns 0 if there is only one estimate.
    pub(super) fn drift_ppm(&self) -> f64 {
        let Some(first) = self.list.first() else {
            return 0.0;
        };
        // Least squares, each estimate weighted by the inverse square of its error. Differences
        // from the first estimate keep precision.
        let (mut weight, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for anchor in &self.list {
            let elapsed = |to: i64, from: i64| (i128::from(to) - i128::from(from)) as f64;
            let at = elapsed(anchor.to_ns, first.to_ns);
            let gained = elapsed(anchor.from_ns, first.from_ns) - at;
            let w = (anchor.error_ns as f64).max(1.0).powi(-2);
            (weight, x, y) = (weight + w, x + w * at, y + w * gained);
            (xx, xy) = (xx + w * at * at, xy + w * at * gained);
        }
        let spread = weight * xx - x * x;
        if self.list.len() < 2 || spread <= 0.0 {
            0.0
        } else {
            (weight * xy - x * y) / spread * 1e6
        }
    }
}

/// Drops each estimate whose error exceeds that of the last kept estimate plus drift, unless the
/// clock was set in between.
fn drop_worse(found: &mut Vec<Anchor>) {
    let mut best: Option<Anchor> = None;
    found.retain(|anchor| {
        let is_bounded_by = |b: Anchor| {
            let bound_ns = drifted(b.error_ns, b.from_ns.abs_diff(anchor.from_ns));
            bound_ns < anchor.error_ns && !is_step(b, *anchor)
        };
        let keep = !best.is_some_and(is_bounded_by);
        if keep {
            best = Some(*anchor);
        }
        keep
    });
}

fn is_step(a: Anchor, b: Anchor) -> bool {
    let offset = |anchor: Anchor| i128::from(anchor.to_ns) - i128::from(anchor.from_ns);
    let apart = (offset(a) - offset(b)).unsigned_abs();
    // Allows twice the drift of `DRIFT_MAX_PPM`.
    let over_ns = a.from_ns.abs_diff(b.from_ns);
    let explained = drifted(drifted(0, over_ns), over_ns);
    apart > u128::from(explained) + u128::from(a.error_ns) + u128::from(b.error_ns)
}

/// Reports whether both clocks advance from `a` to `b`, at rates within a factor of two unless a
/// clock was set in between. Two close estimates may differ by their errors alone; a line through
/// them would compress the time between them, or stretch it.
fn rises(a: Anchor, b: Anchor) -> bool {
    if a.from_ns >= b.from_ns || a.to_ns >= b.to_ns {
        return false;
    }
    let (from_ns, to_ns) = (b.from_ns.abs_diff(a.from_ns), b.to_ns.abs_diff(a.to_ns));
    is_step(a, b) || to_ns >= from_ns / 2 && from_ns >= to_ns / 2
}

fn between(a: Anchor, b: Anchor, at_ns: i64) -> (i64, u64) {
    let length = i128::from(b.from_ns) - i128::from(a.from_ns);
    let at = i128::from(at_ns) - i128::from(a.from_ns);
    let part = |whole: i128| -> i128 {
        // The product of two i64 values fits i128. Differences of up to 2⁶⁴ may overflow; the part
        // is then 0, but no real clock is that far off.
        whole.checked_mul(at).map_or(0, |of| of.div_euclid(length))
    };
    let to_ns = i128::from(a.to_ns) + part(i128::from(b.to_ns) - i128::from(a.to_ns));
    let error_ns = i128::from(a.error_ns) + part(i128::from(b.error_ns) - i128::from(a.error_ns));
    // Both results lie between two values of their type; the division lost less than a nanosecond.
    (to_ns as i64, error_ns as u64 + 1)
}

fn beyond(edge: Anchor, at_ns: i64) -> (i64, u64) {
    let to_ns = i128::from(at_ns) - i128::from(edge.from_ns) + i128::from(edge.to_ns);
    let to_ns = to_ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
    (to_ns, drifted(edge.error_ns, edge.from_ns.abs_diff(at_ns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor(from_ns: i64, to_ns: i64, error_ns: u64) -> Anchor {
        Anchor {
            from_ns,
            to_ns,
            error_ns,
        }
    }

    #[test]
    fn estimates_that_are_near_each_other_do_not_stop_time() {
        const MS: i64 = 1_000_000;
        // The third estimate is 1 ms after the second. By its error, the other clock seems to
        // advance by only 0.4 ms.
        let found = vec![
            anchor(0, 0, 400_000),
            anchor(1_000 * MS, 1_000 * MS, 300_000),
            anchor(1_001 * MS, 1_000 * MS + 400_010, 400_000),
            anchor(2_000 * MS, 2_000 * MS, 400_000),
        ];
        let anchors = Anchors::of(found).unwrap();
        assert_eq!(anchors.steps, 0);
        for at_ns in (0..2_000 * MS).step_by(100_000) {
            let apart_ns = anchors.convert(at_ns + 1_000).0 - anchors.convert(at_ns).0;
            assert!((500..=2_000).contains(&apart_ns), "{at_ns}: {apart_ns}");
        }
    }
}
