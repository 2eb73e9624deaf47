//! Open spans of the SDK's own subscriber, in slots that are never freed.
//!
//! An id consists of a slot's index and the slot's generation, which changes whenever a span in it
//! closes. An id that outlives its span therefore finds nothing, rather than another span, until
//! the slot's 32-bit generation wraps. Each thread keeps some free slots and exchanges them with
//! the shared list in batches, so creating and closing a span rarely touches that list.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing_core::span::Id;

use super::cell::SpanCell;
use super::known::AdaptedCallsite;
use crate::context::SpanContext;
use crate::loss::{LOSSES, LossCause};
use crate::span::Span;
use crate::thread_ref::ThreadRef;

/// Maximum number of open spans: 262,144, in 16 MiB. Further spans are not recorded, but counted as
/// [`LossCause::OpenSpansFull`].
const SLOTS_MAX: usize = if cfg!(miri) { 256 } else { 1 << 18 };
/// Maximum number of free slots that a thread takes at once. The thread gives back twice as many at
/// once, and the rest when it ends.
const BATCH: usize = 64;

/// Slot for one open span: a cache line without padding, so that all of it is zero until used.
#[repr(align(64))]
#[derive(Debug)]
struct Slot {
    /// Generation (high half) and number of references to the span (low half). The number is 0 if
    /// the slot holds no open span.
    state: AtomicU64,
    span: SpanCell,
    /// [`AdaptedCallsite::index`] of the span's callsite.
    known: AtomicU32,
    _rest: [u32; 5],
}

const GENERATION: u64 = 1 << 32;

impl Slot {
    const fn free() -> Self {
        Self {
            state: AtomicU64::new(0),
            span: SpanCell::empty(),
            known: AtomicU32::new(0),
            _rest: [0; 5],
        }
    }
}

/// Id of spans that are not stored.
const NOTHING: u64 = u32::MAX as u64;

/// Bit position of the slot's index in an id. Bit 0 is always set, so that no id is 0. The high
/// half is the generation.
const INDEX_SHIFT: u32 = 6;

/// Array of all slots, so that a lookup needs only the index. Untouched pages take no memory.
static SLOTS: [Slot; SLOTS_MAX] = [const { Slot::free() }; SLOTS_MAX];
/// Number of slots that were ever handed out; slots from this index on are unused.
static FRESH: AtomicU32 = AtomicU32::new(0);
/// Free slots below `FRESH` that no thread keeps.
static FREE: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Free slots kept by one thread.
struct FreeSlots(Vec<u32>);

/// Free slots that this thread uses next. The type has no destructor, so that access needs no check
/// for destruction. `KEPT` returns the slots when the thread ends; threads without `KEPT` keep no
/// slots here.
struct Near {
    slots: [Cell<u32>; NEAR],
    length: Cell<usize>,
    /// Capacity: `NEAR` from the first [`take_kept`] until `KEPT` is dropped; otherwise 0.
    room: Cell<usize>,
}

const NEAR: usize = 8;

impl Drop for FreeSlots {
    fn drop(&mut self) {
        NEAR_SLOTS.with(|near| {
            near.room.set(0);
            self.0
                .extend(near.slots[..near.length.replace(0)].iter().map(Cell::get));
        });
        give_back(&mut self.0, 0);
    }
}

thread_local! {
    static NEAR_SLOTS: Near = const {
        Near { slots: [const { Cell::new(0) }; NEAR], length: Cell::new(0), room: Cell::new(0) }
    };
    static KEPT: RefCell<FreeSlots> = const { RefCell::new(FreeSlots(Vec::new())) };
}

/// Prevents threads from exchanging free slots with the shared list until the result is dropped.
pub(super) fn lock() -> MutexGuard<'static, Vec<u32>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn give_back(kept: &mut Vec<u32>, keep: usize) {
    lock().extend(kept.drain(keep..));
}

fn fetch(kept: &mut Vec<u32>, batch: usize) {
    let mut free = lock();
    if free.is_empty() {
        // Runs under the lock, so that the counter never exceeds the number of slots.
        let first = FRESH.load(Relaxed);
        let last = (first + batch as u32).min(SLOTS_MAX as u32);
        FRESH.store(last, Relaxed);
        kept.extend((first..last).rev());
    } else {
        let from = free.len().saturating_sub(batch);
        kept.extend(free.drain(from..));
    }
}

/// Free slot that this thread has taken. Dropping it returns the slot.
struct Free(u32);

impl Free {
    #[inline]
    fn take() -> Option<Self> {
        let near = ThreadRef::of(&NEAR_SLOTS);
        let Some(last) = near.length.get().checked_sub(1) else {
            return take_kept().map(Self);
        };
        near.length.set(last);
        Some(Self(near.slots[last % NEAR].get()))
    }

    /// Stores a span in the slot and returns its id.
    #[inline(always)]
    fn fill(self, known: &'static AdaptedCallsite, span: [u64; 4]) -> Id {
        let id = fill(self.0, known, span);
        std::mem::forget(self);
        id
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        put_free(self.0);
    }
}

