//! Arrival rate of requests at a point.

/// Number of counted time slices: about a second while requests arrive in each.
const SLICES: usize = 10;
/// Numbers of recent slices that can show a spike, each with the number of standard deviations of a
/// Poisson count by which they must stand out.
const RECENT: [(usize, f64); 2] = [(5, 1.0), (2, 2.0)];

/// Arrivals by slices of 100 ms; longer while no requests arrive, shorter if the policy changes.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Ring buffer of pairs: the end of a slice in ns, and the total arrivals until then.
    ends: [(i64, u64); SLICES + 1],
    /// Number of valid entries.
    count: usize,
    next: usize,
}

impl Arrivals {
    pub(super) const fn new() -> Self {
        Self {
            ends: [(0, 0); SLICES + 1],
            count: 0,
            next: 0,
        }
    }

    /// Ends a slice at `at_ns`, until which `arrivals` requests have arrived in total. Returns the
    /// requests per second over the last [`SLICES`] slices; 0 for the first slice. Each [`RECENT`]
    /// interval gives another rate, minus its number of standard deviations. If one of these is
    /// higher, it is returned instead. A spike thus shows within half a second, a large one sooner,
    /// and noise rarely does. After three seconds without a call, earlier arrivals are forgotten.
    pub(super) fn end_slice(&mut self, at_ns: i64, arrivals: u64) -> f64 {
        // After a long pause, earlier arrivals no longer count as load.
        const FORGOTTEN_NS: i64 = 3_000_000_000;
        if self
            .back(1)
            .is_some_and(|(last_ns, _)| at_ns - last_ns > FORGOTTEN_NS)
        {
            self.count = 0;
        }
        self.ends[self.next] = (at_ns, arrivals);
        self.next = (self.next + 1) % self.ends.len();
        self.count = (self.count + 1).min(self.ends.len());
        let since = |back: usize| {
            let (from_ns, before) = self.back(back.min(self.count))?;
            let seconds = (at_ns - from_ns) as f64 / 1e9;
            (seconds > 0.0).then(|| (arrivals.wrapping_sub(before) as f64, seconds))
        };
        let all = since(SLICES + 1).map_or(0.0, |(count, seconds)| count / seconds);
        let recent = RECENT.into_iter().filter_map(|(slices, deviations)| {
            let (count, seconds) = since(slices + 1)?;
            Some((count - deviations * count.sqrt()) / seconds)
        });
        recent.fold(all, f64::max)
    }

    /// Returns the end of a slice, counted back from the last one, which is number 1. Returns
    /// `None` if there are fewer slices.
    fn back(&self, back: usize) -> Option<(i64, u64)> {
        if back == 0 || back > self.count {
            return None;
        }
        let ends = self.ends.len();
        self.ends.get((self.next + ends - back) % ends).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_found_a_spike_within_half_a_second_and_silence_is_none() {
        const SLICE_NS: i64 = 100_000_000;
        let (mut arrivals, mut at_ns, mut total) = (Arrivals::new(), 0, 0);
        let mut go = |per_slice: u64, slices: u32| {
            let mut rate = 0.0;
            for _ in 0..slices {
                at_ns += SLICE_NS;
                total += per_slice;
                rate = arrivals.end_slice(at_ns, total);
            }
            rate
        };
        assert_eq!(go(5, 1), 0.0, "one end says nothing");
        assert!((go(5, 30) - 50.0).abs() < 1e-9);
        let spike = go(15, 5);
        assert!(spike > 130.0 && spike <= 150.0, "{spike}");
        assert!((go(15, 10) - 150.0).abs() < 1e-9);
        assert!((go(0, 10)).abs() < 1e-9);
        at_ns += 10 * SLICE_NS * 10;
        let mut after = Arrivals::new();
        after.end_slice(0, 1_000);
        assert_eq!(after.end_slice(at_ns, 2_000), 0.0, "long silence");
    }
}
