//! The stacks that are compared. Each case of a stack that records begins a new request in every
//! round, so that the measurement includes a library's work at the end of a request.

use std::any::Any;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use stroboscope::{BurstConfig, SampleMode};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};

use crate::floor::{self, counter};
use crate::{Stack, others};

pub(crate) const FLOORS: &str = "floors";

/// Numbers of calls per round: `FEW` if the stack records, `MANY` if it records nothing.
const FEW: u64 = 4_000;
const MANY: u64 = 200_000;

static FLAG: AtomicU32 = AtomicU32::new(0);

/// Evaluates `$work` many times, each time with a number that the compiler cannot predict.
macro_rules! repeat {
    ($calls:expr, |$n:ident| $work:expr) => {
        for $n in 0..$calls {
            let $n = ::std::hint::black_box($n);
            #[allow(unused_variables)]
            let $n = $n;
            $work;
        }
    };
}
pub(crate) use repeat;

/// Creates a stack of `tracing`, with the same annotations for each.
macro_rules! tracing_stack {
    ($name:literal, $calls:expr, $start:expr) => {
        Stack {
            name: $name,
            start: $start,
            calls: $calls,
            cases: &[
                ("event, no fields", |calls| {
                    in_tracing_root(|| repeat!(calls, |n| tracing::info!("e")))
                }),
                ("event, 3 integers", |calls| {
                    in_tracing_root(|| {
                        repeat!(calls, |n| tracing::info!(a = n, b = n, c = n, "e"))
                    });
                }),
                ("span, no fields", |calls| {
                    in_tracing_root(|| {
                        repeat!(calls, |n| drop(tracing::info_span!("s").entered()))
                    });
                }),
                ("span, 3 integers", |calls| {
                    in_tracing_root(|| {
                        repeat!(calls, |n| drop(
                            tracing::info_span!("s", a = n, b = n, c = n).entered()
                        ));
                    });
                }),
            ],
        }
    };
}

fn in_tracing_root(work: impl FnOnce()) {
    tracing::info_span!("root").in_scope(work);
}

/// Creates a stack of the SDK, with the same annotations for closed and open gate.
macro_rules! our_stack {
    ($name:literal, $calls:expr, $config:expr) => {
        Stack {
            name: $name,
            start: || Box::new(record($config)),
            calls: $calls,
            cases: &[
                ("event!, no fields", |calls| {
                    in_our_root(|| repeat!(calls, |n| stroboscope::event!("e")))
                }),
                ("event!, 3 integers", |calls| {
                    in_our_root(|| {
                        repeat!(calls, |n| stroboscope::event!("e", a = n, b = n, c = n))
                    });
                }),
                ("span!, no fields", |calls| {
                    in_our_root(|| repeat!(calls, |n| drop(stroboscope::span!("s").entered())));
                }),
                ("span!, 3 integers", |calls| {
                    in_our_root(|| {
                        repeat!(calls, |n| drop(
                            stroboscope::span!("s", a = n, b = n, c = n).entered()
                        ));
                    });
                }),
                ("#[trace] fn", |calls| {
                    in_our_root(|| repeat!(calls, |n| black_box(annotated(n))))
                }),
            ],
        }
    };
}

fn in_our_root(work: impl FnOnce()) {
    stroboscope::span!("root").scope(work);
}

fn plain(n: u64) -> u64 {
    black_box(n)
}

#[stroboscope::trace]
fn annotated(n: u64) -> u64 {
    black_box(n)
}

pub(crate) const ALL: &[Stack] = &[
    Stack {
        name: FLOORS,
        start: || Box::new(()),
        calls: MANY,
        cases: &[
            ("empty loop", |calls| repeat!(calls, |n| _ = n)),
            ("flag check", |calls| {
                repeat!(calls, |n| if FLAG.load(Relaxed) != 0 {
                    black_box(n);
                });
            }),
            ("fn without #[trace]", |calls| {
                repeat!(calls, |n| black_box(plain(n)))
            }),
            ("counter read", |calls| {
                repeat!(calls, |n| black_box(counter()))
            }),
            (crate::FLOOR, |calls| {
                repeat!(calls, |n| black_box((counter(), counter())))
            }),
            (crate::BY_HAND, floor::spans),
            (crate::BY_HAND_3, floor::spans_with_fields),
        ],
    },
    our_stack!("ours, gate closed", MANY, BurstConfig::NEVER),
    our_stack!("ours, gate open", FEW, BurstConfig::ALWAYS_ON),
    tracing_stack!("tracing, no subscriber", MANY, || Box::new(())),
    tracing_stack!("tracing, enabled() says no", MANY, || {
        install(others::SaysNo);
        Box::new(())
    }),
    tracing_stack!("tracing, subscriber that does nothing", MANY, || {
        install(others::Nothing);
        Box::new(())
    }),
    tracing_stack!(
        "tracing, subscriber, the least a recorder does",
        MANY,
        || {
            install(others::Least);
            Box::new(())
        }
    ),
    tracing_stack!("tracing, our subscriber, gate closed", MANY, || {
        install(stroboscope::subscriber());
        Box::new(record(BurstConfig::NEVER))
    }),
    tracing_stack!("tracing, our subscriber, gate open", FEW, || {
        install(stroboscope::subscriber());
        Box::new(record(BurstConfig::ALWAYS_ON))
    }),
    tracing_stack!("tracing, our layer gating all, gate closed", MANY, || {
        install(tracing_subscriber::registry().with(stroboscope::layer().gating_all()));
        Box::new(record(BurstConfig::NEVER))
    }),
    tracing_stack!("tracing, our layer, gate closed", MANY, || {
        install(tracing_subscriber::registry().with(stroboscope::layer()));
        Box::new(record(BurstConfig::NEVER))
    }),
    tracing_stack!("tracing, our layer, gate open", FEW, || {
        install(tracing_subscriber::registry().with(stroboscope::layer()));
        Box::new(record(BurstConfig::ALWAYS_ON))
    }),
    tracing_stack!("tracing, registry, empty layer", MANY, || {
        install(tracing_subscriber::registry().with(others::Empty));
        Box::new(())
    }),
    tracing_stack!("tracing, registry, the least a layer does", MANY, || {
        install(tracing_subscriber::registry().with(others::LeastLayer));
        Box::new(())
    }),
    tracing_stack!("tracing, registry, filter says no", MANY, || {
        let no = tracing_subscriber::filter::dynamic_filter_fn(|_, _| black_box(false));
        install(tracing_subscriber::registry().with(others::Empty.with_filter(no)));
        Box::new(())
    }),
    others::FASTRACE_OFF,
    others::FASTRACE,
    others::OPENTELEMETRY,
    tracing_stack!("tracing-opentelemetry, no-op processor", FEW, || {
        let layer = tracing_opentelemetry::layer().with_tracer(others::tracer());
        install(tracing_subscriber::registry().with(layer));
        Box::new(())
    }),
];

fn install(subscriber: impl tracing_core::Subscriber + Send + Sync) {
    tracing::subscriber::set_global_default(subscriber)
        .expect("the only subscriber of this process");
}

/// Starts recording without a collector: the drain runs, and its batches are discarded.
fn record(config: BurstConfig) -> impl Any {
    let guard = stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(config)
        .sample(SampleMode::Burst)
        .shutdown_deadline(Duration::ZERO)
        .init()
        .expect("recording starts");
    while config == BurstConfig::ALWAYS_ON && stroboscope::stats().windows == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    guard
}
