//! Finds space for a record: in a thread's ring, in another one for the thread, or in a shared one.
//!
//! A ring starts small, because most threads record little and there may be thousands. A thread
//! that fills half of its ring before it is read continues in one of the next size, if available.
//! The drain reads the old ring, whose memory is then reused or freed. A thread without memory for
//! a ring borrows a [shared](super::shared) ring for each record.

use super::{BUSY, Local, NOT_READY, REAPER, RINGS, State, Writer, half_full, shared};
use crate::loss::{LOSSES, LossCause};
use crate::record::Lineage;
use crate::ring::{Producer, Room};

impl Writer {
    pub(super) const NONE: Self = Self::of(Producer::NONE);

    pub(super) const fn of(producer: Producer) -> Self {
        Self {
            producer,
            first_id: 0,
            lineage: Lineage::UNKNOWN,
        }
    }

    /// Continues in the ring of `producer`, if there is one. This retires the current ring, which
    /// the drain reads to its end before the new one. Returns true if the ring changed.
    fn change_ring(&mut self, producer: Option<Producer>) -> bool {
        let changes = producer.is_some();
        if let Some(producer) = producer {
            *self = Self::of(producer);
        }
        changes
    }
}

impl Local {
    /// Finds space for a record. Returns false if the record must be discarded. This counts as a
    /// loss, except on a muted thread.
    #[cold]
    #[inline(never)]
    pub(super) fn find_room(&self, writer: &mut Writer) -> bool {
        match self.state.get() {
            State::Ready => match writer.producer.look() {
                Room::Enough => true,
                Room::Half => {
                    let larger = RINGS.take_larger(writer.producer.bytes());
                    if !writer.change_ring(larger) {
                        half_full::tell_filling();
                    }
                    true
                }
                Room::None => {
                    writer.change_ring(RINGS.take_other(writer.producer.bytes()))
                        || self.borrow(writer, LossCause::RingFull)
                }
            },
            State::Fresh => {
                // Accessing REAPER registers its destructor, and fails once that has begun.
                let Ok(made) = REAPER.try_with(|_| RINGS.make()) else {
                    self.state.set(State::Ending);
                    return self.borrow(writer, LossCause::NoRing);
                };
                if !writer.change_ring(made) {
                    return self.borrow(writer, LossCause::NoRing);
                }
                self.state.set(State::Ready);
                true
            }
            State::Ending => self.borrow(writer, LossCause::NoRing),
            // In the latter two states, this would be a record inside a record, which is rejected
            // earlier.
            State::Muted | State::Borrowing(_) | State::LastBorrowing(_) => false,
        }
    }

    /// Borrows a shared ring for one record, in place of the thread's own ring, which it retires.
    /// If no shared ring with space is available, counts a loss with the cause `otherwise` and
    /// returns false.
    fn borrow(&self, writer: &mut Writer, otherwise: LossCause) -> bool {
        let Some((place, shared)) = shared::borrow(std::ptr::from_ref(self).addr()) else {
            LOSSES.add(otherwise, 1);
            return false;
        };
        *writer = shared;
        self.state.set(match self.state.get() {
            State::Ending => State::LastBorrowing(place),
            _ => State::Borrowing(place),
        });
        true
    }

    /// Returns a borrowed ring, if any. The caller must have exclusive access to the writer.
    #[inline]
    pub(super) fn give_back(&self) {
        let (place, state) = match self.state.get() {
            State::Borrowing(place) => (place, State::Fresh),
            State::LastBorrowing(place) => (place, State::Ending),
            _ => return,
        };
        self.state.set(state);
        // SAFETY: as in `write`, whose borrow has ended.
        let writer = unsafe { &mut **self.writer.get() };
        shared::give_back(place, std::mem::replace(writer, Writer::NONE));
    }

    /// Changes the thread's state to `state`, and retires the thread's ring. During a record, it
    /// keeps the ring, and changes only [`State::Fresh`] and [`State::Ready`].
    pub(super) fn stop(&self, state: State) {
        if self.ready.get() != BUSY {
            self.ready.set(BUSY);
            // SAFETY: as in `write`.
            let writer = unsafe { &mut **self.writer.get() };
            drop(std::mem::replace(writer, Writer::NONE));
            self.ready.set(NOT_READY);
            self.state.set(state);
        } else if matches!(self.state.get(), State::Fresh | State::Ready) {
            // During a record it is unknown which code still uses the ring, so the ring stays.
            self.state.set(state);
        }
    }
}
