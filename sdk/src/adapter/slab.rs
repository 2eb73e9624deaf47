//! The open spans of our own subscriber, in slots that are never freed.
//!
//! An id is a slot's index and the slot's generation, which changes whenever a span in it closes. So an id that
//! outlived its span finds nothing, rather than another span. Each thread keeps some free slots of its own and trades
//! them with the others in batches, so that making and closing a span touches no shared cache line.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tracing_core::span::Id;

use super::cell::SpanCell;
use super::known::Known;
use crate::context::SpanContext;
use crate::here::Here;
use crate::loss::{LOSSES, LossCause};
use crate::span::Span;

const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 10;
/// Spans open at once: 262,144, in 16 MiB. More are not recorded, and counted.
const CHUNKS: usize = 256;
/// Free slots move between a thread and the rest in batches of this many.
const BATCH: usize = 64;

/// One cache line.
#[repr(align(64))]
#[derive(Debug)]
struct Slot {
    /// Generation (high half) and references (low half) to the span in here; no references: free.
    state: AtomicU64,
    span: SpanCell,
    /// [`Known::index`] of the span's callsite.
    known: AtomicU32,
}

const GENERATION: u64 = 1 << 32;

impl Slot {
    fn free() -> Self {
        Self { state: AtomicU64::new(GENERATION), span: SpanCell::empty(), known: AtomicU32::new(0) }
    }
}

/// The id of spans that are not kept.
const NOTHING: u64 = GENERATION | u32::MAX as u64;

static SLOTS: [OnceLock<Box<[Slot]>>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];
/// Slots below this index were handed out before.
static FRESH: AtomicU32 = AtomicU32::new(0);
/// Free slots that no thread keeps. Its lock also guards the making of chunks: one that is being made while the process
/// forks would never be there in the child.
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
            self.0.extend(near.slots[..near.length.replace(0)].iter().map(Cell::get));
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
        let last = (first + batch as u32).min((CHUNKS * CHUNK) as u32);
        FRESH.store(last, Relaxed);
        kept.extend((first..last).rev());
    } else {
        let from = free.len().saturating_sub(batch);
        kept.extend(free.drain(from..));
    }
}

/// A free slot's index.
#[inline]
fn take_free() -> Option<u32> {
    let near = Here::of(&NEAR_SLOTS);
    let last = near.length.get().wrapping_sub(1);
    let Some(slot) = near.slots.get(last) else { return take_kept() };
    near.length.set(last);
    Some(slot.get())
}

#[cold]
fn take_kept() -> Option<u32> {
    KEPT.try_with(|kept| {
        NEAR_SLOTS.with(|near| near.room.set(NEAR));
        let kept = &mut kept.borrow_mut().0;
        if kept.is_empty() {
            fetch(kept, BATCH);
        }
        kept.pop()
    })
    .unwrap_or_else(|_| {
        // The thread's locals are being destroyed.
        let mut one = Vec::new();
        fetch(&mut one, 1);
        one.pop()
    })
}

#[inline]
fn put_free(index: u32) {
    let near = Here::of(&NEAR_SLOTS);
    let length = near.length.get();
    match near.slots.get(length) {
        Some(slot) if length < near.room.get() => {
            slot.set(index);
            near.length.set(length + 1);
        }
        _ => put_kept(index),
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

#[inline]
fn slot_at(index: u32) -> Option<&'static Slot> {
    let chunk = SLOTS.get((index >> CHUNK_BITS) as usize)?.get()?;
    chunk.get(index as usize % CHUNK)
}

#[cold]
fn make_chunk(index: u32) -> &'static [Slot] {
    let _free = lock();
    SLOTS[(index >> CHUNK_BITS) as usize]
        .get_or_init(|| std::iter::repeat_with(Slot::free).take(CHUNK).collect())
}

/// The slot of an id, if its span is open.
#[inline]
fn slot_of(id: &Id) -> Option<(&'static Slot, u64)> {
    let id = id.into_u64();
    let slot = slot_at(id as u32)?;
    let state = slot.state.load(Acquire);
    (state >> 32 == id >> 32 && state as u32 != 0).then_some((slot, state))
}

/// Keeps the span that `begin` makes, and names it.
#[inline]
pub(crate) fn insert(known: &'static Known, begin: impl FnOnce() -> Span) -> Id {
    let Some(index) = take_free() else {
        LOSSES.add(LossCause::OpenSpansFull, 1);
        return Id::from_u64(NOTHING);
    };
    let slot = slot_at(index).unwrap_or_else(|| &make_chunk(index)[index as usize % CHUNK]);
    let span = begin();
    if span.is_none() {
        put_free(index);
        return Id::from_u64(NOTHING);
    }
    // This thread owns the slot: nobody else has its index, and ids of earlier generations fit no more.
    let state = slot.state.load(Relaxed);
    slot.span.put(span);
    slot.known.store(known.index, Relaxed);
    slot.state.store(state | 1, Release);
    Id::from_u64((state & !(GENERATION - 1)) | u64::from(index))
}

/// The context of an open span.
#[inline]
pub(crate) fn context(id: &Id) -> Option<SpanContext> {
    let (slot, _) = slot_of(id)?;
    let context = slot.span.context();
    // An id is allowed to outlive its span. If the slot was taken over meanwhile, this was a mixture of both.
    fence(Acquire);
    (slot.state.load(Relaxed) >> 32 == id.into_u64() >> 32).then_some(context)
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
    slot.span.is_recorded().then_some((known(id)?, context(id)?))
}

/// One more reference to an open span.
#[inline]
pub(crate) fn retain(id: &Id) {
    if let Some((slot, _)) = slot_of(id) {
        slot.state.fetch_add(1, Relaxed);
    }
}

/// One reference less; the last one ends the span. `true`: it did.
#[inline]
pub(crate) fn release(id: &Id) -> bool {
    let Some((slot, state)) = slot_of(id) else { return false };
    // The only reference is the caller's, so nobody else changes the count; that saves a locked instruction.
    let is_last = state as u32 == 1 || slot.state.fetch_sub(1, AcqRel) as u32 == 1;
    if is_last {
        let generation = (state >> 32).wrapping_add(1) as u32;
        slot.state.store(u64::from(generation.max(1)) << 32, Relaxed);
        // Before anything in the slot changes: the counterpart is in `context`.
        fence(Release);
        drop(slot.span.take());
        put_free(id.into_u64() as u32);
    }
    is_last
}
