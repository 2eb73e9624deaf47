//! Shares one trace with OpenTelemetry, within a process and between processes.

use std::borrow::Cow;
use std::sync::Arc;

use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{
    SpanContext as OtelSpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Context, ContextGuard};

use super::{
    BAGGAGE, TRACEPARENT, TRACESTATE, clean_tracestate, format_traceparent, parse_sent,
    tracestate_of,
};
use crate::baggage::Baggage;
use crate::baggage::ambient::{CarriedScope, RequestContext, carried};
use crate::context::{self, Scope, SpanContext};
use crate::gate::Hold;
use crate::sampling;

/// An `opentelemetry` propagator for the W3C headers. Libraries that use OpenTelemetry's propagator
/// then carry Stroboscope's context:
/// `opentelemetry::global::set_text_map_propagator(Propagator::new())`.
///
/// Injects the span of the given OpenTelemetry context if it has one, otherwise Stroboscope's
/// current span, so that both kinds of annotation belong to one trace.
#[derive(Debug, Default)]
pub struct Propagator(());

static FIELDS: std::sync::LazyLock<[String; 3]> =
    std::sync::LazyLock::new(|| [TRACEPARENT.into(), TRACESTATE.into(), BAGGAGE.into()]);

/// Initializes the lazy static, so that no other thread is initializing it during a fork.
pub(crate) fn make_fields() {
    std::sync::LazyLock::force(&FIELDS);
}

impl Propagator {
    /// Creates a propagator, which has no state.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

impl TextMapPropagator for Propagator {
    fn inject_context(&self, cx: &Context, injector: &mut dyn Injector) {
        // Data carried by the request that this OpenTelemetry context, or else this thread, works
        // for.
        let travelling = cx.get::<Arc<RequestContext>>().cloned().or_else(carried);
        let span = cx.span();
        let theirs = span.span_context();
        let (context, state) = if theirs.is_valid() {
            (from_otel(theirs), Some(theirs.trace_state().header()))
        } else {
            let current = context::current();
            let state = tracestate_of(current, travelling.as_deref());
            (current, state.map(Cow::into_owned))
        };
        if let Some(traceparent) = format_traceparent(context) {
            injector.set(TRACEPARENT, traceparent);
            if let Some(state) = state.filter(|state| !state.is_empty()) {
                injector.set(TRACESTATE, state);
            }
        }
        if let Some(baggage) = travelling.and_then(|carried| carried.header()) {
            injector.set(BAGGAGE, baggage);
        }
    }

    fn extract_with_context(&self, cx: &Context, extractor: &dyn Extractor) -> Context {
        let context = extractor
            .get(TRACEPARENT)
            .filter(|_| !sampling::are_callers_public())
            .map_or(SpanContext::NONE, |header| parse_sent(header.as_bytes()));
        // Vendors' data belongs to a trace; baggage needs none.
        let state = extractor
            .get(TRACESTATE)
            .filter(|_| context.is_valid())
            .and_then(|state| clean_tracestate([state.as_bytes()]));
        let baggage = extractor
            .get(BAGGAGE)
            .map_or_else(Baggage::default, |header| {
                Baggage::parse(header).of_caller()
            });
        let remote = context
            .is_valid()
            .then(|| to_otel(context, state.as_deref()));
        let extracted = cx.with_value(Arc::new(RequestContext::new(state, baggage)));
        match remote {
            Some(remote) => extracted.with_remote_span_context(remote),
            None => extracted,
        }
    }

    fn fields(&self) -> FieldIter<'_> {
        FieldIter::new(&*FIELDS)
    }
}

/// Converts an OpenTelemetry span context to the SDK's.
pub(crate) fn from_otel(theirs: &OtelSpanContext) -> SpanContext {
    SpanContext::from_w3c(
        u128::from_be_bytes(theirs.trace_id().to_bytes()),
        u64::from_be_bytes(theirs.span_id().to_bytes()),
        theirs.trace_flags().to_u8(),
    )
}

/// Converts the SDK's span context to OpenTelemetry's.
pub(crate) fn to_otel(ours: SpanContext, state: Option<&str>) -> OtelSpanContext {
    let state = state
        .and_then(|state| state.parse::<TraceState>().ok())
        .unwrap_or_default();
    OtelSpanContext::new(
        TraceId::from_bytes(ours.trace_id().to_be_bytes()),
        SpanId::from_bytes(ours.span_id().to_be_bytes()),
        TraceFlags::new(ours.w3c_flags()),
        true,
        state,
    )
}

impl SpanContext {
    /// Makes this span the parent of OpenTelemetry spans started on this thread until the result is
    /// dropped.
    #[must_use]
    pub fn attach_to_opentelemetry(self) -> ContextGuard {
        let travelling = carried();
        let state = tracestate_of(self, travelling.as_deref());
        let cx = Context::current().with_remote_span_context(to_otel(self, state.as_deref()));
        match travelling {
            Some(carried) => cx.with_value(carried).attach(),
            None => cx.attach(),
        }
    }
}

/// Guard returned by [`follow_opentelemetry`].
#[derive(Debug)]
#[must_use = "spans follow OpenTelemetry's until this is dropped"]
pub struct OpenTelemetryScope {
    _scope: Option<Scope>,
    _carried: Option<CarriedScope>,
    _hold: Option<Hold>,
}

/// Makes OpenTelemetry's current span the parent of the SDK's spans on this thread until the result
/// is dropped. Use it in services whose requests begin as OpenTelemetry spans. If OpenTelemetry
/// sampled the request, the SDK's spans are recorded between windows, too.
///
/// It also installs the baggage that a [`Propagator`] extracted into OpenTelemetry's current
/// context. Without a current OpenTelemetry span, it sets no parent. (For the opposite direction,
/// see [`SpanContext::attach_to_opentelemetry`].)
pub fn follow_opentelemetry() -> OpenTelemetryScope {
    Context::map_current(|cx| {
        let context = from_otel(cx.span().span_context());
        let travelling = cx.get::<Arc<RequestContext>>().cloned();
        OpenTelemetryScope {
            _scope: context.is_valid().then(|| Scope::enter(context)),
            _carried: travelling.map(|carried| CarriedScope::enter(Some(carried))),
            _hold: context.is_sampled().then(Hold::new),
        }
    })
}
