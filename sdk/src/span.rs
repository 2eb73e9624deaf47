//! Spans: one stretch of work of one request.

mod carry;
mod frame;
mod quick;

pub use carry::{FutureExt, InSpan};
pub use frame::{Frame, InFrame};

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

/// What is decided about a request that begins here.
struct Root {
    context: SpanContext,
    state: u64,
    is_recorded: bool,
}

/// Four words on their way into a function or out of it. Atomics, so that the compiler loads them one by one, as they
/// were stored: what was just stored in words and is loaded in pairs, as it copies structures, makes the processor wait
/// until all stores before it are in the cache.
struct Handed([AtomicU64; 4]);

impl Handed {
    #[inline(always)]
    fn over(words: [u64; 4]) -> Self {
        Self(words.map(AtomicU64::new))
    }

    #[inline(always)]
    fn words(&self) -> [u64; 4] {
        let Self([a, b, c, d]) = self;
        [a.load(Relaxed), b.load(Relaxed), c.load(Relaxed), d.load(Relaxed)]
    }
}

/// The open half of `span!`, away from the code that is annotated, which stays small and keeps its registers.
#[inline(never)]
fn begin_apart<V: Values>(callsite: &'static Callsite, values: V) -> Handed {
    let parent = context::current();
    match quick::begin(parent, callsite, &values) {
        Some(context) => Handed::over(Span { context, state: quick::STATE }.into_words()),
        None => begin_slowly(parent, callsite, values),
    }
}

#[cold]
#[inline(never)]
#[allow(clippy::needless_pass_by_value, reason = "what was handed over is handed on")]
fn begin_slowly<V: Values>(parent: SpanContext, callsite: &'static Callsite, values: V) -> Handed {
    let span = Span::begin_under(parent, callsite, 0, |writer| values.write(writer));
    Handed::over(span.into_words())
}

impl Span {
    /// A span that records nothing and changes nothing.
    pub const NONE: Self = Self { context: SpanContext::NONE, state: 0 };

    /// For the macros: a child of the current context, or a new request.
    #[doc(hidden)]
    #[inline(always)]
    pub fn begin<V: Values>(callsite: &'static Callsite, values: V) -> Self {
        // Made of words, so that an empty span, which is the other outcome of `span!`, need not be in memory to be
        // written to by this call.
        Self::from_words(begin_apart(callsite, values).words())
    }

    /// A span below a given context. `flags` are bits of the wire's `SpanFlag`.
    #[inline]
    pub(crate) fn begin_under(
        parent: SpanContext,
        callsite: &'static Callsite,
        flags: u16,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Self {
        Self::begin_with(false, parent, callsite, flags, fields)
    }

    /// [`begin_under`](Self::begin_under) without flags or fields.
    #[cfg(feature = "tracing")]
    #[inline]
    pub(crate) fn begin_bare(parent: SpanContext, callsite: &'static Callsite) -> Self {
        match quick::begin(parent, callsite, &()) {
            Some(context) => Self { context, state: quick::STATE },
            None => Self::begin_under(parent, callsite, 0, |_| {}),
        }
    }

    /// A span of a request that is recorded to its end because its caller asked for it.
    pub(crate) fn begin_forced(parent: SpanContext, callsite: &'static Callsite, flags: u16) -> Self {
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
        let (context, parent_id, state);
        if parent.is_valid() {
            let parent = if is_forced { parent.sampled() } else { parent };
            if !(gate.is_open() || parent.is_sampled() && is_read()) {
                return Self::NONE;
            }
            if parent.is_cut() {
                flags |= SpanFlag::CutOpen as u16;
            }
            // The first span of a sampled request in this process keeps the process attentive.
            let is_holding = parent.is_sampled() && flags & SpanFlag::LocalRoot as u16 != 0;
            state = HAS_CONTEXT | if is_holding { hold() } else { 0 };
            context = parent.child(thread::span_id());
            parent_id = parent.span_id();
        } else {
            let root = decide_request(gate, is_forced);
            if !root.is_recorded {
                return Self { context: root.context, state: root.state };
            }
            flags |= SpanFlag::LocalRoot as u16;
            (context, parent_id, state) = (root.context, 0, root.state);
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
        Self { context, state: state | if is_recorded { RECORDED } else { 0 } }
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
        Self::has_context_in(self.state)
    }

    #[inline]
    const fn has_context_in(state: u64) -> bool {
        state & HAS_CONTEXT != 0
    }

    /// Makes it the current span of this thread until the result is dropped, which also ends the span.
    #[inline]
    pub fn entered(self) -> Entered {
        let mut previous = SpanContext::NONE;
        if self.has_context() {
            previous = context::current();
            let [high, low, span_id, flags] = self.context.to_words();
            quick::enter::<()>(high, low, span_id, flags);
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
    if std::thread::panicking() || quick::end(span_id, state).is_none() {
        end(span_id, state);
    }
}

/// Ends a span, if it is recorded or holds something.
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
    let (trace_id, span_id) = thread::root_ids();
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

/// The context's flags, in the bits of a span's state that are left free, as [`Span::into_words`] has them.
const FLAGS_SHIFT: u32 = 8;
const FLAGS: u64 = 0xff << FLAGS_SHIFT;

impl Span {
    /// Takes it apart without ending it, to be kept where only plain numbers can be.
    #[inline]
    pub(crate) fn into_words(self) -> [u64; 4] {
        let [high, low, span_id, flags] = self.context.to_words();
        let words = [high, low, span_id, self.state | flags << FLAGS_SHIFT];
        std::mem::forget(self);
        words
    }

    /// The span that was taken apart; to be called once.
    #[inline]
    pub(crate) const fn from_words(words: [u64; 4]) -> Self {
        Self { context: Self::context_in(words), state: words[3] & !FLAGS }
    }

    /// The context of the span that these words are.
    #[inline]
    pub(crate) const fn context_in([high, low, span_id, state]: [u64; 4]) -> SpanContext {
        SpanContext::from_words([high, low, span_id, state >> FLAGS_SHIFT & 0xff])
    }
}

#[cfg(feature = "tracing")]
impl Span {
    /// [`is_recorded`](Self::is_recorded) of the span that these words are.
    #[inline]
    pub(crate) const fn is_recorded_in(words: [u64; 4]) -> bool {
        words[3] & RECORDED != 0
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

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        let (context, state) = (self.span.context, self.span.state);
        if state & HAS_CONTEXT != 0 {
            // This ends it.
            self.span.state = 0;
            let [high, low, outer_id, flags] = self.previous.to_words();
            if std::thread::panicking() {
                quick::leave_slowly(high, low, outer_id, flags, context.span_id(), state);
            } else {
                quick::leave::<()>(high, low, outer_id, flags, context.span_id(), state);
            }
        }
    }
}

/// For the macros: writes an event into the current span. Away from the code that is annotated.
#[doc(hidden)]
#[inline(never)]
#[allow(clippy::needless_pass_by_value, reason = "a reference would keep the caller's variables in memory")]
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
