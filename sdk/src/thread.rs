//! What each recording thread owns: its ring and its ids. And the list of rings the drain reads.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::here::Here;
use crate::id::IdSource;
use crate::loss::{LOSSES, LossCause};
use crate::record::Lineage;
use crate::ring::{Consumer, Producer, RECORD_WORDS_MAX, Ring, Room};

/// What a thread can do about a record now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No ring yet.
    Fresh,
    /// The ring is there and nobody writes to it.
    Ready,
    /// A record is being written; one that a field's own formatting wants to write is refused.
    Writing,
    /// One of the SDK's own threads: records nothing, and that is no loss.
    Muted,
    /// No memory left for this thread's ring, or the thread is being torn down.
    Without,
}

/// The ring of a thread, and what its reader knows without being told again.
struct Writer {
    producer: Producer,
    lineage: Lineage,
}

struct Local {
    state: Cell<State>,
    writer: Cell<*mut Writer>,
    ids: IdSource,
}

thread_local! {
    /// Without a destructor: one instruction to reach, and safe to use while the thread is torn down.
    static LOCAL: Local = const {
        Local {
            state: Cell::new(State::Fresh),
            writer: Cell::new(std::ptr::null_mut()),
            ids: IdSource::unseeded(),
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
        let local = local();
        local.state.set(State::Without);
        let writer = local.writer.replace(std::ptr::null_mut());
        if !writer.is_null() {
            // SAFETY: made by `Box::into_raw` in `become_ready`, and nobody has it any more: the cell was just emptied,
            // and `write` holds no reference while this destructor runs on the same thread.
            drop(unsafe { Box::from_raw(writer) });
        }
    }
}

/// Writes one record to this thread's ring. `false`: it was discarded, and counted where that is a loss.
#[inline(always)]
pub(crate) fn write(fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX], &mut Lineage) -> usize) -> bool {
    let local = local();
    if local.state.get() != State::Ready && !local.become_ready() {
        return false;
    }
    let _writing = Writing::mark(&local.state);
    // SAFETY: in state `Ready` the pointer is valid; `Writing` keeps this the only reference until it is dropped,
    // since every other use of the pointer asks for `Ready` first or runs after the thread's own code.
    let writer = unsafe { &mut *local.writer.get() };
    if !writer.producer.has_room() && !writer.find_room() {
        return false;
    }
    let Writer { producer, lineage } = writer;
    // SAFETY: there is room, or room was found.
    unsafe { producer.write_unasked(|place| fill(place, lineage)) };
    true
}

/// The place of a record that is about to be written, see [`claim`].
pub(crate) struct Claim<'a>(&'a mut Writer);

/// A place for a record in the usual case: the ring is there, and has room. `None`: [`write`] is to be called.
///
/// There is no call in it, so that whoever it is inlined into need not save any register.
#[inline(always)]
pub(crate) fn claim<'a>() -> Option<Claim<'a>> {
    let local = local();
    if local.state.get() != State::Ready {
        return None;
    }
    // SAFETY: in state `Ready` the pointer is valid; there is no other reference, because those who hold a claim do
    // nothing but fill it, and meanwhile the state is another.
    let writer = unsafe { &mut *local.writer.get() };
    writer.producer.has_room().then_some(Claim(writer))
}

impl Claim<'_> {
    /// Writes the record: `fill` as for [`write`]. Should it panic, this thread writes no more; so it is for values that
    /// run nobody else's code.
    #[inline(always)]
    pub(crate) fn write(self, fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX], &mut Lineage) -> usize) {
        let Writer { producer, lineage } = self.0;
        let local = local();
        local.state.set(State::Writing);
        // SAFETY: there was room when it was claimed.
        unsafe { producer.write_unasked(|place| fill(place, lineage)) };
        local.state.set(State::Ready);
    }
}

/// Told when a ring is half full; null before somebody waits for that. One for each process of a line of forks, and kept:
/// a child must not touch its parent's, which may be locked and lists waiters on stacks that are gone.
static FILLING: AtomicPtr<Notify> = AtomicPtr::new(std::ptr::null_mut());

fn tell_filling() {
    // SAFETY: null, or leaked by `filling`, so it lives for ever; only shared references are made of it.
    if let Some(filling) = unsafe { FILLING.load(Acquire).as_ref() } {
        filling.notify_one();
    }
}

/// What is told when some thread's ring is half full. For one waiter.
pub(crate) fn filling() -> &'static Notify {
    let made = FILLING.load(Acquire);
    // SAFETY: as above.
    if let Some(filling) = unsafe { made.as_ref() } {
        return filling;
    }
    let made: &'static Notify = Box::leak(Box::default());
    // Of two that are made at once one is lost; nobody but the shipping thread asks, of which there is one.
    FILLING.store(std::ptr::from_ref(made).cast_mut(), Release);
    made
}

/// For the child side of a fork.
pub(crate) fn forked() {
    FILLING.store(std::ptr::null_mut(), Release);
}

/// A new span id, of this thread's.
#[inline(always)]
pub(crate) fn span_id() -> u64 {
    local().ids.span_id()
}

/// A new span id, if that is quickly made.
#[inline(always)]
pub(crate) fn span_id_quickly() -> Option<u64> {
    local().ids.span_id_quickly()
}

/// A new trace id and a new span id, of this thread's.
pub(crate) fn root_ids() -> (u128, u64) {
    let local = local();
    (local.ids.trace_id(), local.ids.span_id())
}

/// Forgets this thread's ids: those to come share nothing with them.
pub(crate) fn forget_ids() {
    local().ids.forget();
}

/// From now on this thread records nothing: for the SDK's own threads, whose libraries are annotated too.
pub(crate) fn mute() {
    local().state.set(State::Muted);
}

