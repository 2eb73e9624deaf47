//! Which request, and which span of it, this thread is working for.

pub use crate::span_context::SpanContext;
use crate::{marker, thread};

/// The context this thread is in; [`SpanContext::NONE`] outside any recorded request.
#[inline]
#[must_use]
pub fn current() -> SpanContext {
    thread::context()
}

#[inline]
pub(crate) fn replace(context: SpanContext) -> SpanContext {
    let previous = current();
    set(context);
    previous
}

#[inline]
pub(crate) fn set(context: SpanContext) {
    if marker::is_followed() {
        let [high, low, span_id, flags] = context.to_words();
        return tell_and_set(high, low, span_id, flags);
    }
    put(context);
}

/// In registers, and as the last thing that its callers do, so that they need to keep nothing.
#[cold]
#[inline(never)]
fn tell_and_set(high: u64, low: u64, span_id: u64, flags: u64) {
    let context = SpanContext::from_words([high, low, span_id, flags]);
    marker::follow(current(), context);
    put(context);
}

/// [`set`] where nobody listens for markers.
#[inline(always)]
pub(crate) fn put(context: SpanContext) {
    thread::set_context(context);
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
        Self {
            previous: replace(context),
            _thread: std::marker::PhantomData,
        }
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        set(self.previous);
    }
}
