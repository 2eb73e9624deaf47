//! Tests that the SDK's layer records existing `tracing` annotations, in one tree with the SDK's
//! own.

#![cfg(feature = "tracing")]

mod collector;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use collector::{Collector, wait_for};
use stroboscope::{BurstConfig, LossCause};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// One process can record for one service only, so the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn start(collector: &Collector) -> stroboscope::Guard {
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    guard
}

#[tracing::instrument(fields(late))]
fn theirs(user: u64) {
    tracing::Span::current().record("late", "yes");
    tracing::info!(size = 3, "found");
    let _ours = stroboscope::span!("ours").entered();
    let _theirs_again = tracing::info_span!("theirs_again").entered();
}

#[test]
fn both_kinds_of_annotation_nest_in_one_tree() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = start(&collector);
    let subscriber = tracing_subscriber::registry().with(stroboscope::layer());
    tracing::subscriber::with_default(subscriber, || {
        stroboscope::span!("root").scope(|| theirs(7));
    });
    drop(guard);
    let [root, theirs, ours, again] =
        ["root", "theirs", "ours", "theirs_again"].map(|name| collector.span(name));
    assert_eq!(
        (theirs.parent, ours.parent, again.parent),
        (root.id, theirs.id, ours.id)
    );
    assert_eq!(theirs.attributes["user"], "7");
    assert_eq!(theirs.attributes["late"], "yes");
    let events = collector.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((events[0].0.as_str(), events[0].1), ("found", theirs.id));
    assert!(!stroboscope::current().is_valid());
}

/// sqlx logs a statement after its end, by default at `debug`.
#[test]
fn statements_of_sqlx_become_spans() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = start(&collector);
    let subscriber = tracing_subscriber::registry().with(stroboscope::layer());
    tracing::subscriber::with_default(subscriber, || {
        let _root = stroboscope::span!("root").entered();
        std::thread::sleep(Duration::from_millis(3));
        let elapsed = Duration::from_millis(2);
        tracing::debug!(
            target: "sqlx::query",
            summary = "SELECT 1",
            db.statement = "",
            rows_returned = 1_u64,
            ?elapsed,
            elapsed_secs = elapsed.as_secs_f64(),
        );
    });
    drop(guard);
    let [root, statement] = ["root", "sqlx::query"].map(|name| collector.span(name));
    assert_eq!((statement.parent, &statement.trace), (root.id, &root.trace));
    assert_eq!(statement.end_ns - statement.start_ns, 2_000_000);
    assert!(root.start_ns < statement.start_ns && statement.end_ns <= root.end_ns);
    let attributes: Vec<_> = statement.attributes.into_iter().collect();
    let expected = [("db.query.text", "SELECT 1"), ("rows_returned", "1")];
    assert_eq!(
        attributes,
        expected.map(|(key, text)| (key.to_owned(), text.to_owned()))
    );
    assert_eq!(collector.events(), []);
}

/// A layer without a filter that keeps the names of all spans and events, as a debug log does.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> Layer<S> for Log {
    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: Context<'_, S>,
    ) {
        self.0
            .lock()
            .unwrap()
            .push(attributes.metadata().name().to_owned());
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0
            .lock()
            .unwrap()
            .push(event.metadata().name().to_owned());
    }
}

/// Makes spans and events of a service and of its transport, twice. The second time, `tracing` uses
/// the cached interest of each callsite.
fn annotated() {
    for _ in 0..2 {
        let _request = tracing::info_span!("request").entered();
        let _frame = tracing::info_span!(target: "h2::proto", "frame").entered();
        tracing::trace!(name: "byte", target: "h2", "");
        let _step = tracing::debug_span!("step").entered();
        tracing::info!(name: "found", "");
        tracing::debug!(name: "detail", "");
    }
}

