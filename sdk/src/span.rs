//! Spans: one stretch of work of one request.

mod carry;

pub use carry::{FutureExt, InSpan};

use std::marker::PhantomData;

use stroboscope_proto::v1::SpanFlag;

use crate::callsite::Callsite;
use crate::captured::unseen_request;
use crate::clock::ticks;
use crate::context::{self, Scope, SpanContext};
use crate::gate::{self, Hold, Now, is_read};
use crate::record::{self, FieldWriter, Head, RecordKind};
use crate::value::Values;
use crate::{sampling, thread};

/// One stretch of work. Made by [`span!`](crate::span!); it ends when dropped.
///
/// A span by itself is not the current one: [`entered`](Self::entered) makes it current in a scope of synchronous
/// code, [`FutureExt::in_span`] for a future. When nothing is recorded it is empty, and costs a flag check.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped; bind it: `let _span = span!(\"name\").entered();`"]
pub struct Span {
    context: SpanContext,
    /// Bits as below; 0: empty, so that to drop it takes one test. In the upper half, the generation of the hold.
    state: u64,
}

/// Its begin is in a ring: its end must follow.
const RECORDED: u64 = 1;
/// Has a context to hand on (recorded or not).
const HAS_CONTEXT: u64 = 2;
/// Keeps the process attentive while it works for a sampled request.
const HELD: u64 = 4;
const GENERATION_SHIFT: u32 = 32;

/// The open half of `span!`, away from the code that is annotated, which stays small and keeps its registers.
#[inline(never)]
fn begin_apart<V: Values>(callsite: &'static Callsite, values: V) -> (SpanContext, u64) {
    let span = Span::begin_under(context::current(), callsite, 0, |writer| values.write(writer));
    let parts = (span.context, span.state);
    std::mem::forget(span);
    parts
}

/// What is decided about a request that begins here.
struct Root {
    context: SpanContext,
    state: u64,
    is_recorded: bool,
}

impl Span {
    /// A span that records nothing and changes nothing.
    pub const NONE: Self = Self { context: SpanContext::NONE, state: 0 };

    /// For the macros: a child of the current context, or a new request.
    #[doc(hidden)]
    #[inline(always)]
    pub fn begin<V: Values>(callsite: &'static Callsite, values: V) -> Self {
        // Made of parts, so that an empty span, which is the other outcome of `span!`, need not be in memory to be
        // written to by this call.
        let (context, state) = begin_apart(callsite, values);
        Self { context, state }
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
            let root = decide_request(gate, false);
            return Self::begin_root(root, callsite, flags, fields);
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
        let is_holding = parent.is_sampled() && flags & SpanFlag::LocalRoot as u16 != 0;
        let state = HAS_CONTEXT | if is_holding { hold() } else { 0 };
        Self::write_begin(context, parent.span_id(), callsite, flags, state, fields)
    }

    /// A span of a request that is recorded to its end because its caller asked for it.
    pub(crate) fn begin_forced(parent: SpanContext, callsite: &'static Callsite, flags: u16) -> Self {
        if parent.is_valid() {
            Self::begin_under(parent.sampled(), callsite, flags, |_| {})
        } else {
            Self::begin_root(decide_request(Now::read(), true), callsite, flags, |_| {})
        }
    }

