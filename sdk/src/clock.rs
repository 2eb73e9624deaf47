//! Ticks (cheap, monotonic) and wall time (shared by all processes), and the line between them.
//!
//! Records are stamped with a counter that costs about 11 ns to read. The drain turns ticks into nanoseconds since
//! the Unix epoch by interpolating between *anchors*: pairs of both clocks read at the same instant, taken at every
//! drain. Interpolation follows slewing (NTP) by itself; a jump of the wall clock shows as an anchor that does not
//! fit the line, and is recorded as a step.

pub(crate) mod kernel;

use std::collections::VecDeque;

use crate::sys;

/// The tick counter: a number that grows at an unknown constant rate, the same on all cores.
#[inline(always)]
#[must_use]
pub(crate) fn ticks() -> u64 {
    imp::ticks()
}

/// Writes [`ticks`] to a place.
#[inline(always)]
pub(crate) fn stamp(place: &mut u64) {
    imp::stamp(place);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod imp {
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn ticks() -> u64 {
        // SAFETY: rdtsc exists on every x86-64 processor and reads a register; the systems that Rust runs on do not trap it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    /// The two halves as the instruction leaves them: to join them takes longer than to store once more, and who reads
    /// the word as a whole does so on another processor, later.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn stamp(place: &mut u64) {
        let (low, high): (u32, u32);
        // SAFETY: as above; it writes to the two registers that are named, and to no memory.
        unsafe {
            core::arch::asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack));
        };
        let halves = std::ptr::from_mut(place).cast::<u32>();
        // SAFETY: the place is 8 bytes, aligned for both types, borrowed for this; x86 has the lower half first.
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
        // SAFETY: the virtual counter is readable from user space on Linux, macOS and Windows; the instruction touches no
        // memory.
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
    /// What its keeper says of it; `None`: nothing.
    fn kernel_clock(&self) -> Option<stroboscope_proto::v1::KernelClock> {
        None
    }
}

/// The machine's clocks.
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

/// The counter's rate is taken as constant as long as it predicts the monotonic clock this well, ns and parts. A suspend
/// (which one of the two counts and the other does not) or a move to another machine begins a new stretch.
const BREAK_THRESHOLD_NS: i64 = 1_000_000;
const BREAK_PARTS: i64 = 1_000;
/// Stretches of constant rate remembered.
const STRETCHES_KEPT: usize = 8;

/// Piecewise lines from ticks to wall time, and from ticks to lengths.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// In tick order. Where the clock stepped, two anchors have nearly the same ticks.
    anchors: VecDeque<Anchor>,
    last_seen: Option<Anchor>,
    /// In tick order: the first and the last anchor of each.
    stretches: VecDeque<(Anchor, Anchor)>,
}

impl Timeline {
    /// Adds a newer anchor; says if the wall clock stepped since the one before.
    pub(crate) fn push(&mut self, anchor: Anchor) -> Option<ClockStep> {
        let previous = self.last_seen.replace(anchor);
        let mut step = None;
        if let Some(previous) = previous {
            if anchor.ticks < previous.ticks {
                // The counter was set back: what it said before cannot be told from what it says now.
                self.anchors.clear();
                self.stretches.clear();
            }
            let expected_ns = previous.wall_ns + (anchor.monotonic_ns - previous.monotonic_ns);
            let step_ns = anchor.wall_ns - expected_ns;
            if step_ns.abs() > STEP_THRESHOLD_NS {
                // What was recorded up to here belongs to the old line.
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
        // A step's two anchors share their ticks: no line there, take the neighbouring one.
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

    /// Nanoseconds between two ticks, never negative: lengths do not follow the wall clock's jumps, and time in
    /// suspend is not part of them.
    pub(crate) fn duration_ns(&self, from_ticks: u64, to_ticks: u64) -> u64 {
        if to_ticks <= from_ticks {
            return 0;
        }
        let elapsed_ns = self.monotonic_ns(to_ticks) - self.monotonic_ns(from_ticks);
        elapsed_ns.round().max(0.0) as u64
    }

    /// The monotonic clock at a tick, as ns since the newest anchor: small numbers are exact ones.
    fn monotonic_ns(&self, ticks: u64) -> f64 {
        let Some(&(_, origin)) = self.stretches.back() else {
            return 0.0;
        };
        let since = |anchor: Anchor| (anchor.monotonic_ns - origin.monotonic_ns) as f64;
        let mut later: Option<Anchor> = None;
        let mut nearest = 0.0;
        for &(first, last) in self.stretches.iter().rev() {
            // Over the longest base line.
            let rate = rate(first, last);
            let at = |rate: f64| since(last) - (last.ticks as f64 - ticks as f64) * rate;
            match later {
                // Between two stretches.
                Some(later) if ticks > last.ticks => {
                    let part =
                        (ticks - last.ticks) as f64 / (later.ticks - last.ticks).max(1) as f64;
                    return since(last) + (since(later) - since(last)) * part.min(1.0);
                }
                _ if ticks >= first.ticks => match rate {
                    Some(rate) => return at(rate),
                    // Only its first anchor is known yet: its rate is that of the one before.
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

    /// Anchors kept.
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

/// Nanoseconds per tick.
fn rate(first: Anchor, last: Anchor) -> Option<f64> {
    (last.ticks > first.ticks).then(|| {
        (last.monotonic_ns - first.monotonic_ns) as f64 / (last.ticks - first.ticks) as f64
    })
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
mod tests;
