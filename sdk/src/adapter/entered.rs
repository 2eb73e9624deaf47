//! Stack of `tracing` spans that this thread has entered, with the context to restore after each.
//!
//! With `tracing`, threads may leave spans in another order than they entered them. A span may also
//! be entered again before it is left, and on several threads at once. One stack per thread handles
//! all of these cases.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context::{self, SpanContext};
use crate::span::Span;
use crate::thread_ref::ThreadRef;
use crate::{marker, thread};

/// Identity of a layer, or of the SDK's subscribers. Span ids of different owners may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(pub(crate) u64);

#[derive(Clone, Copy, Debug)]
struct EnteredSpan {
    owner: Owner,
    id: u64,
    /// Context to restore when the span is left, as words of [`Span::into_words`].
    /// [`enter_quickly`] stores the previous context's span id with the entered span's other words,
    /// because both belong to the same request.
    previous: [u64; 4],
}

/// The outermost entered spans; few programs nest deeper than [`OUTER`]. The type has no
/// destructor, so that access to the thread-local needs no check for destruction.
struct Outer {
    spans: [Place; OUTER],
    /// Number of all entered spans, including those in `INNER`.
    depth: Cell<usize>,
}

const OUTER: usize = 16;

/// [`EnteredSpan`] as words: owner, id, and the context to restore. The words are atomics, although
/// no other thread accesses them, so that the compiler loads them one by one, as they were stored.
struct Place([AtomicU64; 6]);

impl Place {
    const fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; 6])
    }

    #[inline(always)]
    fn set(&self, one: EnteredSpan) {
        let [high, low, span_id, word] = one.previous;
        for (there, word) in self
            .0
            .iter()
            .zip([one.owner.0, one.id, high, low, span_id, word])
        {
            there.store(word, Relaxed);
        }
    }

    #[inline(always)]
    fn is(&self, owner: Owner, id: u64) -> bool {
        self.0[1].load(Relaxed) == id && self.0[0].load(Relaxed) == owner.0
    }

    #[inline(always)]
    fn get(&self) -> EnteredSpan {
        let [owner, id, high, low, span_id, word] =
            self.0.each_ref().map(|word| word.load(Relaxed));
        EnteredSpan {
            owner: Owner(owner),
            id,
            previous: [high, low, span_id, word],
        }
    }
}

thread_local! {
    static ENTERED: Outer = const { Outer { spans: [const { Place::empty() }; OUTER], depth: Cell::new(0) } };
    /// Entered spans beyond the outermost `OUTER`.
    static INNER: RefCell<Vec<EnteredSpan>> = const { RefCell::new(Vec::new()) };
}

/// Enters a span with these words if the current context belongs to the same request and no other
/// work, such as writing a marker, is needed. Returns `None` if it did nothing.
#[inline(always)]
pub(crate) fn enter_quickly(
    owner: Owner,
    id: u64,
    [high, low, span_id, word]: [u64; 4],
) -> Option<()> {
    let entered = ThreadRef::of(&ENTERED);
    let depth = entered.depth.get();
    let place = entered.spans.get(depth)?;
    if marker::is_on() {
        return None;
    }
    let outer_id = thread::enter_quickly(span_id, word)?;
    place.set(EnteredSpan {
        owner,
        id,
        previous: [high, low, outer_id, word],
    });
    entered.depth.set(depth + 1);
    Some(())
}

/// Leaves a span if the thread entered it last and quickly, and still works for its request.
/// Returns `None`, without effect, if [`exit`] must leave it. Returns `Some` if the thread has
/// entered no span.
#[inline(always)]
pub(crate) fn exit_quickly(owner: Owner, id: u64) -> Option<()> {
    let entered = ThreadRef::of(&ENTERED);
    let depth = entered.depth.get().wrapping_sub(1);
    let Some(last) = entered.spans.get(depth) else {
        return (depth == usize::MAX).then_some(());
    };
    if !last.is(owner, id) {
        return None;
    }
    let [_, _, _, _, outer_id, word] = &last.0;
    thread::enter_quickly(outer_id.load(Relaxed), word.load(Relaxed))?;
    entered.depth.set(depth);
    Some(())
}

/// Enters a span and makes its context the current one.
#[cold]
#[inline(never)]
pub(crate) fn enter(owner: Owner, id: u64, context: SpanContext) {
    let entered = ThreadRef::of(&ENTERED);
    let depth = entered.depth.get();
    let one = EnteredSpan {
        owner,
        id,
        previous: Span::unrecorded(context::current()).into_words(),
    };
    match entered.spans.get(depth) {
        Some(place) => place.set(one),
        None if enter_inner(one) => {}
        None => return,
    }
    entered.depth.set(depth + 1);
    context::set(context);
}

#[cold]
fn enter_inner(one: EnteredSpan) -> bool {
    // Fails only while the thread's locals are being destroyed; the span is then not entered.
    INNER.try_with(|inner| inner.borrow_mut().push(one)).is_ok()
}

