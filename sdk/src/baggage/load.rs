//! How loaded this process is: throughput, CPU and memory, measured once a second by the shipping thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sys;

/// The load metrics of 001 §4.3.1. All zero before the first second of recording has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Load {
    /// Requests that entered per second, over the last second: those of `tower::ServerLayer`, and what
    /// [`count_request`] was told.
    pub requests_per_second: f64,
    /// CPU time per wall time over the last second; 1.0 is one core kept busy. 0 on systems that are no Unix.
    pub cpu_cores: f64,
    /// Memory that is resident, bytes. 0 on systems that are not Linux.
    pub memory_bytes: u64,
}

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static REQUESTS_PER_SECOND: AtomicU64 = AtomicU64::new(0);
static CPU_CORES: AtomicU64 = AtomicU64::new(0);
static MEMORY_BYTES: AtomicU64 = AtomicU64::new(0);

/// A request entered this process: for services that do not use `tower::ServerLayer`, which counts by itself.
#[inline]
pub fn count_request() {
    REQUESTS.fetch_add(1, Relaxed);
}

/// The load of this process, as last measured.
#[must_use]
pub fn load() -> Load {
    Load {
        requests_per_second: f64::from_bits(REQUESTS_PER_SECOND.load(Relaxed)),
        cpu_cores: f64::from_bits(CPU_CORES.load(Relaxed)),
        memory_bytes: MEMORY_BYTES.load(Relaxed),
    }
}

/// Measures, when asked, at most once a second.
#[derive(Debug)]
pub(crate) struct Meter {
    last: Option<Reading>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at_ns: i64,
    /// `None` where the system does not say.
    cpu_ns: Option<i64>,
    requests: u64,
}

const PERIOD_NS: i64 = 1_000_000_000;

impl Meter {
    pub(crate) const fn new() -> Self {
        Self { last: None }
    }

    /// `at_ns` is monotonic. The load, if it was time to measure it; then it is also what [`load`] says.
    pub(crate) fn tick(&mut self, at_ns: i64) -> Option<Load> {
        if self.last.is_some_and(|last| at_ns - last.at_ns < PERIOD_NS) {
            return None;
        }
        let mut measured = load();
        // The process's CPU clock, not /proc/self/stat: that counts in hundredths of a second.
        let now = Reading {
            at_ns,
            cpu_ns: sys::process_cpu_ns(),
            requests: REQUESTS.load(Relaxed),
        };
        if let Some(last) = self.last {
            let seconds = (now.at_ns - last.at_ns) as f64 / 1e9;
            let requests = now.requests.wrapping_sub(last.requests) as f64;
            measured.requests_per_second = requests / seconds;
            if let (Some(now_ns), Some(last_ns)) = (now.cpu_ns, last.cpu_ns) {
                measured.cpu_cores = (now_ns - last_ns).max(0) as f64 / 1e9 / seconds;
            }
        }
        measured.memory_bytes = sys::resident_bytes().unwrap_or(measured.memory_bytes);
        REQUESTS_PER_SECOND.store(measured.requests_per_second.to_bits(), Relaxed);
        CPU_CORES.store(measured.cpu_cores.to_bits(), Relaxed);
        MEMORY_BYTES.store(measured.memory_bytes, Relaxed);
        self.last = Some(now);
        Some(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cpu_and_memory_are_measured() {
        let mut meter = Meter::new();
        meter.tick(0);
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
        let load = meter.tick(2 * PERIOD_NS).unwrap();
        assert_eq!(load.requests_per_second, 25.0);
        if start_ns.is_some() {
            assert!(load.cpu_cores >= 0.02 && load.cpu_cores < 64.0, "{load:?}");
        }
        assert_eq!(
            load.memory_bytes > 1 << 20,
            sys::resident_bytes().is_some(),
            "{load:?}"
        );
    }
}
