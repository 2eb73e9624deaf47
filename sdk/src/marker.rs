//! Markers: what this thread works for, written into the kernel's own trace (vertical context injection).
//!
//! A marker is one `getpid` with arguments. The kernel ignores them, but whoever records system calls sees them, and so
//! knows which request the thread's other system calls serve. ARCHITECTURE.md has the format on one page, for programs
//! that do not use this SDK; [`write()`] is the format in code.
//!
//! The SDK writes them by itself wherever the current context of a thread changes: a span is entered or left, a task is
//! polled or gives way. By default only while a kernel recorder listens, see [`Markers`]. Otherwise a change costs one
//! flag check more. The module `marked`, behind the feature of that name, has locks that say who waits for whom.
//!
//! Contexts exist only for what is being recorded, in a window or because the request was sampled; that is why markers do
//! not ask the burst gate again. It lets the recorder carry a sampled request from between the windows into the next one.
//!
//! Kernel recorders are for Linux. On other systems everything here is there, and does nothing.

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

/// When the SDK writes markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Markers {
    /// While a kernel recorder of this machine listens; looked at before each window, at most ten times a second.
    #[default]
    WhileListened,
    /// Always: for recorders that do not announce themselves, such as `perf trace` and `strace`.
    Always,
    /// Never.
    Never,
}

/// A [`Markers`].
static MODE: AtomicU8 = AtomicU8::new(0);
/// When somebody last looked for a recorder, monotonic ns.
static LOOKED_NS: AtomicI64 = AtomicI64::new(i64::MIN);
/// A recorder is looked for no more often than this, however short the windows are: to look is three system calls.
const LOOK_EVERY_NS: i64 = 100_000_000;

thread_local! {
    /// This thread's number in its process's own namespace; 0: not asked yet.
    static TID: Cell<u32> = const { Cell::new(0) };
}

/// Are markers written now?
#[inline]
#[must_use]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Writes one marker, whether anybody listens or not.
///
/// `object` and `extra` are the fifth and sixth argument: for locks, the lock's number; for [`Kind::End`] and
/// [`Kind::Off`], the trace id's low half and the span id of what the thread goes on with (0: nothing).
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

/// The thread works for `context` from now on.
pub fn start(context: SpanContext) {
    say(true);
    write(Kind::Start, context, 0, 0);
}

/// The thread stops working for `context`, and goes on with `outer`, which may be [`SpanContext::NONE`].
pub fn end(context: SpanContext, outer: SpanContext) {
    say(outer.is_valid());
    write(Kind::End, context, outer.trace_id() as u64, outer.span_id());
}

fn say(request: bool) {
    SAID.set(request);
    // Which does not ask for it.
    crate::thread::close_fast_path();
}

/// Tells of one.
#[cold]
#[inline(never)]
pub(crate) fn follow(previous: SpanContext, now: SpanContext) {
    if previous == now {
        return;
    }
    say(now.is_valid());
    if previous.is_valid() {
        // Says both: what it leaves helps a recorder that came in between.
        write(Kind::Off, previous, now.trace_id() as u64, now.span_id());
    } else if now.is_valid() {
        write(Kind::On, now, 0, 0);
    }
}

/// Takes over the builder's choice; [`is_followed`] then says what the gate is to be told.
pub(crate) fn configure(markers: Markers) {
    MODE.store(markers as u8, Release);
    ON.store(markers == Markers::Always && sys::HAS_MARKERS, Relaxed);
    LOOKED_NS.store(i64::MIN, Relaxed);
}

/// For the gate's thread, whenever it is awake: does somebody listen? [`is_followed`] then says so.
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

/// The process is a fork: its one thread has a new number.
pub(crate) fn forked() {
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
