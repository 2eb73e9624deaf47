//! Which spans of `tracing` this thread is in, and what its context was before each.
//!
//! `tracing` lets spans be left in another order than they were entered in, be entered again before they are left, and
//! be entered on several threads at once; a stack per thread is right for all of that.

use std::cell::RefCell;

use crate::context::{self, SpanContext};

/// Whose ids these are: ids of different subscribers may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(pub(crate) u64);

#[derive(Clone, Copy, Debug)]
struct Entered {
    owner: Owner,
    id: u64,
    /// What to go back to when it is left.
    previous: SpanContext,
}

thread_local! {
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// Enters a span: its context becomes the current one.
#[inline]
pub(crate) fn enter(owner: Owner, id: u64, context: SpanContext) {
    // Fails only while the thread's locals are being destroyed; then nothing is entered any more.
    let _ = ENTERED.try_with(|entered| {
        let previous = context::replace(context);
        entered.borrow_mut().push(Entered { owner, id, previous });
    });
}

/// Leaves a span; nothing happens when it was not entered on this thread.
#[inline]
pub(crate) fn exit(owner: Owner, id: u64) {
    let _ = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        match entered.last() {
            None => {}
            Some(last) if last.id == id && last.owner == owner => {
                context::replace(last.previous);
                entered.pop();
            }
            Some(_) => exit_below(&mut entered, owner, id),
        }
    });
}

/// Leaves a span that others were entered after: they stay current, and the next of them inherits what to go back to.
#[cold]
fn exit_below(entered: &mut Vec<Entered>, owner: Owner, id: u64) {
    if let Some(at) = entered.iter().rposition(|one| one.id == id && one.owner == owner) {
        let gone = entered.remove(at);
        if let Some(next) = entered.get_mut(at) {
            next.previous = gone.previous;
        }
    }
}

/// The innermost span of an owner that this thread is in.
pub(crate) fn innermost(owner: Owner) -> Option<u64> {
    ENTERED
        .try_with(|entered| entered.borrow().iter().rev().find(|one| one.owner == owner).map(|one| one.id))
        .ok()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner(u64::MAX);

    fn context(n: u64) -> SpanContext {
        SpanContext::new(1, n, false)
    }

    /// Steps: a positive number enters that span, a negative one leaves it. The expected span ids after each step.
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
