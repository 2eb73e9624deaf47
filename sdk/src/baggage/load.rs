//! Load of this process: throughput, CPU and memory, measured about once a second by the shipping
//! thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stroboscope_proto::v1;

use crate::sys;

/// Load metrics of Chow, dissertation, §4.3.1. All are zero before the shipping thread's first
/// measurement; the rates are zero until the second one, about a second later.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Load {
    /// Requests that entered per second, between the last two measurements. Counts requests of
    /// `tower::ServerLayer` and of [`IncomingContext`](crate::propagation::IncomingContext), and
    /// calls of [`count_request`].
    pub requests_per_second: f64,
    /// CPU time per elapsed time between the last two measurements; 1.0 is one busy core. 0 on
    /// systems other than Unix.
    pub cpu_cores: f64,
    /// Resident memory in bytes. 0 on systems other than Linux.
    pub memory_bytes: u64,
}

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static REQUESTS_PER_SECOND: AtomicU64 = AtomicU64::new(0);
static CPU_CORES: AtomicU64 = AtomicU64::new(0);
static MEMORY_BYTES: AtomicU64 = AtomicU64::new(0);

/// Counts a request that entered this process. Only for services that use neither
/// `tower::ServerLayer` nor [`IncomingContext`](crate::propagation::IncomingContext), which count
/// requests themselves.
#[inline]
pub fn count_request() {
    REQUESTS.fetch_add(1, Relaxed);
}

/// Returns the load of this process, as last measured.
#[must_use]
pub fn load() -> Load {
    Load {
        requests_per_second: f64::from_bits(REQUESTS_PER_SECOND.load(Relaxed)),
        cpu_cores: f64::from_bits(CPU_CORES.load(Relaxed)),
        memory_bytes: MEMORY_BYTES.load(Relaxed),
    }
}

/// Resources used between two measurements, for the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadSample {
    /// Time between the measurements in ns, on the monotonic clock.
    pub(crate) length_ns: i64,
    /// CPU time used between the measurements, in ns. `None` where the system does not report it.
    pub(crate) cpu_ns: Option<i64>,
    /// Resident memory at the end, in bytes. `None` where the system does not report it.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) requests: u64,
}

impl LoadSample {
    /// Converts to the wire form of an interval that ends at this wall time.
    pub(crate) fn until(self, to_ns: i64) -> v1::Load {
        let unsigned = |ns: i64| ns.max(0).cast_unsigned();
        v1::Load {
            from_ns: unsigned(to_ns.saturating_sub(self.length_ns)),
            to_ns: unsigned(to_ns),
            cpu_ns: self.cpu_ns.map(unsigned),
            memory_bytes: self.memory_bytes,
            requests: self.requests,
        }
    }
}

/// Measures load at most once a second.
#[derive(Debug)]
pub(crate) struct Meter {
    last: Option<LoadReading>,
}

#[derive(Clone, Copy, Debug)]
struct LoadReading {
    at_ns: i64,
    /// CPU time of this process so far, in ns. `None` where the system does not report it.
    cpu_ns: Option<i64>,
    requests: u64,
}

const PERIOD_NS: i64 = 1_000_000_000;

impl Meter {
    pub(crate) const fn new() -> Self {
        Self { last: None }
    }

    /// Returns the resources used since the last measurement, or `None` if there was none or a
    /// second has not passed. `at_ns` is monotonic.
    pub(crate) fn tick(&mut self, at_ns: i64) -> Option<LoadSample> {
        if self.last.is_some_and(|last| at_ns - last.at_ns < PERIOD_NS) {
            return None;
        }
        // Uses the process's CPU clock, because /proc/self/stat counts in hundredths of a second.
        let now = LoadReading {
            at_ns,
            cpu_ns: sys::process_cpu_ns(),
            requests: REQUESTS.load(Relaxed),
        };
        let memory_bytes = sys::resident_bytes();
        if let Some(bytes) = memory_bytes {
            MEMORY_BYTES.store(bytes, Relaxed);
        }
        let last = self.last.replace(now)?;
        let used = LoadSample {
            length_ns: now.at_ns - last.at_ns,
            cpu_ns: now
                .cpu_ns
                .zip(last.cpu_ns)
                .map(|(now_ns, last_ns)| (now_ns - last_ns).max(0)),
            memory_bytes,
            requests: now.requests.wrapping_sub(last.requests),
        };
        let seconds = used.length_ns as f64 / 1e9;
        let requests_per_second = used.requests as f64 / seconds;
        REQUESTS_PER_SECOND.store(requests_per_second.to_bits(), Relaxed);
        if let Some(cpu_ns) = used.cpu_ns {
            let cores = cpu_ns as f64 / 1e9 / seconds;
            CPU_CORES.store(cores.to_bits(), Relaxed);
        }
        Some(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cpu_and_memory_are_measured() {
        let mut meter = Meter::new();
        assert_eq!(meter.tick(0), None, "there is nothing to compare with");
        for _ in 0..50 {
            count_request();
        }
        let start_ns = sys::process_cpu_ns();
        while start_ns
            .is_some_and(|start_ns| sys::process_cpu_ns().unwrap() - start_ns < 50_000_000)
        {
            std::hint::spin_loop();
        }
        assert_eq!(meter.tick(PERIOD_NS / 2), None, "not yet");
        let used = meter.tick(2 * PERIOD_NS).unwrap();
        assert_eq!((used.length_ns, used.requests), (2 * PERIOD_NS, 50));
        assert_eq!(used.memory_bytes.is_some(), sys::resident_bytes().is_some());
        let load = load();
        assert_eq!(load.requests_per_second, 25.0);
        assert_eq!(used.cpu_ns.is_some(), start_ns.is_some());
        if let Some(cpu_ns) = used.cpu_ns {
            assert!(cpu_ns >= 40_000_000, "{used:?}");
            assert_eq!(load.cpu_cores, cpu_ns as f64 / 2e9);
        }
        assert_eq!(
            load.memory_bytes > 1 << 20,
            sys::resident_bytes().is_some(),
            "{load:?}"
        );
    }
}
