//! Global allocator of the program.
//!
//! The allocator is jemalloc, because a comparison under heavy load favoured it. A collector with
//! `--memory-limit 512MiB` received decompression bombs, readers of huge requests, a hundred
//! expensive pages and full ingest. At any time, 100 to 330 MiB were allocated. Resident memory
//! reached 528 to 707 MiB with jemalloc in three runs. It reached 2,160 MiB with glibc, which keeps
//! an arena for each of many threads. It reached 3,845 MiB with mimalloc, whose threads keep the
//! pages of each size that they have used.

use std::ffi::{CStr, CString};
use std::time::Duration;

use tikv_jemallocator::Jemalloc;

/// Allocator of all programs that link this library, and of C code in them, such as zstd.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Settings that jemalloc reads by this name when the program starts. The environment variable
/// `MALLOC_CONF` overrides them.
///
/// Free memory returns to the system at once, because a subcommand that runs once seldom needs it
/// again. Inference of a model of 4,096 segments took 2,350 MB with a delay of one second, and
/// 1,560 MB without a delay, in the same time. A server keeps free memory for a while: see
/// [`keep_within`]. jemalloc's own threads are off here, because they would start before the
/// program drops its capabilities, and would keep them. [`keep_within`] starts these threads.
#[allow(unsafe_code, reason = "jemalloc finds its settings by name")]
#[unsafe(export_name = "malloc_conf")]
static SETTINGS: Option<&CStr> = Some(c"background_thread:false,dirty_decay_ms:0,muzzy_decay_ms:0");

/// Time for which a server keeps free memory, in milliseconds. With a shorter time, storing a span
/// costs a fifth to a third more.
const KEPT_MS: isize = 1_000;

/// Interval between two checks of the resident memory.
const INTERVAL: Duration = Duration::from_millis(50);

/// Starts threads that return free memory to the system. jemalloc's own threads return memory that
/// has been free for [`KEPT_MS`]. Another thread returns all free memory whenever more than three
/// quarters of the limit are resident. Without jemalloc's threads, the threads that free memory
/// would return it themselves, and storing a span would cost a third more. The new threads have the
/// capabilities of the calling thread.
///
/// # Errors
/// Returns the system's error if the thread that watches the limit cannot be started.
pub(crate) fn keep_within(limit_bytes: u64) -> std::io::Result<()> {
    start_own_threads();
    let run = move || {
        loop {
            std::thread::sleep(INTERVAL);
            if resident_bytes() > limit_bytes / 4 * 3 {
                purge();
            }
        }
    };
    let thread = std::thread::Builder::new().name("memory".to_owned());
    thread.spawn(run).map(drop)
}

/// Lets jemalloc keep free memory for [`KEPT_MS`], and starts its threads. Without them, the
/// threads that free memory would return it.
fn start_own_threads() {
    // Set the default for future arenas, then each existing arena. Arenas that do not exist yet
    // reject the control. The arena of large blocks is not changed: it still keeps no free memory.
    let arenas = std::iter::once("arenas.dirty_decay_ms".to_owned());
    let arenas =
        arenas.chain((0..arenas_of_threads()).map(|i| format!("arena.{i}.dirty_decay_ms")));
    for name in arenas.flat_map(CString::new) {
        set(&name, KEPT_MS);
    }
    let failed = set(c"background_thread", true);
    if failed != 0 {
        tracing::debug!("jemalloc starts no threads: error {failed}");
    }
}

/// Maximum number of arenas that jemalloc shares out among threads.
fn arenas_of_threads() -> u32 {
    let (mut count, mut size) = (0_u32, size_of::<u32>());
    let none = std::ptr::null_mut();
    #[allow(unsafe_code, reason = "the allocator's own function")]
    // SAFETY: this control returns one `u32`, for which `count` has room, and takes no new value
    // because none is given.
    unsafe {
        let name = c"opt.narenas".as_ptr();
        tikv_jemalloc_sys::mallctl(name, (&raw mut count).cast(), &raw mut size, none, 0);
    }
    count
}

/// Sets a control of jemalloc and returns its error code, or 0.
fn set<T: Copy>(name: &CStr, mut value: T) -> i32 {
    let none = std::ptr::null_mut();
    #[allow(unsafe_code, reason = "the allocator's own function")]
    // SAFETY: a control rejects a value whose size differs from its own, and returns nothing
    // because no output buffer is given.
    unsafe {
        let value = (&raw mut value).cast();
        tikv_jemalloc_sys::mallctl(
            name.as_ptr(),
            none,
            std::ptr::null_mut(),
            value,
            size_of::<T>(),
        )
    }
}

/// Resident memory of this process in bytes; 0 if it cannot be read.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * rustix::param::page_size() as u64
}

/// Returns the free memory of all arenas to the system.
fn purge() {
    // Arena number 4096 addresses all arenas.
    let name = c"arena.4096.purge".as_ptr();
    let (none, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
    #[allow(unsafe_code, reason = "the allocator's own function")]
    // SAFETY: this control takes no value, returns none, and releases only pages that hold no
    // allocated block.
    unsafe {
        tikv_jemalloc_sys::mallctl(name, nothing, none, nothing, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocates 384 MiB in small pieces, and keeps one piece of each MiB. Expects only 200 MiB
    /// back, because other tests of the process take memory at the same time.
    #[test]
    fn what_threads_freed_goes_back_to_the_system() {
        let hold = || {
            let pieces: Vec<Box<[u8; 4_096]>> = (0..98_304).map(|_| Box::new([1; 4_096])).collect();
            let most = resident_bytes();
            (pieces.into_iter().step_by(256).collect::<Vec<_>>(), most)
        };
        let (kept, most) = std::thread::spawn(hold).join().unwrap();
        purge();
        let after = resident_bytes();
        assert!(after + (200 << 20) < most, "{most} bytes, then {after}");
        assert_eq!(kept.len(), 384);
    }
}
