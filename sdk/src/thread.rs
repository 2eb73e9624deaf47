//! State of each recording thread: its context, ring and ids in adjacent memory.

#![allow(unsafe_code)]

mod half_full;
mod rings;
mod room;
mod shared;
mod tag;
#[cfg(test)]
mod tests;

use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

pub(crate) use half_full::{filling, forked};
pub(crate) use rings::{FreeLock, RINGS};
pub(crate) use shared::forget_shared;

use crate::followed;
use crate::id::IdSource;
use crate::loss::{LOSSES, LossCause};
use crate::record::Lineage;
use crate::ring::{Producer, RECORD_WORDS_MAX};
use crate::span_context::SpanContext;
use crate::thread_ref::ThreadRef;
use tag::Tags;

/// State that decides how a thread writes a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The thread has no ring. Its next record needs one of its own or, failing that, a shared one.
    Fresh,
    /// The thread has a ring.
    Ready,
    /// The thread has borrowed the shared ring at this place, for one record.
    Borrowing(u8),
    /// The thread, which is being torn down, has borrowed the shared ring at this place.
    LastBorrowing(u8),
    /// The thread is muted, as the SDK's own threads are: it records nothing, which is no loss.
    Muted,
    /// The thread is being torn down, so it could not return a new ring of its own.
    Ending,
}

/// Writing end of a ring, with the context that the ring's next records may omit.
#[repr(C)]
pub(crate) struct Writer {
    producer: Producer,
    /// Base of span ids of the fast path: a span's id is this plus the position of its BEGIN in the
    /// ring. 0 means that no base was chosen yet.
    first_id: u64,
    lineage: Lineage,
}

/// State of a thread. The fields of the fast path come first.
#[repr(C, align(64))]
struct Local {
    /// [`NOT_READY`], [`BUSY`], or a copy of [`Local::word`]. In the last case the fast path is
    /// open. No record is then being written, and no marker was needed at the last [`Local::look`].
    /// The current context is valid and not cut, and the ring's last records belong to its request.
    ready: Cell<u64>,
    /// Current context: upper and lower half of the trace id, span id, flags. The words are loaded
    /// one by one, as they were stored. When copying structures, the compiler loads pairs, and a
    /// pair of words that were just stored separately makes the processor wait until all earlier
    /// stores are in the cache. The words are atomics, although no other thread accesses them,
    /// because the compiler does not join loads of atomics; they compile to plain moves.
    context: [AtomicU64; 4],
    writer: UnsafeCell<ManuallyDrop<Writer>>,
    /// Word of spans that begin while the current request stays the same; 0 if it was not created
    /// yet.
    word: Cell<u64>,
    state: Cell<State>,
    ids: IdSource,
    tags: Tags,
}

/// Value of [`Local::ready`] while the fast path is closed.
const NOT_READY: u64 = 1 << 3;
/// Value of [`Local::ready`] while the writer is in use, usually for a record. If a field's own
/// formatting or a signal handler attempts to write another record meanwhile, that one is rejected.
const BUSY: u64 = NOT_READY | 1;

thread_local! {
    /// State of this thread. It has no destructor, so access needs no check, and it is safe to use
    /// while the thread is torn down.
    static LOCAL: Local = const {
        Local {
            ready: Cell::new(NOT_READY),
            context: [const { AtomicU64::new(0) }; 4],
            writer: UnsafeCell::new(ManuallyDrop::new(Writer::NONE)),
            word: Cell::new(0),
            state: Cell::new(State::Fresh),
            ids: IdSource::unseeded(),
            tags: Tags::new(),
        }
    };
    /// Returns the ring when the thread ends.
    static REAPER: Reaper = const { Reaper };
}

#[inline(always)]
fn local() -> ThreadRef<Local> {
    ThreadRef::of(&LOCAL)
}

struct Reaper;

impl Drop for Reaper {
    fn drop(&mut self) {
        local().stop(State::Ending);
    }
}

/// Exclusive right to write this thread's next record, until it is dropped. A signal handler or an
/// allocator that attempts to write meanwhile is rejected.
//
// Not `Send`, because a `ThreadRef` cannot leave its thread.
pub(crate) struct Claim {
    local: ThreadRef<Local>,
    /// Value that is restored in `ready`.
    ready: u64,
}

impl Claim {
    /// Claims the writer. Returns `None` if [`Local::find_room`] must look at the ring first, or if
    /// `is_usual` rejects the thread's `ready`.
    ///
    /// It contains no call, so the code into which it is inlined need not save registers.
    #[inline(always)]
    fn take(is_usual: impl FnOnce(u64) -> bool) -> Option<Self> {
        let local = local();
        let ready = local.ready.get();
        if !is_usual(ready) {
            return None;
        }
        local.ready.set(BUSY);
        // Values that a signal handler may have changed before this point are read after it.
        compiler_fence(SeqCst);
        let claim = Self { local, ready };
        claim.writer().producer.has_room().then_some(claim)
    }