/// Back to `Ready` also when a field's own formatting panics.
struct Writing<'a>(&'a Cell<State>);

impl<'a> Writing<'a> {
    #[inline]
    fn mark(state: &'a Cell<State>) -> Self {
        state.set(State::Writing);
        Self(state)
    }
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.set(State::Ready);
    }
}

impl Writer {
    /// Looks how full the ring is, and does what is to be done about it. `false`: the record is lost, and counted.
    #[cold]
    #[inline(never)]
    fn find_room(&mut self) -> bool {
        match self.producer.look() {
            Room::Enough => true,
            Room::Half => {
                tell_filling();
                true
            }
            Room::None => self.change_ring(),
        }
    }

    /// The ring is full before it was read. Goes on in the spare one, if it is there; the full one is read to its end
    /// before, and its memory becomes the next spare. `false`: the record is lost, and counted.
    fn change_ring(&mut self) -> bool {
        let Some(producer) = RINGS.take_other() else {
            LOSSES.add(LossCause::RingFull, 1);
            return false;
        };
        // Drops, and so retires, the full one.
        *self = Self { producer, lineage: Lineage::UNKNOWN };
        true
    }
}

impl Local {
    #[cold]
    fn become_ready(&self) -> bool {
        match self.state.get() {
            State::Ready => true,
            State::Muted => false,
            State::Writing | State::Without => {
                LOSSES.add(LossCause::NoRing, 1);
                false
            }
            State::Fresh => {
                // Touching REAPER registers its destructor; it fails when the thread's locals are already going.
                let made = REAPER.try_with(|_| RINGS.make()).ok().flatten();
                let Some(producer) = made else {
                    self.state.set(State::Without);
                    LOSSES.add(LossCause::NoRing, 1);
                    return false;
                };
                let writer = Writer { producer, lineage: Lineage::UNKNOWN };
                self.writer.set(Box::into_raw(Box::new(writer)));
                self.state.set(State::Ready);
                true
            }
        }
    }
}

/// All rings of the process.
pub(crate) static RINGS: Rings = Rings {
    made: Mutex::new(Vec::new()),
    spare: Mutex::new(None),
    bytes: AtomicUsize::new(0),
    ring_bytes: AtomicUsize::new(1 << 20),
    bytes_max: AtomicUsize::new(64 << 20),
};

/// The rings made since the drain last looked, and the memory all of them take.
pub(crate) struct Rings {
    /// Locked for a push or a take only, so that no thread waits for a drain.
    made: Mutex<Vec<Consumer>>,
    /// A ring for the next thread that records, or whose ring is full: its pages are there already, so that no record
    /// pays for some hundred page faults.
    spare: Mutex<Option<(Producer, Consumer)>>,
    bytes: AtomicUsize,
    ring_bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

/// Both locks of [`Rings`]; nobody else takes one while holding the other.
pub(crate) struct RingsLock<'a> {
    _made: MutexGuard<'a, Vec<Consumer>>,
    _spare: MutexGuard<'a, Option<(Producer, Consumer)>>,
}

impl Rings {
    /// Sizes of rings made from now on.
    pub(crate) fn configure(&self, ring_bytes: usize, bytes_max: usize) {
        self.ring_bytes.store(ring_bytes, Relaxed);
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// For a thread's first record.
    fn make(&self) -> Option<Producer> {
        self.take_spare().or_else(|| self.make_counted()).map(|ring| self.announce(ring))
    }

    /// For a thread that has no time to wait for a ring's memory.
    fn take_other(&self) -> Option<Producer> {
        self.take_spare().map(|ring| self.announce(ring))
    }

    fn announce(&self, (producer, consumer): (Producer, Consumer)) -> Producer {
        // A poisoned list is still a list: nothing is half-done inside a push.
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(consumer);
        producer
    }

    /// A ring whose memory is counted, if there may be one more.
    fn make_counted(&self) -> Option<(Producer, Consumer)> {
        let ring_bytes = self.ring_bytes.load(Relaxed);
        if self.bytes.load(Relaxed) + ring_bytes > self.bytes_max.load(Relaxed) {
            return None;
        }
        let (producer, consumer) = Ring::with_bytes(ring_bytes);
        self.bytes.fetch_add(consumer.bytes(), Relaxed);
        Some((producer, consumer))
    }

    fn take_spare(&self) -> Option<(Producer, Consumer)> {
        let (producer, consumer) = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        if consumer.bytes() == Ring::bytes_for(self.ring_bytes.load(Relaxed)) {
            return Some((producer, consumer));
        }
        // Made for another configuration.
        self.forget(&consumer);
        None
    }

    /// Makes the spare ring if there is none. Not for recording threads: it touches all of the ring's memory.
    pub(crate) fn prepare_spare(&self) {
        let has_spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !has_spare() {
            let made = self.make_counted();
            *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = made;
        }
    }

    /// The rings made since the last call.
    pub(crate) fn take_made(&self) -> Vec<Consumer> {
        std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps rings from being handed out until the result is dropped.
    pub(crate) fn lock(&self) -> RingsLock<'_> {
        RingsLock {
            _made: self.made.lock().unwrap_or_else(PoisonError::into_inner),
            _spare: self.spare.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// A ring is finished: it becomes the spare one, or is given back.
    pub(crate) fn recycle(&self, ring: Consumer) {
        let bytes = ring.bytes();
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.is_none() {
            *spare = ring.renew();
            if spare.is_some() {
                return;
            }
        }
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// A ring is no longer read.
    pub(crate) fn forget(&self, ring: &Consumer) {
        self.bytes.fetch_sub(ring.bytes(), Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}
