//! Open spans of the SDK's layer, found by the ids that another subscriber assigned.
//!
//! The table consists of cache lines of eight ids each, and of one place for each id, which stores
//! the span. A span's id hashes to a line. If the line has no place that this thread may fill, the
//! span goes to a map behind a lock. A lookup in the table loads at most eight ids, all from one
//! line. Six of the eight places of every line can be lent, each to one thread, which fills its
//! place without a compare-and-swap. Filling the other two places needs a compare-and-swap. The
//! `extensions` of a `tracing_subscriber` registry could replace the table, but would cost two
//! locks and an allocation per span.

use std::cell::Cell;
use std::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::cell::SpanCell;
use super::entered::Owner;
use crate::context::SpanContext;
use crate::span::Span;

const LINE_BITS: u32 = if cfg!(miri) { 4 } else { 12 };
const LINES: usize = 1 << LINE_BITS;
const WAYS: usize = 8;
/// Number of ways (positions in a line) that are lent to threads. A thread holds a way until it
/// ends, and no other thread stores spans at this position of any line.
const LENT_WAYS: usize = 6;

/// Id of a place that is being filled in a way that is never lent.
const BUSY: u64 = u64::MAX;

#[repr(align(64))]
struct Line([AtomicU64; WAYS]);

#[repr(align(64))]
struct Place {
    span: SpanCell,
    owner: AtomicU64,
}

/// Ids of the spans in `PLACES`; 0 means free. All zeros until used, like `PLACES`: untouched pages
/// take no memory.
static IDS: [Line; LINES] = [const { Line([const { AtomicU64::new(0) }; WAYS]) }; LINES];
static PLACES: [Place; LINES * WAYS] = [const {
    Place {
        span: SpanCell::empty(),
        owner: AtomicU64::new(0),
    }
}; LINES * WAYS];

/// Spans outside the table; `REST_LENGTH` is their number.
static REST: Mutex<Option<FxHashMap<(u64, u64), Span>>> = Mutex::new(None);
static REST_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Bit set of the lent ways.
static LENT: AtomicU32 = AtomicU32::new(0);

/// Value of `WAY` if no way was free for the thread, and after the thread has returned its way.
/// `UNASKED` means that the thread has not yet tried to borrow one.
const NO_WAY: usize = LENT_WAYS;
const UNASKED: usize = usize::MAX;

thread_local! {
    static WAY: Cell<usize> = const { Cell::new(UNASKED) };
    static RETURNER: Returner = const { Returner };
}

/// Returns a thread's way when the thread ends. Spans that the thread left there stay until they
/// are removed, and the next borrower of the way sees them.
struct Returner;

impl Drop for Returner {
    fn drop(&mut self) {
        let way = WAY.replace(NO_WAY);
        if way < LENT_WAYS {
            LENT.fetch_and(!(1 << way), Release);
        }
    }
}

#[cold]
fn borrow_way() -> usize {
    let free = |lent: u32| (!lent).trailing_zeros();
    let take = |lent| (free(lent) < LENT_WAYS as u32).then(|| lent | 1 << free(lent));
    // A thread that has dropped its `RETURNER` could not return a way, so it borrows nothing.
    let borrowed = RETURNER.try_with(|_| LENT.fetch_update(Acquire, Relaxed, take));
    let way = borrowed
        .ok()
        .and_then(Result::ok)
        .map_or(NO_WAY, |before| free(before) as usize);
    WAY.set(way);
    way
}

pub(super) fn rest() -> MutexGuard<'static, Option<FxHashMap<(u64, u64), Span>>> {
    REST.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline]
fn line_of(id: u64) -> usize {
    // On 64-bit systems, the registry counts the reuses of a slot in the highest 13 bits of an id.
    // Without these bits, successive spans of a slot share a line here, which then stays in the
    // cache. This affects only speed.
    (id.wrapping_shl(13).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LINE_BITS)) as usize
}

/// Returns this thread's place in the line of an id, or `None` if the thread has no way.
#[inline(always)]
fn own_way(id: u64) -> Option<(&'static AtomicU64, &'static Place)> {
    let way = WAY.get();
    let line = line_of(id);
    (way < LENT_WAYS).then(|| (&IDS[line].0[way], &PLACES[line * WAYS + way]))
}

