//! What is counted.

use std::future::Future;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use stroboscope::{BurstConfig, event, span};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::{Interest, Subscriber};
use tracing_core::{Event, Metadata};
use tracing_subscriber::layer::SubscriberExt as _;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) config: BurstConfig,
    /// Makes something the process's subscriber of `tracing`.
    pub(crate) install: fn(),
    /// So many calls, in a loop of their own: no call through a pointer is counted.
    pub(crate) work: fn(u64),
}

/// A function that makes so many calls of `$work`, each with the number of the call.
macro_rules! calls {
    (|$n:pat_param| $work:expr) => {
        |calls| {
            for n in 0..calls {
                let $n = black_box(n);
                $work;
            }
        }
    };
}

#[inline(never)]
fn bare(n: u64) -> u64 {
    black_box(n)
}

#[stroboscope::trace]
#[inline(never)]
fn annotated(n: u64) -> u64 {
    black_box(n)
}

async fn plain_async(n: u64) -> u64 {
    black_box(n)
}

#[stroboscope::trace]
async fn annotated_async(n: u64) -> u64 {
    black_box(n)
}

/// Polls once: the future is ready then. Made where it is polled, as by `.await`: nothing moves it.
#[inline(always)]
fn poll(future: impl Future<Output = u64>) {
    let mut context = Context::from_waker(Waker::noop());
    _ = black_box(pin!(future).poll(&mut context));
}

/// As an executor polls: what is polled is not inlined.
#[inline(always)]
fn poll_by_pointer(future: impl Future<Output = u64>) {
    let future: Pin<&mut dyn Future<Output = u64>> = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    _ = black_box(black_box(future).poll(&mut context));
}

/// A subscriber that takes everything and does nothing: what `tracing` itself takes.
struct Nothing;

impl Subscriber for Nothing {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        black_box(true)
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        black_box(attributes);
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        black_box(event);
    }
    fn enter(&self, id: &Id) {
        black_box(id);
    }
    fn exit(&self, id: &Id) {
        black_box(id);
    }
}

/// A layer that does nothing.
struct Empty;

impl<S: Subscriber> tracing_subscriber::Layer<S> for Empty {}

fn install(subscriber: impl Subscriber + Send + Sync) {
    tracing::subscriber::set_global_default(subscriber).expect("the only subscriber of this process");
}

const NOBODY: fn() = || {};
const NOTHING: fn() = || install(Nothing);
const SUBSCRIBER: fn() = || install(stroboscope::subscriber());
const EMPTY_LAYER: fn() = || install(tracing_subscriber::registry().with(Empty));
const LAYER: fn() = || install(tracing_subscriber::registry().with(stroboscope::layer()));
const GATING_LAYER: fn() = || install(tracing_subscriber::registry().with(stroboscope::layer().gating_all()));

const SPAN: fn(u64) = calls!(|_| drop(span!("s").entered()));
const SPAN_3: fn(u64) = calls!(|n| drop(span!("s", a = n, b = n, c = n).entered()));
const EVENT: fn(u64) = calls!(|_| event!("e"));
const EVENT_3: fn(u64) = calls!(|n| event!("e", a = n, b = n, c = n));
const TEXT: fn(u64) = calls!(|_| event!("e", a = "twelve bytes"));
const BARE: fn(u64) = calls!(|n| _ = bare(n));
const TRACE: fn(u64) = calls!(|n| _ = annotated(n));
const BARE_ASYNC: fn(u64) = calls!(|n| poll(plain_async(n)));
const TRACE_ASYNC: fn(u64) = calls!(|n| poll(annotated_async(n)));
const BARE_FAR: fn(u64) = calls!(|n| poll_by_pointer(plain_async(n)));
const TRACE_FAR: fn(u64) = calls!(|n| poll_by_pointer(annotated_async(n)));
const THEIR_SPAN: fn(u64) = calls!(|_| drop(tracing::info_span!("s").entered()));
const THEIR_SPAN_3: fn(u64) = calls!(|n| drop(tracing::info_span!("s", a = n, b = n, c = n).entered()));
const THEIR_SPAN_TEXT: fn(u64) = calls!(|n| drop(tracing::info_span!("s", a = %n).entered()));
const THEIR_EVENT: fn(u64) = calls!(|_| tracing::info!("e"));
const THEIR_EVENT_3: fn(u64) = calls!(|n| tracing::info!(a = n, b = n, c = n));

const CLOSED: BurstConfig = BurstConfig::NEVER;
const OPEN: BurstConfig = BurstConfig::ALWAYS_ON;

const fn ours(name: &'static str, config: BurstConfig, work: fn(u64)) -> Case {
    Case { name, config, install: NOBODY, work }
}

const fn theirs(name: &'static str, config: BurstConfig, install: fn(), work: fn(u64)) -> Case {
    Case { name, config, install, work }
}

pub(crate) const CASES: &[Case] = &[
    ours("closed: span!", CLOSED, SPAN),
    ours("closed: event!", CLOSED, EVENT),
    ours("closed: fn without #[trace]", CLOSED, BARE),
    ours("closed: #[trace] fn", CLOSED, TRACE),
    ours("closed: async fn without #[trace]", CLOSED, BARE_ASYNC),
    ours("closed: #[trace] async fn", CLOSED, TRACE_ASYNC),
    ours("closed: async fn without #[trace], by pointer", CLOSED, BARE_FAR),
    ours("closed: #[trace] async fn, by pointer", CLOSED, TRACE_FAR),
    ours("open: span!", OPEN, SPAN),
    ours("open: span!, 3 integers", OPEN, SPAN_3),
    ours("open: #[trace] fn", OPEN, TRACE),
    ours("open: #[trace] async fn", OPEN, TRACE_ASYNC),
    ours("open: event!", OPEN, EVENT),
    ours("open: event!, 3 integers", OPEN, EVENT_3),
    ours("open: event!, a text of 12 bytes", OPEN, TEXT),
    theirs("nothing subscribes to tracing: span", CLOSED, NOTHING, THEIR_SPAN),
    theirs("nothing subscribes to tracing: span, 3 integers", CLOSED, NOTHING, THEIR_SPAN_3),
    theirs("closed, subscriber: tracing's span", CLOSED, SUBSCRIBER, THEIR_SPAN),
    theirs("closed, subscriber: tracing's event", CLOSED, SUBSCRIBER, THEIR_EVENT),
    theirs("open, subscriber: tracing's span", OPEN, SUBSCRIBER, THEIR_SPAN),
    theirs("open, subscriber: tracing's span, 3 integers", OPEN, SUBSCRIBER, THEIR_SPAN_3),
    theirs("open, subscriber: tracing's span, a text", OPEN, SUBSCRIBER, THEIR_SPAN_TEXT),
    theirs("open, subscriber: tracing's event", OPEN, SUBSCRIBER, THEIR_EVENT),
    theirs("open, subscriber: tracing's event, 3 integers", OPEN, SUBSCRIBER, THEIR_EVENT_3),
    theirs("empty layer: tracing's span", CLOSED, EMPTY_LAYER, THEIR_SPAN),
    theirs("closed, layer: tracing's span", CLOSED, LAYER, THEIR_SPAN),
    theirs("closed, layer gating all: tracing's span", CLOSED, GATING_LAYER, THEIR_SPAN),
    theirs("open, layer: tracing's span", OPEN, LAYER, THEIR_SPAN),
    theirs("open, layer: tracing's span, 3 integers", OPEN, LAYER, THEIR_SPAN_3),
];
