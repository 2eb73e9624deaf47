//! Cases whose instructions are counted.

use std::future::Future;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use stroboscope::{BurstConfig, event, span};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::{Interest, Subscriber};
use tracing_core::{Event, Metadata};
use tracing_subscriber::layer::SubscriberExt as _;

#[path = "headers.rs"]
mod headers;

/// Number of calls of a case; few enough for a thread's ring.
const CALLS: u64 = 2_000;
/// Number of calls of a case whose call takes as long as a thousand annotations.
const FEW_CALLS: u64 = 20;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) config: BurstConfig,
    /// Case with the same code without the SDK, whose count is subtracted; `None` if nothing is
    /// subtracted. Counts of other libraries' code change with unrelated changes, because the
    /// compiler then inlines differently.
    pub(crate) floor: Option<&'static str>,
    pub(crate) calls: u64,
    /// Installs the process's subscriber of `tracing`, if the case has one.
    pub(crate) install: fn(),
    /// Makes the given number of calls in a loop, so that no call through a pointer is counted.
    pub(crate) work: fn(u64),
}

/// Creates a function that evaluates `$work` as often as its argument says, each time with the
/// number of the call.
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

/// Polls a future once, after which it is ready. The future is created where it is polled, as by
/// `.await`, so it is not moved.
#[inline(always)]
fn poll(future: impl Future<Output = u64>) {
    let mut context = Context::from_waker(Waker::noop());
    _ = black_box(pin!(future).poll(&mut context));
}

/// Polls a future once through a pointer, like an executor, so that the future's code is not
/// inlined.
#[inline(always)]
fn poll_by_pointer(future: impl Future<Output = u64>) {
    let future: Pin<&mut dyn Future<Output = u64>> = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    _ = black_box(black_box(future).poll(&mut context));
}

/// A subscriber that accepts everything and does nothing, which shows the count of `tracing`
/// itself.
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
    tracing::subscriber::set_global_default(subscriber)
        .expect("the only subscriber of this process");
}

const NOBODY: fn() = || {};
const NOTHING: fn() = || install(Nothing);
const SUBSCRIBER: fn() = || install(stroboscope::subscriber());
const EMPTY_LAYER: fn() = || install(tracing_subscriber::registry().with(Empty));
const LAYER: fn() = || install(tracing_subscriber::registry().with(stroboscope::layer()));
const GATING_LAYER: fn() =
    || install(tracing_subscriber::registry().with(stroboscope::layer().gating_all()));

const SPAN: fn(u64) = calls!(|_| drop(span!("s").entered()));
const SPAN_3: fn(u64) = calls!(|n| drop(span!("s", a = n, b = n, c = n).entered()));
const EVENT: fn(u64) = calls!(|_| event!("e"));
const EVENT_3: fn(u64) = calls!(|n| event!("e", a = n, b = n, c = n));
const TEXT: fn(u64) = calls!(|_| event!("e", a = "twelve bytes"));
const RECORD: fn(u64) = calls!(|n| stroboscope::record("a", n));
const BARE: fn(u64) = calls!(|n| _ = bare(n));
const TRACE: fn(u64) = calls!(|n| _ = annotated(n));
const BARE_ASYNC: fn(u64) = calls!(|n| poll(plain_async(n)));
const TRACE_ASYNC: fn(u64) = calls!(|n| poll(annotated_async(n)));
const BARE_FAR: fn(u64) = calls!(|n| poll_by_pointer(plain_async(n)));
const TRACE_FAR: fn(u64) = calls!(|n| poll_by_pointer(annotated_async(n)));
const THEIR_SPAN: fn(u64) = calls!(|_| drop(tracing::info_span!("s").entered()));
/// Span whose target shares its first letters with a transport that the filter excludes.
const THEIR_R_SPAN: fn(u64) =
    calls!(|_| drop(tracing::info_span!(target: "requests", "s").entered()));
const THEIR_SPAN_3: fn(u64) =
    calls!(|n| drop(tracing::info_span!("s", a = n, b = n, c = n).entered()));
const THEIR_SPAN_TEXT: fn(u64) = calls!(|n| drop(tracing::info_span!("s", a = %n).entered()));
const THEIR_EVENT: fn(u64) = calls!(|_| tracing::info!("e"));
const THEIR_EVENT_3: fn(u64) = calls!(|n| tracing::info!(a = n, b = n, c = n));

const CLOSED: BurstConfig = BurstConfig::NEVER;
const OPEN: BurstConfig = BurstConfig::ALWAYS_ON;

const fn ours(name: &'static str, config: BurstConfig, work: fn(u64)) -> Case {
    theirs(name, config, NOBODY, work)
}

const fn theirs(name: &'static str, config: BurstConfig, install: fn(), work: fn(u64)) -> Case {
    Case {
        name,
        config,
        floor: None,
        calls: CALLS,
        install,
        work,
    }
}

const fn reading(name: &'static str, work: fn(u64)) -> Case {
    let mut case = ours(name, CLOSED, work);
    case.calls = FEW_CALLS;
    case
}

