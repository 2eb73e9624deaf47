//! Which request, and which span of it, this thread is working for.

use std::cell::Cell;

use crate::marker;
pub use crate::span_context::SpanContext;

thread_local! {
    /// Without a destructor, so that an access is one instruction and works during thread exit.
    static CURRENT: Cell<SpanContext> = const { Cell::new(SpanContext::NONE) };
}

/// The context this thread is in; [`SpanContext::NONE`] outside any recorded request.
#[inline]
#[must_use]
pub fn current() -> SpanContext {
    CURRENT.with(Cell::get)
}

#[inline]
pub(crate) fn replace(context: SpanContext) -> SpanContext {
    let previous = CURRENT.with(|current| current.replace(context));
    marker::follow(previous, context);
    previous
}

/// Puts a context in place for a scope; restores what was there when dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct Scope {
    previous: SpanContext,
    /// Not `Send`: it must be dropped on the thread it was made on.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Scope {
    #[inline]
    pub(crate) fn enter(context: SpanContext) -> Self {
        Self { previous: replace(context), _thread: std::marker::PhantomData }
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        replace(self.previous);
    }
}
