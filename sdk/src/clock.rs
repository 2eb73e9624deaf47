//! Ticks (cheap, monotonic) and wall time (shared by all processes), and the line between them.
//!
//! Records are stamped with a counter that costs about 11 ns to read. The drain turns ticks into nanoseconds since
//! the Unix epoch by interpolating between *anchors*: pairs of both clocks read at the same instant, taken at every
//! drain. Interpolation follows slewing (NTP) by itself; a jump of the wall clock shows as an anchor that does not
//! fit the line, and is recorded as a step.

use std::collections::VecDeque;

/// The tick counter: a number that grows at an unknown constant rate, the same on all cores.
#[inline(always)]
#[must_use]
pub(crate) fn ticks() -> u64 {
    imp::ticks()
}

#[cfg(target_arch = "x86_64")]
mod imp {
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn ticks() -> u64 {
        // SAFETY: rdtsc exists on every x86-64 processor and reads a register; Linux does not trap it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
}

#[cfg(target_arch = "aarch64")]
mod imp {
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn ticks() -> u64 {
        let count: u64;
        // SAFETY: the virtual counter is readable from user space on Linux; the instruction touches no memory.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
        count
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod imp {
    #[inline(always)]
    pub(super) fn ticks() -> u64 {
        super::read_clock_ns(libc::CLOCK_MONOTONIC).cast_unsigned()
    }
}

#[allow(unsafe_code)]
fn read_clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result, and the clocks used here always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// CPU time of this process, all threads, ns.
pub(crate) fn process_cpu_ns() -> i64 {
    read_clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Size of a page of memory, bytes.
#[allow(unsafe_code)]
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: asks for a constant; touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4_096)
}

/// Where time comes from. The real clocks, or a test's.
pub(crate) trait ClockSource: Send + Sync {
    /// Nanoseconds since the Unix epoch; may jump.
    fn wall_ns(&self) -> i64;
    /// Nanoseconds since some instant; never jumps, stands still during suspend.
    fn monotonic_ns(&self) -> i64;
    /// The counter that records are stamped with.
    fn ticks(&self) -> u64 {
        ticks()
    }
}

/// The machine's clocks.
#[derive(Debug, Default)]
pub(crate) struct SystemClock;

impl ClockSource for SystemClock {
    fn wall_ns(&self) -> i64 {
        read_clock_ns(libc::CLOCK_REALTIME)
    }

    fn monotonic_ns(&self) -> i64 {
        read_clock_ns(libc::CLOCK_MONOTONIC)
    }
}

/// Nanoseconds since the Unix epoch, now.
pub(crate) fn now_wall_ns() -> i64 {
    read_clock_ns(libc::CLOCK_REALTIME)
}

/// The same instant on three clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Anchor {
    pub(crate) ticks: u64,
    pub(crate) wall_ns: i64,
    pub(crate) monotonic_ns: i64,
}

impl Anchor {
    /// Of several readings the one least disturbed: the two counter reads around the clock lie closest.
    pub(crate) fn take(clock: &dyn ClockSource) -> Self {
        let mut best: Option<(u64, Self)> = None;
        for _ in 0..4 {
            let before = clock.ticks();
            let wall_ns = clock.wall_ns();
            let monotonic_ns = clock.monotonic_ns();
            let after = clock.ticks();
            let width = after.saturating_sub(before);
            if best.is_none_or(|(best_width, _)| width < best_width) {
                best = Some((width, Self { ticks: before + width / 2, wall_ns, monotonic_ns }));
            }
        }
        best.map_or(Self { ticks: 0, wall_ns: 0, monotonic_ns: 0 }, |(_, anchor)| anchor)
    }
}

/// The wall clock jumped by `step_ns` (seen at `at_ns`, new time).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockStep {
    pub(crate) at_ns: i64,
    pub(crate) step_ns: i64,
}

/// A jump larger than this is a step; smaller differences are slewing (at most 0.5 ms a second) and reading noise.
pub(crate) const STEP_THRESHOLD_NS: i64 = 5_000_000;
/// Anchors kept; at one per drain they reach back some seconds, longer than any record waits in a ring.
const ANCHORS_KEPT: usize = 512;

