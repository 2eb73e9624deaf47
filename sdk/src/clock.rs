//! Converts ticks (cheap, monotonic) to wall time (shared by all processes).
//!
//! Records are stamped with a counter that is fast to read. The drain converts ticks to
//! nanoseconds since the Unix epoch by interpolating between *anchors*: readings of all clocks at
//! nearly the same instant, taken at each turn of a drain. Interpolation follows NTP's slewing
//! automatically. A jump of the wall clock shows as a difference from the monotonic clock; the
//! timeline reports it as a step.

pub(crate) mod kernel;

use std::collections::VecDeque;

use crate::sys;

/// Reads the tick counter. Its rate depends on the machine, is the same on all cores, and is
/// constant except across a suspend or a move to another machine.
#[inline(always)]
#[must_use]
pub(crate) fn ticks() -> u64 {
    imp::ticks()
}

/// Writes [`ticks`] to a location.
#[inline(always)]
pub(crate) fn stamp(place: &mut u64) {
    imp::stamp(place);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod imp {
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn ticks() -> u64 {
        // SAFETY: rdtsc exists on every x86-64 processor and reads a register; the systems that
        // Rust runs on do not trap it by default.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    /// Stores the two halves separately, as the instruction returns them. Joining them takes longer
    /// than a second store. The drain reads the word as a whole, but only later.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn stamp(place: &mut u64) {
        let (low, high): (u32, u32);
        // SAFETY: as above; it writes to the two registers that are named, and to no memory.
        unsafe {
            core::arch::asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack));
        };
        let halves = std::ptr::from_mut(place).cast::<u32>();
        // SAFETY: the place has 8 bytes, is aligned for both types, and is mutably borrowed; x86
        // has the lower half first.
        unsafe {
            halves.write(low);
            halves.add(1).write(high);
        }
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod imp {
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn ticks() -> u64 {
        let count: u64;
        // SAFETY: the virtual counter is readable from user space on Linux, macOS and Windows; the
        // instruction touches no memory.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
        count
    }

    #[inline(always)]
    pub(super) fn stamp(place: &mut u64) {
        *place = ticks();
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod imp {
    #[inline(always)]
    pub(super) fn ticks() -> u64 {
        crate::sys::monotonic_ns().cast_unsigned()
    }

    #[inline(always)]
    pub(super) fn stamp(place: &mut u64) {
        *place = ticks();
    }
}

/// Source of time: the system's clocks or a test's.
pub(crate) trait ClockSource: Send + Sync {
    /// Returns nanoseconds since the Unix epoch; may jump.
    fn wall_ns(&self) -> i64;
    /// Returns nanoseconds since some fixed instant; never jumps. On Linux, it stands still during
    /// suspend.
    fn monotonic_ns(&self) -> i64;
    /// Reads the counter that stamps records.
    fn ticks(&self) -> u64 {
        ticks()
    }
    /// Returns the kernel's estimate of its clock's accuracy, or `None` if there is none.
    fn kernel_clock(&self) -> Option<stroboscope_proto::v1::KernelClock> {
        None
    }
}

/// Clocks of the machine.
#[derive(Debug, Default)]
pub(crate) struct SystemClock;

impl ClockSource for SystemClock {
    fn wall_ns(&self) -> i64 {
        sys::wall_ns()
    }

    fn monotonic_ns(&self) -> i64 {
        sys::monotonic_ns()
    }

    fn kernel_clock(&self) -> Option<stroboscope_proto::v1::KernelClock> {
        sys::kernel_clock()
    }
}

/// Readings of three clocks at nearly one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Anchor {
    pub(crate) ticks: u64,
    pub(crate) wall_ns: i64,
    pub(crate) monotonic_ns: i64,
}

impl Anchor {
    /// Takes the least disturbed of several readings: the one whose two surrounding counter reads
    /// lie closest together.
    pub(crate) fn take(clock: &dyn ClockSource) -> Self {
        let mut best: Option<(u64, Self)> = None;
        for _ in 0..4 {
            let before = clock.ticks();
            let wall_ns = clock.wall_ns();
            let monotonic_ns = clock.monotonic_ns();
            let after = clock.ticks();
            let width = after.saturating_sub(before);
            if best.is_none_or(|(best_width, _)| width < best_width) {
                best = Some((
                    width,
                    Self {
                        ticks: before + width / 2,
                        wall_ns,
                        monotonic_ns,
                    },
                ));
            }
        }
        best.map_or(
            Self {
                ticks: 0,
                wall_ns: 0,
                monotonic_ns: 0,
            },
            |(_, anchor)| anchor,
        )
    }
}

/// Jump of the wall clock by `step_ns`, detected at `at_ns` (in the new time).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockStep {
    pub(crate) at_ns: i64,
    pub(crate) step_ns: i64,
}

/// Difference above which the wall clock counts as stepped. Noise of reading is usually smaller.
pub(crate) const STEP_THRESHOLD_NS: i64 = 5_000_000;
/// Maximum number of stored anchors. Each turn of a drain adds one, or two at a clock step, so they
/// cover at least the last 32 passes, longer than any record waits in a ring.
const ANCHORS_KEPT: usize = 512;

/// Maximum error of predicting the monotonic clock by a constant rate: this many ns, plus one part
/// in [`BREAK_PARTS`] of the elapsed time. A suspend (which only one of the two clocks counts) or a
/// move to another machine usually exceeds it; a new interval of constant rate then begins.
const BREAK_THRESHOLD_NS: i64 = 1_000_000;
const BREAK_PARTS: i64 = 1_000;
/// Maximum number of stored intervals of constant tick rate.
const STRETCHES_KEPT: usize = 8;

/// Piecewise linear functions from ticks to wall time and from ticks to durations.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Anchors in tick order. At a clock step, two anchors have the same ticks: the first ends the
    /// old line, and the second begins the new one.
    anchors: VecDeque<Anchor>,
    last_seen: Option<Anchor>,
    /// First and last anchor of each interval in which the tick rate was constant, in tick order.
    stretches: VecDeque<(Anchor, Anchor)>,
}