/// Leaves a span; has no effect if the span was not entered on this thread.
#[cold]
#[inline(never)]
pub(crate) fn exit(owner: Owner, id: u64) {
    let entered = ThreadRef::of(&ENTERED);
    let depth = entered.depth.get();
    if depth == 0 {
        return;
    }
    match entered.spans.get(depth - 1) {
        Some(last) if last.is(owner, id) => {
            entered.depth.set(depth - 1);
            context::set(Span::context_in(last.get().previous));
        }
        _ => exit_elsewhere(&entered, owner, id),
    }
}

/// Leaves a span that is not the innermost or is deeper than `OUTER`; does nothing if it is absent.
#[cold]
fn exit_elsewhere(entered: &Outer, owner: Owner, id: u64) {
    let deep = INNER.try_with(|inner| {
        inner
            .borrow_mut()
            .pop_if(|last| last.id == id && last.owner == owner)
    });
    if let Ok(Some(last)) = deep {
        context::set(Span::context_in(last.previous));
        entered.depth.set(entered.depth.get() - 1);
        return;
    }
    let mut all = entered.all();
    let Some(at) = all
        .iter()
        .rposition(|one| one.id == id && one.owner == owner)
    else {
        return;
    };
    let gone = all.remove(at);
    match all.get_mut(at) {
        // The innermost span stays current, and the next one inherits the context to restore.
        Some(next) => next.previous = gone.previous,
        None => context::set(Span::context_in(gone.previous)),
    }
    entered.replace(&all);
}

impl Outer {
    /// Returns all spans that this thread has entered, outermost first.
    fn all(&self) -> Vec<EnteredSpan> {
        let outer = self.spans.iter().take(self.depth.get()).map(Place::get);
        let inner = INNER
            .try_with(|inner| inner.borrow().clone())
            .unwrap_or_default();
        outer.chain(inner).collect()
    }

    fn replace(&self, all: &[EnteredSpan]) {
        for (place, one) in self.spans.iter().zip(all) {
            place.set(*one);
        }
        let kept = INNER.try_with(|inner| {
            let mut inner = inner.borrow_mut();
            inner.clear();
            inner.extend(all.iter().skip(OUTER));
        });
        self.depth.set(if kept.is_ok() {
            all.len()
        } else {
            all.len().min(OUTER)
        });
    }
}

/// Returns the id of the innermost span of `owner` that this thread has entered; `None` if there is
/// none.
pub(crate) fn innermost(owner: Owner) -> Option<u64> {
    let entered = ThreadRef::of(&ENTERED);
    match entered
        .spans
        .get(entered.depth.get().wrapping_sub(1))
        .map(Place::get)
    {
        Some(last) if last.owner == owner => Some(last.id),
        _ => entered
            .all()
            .iter()
            .rev()
            .find(|one| one.owner == owner)
            .map(|one| one.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner(u64::MAX);

    fn context(n: u64) -> SpanContext {
        SpanContext::new(1, n, false)
    }

    /// Steps through entering (positive numbers) and leaving (negative numbers) spans, and compares
    /// the span id after each step.
    fn check(steps: &[i64], expected: &[u64]) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let got: Vec<u64> = steps
                    .iter()
                    .map(|&step| {
                        let id = step.unsigned_abs();
                        if step > 0 {
                            enter(OWNER, id, context(id));
                        } else {
                            exit(OWNER, id);
                        }
                        assert_eq!(innermost(OWNER).unwrap_or(0), context::current().span_id());
                        context::current().span_id()
                    })
                    .collect();
                assert_eq!(got, expected, "{steps:?}");
            });
        });
    }

    #[test]
    fn spans_are_left_in_any_order() {
        check(&[1, 2, -2, -1], &[1, 2, 1, 0]);
        check(&[1, 2, -1, -2], &[1, 2, 2, 0]);
        check(&[1, 2, 3, -2, -3, -1], &[1, 2, 3, 3, 1, 0]);
        check(&[1, 1, -1, -1], &[1, 1, 1, 0]);
        check(&[1, 2, 1, -1, -2, -1], &[1, 2, 1, 2, 1, 0]);
        check(&[-1, 1, -2, -1], &[0, 1, 1, 0]);
    }

    #[test]
    fn deep_nesting_is_kept_too() {
        let down: Vec<i64> = (1..=40).collect();
        let up: Vec<i64> = (1..=40).rev().map(|id| -id).collect();
        let contexts: Vec<u64> = (1..=40).chain((0..40).rev()).collect();
        check(&[down.clone(), up].concat(), &contexts);
        // Leaves the outermost span first: the innermost stays current until it is left.
        let first_out: Vec<i64> = (1..=40).map(|id| -id).collect();
        let contexts: Vec<u64> = (1..=40).chain([40; 39]).chain([0]).collect();
        check(&[down, first_out].concat(), &contexts);
    }

    #[test]
    fn owners_do_not_meet() {
        enter(Owner(7), 1, context(70));
        enter(Owner(8), 1, context(80));
        exit(Owner(7), 1);
        assert_eq!(context::current(), context(80));
        assert_eq!((innermost(Owner(7)), innermost(Owner(8))), (None, Some(1)));
        exit(Owner(8), 1);
        assert_eq!(context::current(), SpanContext::NONE);
    }
}
