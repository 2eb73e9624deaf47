//! The open spans of our own subscriber, in slots that are never freed.
//!
//! An id is a slot's index and the slot's generation, which changes whenever a span in it closes. So an id that
//! outlived its span finds nothing, rather than another span. Each thread keeps some free slots of its own and trades
//! them with the others in batches, so that making and closing a span touches no shared cache line.

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
use super::known::Known;
use crate::context::SpanContext;
use crate::here::Here;
use crate::loss::{LOSSES, LossCause};
use crate::span::Span;

/// Spans open at once: 262,144, in 16 MiB. More are not recorded, and counted.
const SLOTS_MAX: usize = if cfg!(miri) { 256 } else { 1 << 18 };
/// Free slots move between a thread and the rest in batches of this many.
const BATCH: usize = 64;

/// One cache line, without padding, so that all of it is zeros until used.
#[repr(align(64))]
#[derive(Debug)]
struct Slot {
    /// Generation (high half) and references (low half) to the span in here; no references: free.
    state: AtomicU64,
    span: SpanCell,
    /// [`Known::index`] of the span's callsite.
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

/// The id of spans that are not kept.
const NOTHING: u64 = u32::MAX as u64;

/// Where an id has the slot's index. Below it stands a 1, so that no id is 0; above it, the generation.
const INDEX_SHIFT: u32 = 6;

/// Untouched pages of it take no memory. In one piece, so that nothing but the index is looked at to find a slot.
static SLOTS: [Slot; SLOTS_MAX] = [const { Slot::free() }; SLOTS_MAX];
/// Slots below this index were handed out before.
static FRESH: AtomicU32 = AtomicU32::new(0);
/// Free slots that no thread keeps.
static FREE: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Free slots kept by one thread.
struct Kept(Vec<u32>);

/// The free slots used next, where the compiler need not ask whether they were destroyed. Filled only by threads whose
/// `KEPT` exists, which gives them back in the end.
struct Near {
    slots: [Cell<u32>; NEAR],
    length: Cell<usize>,
    /// `NEAR` once `KEPT` exists, 0 before and after.
    room: Cell<usize>,
}

const NEAR: usize = 8;

impl Drop for Kept {
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
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept(Vec::new())) };
}

/// Keeps slots from changing hands until the result is dropped.
pub(super) fn lock() -> MutexGuard<'static, Vec<u32>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn give_back(kept: &mut Vec<u32>, keep: usize) {
    lock().extend(kept.drain(keep..));
}

fn fetch(kept: &mut Vec<u32>, batch: usize) {
    let mut free = lock();
    if free.is_empty() {
        // Under the lock, so that the counter stops where the slots do.
        let first = FRESH.load(Relaxed);
        let last = (first + batch as u32).min(SLOTS_MAX as u32);
        FRESH.store(last, Relaxed);
        kept.extend((first..last).rev());
    } else {
        let from = free.len().saturating_sub(batch);
        kept.extend(free.drain(from..));
    }
}

/// A free slot of this thread's; free again if it is dropped.
struct Free(u32);

impl Free {
    #[inline]
    fn take() -> Option<Self> {
        let near = Here::of(&NEAR_SLOTS);
        let Some(last) = near.length.get().checked_sub(1) else {
            return take_kept().map(Self);
        };
        near.length.set(last);
        Some(Self(near.slots[last % NEAR].get()))
    }

