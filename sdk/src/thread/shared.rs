//! Shared rings that threads without a ring of their own borrow, for one record at a time.
//!
//! Apart from forks, a place is locked only to put its ring back, or to remove it (after creating
//! it if need be). A thread that needs a ring does not wait for the lock; it tries the next place.
//! A ring stays together with its lineage, so to its reader it is an ordinary ring.

use std::sync::{Mutex, TryLockError};

use super::Writer;
use super::half_full;
use super::rings::RINGS;
use crate::ring::Room;

/// Number of shared rings, and maximum number of threads that write to them at the same time.
const PLACES: usize = 16;

/// State of a place: its ring is not yet created, is borrowed, or is available.
enum Place {
    Unmade,
    Lent,
    Available(Writer),
}

static SHARED: [Mutex<Place>; PLACES] = [const { Mutex::new(Place::Unmade) }; PLACES];

/// Removes a ring with space from its place. A thread always starts its search at the same place,
/// derived from its `address`, so that its records mostly stay in order. Returns `None` if no ring
/// with space is available.
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
        Place::Available(writer) => Some(writer),
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
    // This waits only while other threads find that the place is empty.
    *there
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner) = Place::Available(writer);
}

/// Resets the places in the thread that survived a fork: threads that no longer exist may have
/// borrowed rings. A place that such a thread had locked stays unusable.
pub(crate) fn forget_shared() {
    for place in &SHARED {
        if let Ok(mut place) = place.try_lock() {
            *place = Place::Unmade;
        }
    }
}