impl Timeline {
    /// Adds a newer anchor; returns the step of the wall clock since the previous anchor, if it
    /// exceeds [`STEP_THRESHOLD_NS`].
    pub(crate) fn push(&mut self, anchor: Anchor) -> Option<ClockStep> {
        let previous = self.last_seen.replace(anchor);
        let mut step = None;
        if let Some(previous) = previous {
            if anchor.ticks < previous.ticks {
                // The counter was set back, so its earlier values are ambiguous.
                self.anchors.clear();
                self.stretches.clear();
            }
            let expected_ns = previous.wall_ns + (anchor.monotonic_ns - previous.monotonic_ns);
            let step_ns = anchor.wall_ns - expected_ns;
            if step_ns.abs() > STEP_THRESHOLD_NS {
                // Records up to here belong to the old line.
                self.keep(Anchor {
                    wall_ns: expected_ns,
                    ..anchor
                });
                step = Some(ClockStep {
                    at_ns: anchor.wall_ns,
                    step_ns,
                });
            }
        }
        self.keep(anchor);
        self.stretch(anchor);
        step
    }

    fn stretch(&mut self, anchor: Anchor) {
        if let Some((first, last)) = self.stretches.back_mut() {
            let is_constant = rate(*first, *last).is_none_or(|rate| {
                let expected_ns = ((anchor.ticks - last.ticks) as f64 * rate) as i64;
                let elapsed_ns = anchor.monotonic_ns - last.monotonic_ns;
                (elapsed_ns - expected_ns).abs() <= BREAK_THRESHOLD_NS + elapsed_ns / BREAK_PARTS
            });
            if is_constant {
                *last = anchor;
                return;
            }
        }
        if self.stretches.len() == STRETCHES_KEPT {
            self.stretches.pop_front();
        }
        self.stretches.push_back((anchor, anchor));
    }

    fn keep(&mut self, anchor: Anchor) {
        if self.anchors.len() == ANCHORS_KEPT {
            self.anchors.pop_front();
        }
        self.anchors.push_back(anchor);
    }

    /// Returns the wall time of a tick, in ns since the Unix epoch. Outside the anchors, the
    /// nearest line is extended.
    #[cfg(test)]
    pub(crate) fn wall_ns(&self, ticks: u64) -> i64 {
        self.line_at(ticks).wall_ns(ticks)
    }

