//! What each recording thread owns: its context, its ring and its ids, beside each other.

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
pub(crate) use rings::{RINGS, RingsLock};
pub(crate) use shared::forget_shared;

use crate::followed;
use crate::here::Here;
use crate::id::IdSource;
use crate::loss::{LOSSES, LossCause};
use crate::record::Lineage;
use crate::ring::{Producer, RECORD_WORDS_MAX};
use crate::span_context::SpanContext;
use tag::Tags;

/// What a thread can do about a record now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No ring yet, or none any more: a record asks for one, and goes into a shared one if there is none to be had.
    Fresh,
    /// The ring is there.
    Ready,
    /// A shared ring is there, for one record: of this place.
    Borrowing(u8),
    /// The same in a thread that is being torn down.
    LastBorrowing(u8),
    /// One of the SDK's own threads: records nothing, and that is no loss.
    Muted,
    /// The thread is being torn down: nobody would give back a ring of its own.
    Ending,
}

/// The ring of a thread, and what its reader knows without being told again.
#[repr(C)]
pub(crate) struct Writer {
    producer: Producer,
    /// Plus the place of a BEGIN in the ring: the id of its span. 0: not chosen yet.
    first_id: u64,
    lineage: Lineage,
}

/// In the order in which the fast path asks.
#[repr(C, align(64))]
struct Local {
    /// [`NOT_READY`], [`BUSY`], or else the [`Local::word`], and then the fast path is open: nothing is being written, the
    /// current context is a recorded span's, its request is the one that the ring's last records belong to, and nobody
    /// waits to hear of it by markers.
    ready: Cell<u64>,
    /// The current context: trace id high and low, span id, flags. Words that are loaded as they were stored, one by one:
    /// what was just stored in words and is loaded in pairs, as the compiler copies structures, makes the processor wait
    /// until all stores before it are in the cache. Atomics, although no other thread sees them, because the compiler
    /// does not join the loads of atomics; they are plain moves.
    context: [AtomicU64; 4],
    writer: UnsafeCell<ManuallyDrop<Writer>>,
    /// Of the spans that begin while the current request stays what it is; 0: not made yet.
    word: Cell<u64>,
    state: Cell<State>,
    ids: IdSource,
    tags: Tags,
}

/// The fast path is not open.
const NOT_READY: u64 = 1 << 3;
/// A record is being written; one that a field's own formatting or a signal's handler wants to write is refused.
const BUSY: u64 = NOT_READY | 1;

thread_local! {
    /// Without a destructor: one instruction to reach, and safe to use while the thread is torn down.
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
    /// Gives the ring back when the thread ends.
    static REAPER: Reaper = const { Reaper };
}

#[inline(always)]
fn local() -> Here<Local> {
    Here::of(&LOCAL)
}

struct Reaper;

impl Drop for Reaper {
    fn drop(&mut self) {
        local().stop(State::Ending);
    }
}

/// The right to write this thread's next record, for as long as it lives: nobody else on the thread has one, and a
/// signal's handler or an allocator that wants one meanwhile is refused.
//
// A `Here` cannot leave its thread, and so neither can this.
pub(crate) struct Claim {
    local: Here<Local>,
    /// What `ready` goes back to.
    ready: u64,
}

impl Claim {
    /// `None`: the ring must be looked at first, or `is_usual` says no to what the thread's `ready` is.
    ///
    /// There is no call in it, so that whoever it is inlined into need not save any register.
    #[inline(always)]
    fn take(is_usual: impl FnOnce(u64) -> bool) -> Option<Self> {
        let local = local();
        let ready = local.ready.get();
        if !is_usual(ready) {
            return None;
        }
        local.ready.set(BUSY);
        // What a handler of a signal may have changed until here is read after here.
        compiler_fence(SeqCst);
        let claim = Self { local, ready };
        claim.writer().producer.has_room().then_some(claim)
    }

    /// The claimed, to look at.
    #[inline(always)]
    fn writer(&self) -> &Writer {
        // SAFETY: who sets `ready` to BUSY, having found another value there, has the writer to himself until he sets it
        // back; that is this claim, whose `write` takes it by value.
        unsafe { &*self.local.writer.get() }
    }

    /// The span that the ring's last record was in, or that the last END left.
    #[inline(always)]
    pub(crate) fn innermost(&self) -> u64 {
        self.writer().lineage.innermost()
    }

    /// The id of the span whose BEGIN is written next. Of a [`ready`](claim_ready) claim only.
    #[inline(always)]
    pub(crate) fn next_span_id(&self) -> u64 {
        // No counter: a place in the ring is never come by again.
        let writer = self.writer();
        writer.first_id.wrapping_add(writer.producer.head() as u64)
    }

