//! Spans: sections of a request's work.

mod carry;
mod event;
mod failure;
mod fields;
mod frame;
pub(crate) mod links;
mod quick;
#[cfg(test)]
mod reference;
mod request;
mod root;

pub use carry::in_span_from_first_poll;
pub use carry::{FutureExt, InSpan};
pub use event::event;
#[cfg(feature = "tracing")]
pub(crate) use event::{write_event, write_event_quickly};
pub use failure::error;
#[doc(hidden)]
pub use failure::{note_failure, once};
#[cfg(feature = "tracing")]
pub(crate) use fields::add_fields;
pub use fields::record;
pub use frame::{Frame, InFrame};

use root::decide_request;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stroboscope_proto::v1::SpanFlag;

use crate::callsite::Callsite;
use crate::clock::ticks;
use crate::context::{self, SpanContext};
use crate::gate::{Hold, Now, is_read};
use crate::record::{self, FieldWriter, Head, RecordKind};
use crate::span_word::SpanWord;
use crate::thread;
use crate::value::{Value, Values};

/// Section of a request's work, created by [`span!`](crate::span!); it ends when dropped.
///
/// Creating a span does not make it the current one. [`entered`](Self::entered) makes it current in
/// a scope of synchronous code, [`FutureExt::in_span`] for a future. While the process records
/// nothing, the span is empty and costs a flag check.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped; bind it: `let _span = span!(\"name\").entered();`"]
pub struct Span {
    /// Upper and lower half of the trace id, and the span id; meaningless without a context.
    ids: [u64; 3],
    word: SpanWord,
}

/// Four words passed into or out of a function. They are atomics so that the compiler loads them
/// one by one, as they were stored. When copying structures, it loads pairs, and a pair of words
/// that were just stored separately makes the processor wait until all earlier stores are in the
/// cache.
struct SpanWords([AtomicU64; 4]);

impl SpanWords {
    #[inline(always)]
    fn over(words: [u64; 4]) -> Self {
        Self(words.map(AtomicU64::new))
    }

    #[inline(always)]
    fn words(&self) -> [u64; 4] {
        let Self([a, b, c, d]) = self;
        [
            a.load(Relaxed),
            b.load(Relaxed),
            c.load(Relaxed),
            d.load(Relaxed),
        ]
    }
}

/// Executes the open-gate half of `span!`, outside of the annotated code, which stays small and
/// keeps its registers. Returns the span's id and word; a word of 0 means that it did nothing.
#[inline(never)]
#[allow(
    clippy::needless_pass_by_value,
    reason = "by copy, so that the annotated code keeps its registers"
)]
fn begin_apart<V: Values>(callsite: &'static Callsite, values: V) -> (u64, u64) {
    quick::begin(callsite, &values).map_or((0, 0), |begun| (begun.span_id, begun.word))
}

#[cold]
#[inline(never)]
#[allow(
    clippy::needless_pass_by_value,
    reason = "what was handed over is handed on"
)]
fn begin_slowly<V: Values>(callsite: &'static Callsite, values: V) -> SpanWords {
    let span = Span::begin_under(context::current(), callsite, 0, |writer| {
        values.write(writer);
    });
    SpanWords::over(span.into_words())
}

impl Span {
    /// An empty span that records nothing and changes nothing.
    pub const NONE: Self = Self {
        ids: [0, 0, 0],
        word: SpanWord::NONE,
    };

    /// Begins a child of the current context, or a new request; used by the macros.
    #[doc(hidden)]
    #[inline(always)]
    pub fn begin<V: Values + Copy>(callsite: &'static Callsite, values: V) -> Self {
        if !V::RUNS_CODE {
            let (span_id, word) = begin_apart(callsite, values);
            if SpanWord(word).has_context() {
                let [high, low] = thread::context_trace_id();
                return Self::from_words([high, low, span_id, word]);
            }
        }
        // Built from words, so that an empty span, the other result of `span!`, need not be in
        // memory for this call to write to.
        Self::from_words(begin_slowly(callsite, values).words())
    }