/// Checks that the SDK's filter applies only to the SDK's records, wherever its layer is in the
/// stack and whichever other filters there are.
#[test]
fn other_layers_see_what_is_left_out() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let all = ["request", "frame", "byte", "step", "found", "detail"].repeat(2);
    let collector = Collector::default();
    let guard = start(&collector);
    let check =
        |stack: &str, subscriber: tracing::Dispatch, log: Option<&Log>, expected: &[&str]| {
            let name = format!("below {stack}");
            let root = stroboscope::span!("stack");
            let id = root.context().trace_id();
            root.scope(|| tracing::dispatcher::with_default(&subscriber, annotated));
            assert!(
                stroboscope::flush(std::time::Duration::from_secs(10)),
                "{name}"
            );
            let trace = format!("{id:032x}");
            let spans: Vec<_> = collector
                .spans()
                .into_iter()
                .filter(|span| span.trace == trace)
                .collect();
            let ids: Vec<u64> = spans.iter().map(|span| span.id).collect();
            let mut names: Vec<String> = spans
                .into_iter()
                .map(|span| span.name)
                .filter(|name| name != "stack")
                .collect();
            names.extend(
                collector
                    .events()
                    .into_iter()
                    .filter(|event| ids.contains(&event.1))
                    .map(|event| event.0),
            );
            names.sort();
            let mut expected = expected.repeat(2);
            expected.sort_unstable();
            assert_eq!(names, expected, "{name}");
            if let Some(log) = log {
                assert_eq!(
                    *log.0.lock().unwrap(),
                    all,
                    "{name}: the log sees everything"
                );
            }
        };
    let usual = ["request", "found"];
    check(
        "alone",
        tracing_subscriber::registry()
            .with(stroboscope::layer())
            .into(),
        None,
        &usual,
    );
    let log = Log::default();
    let stack = tracing_subscriber::registry()
        .with(log.clone())
        .with(stroboscope::layer());
    check("after a log", stack.into(), Some(&log), &usual);
    let log = Log::default();
    let stack = tracing_subscriber::registry()
        .with(stroboscope::layer())
        .with(log.clone());
    check("before a log", stack.into(), Some(&log), &usual);
    let log = Log::default();
    let ours = stroboscope::layer()
        .recording(LevelFilter::DEBUG)
        .with_filter(filter_fn(|meta| meta.name() != "found"));
    let stack = tracing_subscriber::registry().with(ours).with(log.clone());
    check(
        "both filters",
        stack.into(),
        Some(&log),
        &["request", "step", "detail"],
    );
    let log = Log::default();
    let targets: Targets = "h2=info".parse().unwrap();
    let stack = tracing_subscriber::registry()
        .with(stroboscope::layer().recording(targets))
        .with(log.clone());
    check("by targets", stack.into(), Some(&log), &["frame"]);
    let log = Log::default();
    let stack = tracing_subscriber::registry()
        .with(log.clone())
        .with(stroboscope::layer().gating_all());
    check("gating all", stack.into(), Some(&log), &usual);
    check(
        "our subscriber",
        tracing::Dispatch::new(stroboscope::subscriber()),
        None,
        &usual,
    );
    drop(guard);
}

/// Checks that a callsite that the SDK's filter excludes and no other layer wants is disabled.
#[test]
fn what_is_left_out_costs_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = start(&collector);
    let stacks: [tracing::Dispatch; 3] = [
        tracing_subscriber::registry()
            .with(stroboscope::layer())
            .into(),
        tracing_subscriber::registry()
            .with(stroboscope::layer().gating_all())
            .into(),
        tracing::Dispatch::new(stroboscope::subscriber()),
    ];
    for stack in stacks {
        for callsite in [&H2, &OWN_DEBUG] {
            assert!(stack.register_callsite(callsite).is_never(), "{callsite:?}");
        }
        assert!(!stack.register_callsite(&OWN).is_never());
        tracing::dispatcher::with_default(&stack, || {
            assert_eq!(
                tracing::level_filters::LevelFilter::current(),
                LevelFilter::DEBUG,
                "that of tower-http's spans of requests"
            );
        });
    }
    drop(guard);
}

struct Nowhere;

impl tracing::callsite::Callsite for Nowhere {
    fn set_interest(&self, _: tracing::subscriber::Interest) {}
    fn metadata(&self) -> &tracing::Metadata<'_> {
        unreachable!("never registered")
    }
}

macro_rules! metadata {
    ($target:literal, $level:ident, $fields:expr) => {
        tracing::Metadata::new(
            "work",
            $target,
            tracing::Level::$level,
            None,
            None,
            None,
            tracing::field::FieldSet::new($fields, tracing::callsite::Identifier(&Nowhere)),
            tracing::metadata::Kind::SPAN,
        )
    };
}

static H2: tracing::Metadata<'static> = metadata!("h2::codec", ERROR, &[]);
static OWN_DEBUG: tracing::Metadata<'static> = metadata!("shop", DEBUG, &[]);
static OWN: tracing::Metadata<'static> = metadata!("shop", INFO, &[]);

/// Field 255 is the last one that a record can number.
#[test]
fn fields_that_a_record_cannot_number_are_counted() {
    use tracing::Subscriber as _;
    use tracing::field::{Field, Value};

    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = start(&collector);
    let names: Vec<&str> = (0..300).map(|n| &*format!("f{n}").leak()).collect();
    let wide: &tracing::Metadata<'_> = Box::leak(Box::new(metadata!("shop", INFO, names.leak())));
    let fields = wide.fields();
    let [last, beyond] = ["f255", "f256"].map(|name| fields.field(name).unwrap());
    let values: [(&Field, Option<&dyn Value>); 2] = [(&last, Some(&1)), (&beyond, Some(&2))];
    let values = fields.value_set(&values);
    let subscriber = stroboscope::subscriber();
    let attributes = tracing::span::Attributes::new(wide, &values);
    assert!(subscriber.try_close(subscriber.new_span(&attributes)));
    let losses = stroboscope::stats().losses;
    assert!(losses.contains(&(LossCause::Oversize, 1)), "{losses:?}");
    drop(guard);
    let attributes = collector.span("work").attributes;
    assert_eq!(attributes.len(), 1, "{attributes:?}");
    assert_eq!(attributes["f255"], "1");
}
