//! Markers, which record in the kernel's own trace the request that a thread works for (vertical
//! context injection).
//!
//! A marker is one `getpid` call with arguments. The kernel ignores the arguments, but a recorder
//! of system calls sees them and can attribute the thread's other system calls to a request.
//! `sdk/burst/README.md` has the format on one page, for programs that do not use this SDK;
//! [`write()`] is the format in code.
//!
//! The SDK writes markers automatically whenever a thread's current context changes: when a span is
//! entered or left, and when a task is polled or yields. By default it does so only while a kernel
//! recorder listens, see [`Markers`]. Otherwise a change costs one additional flag check. The
//! module `marked`, behind the feature of that name, has locks whose markers show which request
//! waits for which.
//!
//! Markers do not check the burst gate. They follow every request that has a context, even between
//! windows and even if the SDK does not record it. The recorder can therefore follow a request from
//! between windows into the next window.
//!
//! Kernel recorders exist only on Linux. On other systems, this API is available and has no effect.

use std::cell::Cell;
use std::sync::atomic::{
    AtomicI64, AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};

pub use stroboscope_burst::marker::ENV_KERNEL_RECORDER;
pub use stroboscope_burst::marker::Kind;
pub use stroboscope_burst::marker::MARK;
pub use stroboscope_burst::marker::recorder_path;

pub(crate) use crate::followed::is_followed;
use crate::followed::{ON, SAID};
use crate::span_context::SpanContext;
use crate::sys;

/// Condition under which the SDK writes markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Markers {
    /// Writes markers while a kernel recorder on this machine listens. The gate's thread checks
    /// this when it wakes, at most ten times per second.
    #[default]
    WhileListened,
    /// Always writes markers, for recorders that do not announce themselves, such as `perf`.
    Always,
    /// Never writes markers.
    Never,
}

/// Discriminant of the [`Markers`] variant that [`configure`] set last.
static MODE: AtomicU8 = AtomicU8::new(0);
/// Time of the last check for a recorder, in monotonic ns.
static LOOKED_NS: AtomicI64 = AtomicI64::new(i64::MIN);
/// Minimum interval between checks for a recorder, in ns. Each check takes up to three system
/// calls.
const LOOK_EVERY_NS: i64 = 100_000_000;

thread_local! {
    /// This thread's id in its process's own namespace; 0 until it is read.
    static TID: Cell<u32> = const { Cell::new(0) };
}

/// Reports whether markers are being written.
#[inline]
#[must_use]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Writes one marker, even if no recorder listens.
///
/// `object` and `extra` are the fifth and sixth argument. For locks, `object` is the lock's number.
/// For [`Kind::End`] and [`Kind::Off`], the two are the lower half of the trace id and the span id
/// of the context in which the thread continues (0: none).
#[inline]
pub fn write(kind: Kind, context: SpanContext, object: u64, extra: u64) {
    let trace_low = context.trace_id() as u64;
    sys::mark([
        MARK | kind as u64,
        trace_low,
        context.span_id(),
        u64::from(tid()),
        object,
        extra,
    ]);
}

/// Marks that the thread works for `context` from now on.
pub fn start(context: SpanContext) {
    say(true);
    write(Kind::Start, context, 0, 0);
}

/// Marks that the thread stops working for `context` and continues in `outer`, which may be
/// [`SpanContext::NONE`].
pub fn end(context: SpanContext, outer: SpanContext) {
    say(outer.is_valid());
    write(Kind::End, context, outer.trace_id() as u64, outer.span_id());
}

fn say(request: bool) {
    SAID.set(request);
    // The fast path does not check `SAID`.
    crate::thread::close_fast_path();
}

/// Writes the marker for a change of context; nothing if the contexts are equal or both invalid.
#[cold]
#[inline(never)]
pub(crate) fn follow(previous: SpanContext, now: SpanContext) {
    if previous == now {
        return;
    }
    say(now.is_valid());
    if previous.is_valid() {
        // Names both contexts: the previous one helps a recorder that started after its marker.
        write(Kind::Off, previous, now.trace_id() as u64, now.span_id());
    } else if now.is_valid() {
        write(Kind::On, now, 0, 0);
    }
}

/// Applies the builder's choice of when to write markers. The caller then passes the result of
/// [`is_followed`] to the gate.
pub(crate) fn configure(markers: Markers) {
    MODE.store(markers as u8, Release);
    ON.store(markers == Markers::Always && sys::HAS_MARKERS, Relaxed);
    LOOKED_NS.store(i64::MIN, Relaxed);
}

/// Checks whether a recorder listens, at most every [`LOOK_EVERY_NS`] and only with
/// [`Markers::WhileListened`]. Called by the gate's thread whenever it is awake. The caller then
/// passes the result of [`is_followed`] to the gate.
pub(crate) fn look(monotonic_ns: i64) {
    if !sys::HAS_MARKERS
        || MODE.load(Acquire) != Markers::WhileListened as u8
        || monotonic_ns.saturating_sub(LOOKED_NS.load(Relaxed)) < LOOK_EVERY_NS
    {
        return;
    }
    LOOKED_NS.store(monotonic_ns, Relaxed);
    ON.store(sys::is_locked(&recorder_path()), Relaxed);
}

/// Ends markers, because no thread checks any longer whether a recorder listens. Outside of a
/// forked child, the caller then passes the result of [`is_followed`] to the gate.
pub(crate) fn stop() {
    ON.store(false, Relaxed);
}

/// Resets the state after a fork: the child's only thread has a new id, and no thread of it checks
/// whether a recorder listens.
pub(crate) fn forked() {
    stop();
    TID.set(0);
    SAID.set(false);
}

#[inline]
fn tid() -> u32 {
    let known = TID.get();
    if known != 0 {
        return known;
    }
    let tid = sys::thread_id();
    TID.set(tid);
    tid
}