    /// Begins a span below a given context, or a request if the context is invalid. `flags` are
    /// bits of the wire's `SpanFlag`.
    #[inline]
    pub(crate) fn begin_under(
        parent: SpanContext,
        callsite: &'static Callsite,
        flags: u16,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Self {
        Self::begin_with(false, parent, callsite, flags, fields)
    }

    /// Begins a span of a request that is recorded to its end because its caller asked for it.
    pub(crate) fn begin_forced(
        parent: SpanContext,
        callsite: &'static Callsite,
        flags: u16,
    ) -> Self {
        Self::begin_with(true, parent, callsite, flags, |_| {})
    }

    #[inline(always)]
    fn begin_with(
        is_forced: bool,
        parent: SpanContext,
        callsite: &'static Callsite,
        mut flags: u16,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Self {
        let gate = Now::read();
        let (context, parent_id, mut word);
        if parent.is_valid() {
            let parent = if is_forced { parent.sampled() } else { parent };
            if !(gate.is_open() || parent.is_sampled() && is_read()) {
                return Self::NONE;
            }
            if parent.is_cut() {
                flags |= SpanFlag::CutOpen as u16;
            }
            // The first span of a sampled request in this process keeps annotations active until it
            // ends.
            let is_holding = parent.is_sampled() && flags & SpanFlag::LocalRoot as u16 != 0;
            context = parent.child(thread::span_id());
            parent_id = parent.span_id();
            word = SpanWord::with_context(context);
            if is_holding {
                word = hold(word);
            }
        } else {
            let root = decide_request(gate, is_forced);
            if !root.is_recorded {
                return Self::of(root.context, root.word);
            }
            flags |= SpanFlag::LocalRoot as u16;
            (context, parent_id, word) = (root.context, 0, root.word);
        }
        if context.is_sampled() {
            flags |= SpanFlag::Sampled as u16;
        }
        let is_recorded = thread::write(|place, lineage| {
            let head = Head {
                kind: RecordKind::Begin,
                flags,
                ticks: ticks(),
                callsite,
                trace_id: context.trace_id(),
                span_id: context.span_id(),
                parent_id,
            };
            record::write(place, lineage, &head, fields)
        });
        let span = Self::of(context, word.recorded(is_recorded));
        if parent_id == 0 && context.is_by_ratio() {
            span.state_ratio();
        }
        span
    }

    fn of(context: SpanContext, word: SpanWord) -> Self {
        let [high, low, span_id, _] = context.to_words();
        Self {
            ids: [high, low, span_id],
            word,
        }
    }

    /// Creates a span that propagates a context without being recorded. Returns an empty span for
    /// an invalid context.
    pub(crate) fn unrecorded(context: SpanContext) -> Self {
        if context.is_valid() {
            Self::of(context, SpanWord::with_context(context))
        } else {
            Self::NONE
        }
    }

    /// Returns the span's identity, or [`SpanContext::NONE`] for an empty span. A span that is not
    /// recorded may have a context, too, for outgoing calls.
    #[must_use]
    pub fn context(&self) -> SpanContext {
        let [high, low, span_id] = self.ids;
        SpanContext::from_words([high, low, span_id, self.word.flags()])
    }

    /// Reports whether the span's begin was recorded. The span is then shipped, unless its records
    /// are lost, or made outside a window and trimmed.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.word.is_recorded()
    }

    #[inline]
    fn has_context(&self) -> bool {
        self.word.has_context()
    }

    /// Makes this span current on the thread until the result is dropped, which also ends the span.
    #[inline]
    pub fn entered(self) -> Entered {
        let mut previous = [0; 4];
        if self.has_context() {
            let [high, low, span_id] = self.ids;
            // Done inline: a function call would be longer.
            previous = match thread::enter_quickly(span_id, self.word.0) {
                // The previous context belongs to the same request.
                Some(outer_id) => [high, low, outer_id, self.word.0],
                None => quick::enter_slowly(high, low, span_id, self.word.0).words(),
            };
        }
        Entered {
            span: self,
            previous,
            _thread: PhantomData,
        }
    }

    /// Runs `work` with this span as the current one, then ends the span.
    #[inline]
    pub fn scope<T>(self, work: impl FnOnce() -> T) -> T {
        let _entered = self.entered();
        work()
    }

    /// Makes the span current during one poll. Returns `None` if it has no context to propagate.
    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn scope_of_poll(&self) -> Option<context::Scope> {
        self.has_context()
            .then(|| context::Scope::enter(self.context()))
    }
}

#[cfg(feature = "tower")]
impl Span {
    /// Ends the span with fields that are only known now. It writes one record, because fields
    /// written before an end may be read after it.
    pub(crate) fn end_with(
        self,
        callsite: &'static Callsite,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) {
        if self.word.is_recorded() {
            let head = Head {
                kind: RecordKind::Close,
                flags: 0,
                ticks: ticks(),
                callsite,
                trace_id: 0,
                span_id: self.ids[2],
                parent_id: 0,
            };
            thread::write(|place, lineage| record::write(place, lineage, &head, fields));
        }
        if let Some(generation) = self.word.held() {
            drop(Hold::forgotten(generation));
        }
        std::mem::forget(self);
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if self.word.must_end() {
            // Passed by value: a reference would keep the span in memory even if it is empty.
            end_apart(self.ids[2], self.word.0);
        }
    }
}

#[inline(never)]
fn end_apart(span_id: u64, word: u64) {
    if std::thread::panicking() || quick::end(span_id, SpanWord(word)).is_none() {
        end(span_id, SpanWord(word));
    }
}

/// Ends a span if it is recorded or holds the gate.
fn end(span_id: u64, word: SpanWord) {
    if word.is_recorded() {
        let flags = if std::thread::panicking() {
            SpanFlag::Panicked as u16
        } else {
            0
        };
        thread::write(|place, lineage| record::write_end(place, lineage, flags, ticks(), span_id));
    }
    if let Some(generation) = word.held() {
        drop(Hold::forgotten(generation));
    }
}

/// Holds the gate until the span of this word ends; returns the word with the hold. Does nothing if
/// no drain reads the records.
#[cold]
fn hold(word: SpanWord) -> SpanWord {
    let hold = Hold::new();
    let word = hold
        .generation()
        .map_or(word, |generation| word.holding(generation));
    // The span keeps the hold.
    std::mem::forget(hold);
    word
}

impl Span {
    /// Converts the span to words without ending it.
    #[inline]
    pub(crate) fn into_words(self) -> [u64; 4] {
        let ([high, low, span_id], word) = (self.ids, self.word);
        std::mem::forget(self);
        [high, low, span_id, word.0]
    }