/// Returns the place of a span if it is this thread's own place, as is likely if the same thread
/// began the span.
#[inline(always)]
fn own_place(owner: Owner, id: u64) -> Option<(&'static AtomicU64, &'static Place)> {
    own_way(id)
        .filter(|(there, place)| there.load(Acquire) == id && place.owner.load(Relaxed) == owner.0)
}

/// Returns the span's words, see [`Span::into_words`], if the span is in this thread's own way;
/// otherwise `None`.
#[inline(always)]
pub(crate) fn words(owner: Owner, id: u64) -> Option<[u64; 4]> {
    own_place(owner, id).map(|(_, place)| place.span.words())
}

/// Returns true only if no span has this id. Returns false if a span of some owner may have it.
#[inline(always)]
pub(crate) fn has_none(id: u64) -> bool {
    !IDS[line_of(id)]
        .0
        .iter()
        .any(|there| there.load(Acquire) == id)
        && REST_LENGTH.load(Acquire) == 0
}

/// Ends and removes a span if it is in this thread's own place and [`SpanCell::end_quickly`]
/// applies. Must not run during a panic. Returns `None` if it did nothing.
#[inline(always)]
pub(crate) fn end_quickly(owner: Owner, id: u64) -> Option<()> {
    let (there, place) = own_place(owner, id)?;
    place.span.end_quickly()?;
    there.store(0, Release);
    Some(())
}

/// Stores the words of a span under an id.
#[inline(always)]
pub(crate) fn insert(owner: Owner, id: u64, span: [u64; 4]) {
    match own_way(id) {
        // No other thread stores anything here, so the place stays free until this thread fills it.
        Some((there, place)) if id != BUSY && there.load(Acquire) == 0 => {
            put(owner, id, span, there, place);
        }
        _ => {
            let [high, low, span_id, word] = span;
            insert_elsewhere(owner, id, high, low, span_id, word);
        }
    }
}

/// Stores a span for which [`insert`] does not use this thread's own place: the thread has none, it
/// is not free, or the id is [`BUSY`]. Takes its arguments in registers, so that callers can end
/// with a jump to it.
#[cold]
#[inline(never)]
fn insert_elsewhere(owner: Owner, id: u64, high: u64, low: u64, span_id: u64, word: u64) {
    let span = [high, low, span_id, word];
    if WAY.get() == UNASKED {
        borrow_way();
    }
    match own_way(id) {
        _ if id == BUSY => insert_into_rest(owner, id, span),
        Some((there, place)) if there.load(Acquire) == 0 => put(owner, id, span, there, place),
        _ => insert_shared(owner, id, span),
    }
}

#[inline(always)]
fn put(owner: Owner, id: u64, span: [u64; 4], there: &AtomicU64, place: &Place) {
    place.span.put(span);
    place.owner.store(owner.0, Relaxed);
    there.store(id, Release);
}

fn insert_shared(owner: Owner, id: u64, span: [u64; 4]) {
    let line = line_of(id);
    for way in LENT_WAYS..WAYS {
        let there = &IDS[line].0[way];
        if there.load(Relaxed) == 0 && there.compare_exchange(0, BUSY, Acquire, Relaxed).is_ok() {
            return put(owner, id, span, there, &PLACES[line * WAYS + way]);
        }
    }
    insert_into_rest(owner, id, span);
}

#[cold]
fn insert_into_rest(owner: Owner, id: u64, span: [u64; 4]) {
    let mut rest = rest();
    let rest = rest.get_or_insert_default();
    // A replaced span never received its end; it ends now.
    rest.insert((owner.0, id), Span::from_words(span));
    REST_LENGTH.store(rest.len(), Release);
}

#[inline]
fn find(owner: Owner, id: u64) -> Option<(&'static AtomicU64, &'static Place)> {
    let line = line_of(id);
    let way = IDS[line].0.iter().enumerate().position(|(way, there)| {
        there.load(Acquire) == id && PLACES[line * WAYS + way].owner.load(Relaxed) == owner.0
    })?;
    Some((&IDS[line].0[way], &PLACES[line * WAYS + way]))
}

