//! Which request, and which span of it, this thread is working for.

use std::cell::Cell;

use crate::marker;
pub use crate::span_context::SpanContext;

/// A context in words. Kept and handed over as these, one by one: what was stored in words and is loaded in pairs, as the
/// compiler copies structures, makes the processor wait until all stores before it are in the cache.
struct Words([Cell<u64>; 4]);

thread_local! {
    /// Without a destructor, so that an access is one instruction and works during thread exit.
    static CURRENT: Words = const { Words([const { Cell::new(0) }; 4]) };
}

/// The context this thread is in; [`SpanContext::NONE`] outside any recorded request.
#[inline]
#[must_use]
pub fn current() -> SpanContext {
    CURRENT.with(|Words(words)| {
        SpanContext::from_words([words[0].get(), words[1].get(), words[2].get(), words[3].get()])
    })
}

#[inline]
pub(crate) fn replace(context: SpanContext) -> SpanContext {
    let previous = current();
    CURRENT.with(|Words(words)| {
        for (there, word) in words.iter().zip(context.to_words()) {
            there.set(word);
        }
    });
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