    /// Recreates a span from its words; call it at most once per conversion.
    #[inline]
    pub(crate) const fn from_words([high, low, span_id, word]: [u64; 4]) -> Self {
        Self {
            ids: [high, low, span_id],
            word: SpanWord(word),
        }
    }
}

impl Span {
    /// Converts a span's words to its context.
    #[inline]
    pub(crate) const fn context_in([high, low, span_id, word]: [u64; 4]) -> SpanContext {
        SpanContext::from_words([high, low, span_id, SpanWord(word).flags()])
    }
}

#[cfg(feature = "tracing")]
impl Span {
    /// Begins a span without fields inside the current one, if no other work is needed. Returns the
    /// span's words, as in [`into_words`](Self::into_words), or `None` if it did nothing.
    #[inline(always)]
    pub(crate) fn begin_quickly(callsite: &'static Callsite) -> Option<[u64; 4]> {
        let begun = quick::begin(callsite, &())?;
        let [high, low] = thread::context_trace_id();
        Some([high, low, begun.span_id, begun.word])
    }

    /// Begins a span like [`begin_quickly`](Self::begin_quickly), with fields. `fields` returns
    /// whether it ran the service's code.
    #[inline(always)]
    pub(crate) fn begin_quickly_with(
        callsite: &'static Callsite,
        fields: impl FnOnce(&mut FieldWriter<'_>) -> bool,
    ) -> Option<[u64; 4]> {
        // Read before the service's code runs.
        let [high, low] = thread::context_trace_id();
        let begun = quick::begin_foreign(callsite, fields)?;
        Some([high, low, begun.span_id, begun.word])
    }

    /// Ends the span with this id and word if it is the innermost one and no other work is needed.
    /// Must not run during a panic. Returns `None` if it did nothing.
    #[inline(always)]
    pub(crate) fn end_quickly(span_id: u64, word: u64) -> Option<()> {
        quick::end_innermost(span_id, word, || {})
    }

    /// Returns [`is_recorded`](Self::is_recorded) for a span in words.
    #[inline]
    pub(crate) const fn is_recorded_in(words: [u64; 4]) -> bool {
        SpanWord(words[3]).is_recorded()
    }

    /// Reports whether the span is neither recorded nor has a context to propagate.
    #[inline]
    pub(crate) const fn is_none(&self) -> bool {
        self.word.is_none()
    }
}

/// A span that was made current on its thread. Dropping it restores the previous context and ends
/// the span.
#[derive(Debug)]
#[must_use = "the span ends when this is dropped; bind it to a name that starts with an underscore, not to `_`"]
pub struct Entered {
    span: Span,
    /// Previous context, as words of [`Span::into_words`]; meaningless for a span without a
    /// context.
    previous: [u64; 4],
    /// Not `Send`: it must be dropped on the thread that created it.
    _thread: PhantomData<*const ()>,
}

impl Entered {
    /// Returns the span's identity.
    #[must_use]
    pub fn context(&self) -> SpanContext {
        self.span.context()
    }

    /// Adds a field that is known only after the span began, like [`Span::record`].
    #[inline]
    pub fn record(&self, field: &'static str, value: impl Value) {
        self.span.record(field, value);
    }

    /// Marks the span as failed, like [`error`](crate::error()) for the current span.
    pub fn error(&self, message: impl std::fmt::Display) {
        self.span.error(message);
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        let ([_, _, span_id], word) = (self.span.ids, self.span.word);
        if word.has_context() {
            // Leaving also ends the span.
            self.span.word = SpanWord::NONE;
            let [high, low, outer_id, outer_word] = self.previous;
            if std::thread::panicking() {
                quick::leave_slowly(high, low, outer_id, outer_word, span_id, word.0);
            } else {
                quick::leave::<()>(high, low, outer_id, outer_word, span_id, word.0);
            }
        }
    }
}
