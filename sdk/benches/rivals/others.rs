//! Stacks of other libraries, with reporters and processors that do nothing, so that only the
//! annotation is measured.

use std::time::Duration;

use fastrace::collector::{Config, Reporter, SpanRecord};
use fastrace::prelude::{LocalSpan, Span, SpanContext};
use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanBuilder, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanData, SpanProcessor};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Metadata, Subscriber, subscriber::Interest};
use tracing_subscriber::layer::Context;

use crate::Stack;
use crate::floor::counter;
use crate::stacks::repeat;

/// A subscriber that `tracing` must ask each time, and that rejects everything.
pub(crate) struct SaysNo;

impl Subscriber for SaysNo {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        std::hint::black_box(false)
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A subscriber that accepts everything and does nothing, which shows the cost of `tracing` itself.
pub(crate) struct Nothing;

impl Subscriber for Nothing {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        std::hint::black_box(true)
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        std::hint::black_box(attributes);
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        std::hint::black_box(event);
    }
    fn enter(&self, id: &Id) {
        std::hint::black_box(id);
    }
    fn exit(&self, id: &Id) {
        std::hint::black_box(id);
    }
}

/// A layer that does nothing.
pub(crate) struct Empty;

impl<S: Subscriber> tracing_subscriber::Layer<S> for Empty {}

/// A subscriber that does the minimum that every recorder needs: it reads the counter at the begin
/// and the end of a span, and visits the fields. It writes nothing, and keeps no context.
pub(crate) struct Least;

struct Look;

impl Visit for Look {
    fn record_u64(&mut self, field: &Field, value: u64) {
        std::hint::black_box((field.index(), value));
    }
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl Subscriber for Least {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        std::hint::black_box(true)
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut Look);
        std::hint::black_box(counter());
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut Look);
        std::hint::black_box(counter());
    }
    fn enter(&self, id: &Id) {
        std::hint::black_box(id);
    }
    fn exit(&self, id: &Id) {
        std::hint::black_box(id);
    }
    fn try_close(&self, _: Id) -> bool {
        std::hint::black_box(counter());
        true
    }
}

/// Layer that does the same as the subscriber [`Least`].
pub(crate) struct LeastLayer;

impl<S: Subscriber> tracing_subscriber::Layer<S> for LeastLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        attributes.record(&mut Look);
        std::hint::black_box(counter());
    }
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Look);
        std::hint::black_box(counter());
    }
    fn on_close(&self, _: Id, _: Context<'_, S>) {
        std::hint::black_box(counter());
    }
}

struct Nowhere;

impl Reporter for Nowhere {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        std::hint::black_box(spans);
    }
}

pub(crate) const FASTRACE_OFF: Stack = Stack {
    name: "fastrace, no parent (off)",
    start: || {
        fastrace::set_reporter(Nowhere, Config::default());
        Box::new(())
    },
    calls: 200_000,
    cases: &[
        ("span, no properties", |calls| {
            repeat!(calls, |n| drop(LocalSpan::enter_with_local_parent("s")));
        }),
        ("span, 3 properties", |calls| {
            repeat!(calls, |n| drop(fastrace_span_with_properties()))
        }),
    ],
};

pub(crate) const FASTRACE: Stack = Stack {
    name: "fastrace, child span",
    start: FASTRACE_OFF.start,
    calls: 4_000,
    cases: &[
        ("span, no properties", |calls| {
            let _root = Span::root("root", SpanContext::random());
            let _parent = _root.set_local_parent();
            repeat!(calls, |n| drop(LocalSpan::enter_with_local_parent("s")));
        }),
        ("span, 3 properties", |calls| {
            let _root = Span::root("root", SpanContext::random());
            let _parent = _root.set_local_parent();
            repeat!(calls, |n| drop(fastrace_span_with_properties()));
        }),
    ],
};

/// Begins a span of fastrace with three properties. Properties are texts; static ones cost least.
fn fastrace_span_with_properties() -> LocalSpan {
    LocalSpan::enter_with_local_parent("s").with_properties(|| [("a", "1"), ("b", "2"), ("c", "3")])
}

#[derive(Debug)]
struct NoProcessor;

impl SpanProcessor for NoProcessor {
    fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &opentelemetry::Context) {}
    fn on_end(&self, span: SpanData) {
        std::hint::black_box(span);
    }
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Returns a tracer that samples everything and exports nothing.
pub(crate) fn tracer() -> SdkTracer {
    SdkTracerProvider::builder()
        .with_span_processor(NoProcessor)
        .build()
        .tracer("rivals")
}

static TRACER: std::sync::LazyLock<SdkTracer> = std::sync::LazyLock::new(tracer);

pub(crate) const OPENTELEMETRY: Stack = Stack {
    name: "opentelemetry_sdk, no-op processor",
    start: || Box::new(()),
    calls: 4_000,
    cases: &[
        ("span, no attributes", |calls| {
            let parent = opentelemetry::Context::new().with_span(TRACER.start("root"));
            repeat!(calls, |n| drop(TRACER.start_with_context("s", &parent)));
        }),
        ("span, 3 integers", |calls| {
            let parent = opentelemetry::Context::new().with_span(TRACER.start("root"));
            repeat!(calls, |n| {
                let fields = ["a", "b", "c"].map(|key| KeyValue::new(key, n as i64));
                drop(
                    SpanBuilder::from_name("s")
                        .with_attributes(fields)
                        .start_with_context(&*TRACER, &parent),
                );
            });
        }),
    ],
};