    /// Returns the claimed writer for reading.
    #[inline(always)]
    fn writer(&self) -> &Writer {
        // SAFETY: code that sets `ready` to BUSY, having found another value there, has exclusive
        // access to the writer until it restores `ready`. This claim did so, and its `write`
        // consumes it.
        unsafe { &*self.local.writer.get() }
    }

    /// Returns the span that is the innermost one after the ring's last record.
    #[inline(always)]
    pub(crate) fn innermost(&self) -> u64 {
        self.writer().lineage.innermost()
    }

    /// Returns the id of the span whose BEGIN is written next. Only for claims of [`claim_ready`].
    #[inline(always)]
    pub(crate) fn next_span_id(&self) -> u64 {
        // Uses no counter: positions in the ring ascend, and repeat only after an overflow.
        let writer = self.writer();
        writer.first_id.wrapping_add(writer.producer.head() as u64)
    }

    /// Returns the word of spans that begin in the current context, with its flags. Only for claims
    /// of [`claim_ready`].
    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        self.ready
    }

    /// Writes one record, like [`write`].
    #[inline(always)]
    pub(crate) fn write(
        self,
        fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX], &mut Lineage) -> usize,
    ) {
        // SAFETY: as in `writer`.
        let Writer {
            producer, lineage, ..
        } = unsafe { &mut **self.local.writer.get() };
        // SAFETY: the ring had space when it was claimed.
        unsafe { producer.write_unasked(|place| fill(place, lineage)) };
    }

    /// Writes a record like [`write`](Self::write), with a `fill` that also returns whether it ran
    /// the service's code. Such code may change the context or panic.
    #[cfg(feature = "tracing")]
    #[inline(always)]
    pub(crate) fn write_foreign(
        mut self,
        fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX], &mut Lineage) -> (usize, bool),
    ) {
        let usual = std::mem::replace(&mut self.ready, NOT_READY);
        // SAFETY: as in `writer`.
        let Writer {
            producer, lineage, ..
        } = unsafe { &mut **self.local.writer.get() };
        let mut has_run_code = false;
        let fill = |place: &mut [u64; RECORD_WORDS_MAX]| {
            let used;
            (used, has_run_code) = fill(place, lineage);
            used
        };
        // SAFETY: the ring had space when it was claimed.
        unsafe { producer.write_unasked(fill) };
        self.ready = if has_run_code {
            self.local.look()
        } else {
            usual
        };
    }
}

impl Drop for Claim {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        self.local.ready.set(self.ready);
    }
}

/// Claims the writer if the fast path is open and the ring certainly has space, for a record inside
/// the current context.
#[inline(always)]
pub(crate) fn claim_ready() -> Option<Claim> {
    Claim::take(|ready| ready > BUSY)
}

/// Claims the writer if the fast path is open, the current request has not changed since the span
/// with this word began, and the ring certainly has space.
///
/// # Safety
/// `word` must be the word of a span, see [`SpanWord`](crate::span_word::SpanWord), and therefore
/// neither [`NOT_READY`] nor [`BUSY`]. This saves comparing `ready` with these two values.
#[inline(always)]
pub(crate) unsafe fn claim_for(word: u64) -> Option<Claim> {
    debug_assert_eq!(word & NOT_READY, 0);
    Claim::take(|ready| ready == word)
}

/// Claims the writer if the thread's ring certainly has space, for an END, which belongs to no
/// context.
#[inline(always)]
pub(crate) fn claim() -> Option<Claim> {
    Claim::take(|ready| ready != BUSY)
}

/// Creates the rings that recording threads may need soon. Not for such threads, because it touches
/// all of the rings' memory.
pub(crate) fn prepare_rings() {
    RINGS.prepare_spares();
    shared::prepare();
}

/// Writes one record to this thread's ring, or to a shared one. Returns false if the record was
/// discarded. This counts as a loss, except on a muted thread.
#[inline(always)]
pub(crate) fn write(
    fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX], &mut Lineage) -> usize,
) -> bool {
    let Some(writing) = WriteClaim::begin() else {
        return false;
    };
    // SAFETY: code that sets `ready` to BUSY, having found another value there, has exclusive
    // access to the writer until it restores `ready`; `writing` did so.
    let writer = unsafe { &mut **writing.0.writer.get() };
    if !writer.producer.has_room() && !writing.0.find_room(writer) {
        return false;
    }
    let Writer {
        producer, lineage, ..
    } = writer;
    // SAFETY: the ring has space, or `find_room` found space.
    unsafe { producer.write_unasked(|place| fill(place, lineage)) };
    true
}