    #[inline]
    fn begin_root(
        root: Root,
        callsite: &'static Callsite,
        flags: u16,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Self {
        let Root { context, state, is_recorded } = root;
        if !is_recorded {
            return Self { context, state };
        }
        Self::write_begin(context, 0, callsite, flags | SpanFlag::LocalRoot as u16, state, fields)
    }

    #[inline]
    fn write_begin(
        context: SpanContext,
        parent_id: u64,
        callsite: &'static Callsite,
        mut flags: u16,
        state: u64,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Self {
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
        Self { context, state: state | u64::from(is_recorded) * RECORDED }
    }

    /// A context to be handed on without a record: the request was seen while nothing is recorded.
    pub(crate) fn unrecorded(context: SpanContext) -> Self {
        Self { context, state: if context.is_valid() { HAS_CONTEXT } else { 0 } }
    }

    /// Its identity; [`SpanContext::NONE`] when nothing is recorded.
    #[must_use]
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Will it be seen by a collector?
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.state & RECORDED != 0
    }

    #[inline]
    fn has_context(&self) -> bool {
        self.state & HAS_CONTEXT != 0
    }

    /// Makes it the current span of this thread until the result is dropped, which also ends the span.
    #[inline]
    pub fn entered(self) -> Entered {
        let mut previous = SpanContext::NONE;
        if self.has_context() {
            (previous, ()) = enter(self.context);
        }
        Entered { span: self, previous, _thread: PhantomData }
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
        if !self.has_context() && !gate::is_idle() {
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
        self.has_context().then(|| Scope::enter(self.context))
    }
}

/// Adds fields to an open span that is recorded.
#[cfg(feature = "tracing")]
pub(crate) fn add_fields(
    span: SpanContext,
    callsite: &'static Callsite,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) {
    thread::write(|place, lineage| {
        let head = Head {
            kind: RecordKind::Fields,
            flags: 0,
            ticks: ticks(),
            callsite,
            trace_id: 0,
            span_id: span.span_id(),
            parent_id: 0,
        };
        record::write(place, lineage, &head, fields)
    });
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if self.state & (RECORDED | HELD) != 0 {
            // By value: a reference would keep the span in memory where it is empty, too.
            end_apart(self.context.span_id(), self.state);
        }
    }
}

#[inline(never)]
fn end_apart(span_id: u64, state: u64) {
    end(span_id, state);
}

/// Ends a span, if it is recorded or holds something.
#[inline]
fn end(span_id: u64, state: u64) {
    if state & RECORDED != 0 {
        let flags = if std::thread::panicking() { SpanFlag::Panicked as u16 } else { 0 };
        thread::write(|place, lineage| record::write_end(place, lineage, flags, ticks(), span_id));
    }
    if state & HELD != 0 {
        drop(Hold::forgotten((state >> GENERATION_SHIFT) as u32));
    }
}

/// Holds the gate, as bits of a span's state.
#[cold]
fn hold() -> u64 {
    let hold = Hold::new();
    let bits = hold.generation().map_or(0, |generation| HELD | u64::from(generation) << GENERATION_SHIFT);
    // The span goes on holding.
    std::mem::forget(hold);
    bits
}

#[cold]
#[inline(never)]
fn decide_request(gate: Now, is_forced: bool) -> Root {
    if !gate.is_open() && !gate.asks_roots() && !is_forced {
        return Root { context: SpanContext::NONE, state: 0, is_recorded: false };
    }
    let (trace_id, span_id) = thread::with_ids(|ids| (ids.trace_id(), ids.span_id()));
    // The flag is up a guard before and after the window; a request that begins then is outside.
    let is_inside = gate.is_open() && gate::is_inside_window(ticks());
    let is_sampled = is_forced || sampling::decide(trace_id, is_inside);
    let context = SpanContext::new(trace_id, span_id, is_sampled).random();
    if !is_inside && !is_sampled {
        // Decided: what is below must not decide again. Should a window open meanwhile, it is cut.
        return Root { context: context.cut(), state: HAS_CONTEXT, is_recorded: false };
    }
    Root { context, state: HAS_CONTEXT | if is_sampled { hold() } else { 0 }, is_recorded: true }
}

#[cfg(feature = "tracing")]
impl Span {
    /// Takes it apart without ending it, to be kept where only plain numbers can be.
    #[inline]
    pub(crate) fn into_parts(self) -> (SpanContext, u64) {
        let parts = (self.context, self.state);
        std::mem::forget(self);
        parts
    }

    /// The span that was taken apart; to be called once.
    #[inline]
    pub(crate) const fn from_parts((context, state): (SpanContext, u64)) -> Self {
        Self { context, state }
    }

    /// [`is_recorded`](Self::is_recorded) of a span's state.
    #[inline]
    pub(crate) const fn is_recorded_in(state: u64) -> bool {
        state & RECORDED != 0
    }

    /// Neither recorded nor with a context to hand on.
    #[inline]
    pub(crate) const fn is_none(&self) -> bool {
        self.state == 0
    }
}

/// A span that is the current one of its thread; both end when it is dropped.
#[derive(Debug)]
#[must_use = "the span ends when this is dropped; bind it to a name that starts with an underscore, not to `_`"]
pub struct Entered {
    span: Span,
    /// What was current before; of no meaning for a span without a context.
    previous: SpanContext,
    /// Not `Send`: it must be dropped on the thread it was made on.
    _thread: PhantomData<*const ()>,
}

impl Entered {
    /// The span's identity.
    #[must_use]
    pub fn context(&self) -> SpanContext {
        self.span.context
    }
}

/// The open half of [`Span::entered`]: what was current before. A tuple, to be copied from, as in [`Span::begin`].
#[inline(never)]
fn enter(context: SpanContext) -> (SpanContext, ()) {
    (context::replace(context), ())
}

/// The open half of dropping an [`Entered`].
#[inline(never)]
fn leave(previous: SpanContext, span_id: u64, state: u64) {
    // First: what ends the span is no longer inside it.
    context::replace(previous);
    end(span_id, state);
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        let (context, state) = (self.span.context, self.span.state);
        if state & HAS_CONTEXT != 0 {
            // This ends it.
            self.span.state = 0;
            leave(self.previous, context.span_id(), state);
        }
    }
}

/// For the macros: writes an event into the current span. Away from the code that is annotated.
#[doc(hidden)]
#[inline(never)]
pub fn event<V: Values>(callsite: &'static Callsite, values: V) {
    write_event(callsite, |writer| values.write(writer));
}

/// Writes an event into the current span.
#[inline]
pub(crate) fn write_event(callsite: &'static Callsite, fields: impl FnOnce(&mut FieldWriter<'_>)) {
    let current = context::current();
    if !(Now::read().is_open() || current.is_sampled() && is_read()) {
        return;
    }
    let mut flags = 0;
    if current.is_sampled() {
        flags |= SpanFlag::Sampled as u16;
    }
    thread::write(|place, lineage| {
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
        record::write(place, lineage, &head, fields)
    });
}
