//! The allocator of the program.
//!
//! A collector with 512 MiB was besieged: bombs, readers of huge requests, a hundred heavy pages, and full ingest. It held 100
//! to 330 MiB at a time; its memory was 2,160 MiB with glibc, which keeps an arena for each of many threads, 3,845 MiB with
//! mimalloc, whose threads keep the pages of each size that they once had, and 528 MiB with jemalloc.

use std::ffi::CStr;
use std::time::Duration;

use tikv_jemallocator::Jemalloc;
use tokio::time::MissedTickBehavior;

/// The allocator of all programs that this library is in. C code in them, such as zstd, has it as well.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Settings that jemalloc reads by this name when the program starts: a thread of its own gives memory back that was free for
/// a second. The environment variable `MALLOC_CONF` overrides them.
#[allow(unsafe_code, reason = "jemalloc finds its settings by name")]
#[unsafe(export_name = "malloc_conf")]
static SETTINGS: Option<&CStr> =
    Some(c"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0");

/// Time between two looks at the memory that is resident.
const INTERVAL: Duration = Duration::from_millis(50);

/// Gives all free memory back whenever more than three quarters of the limit are resident, until the runtime ends. With a
/// shorter time in [`SETTINGS`] a span costs a fifth more to store: its memory comes back from the system each time.
pub(crate) fn keep_within(limit_bytes: u64) {
    tokio::spawn(async move {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            if resident_bytes() > limit_bytes / 4 * 3 {
                give_back();
            }
        }
    });
}

/// Memory of the process that is resident; 0 where that cannot be read.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * rustix::param::page_size() as u64
}

/// Gives back the free memory of all arenas.
fn give_back() {
    let (none, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
    #[allow(unsafe_code, reason = "the allocator's own function")]
    // SAFETY: this control takes no value and returns none, and frees only pages that no block is on.
    unsafe {
        tikv_jemalloc_sys::mallctl(ALL_ARENAS_PURGE.as_ptr(), nothing, none, nothing, 0);
    }
}

/// Name of the control: 4096 stands for all arenas.
const ALL_ARENAS_PURGE: &CStr = c"arena.4096.purge";

#[cfg(test)]
mod tests {
    use super::*;

    /// 384 MB in small pieces, of which one of each MiB stays. Half of it leaves room for what other tests of the process
    /// take meanwhile.
    #[test]
    fn what_threads_freed_goes_back_to_the_system() {
        let hold = || {
            let pieces: Vec<Box<[u8; 4_096]>> = (0..98_304).map(|_| Box::new([1; 4_096])).collect();
            let most = resident_bytes();
            (pieces.into_iter().step_by(256).collect::<Vec<_>>(), most)
        };
        let (kept, most) = std::thread::spawn(hold).join().unwrap();
        give_back();
        let after = resident_bytes();
        assert!(after + (200 << 20) < most, "{most} bytes, then {after}");
        assert_eq!(kept.len(), 384);
    }
}
