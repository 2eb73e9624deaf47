//! Rings that threads without one of their own borrow, for one record at a time.
//!
//! A place is locked only to take its ring out or to put it back, and nobody waits for a lock: a thread tries the next place.
//! The ring and what its reader knows stay together, so to its reader it is a ring like any other.

use std::sync::{Mutex, TryLockError};

use super::Writer;
use super::half_full;
use super::rings::RINGS;
use crate::ring::Room;

/// So many threads can be in the midst of a record at once.
const PLACES: usize = 16;

/// What is in a place.
enum Place {
    Unmade,
    Lent,
    Here(Writer),
}

static SHARED: [Mutex<Place>; PLACES] = [const { Mutex::new(Place::Unmade) }; PLACES];

/// Takes a ring that has room out of its place. A thread, by its `address`, begins to look at the same place each time, so
/// that its records mostly stay in order.
pub(super) fn borrow(address: usize) -> Option<(u8, Writer)> {
    let first = address.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> (usize::BITS - 4);
    (first..first + PLACES).find_map(|place| {
        let place = (place % PLACES) as u8;
        let mut writer = take(place)?;
        match writer.producer.look() {
            Room::Enough => {}
            Room::Half => half_full::tell_filling(),
            Room::None => {
                give_back(place, writer);
                return None;
            }
        }
        Some((place, writer))
    })
}

fn take(place: u8) -> Option<Writer> {
    let mut there = match SHARED.get(usize::from(place))?.try_lock() {
        Ok(there) => there,
        Err(TryLockError::Poisoned(there)) => there.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    match std::mem::replace(&mut *there, Place::Lent) {
        Place::Here(writer) => Some(writer),
        Place::Lent => None,
        Place::Unmade => {
            let made = RINGS.make_shared().map(Writer::of);
            if made.is_none() {
                *there = Place::Unmade;
            }
            made
        }
    }
}

/// Puts a borrowed ring back.
pub(super) fn give_back(place: u8, writer: Writer) {
    let Some(there) = SHARED.get(usize::from(place)) else {
        return;
    };
    // It waits for others only while they find out that nothing is here.
    *there
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner) = Place::Here(writer);
}

/// For the thread that came over a fork: others may have borrowed some, and are gone.
pub(crate) fn forget_shared() {
    for place in &SHARED {
        if let Ok(mut place) = place.try_lock() {
            *place = Place::Unmade;
        }
    }
}