    /// Keeps a span in it, and names it.
    #[inline(always)]
    fn fill(self, known: &'static Known, span: [u64; 4]) -> Id {
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
    // The thread is being torn down: one by one, then.
    kept.unwrap_or_else(|_| {
        let mut one = Vec::new();
        fetch(&mut one, 1);
        one.pop()
    })
}

#[inline]
fn put_free(index: u32) {
    let near = Here::of(&NEAR_SLOTS);
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

/// The index that is part of an id.
#[inline(always)]
const fn index_of(id: u64) -> u32 {
    id as u32 >> INDEX_SHIFT
}

/// The slot of an id, whether its span is open or not.
#[inline(always)]
fn slot_at(id: u64) -> Option<&'static Slot> {
    SLOTS.get(index_of(id) as usize)
}

/// The slot of an id, if its span is open.
#[inline]
fn slot_of(id: &Id) -> Option<(&'static Slot, u64)> {
    let id = id.into_u64();
    let slot = slot_at(id)?;
    let state = slot.state.load(Acquire);
    (state >> 32 == id >> 32 && state as u32 != 0).then_some((slot, state))
}

/// Keeps a span in a slot that this thread has taken out of the free ones, and names it.
#[inline(always)]
fn fill(index: u32, known: &'static Known, span: [u64; 4]) -> Id {
    // It is less than that.
    let index = index as usize % SLOTS_MAX;
    let slot = &SLOTS[index];
    // Nobody else has the index, and ids of earlier generations fit no more.
    let state = slot.state.load(Relaxed);
    slot.span.put(span);
    slot.known.store(known.index, Relaxed);
    slot.state.store(state | 1, Release);
    Id::from_non_zero_u64(NonZeroU64::MIN | state | (index << INDEX_SHIFT) as u64)
}

/// Begins a span without fields inside the current one, and keeps it, where that is all there is to do. `None`: nothing
/// was done.
#[inline(always)]
pub(crate) fn insert_quickly(known: &'static Known) -> Option<Id> {
    let near = Here::of(&NEAR_SLOTS);
    if near.length.get() == 0 {
        return None;
    }
    let span = Span::begin_quickly(&known.callsite)?;
    // Looked at again: registers are few.
    let last = near.length.get().wrapping_sub(1);
    near.length.set(last);
    Some(fill(near.slots[last % NEAR].get(), known, span))
}

/// Keeps the span that `begin` makes, and names it.
#[inline(always)]
pub(crate) fn insert(known: &'static Known, begin: impl FnOnce() -> Span) -> Id {
    // Taken out first: `begin` may run code that makes other spans.
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

/// What an open span is taken apart into, see [`Span::into_words`].
#[inline(always)]
pub(crate) fn words(id: &Id) -> Option<[u64; 4]> {
    let id = id.into_u64();
    let slot = slot_at(id)?;
    // Who has an id has it from who filled the slot. But an id is allowed to outlive its span: if the slot was taken over
    // meanwhile, this is a mixture of both.
    let words = slot.span.words();
    fence(Acquire);
    (slot.state.load(Relaxed) >> 32 == id >> 32).then_some(words)
}

/// The context of an open span.
#[inline]
pub(crate) fn context(id: &Id) -> Option<SpanContext> {
    words(id).map(Span::context_in)
}

/// The callsite of an open span.
#[inline]
pub(crate) fn known(id: &Id) -> Option<&'static Known> {
    let (slot, _) = slot_of(id)?;
    super::known::at(slot.known.load(Relaxed))
}

/// The callsite and the context of a span that is open and recorded.
pub(crate) fn recorded(id: &Id) -> Option<(&'static Known, SpanContext)> {
    let (slot, _) = slot_of(id)?;
    slot.span
        .is_recorded()
        .then_some((known(id)?, context(id)?))
}

/// One more reference to an open span.
#[inline]
pub(crate) fn retain(id: &Id) {
    if let Some((slot, _)) = slot_of(id) {
        slot.state.fetch_add(1, Relaxed);
    }
}

/// What a slot's state is, without references, after the span of this state.
#[inline(always)]
const fn next_generation(state: u64) -> u64 {
    (state & !(GENERATION - 1)).wrapping_add(GENERATION)
}

/// Ends the span whose only reference this is, where all there is to do is to record that. `None`: nothing was done.
#[inline(always)]
pub(crate) fn release_quickly(id: &Id) -> Option<()> {
    let id = id.into_u64();
    let slot = slot_at(id)?;
    let only_one = id & !(GENERATION - 1) | 1;
    let near = Here::of(&NEAR_SLOTS);
    if slot.state.load(Acquire) != only_one || near.length.get() >= near.room.get() {
        return None;
    }
    slot.span.end_quickly()?;
    slot.state.store(next_generation(only_one), Relaxed);
    // As in `release`.
    fence(Release);
    let length = near.length.get();
    near.slots[length % NEAR].set(index_of(id));
    near.length.set(length + 1);
    Some(())
}

/// One reference less; the last one ends the span. `true`: it did.
#[cold]
#[inline(never)]
#[allow(clippy::needless_pass_by_value, reason = "in a register")]
pub(crate) fn release(id: Id) -> bool {
    let Some((slot, state)) = slot_of(&id) else {
        return false;
    };
    // The only reference is the caller's, so nobody else changes the count; that saves a locked instruction.
    let is_last = state as u32 == 1 || slot.state.fetch_sub(1, AcqRel) as u32 == 1;
    if is_last {
        slot.state.store(next_generation(state), Relaxed);
        // Before anything in the slot changes: the counterpart is in `words`.
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

    fn known() -> &'static Known {
        known::of(metadata(u32::MAX))
    }

    /// One whose words go together.
    fn context_of(n: u64) -> SpanContext {
        SpanContext::new(
            u128::from(n) << 64 | u128::from(!n),
            n.wrapping_mul(7),
            false,
        )
    }

    /// Is it one of those?
    #[track_caller]
    fn check(found: Option<SpanContext>) {
        if let Some(found) = found {
            assert_eq!(found, context_of((found.trace_id() >> 64) as u64));
        }
    }

    /// Threads that look at ids of others see the span, or nothing once it is closed, and never parts of two that were in
    /// the slot one after the other.
    #[test]
    fn an_id_finds_its_own_span_or_none() {
        let known = known();
        let shown = [const { AtomicU64::new(NOTHING) }; WRITERS];
        let is_done = AtomicBool::new(false);
        let write = |writer: usize| {
            for round in 1..=ROUNDS {
                let context = context_of(round * WRITERS as u64 + writer as u64);
                let id = insert(known, || Span::unrecorded(context));
                // As whatever hands an id on does: it is the slot's contents that are read without an order.
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

    /// The last reference is given up where the span was not made: its slot goes from thread to thread.
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