#[cold]
fn take_kept() -> Option<u32> {
    let kept = KEPT.try_with(|kept| {
        let kept = &mut kept.borrow_mut().0;
        NEAR_SLOTS.with(|near| near.room.set(NEAR));
        if kept.is_empty() {
            fetch(kept, BATCH);
        }
        kept.pop()
    });
    // While the thread is being torn down, slots are fetched one by one.
    kept.unwrap_or_else(|_| {
        let mut one = Vec::new();
        fetch(&mut one, 1);
        one.pop()
    })
}

#[inline]
fn put_free(index: u32) {
    let near = ThreadRef::of(&NEAR_SLOTS);
    let length = near.length.get();
    if length < near.room.get() {
        near.slots[length % NEAR].set(index);
        near.length.set(length + 1);
    } else {
        put_kept(index);
    }
}

#[cold]
fn put_kept(index: u32) {
    let kept = KEPT.try_with(|kept| {
        let kept = &mut kept.borrow_mut().0;
        kept.push(index);
        if kept.len() >= 4 * BATCH {
            give_back(kept, 2 * BATCH);
        }
    });
    if kept.is_err() {
        give_back(&mut vec![index], 0);
    }
}

/// Returns the index part of an id.
#[inline(always)]
const fn index_of(id: u64) -> u32 {
    id as u32 >> INDEX_SHIFT
}

/// Returns the slot of an id, even if its span is closed; `None` for [`NOTHING`], which has no
/// slot.
#[inline(always)]
fn slot_at(id: u64) -> Option<&'static Slot> {
    SLOTS.get(index_of(id) as usize)
}

/// Returns the slot of an id and its state; `None` if no open span has this id.
#[inline]
fn slot_of(id: &Id) -> Option<(&'static Slot, u64)> {
    let id = id.into_u64();
    let slot = slot_at(id)?;
    let state = slot.state.load(Acquire);
    (state >> 32 == id >> 32 && state as u32 != 0).then_some((slot, state))
}

/// Stores a span in a slot that this thread has taken from the free ones, and returns its id.
#[inline(always)]
fn fill(index: u32, known: &'static AdaptedCallsite, span: [u64; 4]) -> Id {
    // The modulo never changes the index: it is below `SLOTS_MAX`.
    let index = index as usize % SLOTS_MAX;
    let slot = &SLOTS[index];
    // This thread alone owns the index, and ids of earlier generations no longer match.
    let state = slot.state.load(Relaxed);
    slot.span.put(span);
    slot.known.store(known.index, Relaxed);
    slot.state.store(state | 1, Release);
    Id::from_non_zero_u64(NonZeroU64::MIN | state | (index << INDEX_SHIFT) as u64)
}

/// Fast path of [`insert`]: begins a span without fields inside the current span and stores it.
/// Returns `None`, without side effects, if `NEAR_SLOTS` is empty or [`Span::begin_quickly`] does
/// not apply.
#[inline(always)]
pub(crate) fn insert_quickly(known: &'static AdaptedCallsite) -> Option<Id> {
    let near = ThreadRef::of(&NEAR_SLOTS);
    if near.length.get() == 0 {
        return None;
    }
    let span = Span::begin_quickly(&known.callsite)?;
    // Reads the length again instead of holding it in a register.
    let last = near.length.get().wrapping_sub(1);
    near.length.set(last);
    Some(fill(near.slots[last % NEAR].get(), known, span))
}

/// Stores the span that `begin` creates, and returns its id. If there is no span or no free slot,
/// returns the id of spans that are not stored.
#[inline(always)]
pub(crate) fn insert(known: &'static AdaptedCallsite, begin: impl FnOnce() -> Span) -> Id {
    // Takes the slot before `begin`, which may run code whose spans take slots, too.
    let Some(free) = Free::take() else {
        LOSSES.add(LossCause::OpenSpansFull, 1);
        return Id::from_u64(NOTHING);
    };
    let span = begin();
    if span.is_none() {
        Id::from_u64(NOTHING)
    } else {
        free.fill(known, span.into_words())
    }
}

/// Returns the words of an open span, see [`Span::into_words`]. Returns `None` if no open span has
/// this id.
#[inline(always)]
pub(crate) fn words(id: &Id) -> Option<[u64; 4]> {
    let id = id.into_u64();
    let slot = slot_at(id)?;
    // The id comes from the thread that filled the slot. But an id may outlive its span: if the
    // slot was reused meanwhile, these words may mix both spans, and the generation check rejects
    // them.
    let words = slot.span.words();
    fence(Acquire);
    (slot.state.load(Relaxed) >> 32 == id >> 32).then_some(words)
}

/// Returns the context of an open span, or `None` if no open span has this id.
#[inline]
pub(crate) fn context(id: &Id) -> Option<SpanContext> {
    words(id).map(Span::context_in)
}

/// Returns the callsite of an open span, or `None` if no open span has this id.
#[inline]
pub(crate) fn known(id: &Id) -> Option<&'static AdaptedCallsite> {
    let (slot, _) = slot_of(id)?;
    super::known::at(slot.known.load(Relaxed))
}