const fn above(floor: &'static str, mut case: Case) -> Case {
    case.floor = Some(floor);
    case
}

const BARE_FN: &str = "fn without #[trace]";
const BARE_ASYNC_FN: &str = "async fn without #[trace]";
const BARE_FAR_FN: &str = "async fn without #[trace], by pointer";
const DISPATCH: &str = "a subscriber that does nothing: span";
const DISPATCH_3: &str = "a subscriber that does nothing: span, 3 integers";
const REGISTRY: &str = "an empty layer: span";
const REGISTRY_3: &str = "an empty layer: span, 3 integers";

pub(crate) const CASES: &[Case] = &[
    ours(BARE_FN, CLOSED, BARE),
    ours(BARE_ASYNC_FN, CLOSED, BARE_ASYNC),
    ours(BARE_FAR_FN, CLOSED, BARE_FAR),
    theirs(DISPATCH, CLOSED, NOTHING, THEIR_SPAN),
    theirs(DISPATCH_3, CLOSED, NOTHING, THEIR_SPAN_3),
    theirs(REGISTRY, CLOSED, EMPTY_LAYER, THEIR_SPAN),
    theirs(REGISTRY_3, CLOSED, EMPTY_LAYER, THEIR_SPAN_3),
    ours("closed: span!", CLOSED, SPAN),
    ours("closed: event!", CLOSED, EVENT),
    ours("closed: record", CLOSED, RECORD),
    above(BARE_FN, ours("closed: #[trace] fn", CLOSED, TRACE)),
    above(
        BARE_ASYNC_FN,
        ours("closed: #[trace] async fn", CLOSED, TRACE_ASYNC),
    ),
    above(
        BARE_FAR_FN,
        ours("closed: #[trace] async fn, by pointer", CLOSED, TRACE_FAR),
    ),
    ours("open: span!", OPEN, SPAN),
    ours("open: span!, 3 integers", OPEN, SPAN_3),
    above(BARE_FN, ours("open: #[trace] fn", OPEN, TRACE)),
    above(
        BARE_ASYNC_FN,
        ours("open: #[trace] async fn", OPEN, TRACE_ASYNC),
    ),
    ours("open: event!", OPEN, EVENT),
    ours("open: event!, 3 integers", OPEN, EVENT_3),
    ours("open: record", OPEN, RECORD),
    ours("open: event!, a text of 12 bytes", OPEN, TEXT),
    theirs(
        "closed, our subscriber: span",
        CLOSED,
        SUBSCRIBER,
        THEIR_SPAN,
    ),
    theirs(
        "closed, our subscriber: event",
        CLOSED,
        SUBSCRIBER,
        THEIR_EVENT,
    ),
    above(
        DISPATCH,
        theirs("open, our subscriber: span", OPEN, SUBSCRIBER, THEIR_SPAN),
    ),
    above(
        DISPATCH,
        theirs(
            "open, our subscriber: span of \"requests\"",
            OPEN,
            SUBSCRIBER,
            THEIR_R_SPAN,
        ),
    ),
    above(
        DISPATCH_3,
        theirs(
            "open, our subscriber: span, 3 integers",
            OPEN,
            SUBSCRIBER,
            THEIR_SPAN_3,
        ),
    ),
    above(
        DISPATCH,
        theirs(
            "open, our subscriber: span, a text",
            OPEN,
            SUBSCRIBER,
            THEIR_SPAN_TEXT,
        ),
    ),
    theirs("open, our subscriber: event", OPEN, SUBSCRIBER, THEIR_EVENT),
    theirs(
        "open, our subscriber: event, 3 integers",
        OPEN,
        SUBSCRIBER,
        THEIR_EVENT_3,
    ),
    theirs(
        "closed, our layer gating all: span",
        CLOSED,
        GATING_LAYER,
        THEIR_SPAN,
    ),
    above(
        REGISTRY,
        theirs("closed, our layer: span", CLOSED, LAYER, THEIR_SPAN),
    ),
    above(
        REGISTRY,
        theirs("open, our layer: span", OPEN, LAYER, THEIR_SPAN),
    ),
    above(
        REGISTRY_3,
        theirs(
            "open, our layer: span, 3 integers",
            OPEN,
            LAYER,
            THEIR_SPAN_3,
        ),
    ),
    reading("headers: long states", headers::LONG_STATES),
    reading("headers: many states", headers::MANY_STATES),
    reading("headers: empty states", headers::NO_STATES),
    reading("headers: many fields", headers::MANY_FIELDS),
    reading("headers: many entries of ours", headers::MANY_OURS),
    reading("headers: many properties", headers::MANY_PROPERTIES),
    reading("headers: many escapes", headers::MANY_ESCAPES),
    reading("headers: long keys", headers::LONG_KEYS),
    reading("headers: many members of others", headers::MANY_THEIRS),
    reading("headers: a prediction of slack", headers::A_SLACK),
];

/// Reports whether other cases are compared with this one.
pub(crate) fn is_floor(case: &Case) -> bool {
    CASES.iter().any(|other| other.floor == Some(case.name))
}
