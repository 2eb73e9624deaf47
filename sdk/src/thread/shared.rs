//! Shared rings that threads without a ring of their own borrow, for one record at a time.
//!
//! Apart from `init` in a forked child, a place is locked only to put its ring back, or to look for
//! a ring or create one. A thread that needs a ring does not wait for the lock; it tries the next
//! place. A ring stays together with its lineage, so to its reader it is an ordinary ring.

use std::sync::{Mutex, MutexGuard, TryLockError};

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
///
/// Creates a ring only if none is available, for example because [`prepare`] has not run yet. A
/// thread that allocates memory may have to wait, such as for other threads that are being started.
/// If each place got its ring at its first use, such threads could lock all places.
pub(super) fn borrow(address: usize) -> Option<(u8, Writer)> {
    let first = address.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> (usize::BITS - 4);
    let mut places = (first..first + PLACES).map(|place| (place % PLACES) as u8);
    let mut same_places = places.clone();
    let borrowed = places.find_map(|place| Some((place, take_with_room(place)?)));
    borrowed.or_else(|| same_places.find_map(|place| Some((place, make(place)?))))
}

/// Creates the rings that do not exist yet if the memory of all rings nears its limit, as far as
/// the limit allows it. Not for recording threads.
pub(super) fn prepare() {
    if RINGS.nears_limit() {
        for place in 0..PLACES as u8 {
            if let Some(writer) = make(place) {
                give_back(place, writer);
            }
        }
    }
}

fn take_with_room(place: u8) -> Option<Writer> {
    let mut writer = take(place)?;
    match writer.producer.look() {
        Room::Enough => {}
        Room::Half => half_full::tell_filling(),
        Room::None => {
            give_back(place, writer);
            return None;
        }
    }
    Some(writer)
}

fn take(place: u8) -> Option<Writer> {
    let mut there = try_lock(place)?;
    if !matches!(*there, Place::Available(_)) {
        return None;
    }
    match std::mem::replace(&mut *there, Place::Lent) {
        Place::Available(writer) => Some(writer),
        Place::Lent | Place::Unmade => None,
    }
}

fn make(place: u8) -> Option<Writer> {
    let mut there = try_lock(place)?;
    if !matches!(*there, Place::Unmade) {
        return None;
    }
    let made = RINGS.make_shared()?;
    *there = Place::Lent;
    Some(Writer::of(made))
}

fn try_lock(place: u8) -> Option<MutexGuard<'static, Place>> {
    match SHARED.get(usize::from(place))?.try_lock() {
        Ok(there) => Some(there),
        Err(TryLockError::Poisoned(there)) => Some(there.into_inner()),
        Err(TryLockError::WouldBlock) => None,
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

/// Resets the places when the thread that survived a fork calls `init`: threads that no longer
/// exist may have borrowed rings. A place that such a thread had locked stays unusable.
pub(crate) fn forget_shared() {
    for place in &SHARED {
        if let Ok(mut place) = place.try_lock() {
            *place = Place::Unmade;
        }
    }
}