/// Exclusive right to write a record on the slow path, like [`Claim`] on the fast path. When
/// dropped, it computes [`Local::ready`] again, even if a field's own formatting panicked.
struct WriteClaim(ThreadRef<Local>);

impl WriteClaim {
    #[inline]
    fn begin() -> Option<Self> {
        let local = local();
        if local.ready.get() == BUSY {
            LOSSES.add(LossCause::NoRing, 1);
            return None;
        }
        local.ready.set(BUSY);
        compiler_fence(SeqCst);
        Some(Self(local))
    }
}

impl Drop for WriteClaim {
    fn drop(&mut self) {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        self.0.give_back();
        let ready = self.0.look();
        compiler_fence(SeqCst);
        self.0.ready.set(ready);
    }
}

/// Returns this thread's context.
#[inline(always)]
pub(crate) fn context() -> SpanContext {
    SpanContext::from_words(local().context.each_ref().map(|word| word.load(Relaxed)))
}

/// Returns the upper and lower half of the trace id of this thread's context.
#[inline(always)]
pub(crate) fn context_trace_id() -> [u64; 2] {
    let local = local();
    [
        local.context[0].load(Relaxed),
        local.context[1].load(Relaxed),
    ]
}

/// Returns the id of this thread's current span.
#[inline(always)]
pub(crate) fn context_span_id() -> u64 {
    local().context[2].load(Relaxed)
}

/// Sets this thread's context.
#[inline(always)]
pub(crate) fn set_context(context: SpanContext) {
    let local = local();
    let words = context.to_words();
    let [high, low, _, flags] = local.context.each_ref().map(|word| word.load(Relaxed));
    if (words[0] ^ high) | (words[1] ^ low) | (words[3] ^ flags) == 0 {
        local.context[2].store(words[2], Relaxed);
        return;
    }
    for (there, word) in local.context.iter().zip(words) {
        there.store(word, Relaxed);
    }
    local.word.set(0);
    local.close_fast_path();
}

/// Makes another span of the same request the current one, if the fast path is open for spans with
/// `word`. Returns the id of the previous span, or `None` if it did nothing.
#[inline(always)]
pub(crate) fn enter_quickly(span_id: u64, word: u64) -> Option<u64> {
    let local = local();
    if local.ready.get() != word {
        return None;
    }
    let outer_id = local.context[2].load(Relaxed);
    local.context[2].store(span_id, Relaxed);
    Some(outer_id)
}

/// Restores another span of the same request as the current one.
#[inline(always)]
pub(crate) fn set_context_span_id(span_id: u64) {
    local().context[2].store(span_id, Relaxed);
}

/// Closes the fast path, so that the next change of context checks whether it needs a marker.
pub(crate) fn close_fast_path() {
    local().close_fast_path();
}

/// Returns a new span id of this thread.
#[inline(always)]
pub(crate) fn span_id() -> u64 {
    local().ids.span_id()
}

/// Returns a new trace id and a new span id of this thread.
pub(crate) fn root_ids() -> (u128, u64) {
    let local = local();
    (local.ids.trace_id(), local.ids.span_id())
}

/// Discards this thread's ids; new ones are unrelated to them. During a record, it
/// keeps the ring's `first_id`.
pub(crate) fn forget_ids() {
    let local = local();
    local.ids.forget();
    local.close_fast_path();
    // During a record, `begin` would count a loss, although nothing is lost here.
    if local.ready.get() != BUSY
        && let Some(_writing) = WriteClaim::begin()
    {
        // SAFETY: as in `write`.
        unsafe { &mut **local.writer.get() }.first_id = 0;
    }
}

/// Stops recording on this thread, unless a record is being written. Used by the SDK's own threads,
/// whose libraries are annotated, too, and by simulations.
pub(crate) fn mute() {
    local().stop(State::Muted);
}

impl Local {
    fn close_fast_path(&self) {
        if self.ready.get() != BUSY {
            self.ready.set(NOT_READY);
        }
    }

    /// Returns the new value of `ready` when the writer is no longer in use.
    #[inline(never)]
    fn look(&self) -> u64 {
        let context =
            SpanContext::from_words(self.context.each_ref().map(|word| word.load(Relaxed)));
        // SAFETY: as in `write`, whose borrow has ended.
        let writer = unsafe { &mut **self.writer.get() };
        let is_usual = context.is_valid() && !context.is_cut() && !followed::is_followed();
        if !is_usual || writer.lineage.trace_id() != context.trace_id() {
            return NOT_READY;
        }
        if writer.first_id == 0 {
            // It is not 0, and neither is its sum with a position.
            writer.first_id = self.ids.random() >> 1 | 1;
        }
        if self.word.get() == 0 {
            self.word.set(self.tags.next().word(context));
        }
        self.word.get()
    }
}

#[cfg(test)]
pub(crate) use tests::looks;
