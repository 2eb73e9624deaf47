//! Schedules reports of the kernel's clock state: whether it is synchronized, and its maximum and
//! estimated errors.

use stroboscope_proto::v1;

/// Age of the last report, in ns, at which the next one is due. Reports repeat because errors grow
/// and batches may be lost.
const SAY_AGAIN_AFTER_NS: i64 = 10_000_000_000;

/// Schedule of reports, which travel in batches: the first one is due at once, the next ones when
/// the synchronization state changes or after ten seconds.
#[derive(Debug, Default)]
pub(crate) struct KernelClockReports {
    /// Monotonic time of the last report in ns, and whether it reported a synchronized clock.
    last: Option<(i64, bool)>,
}

impl KernelClockReports {
    /// Returns the report that is due now, if any: the first one, one after a change of
    /// `synchronised`, and one when the last is [`SAY_AGAIN_AFTER_NS`] old.
    pub(crate) fn due(
        &mut self,
        known: Option<v1::KernelClock>,
        monotonic_ns: i64,
    ) -> Option<v1::KernelClock> {
        let known = known?;
        let is_due = self.last.is_none_or(|(at_ns, synchronised)| {
            synchronised != known.synchronised || monotonic_ns - at_ns >= SAY_AGAIN_AFTER_NS
        });
        if is_due {
            self.last = Some((monotonic_ns, known.synchronised));
        }
        is_due.then_some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_said_at_first_when_it_changes_and_every_ten_seconds() {
        let clock = |synchronised, max_error_ns| {
            Some(v1::KernelClock {
                synchronised,
                max_error_ns,
                estimated_error_ns: 1,
            })
        };
        let mut saying = KernelClockReports::default();
        let mut check = |at_s: i64, known: Option<v1::KernelClock>, expected: bool| {
            assert_eq!(
                saying.due(known, at_s * 1_000_000_000),
                known.filter(|_| expected),
                "{at_s} s: {known:?}"
            );
        };
        check(0, None, false);
        check(1, clock(true, 5), true);
        check(2, clock(true, 6), false);
        check(3, clock(false, 7), true);
        check(4, clock(false, 8), false);
        check(12, clock(false, 9), false);
        check(13, clock(false, 10), true);
        check(14, clock(true, 3), true);
        check(15, None, false);
        check(24, clock(true, 4), true);
    }
}
