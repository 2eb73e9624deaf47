//! Tests that spans of OpenTelemetry and of the SDK form one tree, whichever is the outer one.

#![cfg(feature = "opentelemetry")]

mod collector;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use collector::{Collector, Span, wait_for};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, trace::SpanId};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracer, SdkTracerProvider, SpanData};
use stroboscope::baggage::{self, Scope};
use stroboscope::propagation::{self, Propagator};
use stroboscope::{BurstConfig, Guard, span};

static TURN: Mutex<()> = Mutex::new(());

/// The SDK (`ours`) and OpenTelemetry (`theirs`), both recording in this process.
struct Both {
    ours: Collector,
    guard: Guard,
    theirs: InMemorySpanExporter,
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Both {
    fn start(config: BurstConfig) -> Self {
        let ours = Collector::default();
        let guard = stroboscope::builder()
            .collector(ours.clone().start())
            .burst_config(config)
            .init()
            .unwrap();
        if config == BurstConfig::ALWAYS_ON {
            wait_for("the gate", || stroboscope::stats().windows > 0);
        }
        let theirs = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(theirs.clone())
            .build();
        let tracer = provider.tracer("test");
        Self {
            ours,
            guard,
            theirs,
            provider,
            tracer,
        }
    }

    /// Runs `work` in a span of OpenTelemetry.
    fn their_span(&self, name: &'static str, work: impl FnOnce()) {
        let cx = Context::current_with_span(self.tracer.start(name));
        let _attached = cx.clone().attach();
        work();
        cx.span().end();
    }

    fn finish(self) -> (Collector, Vec<SpanData>) {
        drop(self.guard);
        self.provider.force_flush().unwrap();
        (self.ours, self.theirs.get_finished_spans().unwrap())
    }
}

fn theirs<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    spans.iter().find(|span| span.name == name).unwrap()
}

fn id(span: &SpanData) -> u64 {
    u64::from_be_bytes(span.span_context.span_id().to_bytes())
}

fn parent(span: &SpanData) -> u64 {
    u64::from_be_bytes(span.parent_span_id.to_bytes())
}

fn assert_same_trace(ours: &Span, theirs: &SpanData) {
    assert_eq!(ours.trace, theirs.span_context.trace_id().to_string());
}

#[test]
fn theirs_inside_ours() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let both = Both::start(BurstConfig::ALWAYS_ON);
    span!("outer").scope(|| {
        let _attached = stroboscope::current().attach_to_opentelemetry();
        both.their_span("inner", || {});
    });
    assert!(!Context::current().has_active_span());
    let (collector, spans) = both.finish();
    let (outer, inner) = (collector.span("outer"), theirs(&spans, "inner"));
    assert_same_trace(&outer, inner);
    assert_eq!(parent(inner), outer.id);
}

#[test]
fn ours_inside_theirs_and_theirs_inside_that() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let both = Both::start(BurstConfig::ALWAYS_ON);
    both.their_span("outer", || {
        let _follows = propagation::follow_opentelemetry();
        span!("middle").scope(|| {
            let _attached = stroboscope::current().attach_to_opentelemetry();
            both.their_span("inner", || {
                let _follows = propagation::follow_opentelemetry();
                drop(span!("innermost"));
            });
            drop(span!("sibling"));
        });
    });
    assert!(!stroboscope::current().is_valid());
    let (collector, spans) = both.finish();
    let (outer, inner) = (theirs(&spans, "outer"), theirs(&spans, "inner"));
    let middle = collector.span("middle");
    assert_same_trace(&middle, outer);
    assert_eq!(outer.parent_span_id, SpanId::INVALID);
    assert_eq!(middle.parent, id(outer));
    assert_eq!(parent(inner), middle.id);
    assert_eq!(collector.span("innermost").parent, id(inner));
    assert_eq!(
        collector.span("sibling").parent,
        middle.id,
        "the scope ended with theirs"
    );
}

/// Checks that a request that OpenTelemetry sampled is recorded between windows as well.
#[test]
fn their_decision_is_obeyed() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let both = Both::start(BurstConfig::NEVER);
    both.their_span("outer", || {
        let _follows = propagation::follow_opentelemetry();
        drop(span!("sampled"));
    });
    drop(span!("nobody's"));
    let (collector, spans) = both.finish();
    assert_eq!(collector.spans().len(), 1);
    assert_eq!(
        collector.span("sampled").parent,
        id(theirs(&spans, "outer"))
    );
}

fn headers_of(map: &HashMap<String, String>) -> http::HeaderMap {
    map.iter()
        .map(|(key, value)| {
            (
                key.parse::<http::HeaderName>().unwrap(),
                value.parse::<http::HeaderValue>().unwrap(),
            )
        })
        .collect()
}

/// Passes a request from a process with OpenTelemetry to one with the SDK, and on to one with
/// OpenTelemetry, in the same kind of headers.
#[test]
fn the_propagator_joins_processes_of_both_kinds() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let both = Both::start(BurstConfig::ALWAYS_ON);
    let propagator = Propagator::new();

    // The first process uses OpenTelemetry.
    let mut map: HashMap<String, String> = HashMap::new();
    both.their_span("first", || {
        propagator.inject_context(&Context::current(), &mut map);
    });
    map.insert("tracestate".to_owned(), "vendor=1".to_owned());
    map.insert("baggage".to_owned(), "user=7".to_owned());

    // The second one uses the SDK. Its client gets the headers from the SDK's propagator for
    // OpenTelemetry.
    let mut sent: HashMap<String, String> = HashMap::new();
    propagation::extract(&headers_of(&map)).scope("second", || {
        baggage::set(Scope::Request, "hop", 2u64);
        propagator.inject_context(&Context::current(), &mut sent);
    });
    assert_eq!(sent["tracestate"], "vendor=1");
    assert_eq!(sent["baggage"], "user=7,sb.hop=2;t=u");

    // The third one uses OpenTelemetry and passes on the headers that it does not use.
    let cx = propagator.extract(&sent);
    let mut passed_on: HashMap<String, String> = HashMap::new();
    {
        let _attached = cx.attach();
        both.their_span("third", || {
            propagator.inject_context(&Context::current(), &mut passed_on);
        });
    }
    assert_eq!(
        (&passed_on["tracestate"], &passed_on["baggage"]),
        (&sent["tracestate"], &sent["baggage"])
    );

    let (collector, spans) = both.finish();
    let (first, second, third) = (
        theirs(&spans, "first"),
        collector.span("second"),
        theirs(&spans, "third"),
    );
    assert_same_trace(&second, first);
    assert_same_trace(&second, third);
    assert_eq!((second.parent, parent(third)), (id(first), second.id));
}

/// Checks that the propagator passes on baggage without a trace context.
#[test]
fn baggage_without_a_trace_is_passed_on() {
    let propagator = Propagator::new();
    let map = HashMap::from([("baggage".to_owned(), "user=7".to_owned())]);
    let cx = propagator.extract(&map);
    let mut sent: HashMap<String, String> = HashMap::new();
    propagator.inject_context(&cx, &mut sent);
    assert_eq!(sent, map);
}