/// Piecewise lines from ticks to wall time.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// In tick order. Where the clock stepped, two anchors have nearly the same ticks.
    anchors: VecDeque<Anchor>,
    last_seen: Option<Anchor>,
}

impl Timeline {
    /// Adds a newer anchor; says if the wall clock stepped since the one before.
    pub(crate) fn push(&mut self, anchor: Anchor) -> Option<ClockStep> {
        let previous = self.last_seen.replace(anchor);
        let mut step = None;
        if let Some(previous) = previous {
            let expected_ns = previous.wall_ns + (anchor.monotonic_ns - previous.monotonic_ns);
            let step_ns = anchor.wall_ns - expected_ns;
            if step_ns.abs() > STEP_THRESHOLD_NS {
                // What was recorded up to here belongs to the old line.
                self.keep(Anchor { wall_ns: expected_ns, ..anchor });
                step = Some(ClockStep { at_ns: anchor.wall_ns, step_ns });
            }
        }
        self.keep(anchor);
        step
    }

    fn keep(&mut self, anchor: Anchor) {
        if self.anchors.len() == ANCHORS_KEPT {
            self.anchors.pop_front();
        }
        self.anchors.push_back(anchor);
    }

    /// Wall time of a tick, ns since the Unix epoch; outside the anchors, the nearest line is extended.
    #[cfg(test)]
    pub(crate) fn wall_ns(&self, ticks: u64) -> i64 {
        self.line_at(ticks).wall_ns(ticks)
    }

    /// The line that holds at a tick, and at the ticks around it up to the next anchors.
    pub(crate) fn line_at(&self, ticks: u64) -> Line {
        let anchors = &self.anchors;
        let len = anchors.len();
        if len < 2 {
            let wall_ns = anchors.front().map_or(0, |anchor| anchor.wall_ns);
            let flat = Anchor { ticks: 0, wall_ns, monotonic_ns: 0 };
            return Line { from_ticks: 0, to_ticks: u64::MAX, a: flat, b: flat, rate: 0.0 };
        }
        let after = anchors.partition_point(|anchor| anchor.ticks < ticks).clamp(1, len - 1);
        let (mut a, mut b) = (anchors[after - 1], anchors[after]);
        let from_ticks = if after == 1 { 0 } else { a.ticks.saturating_add(1) };
        let to_ticks = if after == len - 1 { u64::MAX } else { b.ticks };
        // A step's two anchors share their ticks: no line there, take the neighbouring one.
        if a.ticks == b.ticks {
            if after >= 2 {
                (a, b) = (anchors[after - 2], anchors[after - 1]);
            } else if after + 1 < len {
                (a, b) = (anchors[after], anchors[after + 1]);
            }
        }
        if a.ticks >= b.ticks {
            return Line { from_ticks, to_ticks, a: b, b, rate: 0.0 };
        }
        let rate = (b.wall_ns - a.wall_ns) as f64 / (b.ticks - a.ticks) as f64;
        Line { from_ticks, to_ticks, a, b, rate }
    }

    /// Nanoseconds between two ticks, never negative: lengths do not follow the wall clock's jumps.
    pub(crate) fn duration_ns(&self, from_ticks: u64, to_ticks: u64) -> u64 {
        let elapsed = to_ticks.saturating_sub(from_ticks);
        let (Some(first), Some(last)) = (self.anchors.front(), self.anchors.back()) else { return 0 };
        if last.ticks <= first.ticks {
            return 0;
        }
        // Over the longest base line, by the clock that does not jump.
        let rate = (last.monotonic_ns - first.monotonic_ns) as f64 / (last.ticks - first.ticks) as f64;
        (elapsed as f64 * rate).round().max(0.0) as u64
    }
}

/// A stretch of the timeline without a bend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Where it holds, both inclusive.
    from_ticks: u64,
    to_ticks: u64,
    a: Anchor,
    b: Anchor,
    /// Nanoseconds per tick.
    rate: f64,
}

impl Line {
    pub(crate) fn holds_at(&self, ticks: u64) -> bool {
        self.from_ticks <= ticks && ticks <= self.to_ticks
    }

