//! Finds room for a record: in a thread's ring, in a larger one, or in one that threads share.
//!
//! A ring begins small, since most threads record little, and there may be thousands. A thread that fills half of its ring
//! before it is read goes on in one of the next size; what it leaves behind is read, and its memory becomes a ring again. A
//! thread for which there is no memory borrows a [shared](super::shared) ring for each record.

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

    /// Goes on in another ring, and so retires this one: it is read to its end before the other.
    fn change_ring(&mut self, producer: Option<Producer>) -> bool {
        let changes = producer.is_some();
        if let Some(producer) = producer {
            *self = Self::of(producer);
        }
        changes
    }
}

impl Local {
    /// Sees to it that there is room, if there can be. `false`: the record is lost, and counted where that is a loss.
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
                // Touching REAPER registers its destructor; it fails when the thread's locals are already going.
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
            // Of the latter two: a record inside of one, which is refused before.
            State::Muted | State::Borrowing(_) | State::LastBorrowing(_) => false,
        }
    }

    /// Takes a shared ring for one record, in place of the thread's own, which is retired if there was one.
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

    /// Gives a shared ring back, if there is one. For who may write.
    #[inline]
    pub(super) fn give_back(&self) {
        let (place, state) = match self.state.get() {
            State::Borrowing(place) => (place, State::Fresh),
            State::LastBorrowing(place) => (place, State::Ending),
            _ => return,
        };
        self.state.set(state);
        // SAFETY: as in `write`, whose borrow is over.
        let writer = unsafe { &mut **self.writer.get() };
        shared::give_back(place, std::mem::replace(writer, Writer::NONE));
    }

    /// Gives the ring back, and records no more.
    pub(super) fn stop(&self, state: State) {
        if self.ready.get() != BUSY {
            self.ready.set(BUSY);
            // SAFETY: as in `write`.
            let writer = unsafe { &mut **self.writer.get() };
            drop(std::mem::replace(writer, Writer::NONE));
            self.ready.set(NOT_READY);
            self.state.set(state);
        } else if matches!(self.state.get(), State::Fresh | State::Ready) {
            // In the midst of a record there is no telling who still has the ring, which is then never given back.
            self.state.set(state);
        }
    }
}
