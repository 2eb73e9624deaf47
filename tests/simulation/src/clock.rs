//! Replaces the operating system's clocks and random numbers in a process that runs a simulation.
//!
//! Functions of this module replace libc's functions of the same names, as in the crate
//! mad-turmoil. That crate does not fit: its wall clock begins in 1970 and is the same for all
//! hosts, and its random numbers are seeded once per process.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Wall clock at the beginning of a simulation, ns since the Unix epoch.
pub(crate) const EPOCH_NS: i64 = 1_767_322_800_000_000_000;
/// Monotonic clock at the beginning of a simulation, ns. It is larger than any duration that a
/// caller subtracts from the time.
const MONOTONIC_NS: i64 = 1_000_000_000_000_000;
const S: i64 = 1_000_000_000;

static ON: AtomicBool = AtomicBool::new(false);
/// Simulated time, in ns since the beginning, for code that does not run on a host's runtime.
static NOW_NS: AtomicI64 = AtomicI64::new(0);
/// Offset by which the collector's wall clock is ahead, in ns.
static SKEW_NS: AtomicI64 = AtomicI64::new(0);
/// States of the random numbers, for the thread that runs the hosts and for all others. Whether a
/// pool starts another thread, which draws keys for its hash tables, depends on the machine's load.
static RANDOM: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static ZERO: OnceLock<Instant> = OnceLock::new();

thread_local! {
    /// True if this thread runs the hosts.
    static RUNS_HOSTS: Cell<bool> = const { Cell::new(false) };
    /// True while this thread asks tokio for the time. A runtime that is not a host's asks the
    /// operating system in turn, which must not ask tokio again.
    static ASKS: Cell<bool> = const { Cell::new(false) };
}

/// Permanently replaces the clocks of the process by those of the simulation that this thread runs,
/// and seeds the random numbers.
pub(crate) fn simulate(seed: u64) {
    for (state, seed) in RANDOM.iter().zip([seed, !seed]) {
        state.store(seed, Relaxed);
    }
    ON.store(true, Relaxed);
    ZERO.get_or_init(Instant::now);
    RUNS_HOSTS.set(true);
}

/// Returns the nanoseconds since the beginning of the simulation.
pub(crate) fn now_ns() -> i64 {
    let zero = ZERO.get().filter(|_| RUNS_HOSTS.get());
    let Some(zero) = zero.filter(|_| !ASKS.replace(true)) else {
        return NOW_NS.load(Relaxed);
    };
    let now_ns = match tokio::runtime::Handle::try_current() {
        Ok(_) => {
            let now = tokio::time::Instant::now().into_std();
            now.saturating_duration_since(*zero).as_nanos() as i64
        }
        Err(_) => NOW_NS.load(Relaxed),
    };
    ASKS.set(false);
    now_ns
}

/// Sets the time for code that does not run on a host's runtime, in ns since the beginning.
pub(crate) fn set_now(now_ns: i64) {
    NOW_NS.store(now_ns, Relaxed);
}

/// Steps the wall clock that the collector sees.
pub(crate) fn step_collector(by_ns: i64) {
    SKEW_NS.fetch_add(by_ns, Relaxed);
}

/// Runs blocking work on a thread of its own, while nothing else runs.
pub(crate) fn apart(work: &mut (dyn FnMut() + Send)) {
    let before_ns = NOW_NS.swap(now_ns(), Relaxed);
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    set_now(before_ns);
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
}

fn reads_ns(clock: libc::clockid_t) -> i64 {
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => {
            EPOCH_NS + now_ns() + SKEW_NS.load(Relaxed)
        }
        _ => MONOTONIC_NS + now_ns(),
    }
}

/// Replaces libc's `clock_gettime`. Calls the kernel outside of simulations.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, to: *mut libc::timespec) -> libc::c_int {
    if !ON.load(Relaxed) {
        // SAFETY: the same call, with the caller's arguments.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, to) } as libc::c_int;
    }
    let ns = reads_ns(clock);
    let time = libc::timespec {
        tv_sec: ns / S,
        tv_nsec: ns % S,
    };
    // SAFETY: the function's contract requires that the caller passes a valid place for the time.
    unsafe { to.write(time) };
    0
}

/// Replaces libc's `getrandom`. Calls the kernel outside of simulations.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
unsafe extern "C" fn getrandom(to: *mut u8, bytes: usize, flags: libc::c_uint) -> isize {
    if !ON.load(Relaxed) {
        // SAFETY: the same call, with the caller's arguments.
        return unsafe { libc::syscall(libc::SYS_getrandom, to, bytes, flags) } as isize;
    }
    let state = &RANDOM[usize::from(!RUNS_HOSTS.get())];
    for at in 0..bytes {
        let mut state =
            stroboscope_fixtures::random::Random(state.fetch_add(0x1234_5678_9abc_def1, Relaxed));
        // SAFETY: the function's contract requires that the caller passes a place of this many
        // bytes.
        unsafe { to.add(at).write(state.next_u64() as u8) };
    }
    bytes as isize
}