    /// The current context's id, and the word of spans below it, which has its flags.
    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        self.ready
    }

    /// Writes one record of the request that the last one belonged to, see [`write`].
    #[inline(always)]
    pub(crate) fn write(
        self,
        fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX], &mut Lineage) -> usize,
    ) {
        // SAFETY: as in `writer`.
        let Writer {
            producer, lineage, ..
        } = unsafe { &mut **self.local.writer.get() };
        // SAFETY: there was room when it was claimed.
        unsafe { producer.write_unasked(|place| fill(place, lineage)) };
    }

    /// [`write`](Self::write) of what may run code that is not ours, and says whether it did: that code may have changed
    /// the context, or may panic.
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
        // SAFETY: there was room when it was claimed.
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

/// A claim if the fast path is open: for what happens inside the current context.
#[inline(always)]
pub(crate) fn claim_ready() -> Option<Claim> {
    Claim::take(|ready| ready > BUSY)
}

/// A claim if the fast path is open, and the current request was what it is when the span of this word began.
///
/// # Safety
/// It is the word of a span, see [`SpanWord`](crate::span_word::SpanWord), and so neither [`NOT_READY`] nor [`BUSY`]: to compare
/// with those, too, would cost as much again.
#[inline(always)]
pub(crate) unsafe fn claim_for(word: u64) -> Option<Claim> {
    debug_assert_eq!(word & NOT_READY, 0);
    Claim::take(|ready| ready == word)
}

/// A claim if the ring is there and has room: for a record that belongs to no context, an END.
#[inline(always)]
pub(crate) fn claim() -> Option<Claim> {
    Claim::take(|ready| ready != BUSY)
}

/// Writes one record to this thread's ring. `false`: it was discarded, and counted where that is a loss.
#[inline(always)]
pub(crate) fn write(
    fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX], &mut Lineage) -> usize,
) -> bool {
    let Some(writing) = Writing::begin() else {
        return false;
    };
    // SAFETY: who sets `ready` to BUSY, having found another value there, has the writer to himself until he sets it back;
    // that is `writing`.
    let writer = unsafe { &mut **writing.0.writer.get() };
    if !writer.producer.has_room() && !writing.0.find_room(writer) {
        return false;
    }
    let Writer {
        producer, lineage, ..
    } = writer;
    // SAFETY: there is room, or room was found.
    unsafe { producer.write_unasked(|place| fill(place, lineage)) };
    true
}

/// As [`Claim`], of a record after which all is looked at anew; also when a field's own formatting panics.
struct Writing(Here<Local>);

impl Writing {
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

impl Drop for Writing {
    fn drop(&mut self) {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        self.0.give_back();
        let ready = self.0.look();
        compiler_fence(SeqCst);
        self.0.ready.set(ready);
    }
}

/// The context this thread is in.
#[inline(always)]
pub(crate) fn context() -> SpanContext {
    SpanContext::from_words(local().context.each_ref().map(|word| word.load(Relaxed)))
}

/// The trace id of the context this thread is in, high and low.
#[inline(always)]
pub(crate) fn context_trace_id() -> [u64; 2] {
    let local = local();
    [
        local.context[0].load(Relaxed),
        local.context[1].load(Relaxed),
    ]
}

/// The id of the span this thread is in.
#[inline(always)]
pub(crate) fn context_span_id() -> u64 {
    local().context[2].load(Relaxed)
}

/// Another context for this thread.
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

/// Another span of the same request becomes the current one, if the fast path is open for it: `word` is the span's. The
/// id of what was current before; `None`: nothing was done.
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

/// Back to another span of the same request.
#[inline(always)]
pub(crate) fn set_context_span_id(span_id: u64) {
    local().context[2].store(span_id, Relaxed);
}

/// Somebody waits to hear of the next change of context.
pub(crate) fn close_fast_path() {
    local().close_fast_path();
}

/// A new span id, of this thread's.
#[inline(always)]
pub(crate) fn span_id() -> u64 {
    local().ids.span_id()
}

/// A new trace id and a new span id, of this thread's.
pub(crate) fn root_ids() -> (u128, u64) {
    let local = local();
    (local.ids.trace_id(), local.ids.span_id())
}

/// Forgets this thread's ids: those to come share nothing with them.
pub(crate) fn forget_ids() {
    let local = local();
    local.ids.forget();
    local.close_fast_path();
    if let Some(_writing) = Writing::begin() {
        // SAFETY: as in `write`.
        unsafe { &mut **local.writer.get() }.first_id = 0;
    }
}

/// From now on this thread records nothing: for the SDK's own threads, whose libraries are annotated too.
pub(crate) fn mute() {
    local().stop(State::Muted);
}

impl Local {
    fn close_fast_path(&self) {
        if self.ready.get() != BUSY {
            self.ready.set(NOT_READY);
        }
    }

    /// What `ready` is to be after a record was written.
    #[inline(never)]
    fn look(&self) -> u64 {
        let context =
            SpanContext::from_words(self.context.each_ref().map(|word| word.load(Relaxed)));
        // SAFETY: as in `write`, whose borrow is over.
        let writer = unsafe { &mut **self.writer.get() };
        let is_usual = context.is_valid() && !context.is_cut() && !followed::is_followed();
        if !is_usual || writer.lineage.trace_id() != context.trace_id() {
            return NOT_READY;
        }
        if writer.first_id == 0 {
            // Not 0, nor will the sum with a place be.
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