/// Returns the callsite and context of a span that is open and recorded; `None` for other spans.
pub(crate) fn recorded(id: &Id) -> Option<(&'static AdaptedCallsite, SpanContext)> {
    let (slot, _) = slot_of(id)?;
    slot.span
        .is_recorded()
        .then_some((known(id)?, context(id)?))
}

/// Adds a reference to an open span.
#[inline]
pub(crate) fn retain(id: &Id) {
    if let Some((slot, _)) = slot_of(id) {
        slot.state.fetch_add(1, Relaxed);
    }
}

/// Returns the slot's state, without references, after the span with this state closes.
#[inline(always)]
const fn next_generation(state: u64) -> u64 {
    (state & !(GENERATION - 1)).wrapping_add(GENERATION)
}

/// Ends a span if `id` is its only reference, [`SpanCell::end_quickly`] applies, and `NEAR_SLOTS`
/// has room for the slot. Returns `None` if it did nothing.
#[inline(always)]
pub(crate) fn release_quickly(id: &Id) -> Option<()> {
    let id = id.into_u64();
    let slot = slot_at(id)?;
    let only_one = id & !(GENERATION - 1) | 1;
    let near = ThreadRef::of(&NEAR_SLOTS);
    if slot.state.load(Acquire) != only_one || near.length.get() >= near.room.get() {
        return None;
    }
    slot.span.end_quickly()?;
    slot.state.store(next_generation(only_one), Relaxed);
    // Pairs with the fence in `words`, like the one in `release`.
    fence(Release);
    let length = near.length.get();
    near.slots[length % NEAR].set(index_of(id));
    near.length.set(length + 1);
    Some(())
}

/// Removes a reference; removing the last one ends the span and returns true.
#[cold]
#[inline(never)]
#[allow(clippy::needless_pass_by_value, reason = "in a register")]
pub(crate) fn release(id: Id) -> bool {
    let Some((slot, state)) = slot_of(&id) else {
        return false;
    };
    // If the caller holds the only reference, no other thread changes the count; this saves a
    // locked instruction.
    let is_last = state as u32 == 1 || slot.state.fetch_sub(1, AcqRel) as u32 == 1;
    if is_last {
        slot.state.store(next_generation(state), Relaxed);
        // Must precede any change to the span's words; it pairs with the fence in `words`.
        fence(Release);
        drop(slot.span.take());
        put_free(index_of(id.into_u64()));
    }
    is_last
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::known::{self, tests::metadata};
    use super::*;

    const WRITERS: usize = 2;
    const ROUNDS: u64 = if cfg!(miri) { 30 } else { 100_000 };

    fn known() -> &'static AdaptedCallsite {
        known::of(metadata(u32::MAX))
    }

    /// Creates a context whose words are all derived from `n`, so that a mixture shows.
    fn context_of(n: u64) -> SpanContext {
        SpanContext::new(
            u128::from(n) << 64 | u128::from(!n),
            n.wrapping_mul(7),
            false,
        )
    }

    /// Asserts that a context that was found is a result of [`context_of`].
    #[track_caller]
    fn check(found: Option<SpanContext>) {
        if let Some(found) = found {
            assert_eq!(found, context_of((found.trace_id() >> 64) as u64));
        }
    }

    /// Checks that a thread that looks up others' ids sees nothing or one whole span, but never a
    /// mixture of two spans that used the slot in turn.
    #[test]
    fn an_id_finds_its_own_span_or_none() {
        let known = known();
        let shown = [const { AtomicU64::new(NOTHING) }; WRITERS];
        let is_done = AtomicBool::new(false);
        let write = |writer: usize| {
            for round in 1..=ROUNDS {
                let context = context_of(round * WRITERS as u64 + writer as u64);
                let id = insert(known, || Span::unrecorded(context));
                // Published with `Release`, like any transfer of an id; only the slot's contents
                // are read without ordering.
                shown[writer].store(id.into_u64(), Release);
                assert_eq!(super::context(&id), Some(context));
                if round % 3 == 0 {
                    retain(&id);
                    assert!(!release(id.clone()));
                }
                assert!(release(id.clone()));
                assert_eq!(
                    (super::context(&id), super::known(&id).is_none()),
                    (None, true)
                );
                assert!(!release(id));
            }
        };
        let read = || {
            while !is_done.load(Relaxed) {
                for id in &shown {
                    check(super::context(&Id::from_u64(id.load(Acquire))));
                }
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(read);
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| scope.spawn(move || write(writer)))
                .collect();
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
            is_done.store(true, Relaxed);
        });
    }

    /// Drops the last reference on another thread than the one that created the span: its slot
    /// moves between threads.
    #[test]
    fn slots_go_from_thread_to_thread() {
        let known = known();
        let (sender, ids) = std::sync::mpsc::sync_channel::<(Id, SpanContext)>(16);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 1..=ROUNDS {
                    let context = context_of(n);
                    sender
                        .send((insert(known, || Span::unrecorded(context)), context))
                        .unwrap();
                }
            });
            scope.spawn(move || {
                for (id, context) in ids {
                    assert_eq!(super::context(&id), Some(context));
                    assert!(release(id));
                }
            });
        });
    }
}