    /// Wall time of a tick, ns since the Unix epoch.
    pub(crate) fn wall_ns(&self, ticks: u64) -> i64 {
        // From the nearer end, so that the float stays small and exact.
        let (base, offset) = if ticks >= self.b.ticks {
            (self.b, (ticks - self.b.ticks) as f64)
        } else if ticks >= self.a.ticks {
            (self.a, (ticks - self.a.ticks) as f64)
        } else {
            (self.a, -((self.a.ticks - ticks) as f64))
        };
        let elapsed = offset * self.rate;
        // Rounds to the nearest; `f64::round` is a call of a library on most x86-64 targets.
        base.wall_ns + (elapsed + 0.5f64.copysign(elapsed)) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor(ticks: u64, wall_ns: i64, monotonic_ns: i64) -> Anchor {
        Anchor { ticks, wall_ns, monotonic_ns }
    }

    #[test]
    fn interpolates_and_extends() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.push(anchor(1_000, 10_000, 0)), None);
        assert_eq!(timeline.push(anchor(3_000, 11_000, 1_000)), None);
        for (ticks, wall) in [(1_000, 10_000), (2_000, 10_500), (3_000, 11_000), (4_000, 11_500), (0, 9_500)]
        {
            assert_eq!(timeline.wall_ns(ticks), wall, "{ticks}");
        }
        assert_eq!(timeline.duration_ns(1_000, 2_000), 500);
        assert_eq!(timeline.duration_ns(2_000, 1_000), 0);
    }

    #[test]
    fn a_step_is_seen_and_lengths_ignore_it() {
        let s = 1_000_000_000;
        let mut timeline = Timeline::default();
        timeline.push(anchor(0, 100 * s, 0));
        timeline.push(anchor(1_000_000_000, 101 * s, s));
        // One second later by the monotonic clock, but the wall clock was set back by ten.
        let step = timeline.push(anchor(2_000_000_000, 92 * s, 2 * s));
        assert_eq!(step, Some(ClockStep { at_ns: 92 * s, step_ns: -10 * s }));
        timeline.push(anchor(3_000_000_000, 93 * s, 3 * s));
        assert_eq!(timeline.wall_ns(1_500_000_000), 101 * s + s / 2, "before the step: the old line");
        assert_eq!(timeline.wall_ns(2_500_000_000), 92 * s + s / 2, "after the step: the new line");
        assert_eq!(timeline.duration_ns(1_500_000_000, 2_500_000_000), s as u64);
    }

    #[test]
    fn a_line_says_the_same_wherever_it_holds() {
        let mut timeline = Timeline::default();
        let mut seen = 0;
        for n in 0..40u64 {
            // Slewing, and a step now and then.
            let wall_ns =
                1_000_000 * n.cast_signed() + (n % 7).cast_signed() - 30_000_000 * (n / 9).cast_signed();
            timeline.push(anchor(10_000 * n, wall_ns, 1_000_000 * n.cast_signed()));
            let ticks: Vec<u64> =
                (0..420_000).step_by(2_500).flat_map(|at| [at, at + 1, at + 2_499]).collect();
            for &at in ticks.iter().step_by(17) {
                let line = timeline.line_at(at);
                assert!(line.holds_at(at));
                for &other in ticks.iter().filter(|&&other| line.holds_at(other)) {
                    assert_eq!(line.wall_ns(other), timeline.wall_ns(other), "{n} {at} {other}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 10_000, "{seen}");
    }

    #[test]
    fn slewing_is_no_step() {
        let mut timeline = Timeline::default();
        timeline.push(anchor(0, 0, 0));
        assert_eq!(timeline.push(anchor(1_000, 1_000_500_000, 1_000_000_000)), None);
    }

    #[test]
    fn real_clocks_agree() {
        let clock = SystemClock;
        let mut timeline = Timeline::default();
        timeline.push(Anchor::take(&clock));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (tick, wall) = (ticks(), now_wall_ns());
        std::thread::sleep(std::time::Duration::from_millis(20));
        timeline.push(Anchor::take(&clock));
        let error_ns = (timeline.wall_ns(tick) - wall).abs();
        assert!(error_ns < 1_000_000, "{error_ns} ns");
    }
}