/// Returns a span's context, and true if the span is recorded. Returns `None` for unknown spans.
#[inline]
pub(crate) fn look_up(owner: Owner, id: u64) -> Option<(SpanContext, bool)> {
    match find(owner, id) {
        Some((_, place)) => Some((place.span.context(), place.span.is_recorded())),
        None if REST_LENGTH.load(Acquire) == 0 => None,
        None => rest().as_ref().and_then(|rest| {
            rest.get(&(owner.0, id))
                .map(|span| (span.context(), span.is_recorded()))
        }),
    }
}

/// Removes a span, which ends when the result is dropped. Returns `None` for unknown spans.
#[inline]
pub(crate) fn remove(owner: Owner, id: u64) -> Option<Span> {
    if let Some((there, place)) = find(owner, id) {
        let span = place.span.take();
        there.store(0, Release);
        return Some(span);
    }
    if REST_LENGTH.load(Acquire) == 0 {
        None
    } else {
        remove_from_rest(owner, id)
    }
}

#[cold]
fn remove_from_rest(owner: Owner, id: u64) -> Option<Span> {
    let mut rest = rest();
    let rest = rest.as_mut()?;
    let span = rest.remove(&(owner.0, id));
    REST_LENGTH.store(rest.len(), Release);
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(n: u64) -> Span {
        Span::unrecorded(SpanContext::new(
            u128::from(n) << 64 | 5,
            n,
            n.is_multiple_of(2),
        ))
    }

    /// Serializes the tests, which share one table.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn spans_are_found_by_owner_and_id_also_beyond_the_table() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (a, b) = (Owner(100), Owner(101));
        let count = 3 * (LINES * WAYS) as u64;
        let ids = |seed: u64| (1..count).map(move |n| (n, n.wrapping_mul(seed) | 1 << 40));
        for (n, id) in ids(1) {
            insert(a, id, span(n).into_words());
            insert(b, id, span(n + count).into_words());
        }
        assert!(REST_LENGTH.load(Relaxed) > 0);
        for (n, id) in ids(1) {
            assert_eq!(look_up(a, id), Some((span(n).context(), false)));
            assert_eq!(
                remove(b, id).map(|span| span.context()),
                Some(span(n + count).context())
            );
            assert_eq!(look_up(b, id), None);
        }
        for (_, id) in ids(1) {
            assert!(remove(a, id).is_some());
            assert!(remove(a, id).is_none());
        }
        assert_eq!(REST_LENGTH.load(Relaxed), 0);
        assert!(
            IDS.iter()
                .flat_map(|line| &line.0)
                .all(|id| id.load(Relaxed) == 0)
        );
    }

    #[test]
    fn threads_do_not_take_each_others_places() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let owner = Owner(200 + thread);
                    for round in 0..if cfg!(miri) { 20 } else { 2_000 } {
                        // All threads use the same few lines.
                        let ids: Vec<u64> = (0..5).map(|n| 1 + n + 64 * (round % 3)).collect();
                        for &id in &ids {
                            insert(owner, id, span(id + thread * 1_000).into_words());
                        }
                        for &id in &ids {
                            let found = remove(owner, id).map(|span| span.context());
                            assert_eq!(found, Some(span(id + thread * 1_000).context()));
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_way_is_lent_to_one_thread_at_a_time_and_comes_back() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let all = std::sync::Barrier::new(LENT_WAYS + 2);
        let borrow = || {
            let way = borrow_way();
            all.wait();
            way
        };
        for _ in 0..3 {
            let ways: Vec<usize> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..LENT_WAYS + 2).map(|_| scope.spawn(borrow)).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            // Threads of other tests may hold some ways.
            let lent: Vec<usize> = ways.iter().copied().filter(|&way| way != NO_WAY).collect();
            let distinct: std::collections::HashSet<_> = lent.iter().collect();
            assert_eq!(distinct.len(), lent.len(), "{ways:?}");
            assert!(!lent.is_empty() && lent.len() <= LENT_WAYS, "{ways:?}");
        }
    }
}
