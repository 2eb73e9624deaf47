//! The allocator of the program.
//!
//! A collector with 512 MiB was besieged: bombs, readers of huge requests, a hundred heavy pages, and full ingest. It held 100
//! to 330 MiB at a time; its memory was 2,160 MiB with glibc, which keeps an arena for each of many threads, 3,845 MiB with
//! mimalloc, whose threads keep the pages of each size that they once had, and 568 MiB with jemalloc.

use std::ffi::CStr;

use tikv_jemallocator::Jemalloc;

/// The allocator of all programs that this library is in. C code in them, such as zstd, has it as well.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Settings that jemalloc reads by this name when the program starts: a thread of its own gives memory back that was free for
/// 0.1 s. The environment variable `MALLOC_CONF` overrides them.
#[allow(unsafe_code, reason = "jemalloc finds its settings by name")]
#[unsafe(export_name = "malloc_conf")]
pub static SETTINGS: Option<&CStr> =
    Some(c"background_thread:true,dirty_decay_ms:100,muzzy_decay_ms:0");

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    fn resident_kb() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("RssAnon:"));
        line.unwrap().trim_end_matches("kB").trim().parse().unwrap()
    }

    /// 384 MB in small pieces, of which one of each MiB stays. Half of it leaves room for what other tests of the process
    /// take meanwhile.
    #[test]
    fn what_threads_freed_goes_back_to_the_system() {
        let hold = || {
            let pieces: Vec<Box<[u8; 4_096]>> = (0..98_304).map(|_| Box::new([1; 4_096])).collect();
            let most = resident_kb();
            (pieces.into_iter().step_by(256).collect::<Vec<_>>(), most)
        };
        let (kept, most) = std::thread::spawn(hold).join().unwrap();
        let patience = Instant::now() + Duration::from_secs(60);
        while resident_kb() + 200_000 > most {
            let after = resident_kb();
            assert!(Instant::now() < patience, "{most} kB, then {after}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(kept.len(), 384);
    }
}
