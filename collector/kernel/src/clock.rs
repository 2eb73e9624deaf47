//! Reads the kernel's clocks.

#![allow(unsafe_code)]

use stroboscope_kernel_model::ClockSample;

fn read_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result, and the clocks used here exist on every
    // Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Returns the current monotonic time in ns.
pub(crate) fn now_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC).cast_unsigned()
}

/// Reads the current offsets of the clocks. The wall clock is read between two readings of the
/// monotonic clock, and the tightest of eight attempts counts.
pub(crate) fn sample() -> ClockSample {
    let read = || {
        let before = read_ns(libc::CLOCK_MONOTONIC);
        let wall = read_ns(libc::CLOCK_REALTIME);
        let after = read_ns(libc::CLOCK_MONOTONIC);
        let width = after - before;
        let at = before + width / 2;
        ClockSample {
            at_ns: at.cast_unsigned(),
            wall_offset_ns: wall - at,
            tai_offset_ns: 0,
            boot_offset_ns: 0,
            uncertainty_ns: width.cast_unsigned(),
        }
    };
    let mut best = read();
    for _ in 0..7 {
        let next = read();
        if next.uncertainty_ns < best.uncertainty_ns {
            best = next;
        }
    }
    let boot_ns = read_ns(libc::CLOCK_BOOTTIME) - read_ns(libc::CLOCK_MONOTONIC);
    // If the machine was never suspended, the difference is only the time between the two readings.
    best.boot_offset_ns = if boot_ns.abs() < 1_000_000 {
        0
    } else {
        boot_ns
    };
    // The offset is in whole seconds by definition. Rounding removes the time between the readings.
    let difference = read_ns(libc::CLOCK_TAI) - read_ns(libc::CLOCK_REALTIME);
    best.tai_offset_ns = (difference + 500_000_000).div_euclid(1_000_000_000) * 1_000_000_000;
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_tight() {
        let sample = sample();
        assert!(sample.uncertainty_ns < 1_000_000, "{sample:?}");
        assert!(
            sample.tai_offset_ns >= 0 && sample.tai_offset_ns % 1_000_000_000 == 0,
            "{sample:?}"
        );
    }
}