    /// Returns the line that is valid at a tick, and at the ticks around it up to the next anchors.
    pub(crate) fn line_at(&self, ticks: u64) -> Line {
        let anchors = &self.anchors;
        let len = anchors.len();
        if len < 2 {
            let wall_ns = anchors.front().map_or(0, |anchor| anchor.wall_ns);
            let flat = Anchor {
                ticks: 0,
                wall_ns,
                monotonic_ns: 0,
            };
            return Line {
                from_ticks: 0,
                to_ticks: u64::MAX,
                a: flat,
                b: flat,
                rate: 0.0,
            };
        }
        let after = anchors
            .partition_point(|anchor| anchor.ticks < ticks)
            .clamp(1, len - 1);
        let (mut a, mut b) = (anchors[after - 1], anchors[after]);
        let from_ticks = if after == 1 {
            0
        } else {
            a.ticks.saturating_add(1)
        };
        let to_ticks = if after == len - 1 { u64::MAX } else { b.ticks };
        // The two anchors of a step share their ticks and define no line; use the neighbouring one.
        if a.ticks == b.ticks {
            if after >= 2 {
                (a, b) = (anchors[after - 2], anchors[after - 1]);
            } else if after + 1 < len {
                (a, b) = (anchors[after], anchors[after + 1]);
            }
        }
        if a.ticks >= b.ticks {
            return Line {
                from_ticks,
                to_ticks,
                a: b,
                b,
                rate: 0.0,
            };
        }
        let rate = (b.wall_ns - a.wall_ns) as f64 / (b.ticks - a.ticks) as f64;
        Line {
            from_ticks,
            to_ticks,
            a,
            b,
            rate,
        }
    }

    /// Returns the nanoseconds between two ticks, never negative. Durations ignore jumps of the
    /// wall clock and, on Linux, exclude time in suspend.
    pub(crate) fn duration_ns(&self, from_ticks: u64, to_ticks: u64) -> u64 {
        if to_ticks <= from_ticks {
            return 0;
        }
        let elapsed_ns = self.monotonic_ns(to_ticks) - self.monotonic_ns(from_ticks);
        elapsed_ns.round().max(0.0) as u64
    }

    /// Returns the monotonic clock at a tick, in ns since the newest anchor, which keeps recent
    /// values small and exact.
    fn monotonic_ns(&self, ticks: u64) -> f64 {
        let Some(&(_, origin)) = self.stretches.back() else {
            return 0.0;
        };
        let since = |anchor: Anchor| (anchor.monotonic_ns - origin.monotonic_ns) as f64;
        let mut later: Option<Anchor> = None;
        let mut nearest = 0.0;
        for &(first, last) in self.stretches.iter().rev() {
            // Uses the longest base line.
            let rate = rate(first, last);
            let at = |rate: f64| since(last) - (last.ticks as f64 - ticks as f64) * rate;
            match later {
                // The tick lies between two stretches.
                Some(later) if ticks > last.ticks => {
                    let part =
                        (ticks - last.ticks) as f64 / (later.ticks - last.ticks).max(1) as f64;
                    return since(last) + (since(later) - since(last)) * part.min(1.0);
                }
                _ if ticks >= first.ticks => match rate {
                    Some(rate) => return at(rate),
                    // The stretch has only its first anchor yet, so use the previous stretch's
                    // rate.
                    None => {
                        nearest =
                            since(last) + (ticks - last.ticks) as f64 * self.last_known_rate();
                    }
                },
                _ => nearest = at(rate.unwrap_or(0.0)),
            }
            if ticks >= first.ticks {
                return nearest;
            }
            later = Some(first);
        }
        nearest
    }

    /// Returns the number of stored anchors.
    #[cfg(test)]
    pub(crate) fn anchors(&self) -> usize {
        self.anchors.len()
    }

    fn last_known_rate(&self) -> f64 {
        self.stretches
            .iter()
            .rev()
            .find_map(|&(first, last)| rate(first, last))
            .unwrap_or(0.0)
    }
}

/// Returns the nanoseconds per tick, or `None` if `last` has no later tick than `first`.
fn rate(first: Anchor, last: Anchor) -> Option<f64> {
    (last.ticks > first.ticks).then(|| {
        (last.monotonic_ns - first.monotonic_ns) as f64 / (last.ticks - first.ticks) as f64
    })
}

/// Linear segment of the timeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Ticks for which the line is valid, both inclusive.
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

    /// Returns the wall time of a tick, in ns since the Unix epoch.
    pub(crate) fn wall_ns(&self, ticks: u64) -> i64 {
        // Computes from `b` for later ticks and from `a` for others, so that the float stays small
        // and exact.
        let (base, offset) = if ticks >= self.b.ticks {
            (self.b, (ticks - self.b.ticks) as f64)
        } else if ticks >= self.a.ticks {
            (self.a, (ticks - self.a.ticks) as f64)
        } else {
            (self.a, -((self.a.ticks - ticks) as f64))
        };
        let elapsed = offset * self.rate;
        // Rounds to nearest; `f64::round` is a library call on most x86-64 targets.
        base.wall_ns + (elapsed + 0.5f64.copysign(elapsed)) as i64
    }
}

#[cfg(test)]
mod tests;
