//! Current context: the request and the span in it that this thread works for.

pub use crate::span_context::SpanContext;
use crate::{marker, thread};

/// Returns this thread's context, or [`SpanContext::NONE`] if it works for no request. A request
/// that is not recorded may have a context, too, which its calls may carry.
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

/// Writes a marker if the context changes, then sets it. Takes its arguments in registers and is
/// the last call of its callers, which therefore need not save registers.
#[cold]
#[inline(never)]
fn tell_and_set(high: u64, low: u64, span_id: u64, flags: u64) {
    let context = SpanContext::from_words([high, low, span_id, flags]);
    marker::follow(current(), context);
    put(context);
}

/// Sets the context like [`set`], without markers.
#[inline(always)]
pub(crate) fn put(context: SpanContext) {
    thread::set_context(context);
}

/// Sets a context for a scope; restores the previous one when dropped, even by a panic.
#[derive(Debug)]
pub(crate) struct Scope {
    previous: SpanContext,
    /// Not `Send`: it must be dropped on the thread that created it.
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
