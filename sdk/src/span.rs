//! Spans: one stretch of work of one request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use stroboscope_proto::v1::SpanFlag;

use crate::callsite::Callsite;
use crate::captured::{Captured, InContext, capture, unseen_request};
use crate::clock::ticks;
use crate::context::{self, Scope, SpanContext};
use crate::gate::{self, Hold, Now, is_read};
use crate::record::{self, FieldWriter, Head, RecordKind};
use crate::{sampling, thread};

/// One stretch of work. Made by [`span!`](crate::span!); it ends when dropped.
///
/// A span by itself is not the current one: [`entered`](Self::entered) makes it current in a scope of synchronous
/// code, [`FutureExt::in_span`] for a future. When nothing is recorded it is empty, and costs a flag check.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped; bind it: `let _span = span!(\"name\").entered();`"]
pub struct Span {
    context: SpanContext,
    recorded: bool,
    /// Has a context to hand on (recorded or not).
    has_context: bool,
    /// Keeps the process attentive while it works for a sampled request.
    _hold: Option<Hold>,
}

impl Span {
    /// A span that records nothing and changes nothing.
    pub const NONE: Self =
        Self { context: SpanContext::NONE, recorded: false, has_context: false, _hold: None };

    /// For the macros: a child of the current context, or a new request.
    #[doc(hidden)]
    #[inline]
    pub fn begin(callsite: &'static Callsite, fields: impl FnOnce(&mut FieldWriter<'_>)) -> Self {
        Self::begin_under(context::current(), callsite, 0, fields)
    }

    /// A span below a given context. `flags` are bits of the wire's `SpanFlag`.
    #[inline]
    pub(crate) fn begin_under(
        parent: SpanContext,
        callsite: &'static Callsite,
        flags: u16,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Self {
        let gate = Now::read();
        if !parent.is_valid() {
            return Self::begin_request(gate, false, callsite, flags, fields);
        }
        if !(gate.is_open() || parent.is_sampled() && is_read()) {
            return Self::NONE;
        }
        let mut flags = flags;
        if parent.is_cut() {
            flags |= SpanFlag::CutOpen as u16;
        }
        let context = parent.child(thread::with_ids(crate::id::IdSource::span_id));
        // The first span of a sampled request in this process keeps the process attentive.
        let hold = (parent.is_sampled() && flags & SpanFlag::LocalRoot as u16 != 0).then(Hold::new);
        Self::write_begin(context, parent.span_id(), callsite, flags, hold, fields)
    }

    /// A span of a request that is recorded to its end because its caller asked for it.
    pub(crate) fn begin_forced(parent: SpanContext, callsite: &'static Callsite, flags: u16) -> Self {
        if parent.is_valid() {
            Self::begin_under(parent.sampled(), callsite, flags, |_| {})
        } else {
            Self::begin_request(Now::read(), true, callsite, flags, |_| {})
        }
    }

    #[cold]
    fn begin_request(
        gate: Now,
        forced: bool,
        callsite: &'static Callsite,
        flags: u16,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Self {
        if !gate.is_open() && !gate.asks_roots() && !forced {
            return Self::NONE;
        }
        let (trace_id, span_id) = thread::with_ids(|ids| (ids.trace_id(), ids.span_id()));
        // The flag is up a guard before and after the window; a request that begins then is outside.
        let is_inside = gate.is_open() && gate::is_inside_window(ticks());
        let sampled = forced || sampling::decide(trace_id, is_inside);
        let context = SpanContext::new(trace_id, span_id, sampled).random();
        if !is_inside && !sampled {
            // Decided: what is below must not decide again. Should a window open meanwhile, it is cut.
            return Self { context: context.cut(), recorded: false, has_context: true, _hold: None };
        }
        let flags = flags | SpanFlag::LocalRoot as u16;
        Self::write_begin(context, 0, callsite, flags, sampled.then(Hold::new), fields)
    }

    #[inline]
    fn write_begin(
        context: SpanContext,
        parent_id: u64,
        callsite: &'static Callsite,
        mut flags: u16,
        hold: Option<Hold>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Self {
        if context.is_sampled() {
            flags |= SpanFlag::Sampled as u16;
        }
        let recorded = thread::write(|place| {
            let head = Head {
                kind: RecordKind::Begin,
                flags,
                ticks: ticks(),
                callsite,
                trace_id: context.trace_id(),
                span_id: context.span_id(),
                parent_id,
            };
            record::write(place, &head, fields)
        });
        Self { context, recorded, has_context: true, _hold: hold }
    }

    /// A context to be handed on without a record: the request was seen while nothing is recorded.
    pub(crate) fn unrecorded(context: SpanContext) -> Self {
        Self { context, recorded: false, has_context: context.is_valid(), _hold: None }
    }

    /// Its identity; [`SpanContext::NONE`] when nothing is recorded.
    #[must_use]
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Will it be seen by a collector?
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// Makes it the current span of this thread until the result is dropped, which also ends the span.
    #[inline]
    pub fn entered(self) -> Entered {
        let scope = self.has_context.then(|| Scope::enter(self.context));
        Entered { _scope: scope, span: self }
    }

    /// Runs `work` with this span as the current one, and ends it.
    #[inline]
    pub fn scope<T>(self, work: impl FnOnce() -> T) -> T {
        let _entered = self.entered();
        work()
    }

    /// A span that began while nothing was recorded, and now something is: what begins inside it must not be taken for
    /// a request of its own, so it gets a context that says "part of a request that began earlier".
    #[inline]
    pub(crate) fn notice_recording(&mut self) {
        if !self.has_context && !gate::is_idle() {
            self.become_cut();
        }
    }

    #[cold]
    fn become_cut(&mut self) {
        let outer = context::current();
        if !outer.is_valid() {
            *self = Self::unrecorded(unseen_request());
        }
    }

    /// Current for the length of one poll, if there is a context to hand on.
    #[inline]
    pub(crate) fn scope_of_poll(&self) -> Option<Scope> {
        self.has_context.then(|| Scope::enter(self.context))
    }
}

/// Adds fields to an open span that is recorded.
#[cfg(feature = "tracing")]
pub(crate) fn add_fields(
    span: SpanContext,
    callsite: &'static Callsite,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) {
    thread::write(|place| {
        let head = Head {
            kind: RecordKind::Fields,
            flags: 0,
            ticks: ticks(),
            callsite,
            trace_id: 0,
            span_id: span.span_id(),
            parent_id: 0,
        };
        record::write(place, &head, fields)
    });
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if self.recorded {
            let flags = if std::thread::panicking() { SpanFlag::Panicked as u16 } else { 0 };
            thread::write(|place| record::write_end(place, flags, ticks(), self.context.span_id()));
        }
    }
}

/// A span taken apart, to be kept where only plain numbers can be.
#[cfg(feature = "tracing")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanParts {
    pub(crate) context: SpanContext,
    pub(crate) recorded: bool,
    pub(crate) has_context: bool,
    /// Keeps the process of this generation attentive.
    pub(crate) held: Option<u32>,
}

#[cfg(feature = "tracing")]
impl Span {
    /// Takes it apart without ending it.
    #[inline]
    pub(crate) fn into_parts(self) -> SpanParts {
        let parts = SpanParts {
            context: self.context,
            recorded: self.recorded,
            has_context: self.has_context,
            held: self._hold.as_ref().and_then(Hold::generation),
        };
        // It goes on in its parts, and so does its hold.
        std::mem::forget(self);
        parts
    }

    /// The span that was taken apart; to be called once.
    #[inline]
    pub(crate) fn from_parts(parts: SpanParts) -> Self {
        Self {
            context: parts.context,
            recorded: parts.recorded,
            has_context: parts.has_context,
            _hold: parts.held.map(Hold::forgotten),
        }
    }
}

/// A span that is the current one of its thread; both end when it is dropped.
#[derive(Debug)]
#[must_use = "the span ends when this is dropped; bind it to a name that starts with an underscore, not to `_`"]
pub struct Entered {
    // Dropped first: what ends the span is no longer inside it.
    _scope: Option<Scope>,
    span: Span,
}

impl Entered {
    /// The span's identity.
    #[must_use]
    pub fn context(&self) -> SpanContext {
        self.span.context
    }
}

/// Writes an event into the current span. For the macros.
#[doc(hidden)]
#[inline]
pub fn write_event(callsite: &'static Callsite, fields: impl FnOnce(&mut FieldWriter<'_>)) {
    let current = context::current();
    if !(Now::read().is_open() || current.is_sampled() && is_read()) {
        return;
    }
    let mut flags = 0;
    if current.is_sampled() {
        flags |= SpanFlag::Sampled as u16;
    }
    thread::write(|place| {
        let head = Head {
            kind: RecordKind::Event,
            flags,
            ticks: ticks(),
            callsite,
            trace_id: current.trace_id(),
            // A span that was not recorded is nobody's.
            span_id: if current.is_cut() { 0 } else { current.span_id() },
            parent_id: 0,
        };
        record::write(place, &head, fields)
    });
}

/// Carries spans through futures.
pub trait FutureExt: Future + Sized {
    /// Makes `span` the current one whenever this future is polled, on whichever thread, and ends it when the future
    /// is done or dropped.
    fn in_span(self, span: Span) -> InSpan<Self> {
        InSpan { future: self, span: Some(span) }
    }

    /// Keeps the context this is called in, for a future that is going to run as a task of its own:
    /// `tokio::spawn(work().in_current_span())`.
    fn in_current_span(self) -> InContext<Self> {
        InContext::new(self, capture())
    }

    /// Runs this future in a context that was captured elsewhere: where an item was put into a channel, say.
    fn in_context(self, captured: Captured) -> InContext<Self> {
        InContext::new(self, captured)
    }
}

impl<F: Future> FutureExt for F {}

pin_project_lite::pin_project! {
    /// See [`FutureExt::in_span`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct InSpan<F> {
        #[pin]
        future: F,
        span: Option<Span>,
    }
}

impl<F: Future> Future for InSpan<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let scope = this.span.as_mut().and_then(|span| {
            span.notice_recording();
            span.scope_of_poll()
        });
        let polled = this.future.poll(cx);
        drop(scope);
        if polled.is_ready() {
            *this.span = None;
        }
        polled
    }
}
