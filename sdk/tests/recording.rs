//! Tests that the records of a process reach a collector over a socket, complete and as annotated.
//!
//! One process can record for one service only, so the tests take turns.

mod collector;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use collector::{Collector, wait_for};
use stroboscope::propagation::{self, TRACEPARENT};
use stroboscope::{BurstConfig, FutureExt as _, Guard, SampleMode, event, span};
use stroboscope_proto::v1::{SetBurstConfig, SpanFlag};

static TURN: Mutex<()> = Mutex::new(());

struct Recording {
    collector: Collector,
    guard: Option<Guard>,
    _turn: MutexGuard<'static, ()>,
}

impl Recording {
    fn start(config: BurstConfig, mode: SampleMode) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let collector = Collector::default();
        let guard = stroboscope::builder()
            .service("test")
            .collector(collector.clone().start())
            .burst_config(config)
            .sample(mode)
            .init()
            .expect("recording starts");
        assert!(guard.is_active());
        if config == BurstConfig::ALWAYS_ON {
            wait_for("the gate", || stroboscope::stats().windows > 0);
        }
        Self {
            collector,
            guard: Some(guard),
            _turn: turn,
        }
    }

    fn always_on() -> Self {
        Self::start(BurstConfig::ALWAYS_ON, SampleMode::Follow)
    }

    fn finish(mut self) -> Collector {
        drop(self.guard.take());
        self.collector.clone()
    }
}

#[stroboscope::trace]
fn outer(user: u64) -> u64 {
    let _inner = span!("inner", user, kind = "feed", ratio = 0.5, ok = true).entered();
    event!("hit", key = user);
    user + 1
}

#[stroboscope::trace(name = "asked", fields(id, half = id / 2))]
async fn answer(id: u64) -> Result<u64, String> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let value = text(id).parse::<u64>().map_err(|error| error.to_string())?;
    tokio::spawn(async { event!("in_task") }.in_current_span())
        .await
        .unwrap();
    Ok(value)
}

fn text(id: u64) -> String {
    id.to_string()
}

#[test]
fn the_first_request_is_recorded_from_its_beginning() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..20 {
        let collector = Collector::default();
        let guard = stroboscope::builder()
            .collector(collector.clone().start())
            .burst_config(BurstConfig::ALWAYS_ON)
            .init()
            .expect("recording starts");
        span!("first").scope(|| drop(span!("inner")));
        drop(guard);
        let spans = collector.spans();
        assert_eq!(
            spans.iter().map(|span| &*span.name).collect::<Vec<_>>(),
            ["inner", "first"]
        );
        assert!(
            spans[1].has(SpanFlag::LocalRoot) && spans[0].parent == spans[1].id,
            "{spans:?}"
        );
        assert!(
            spans.iter().all(|span| !span.has(SpanFlag::Unfinished)),
            "{spans:?}"
        );
    }
}

#[test]
fn nested_spans_events_and_fields() {
    let recording = Recording::always_on();
    let losses_before = stroboscope::stats().losses;
    assert_eq!(outer(7), 8);
    let collector = recording.finish();
    let (outer, inner) = (collector.span("outer"), collector.span("inner"));
    assert_eq!((outer.parent, inner.parent), (0, outer.id));
    assert_eq!(outer.trace, inner.trace);
    assert!(outer.has(SpanFlag::LocalRoot) && !inner.has(SpanFlag::LocalRoot));
    assert!(outer.start_ns <= inner.start_ns && inner.end_ns <= outer.end_ns);
    let attributes: Vec<String> = inner
        .attributes
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(attributes, ["kind=feed", "ok=true", "ratio=0.5", "user=7"]);
    let events = collector.events();
    assert_eq!((events[0].0.as_str(), events[0].1), ("hit", inner.id));
    assert_eq!(
        collector.batches()[0].process.as_ref().unwrap().service,
        "test"
    );
    assert_eq!(stroboscope::stats().losses, losses_before);
}

#[test]
fn async_spans_follow_their_future_between_threads() {
    let recording = Recording::always_on();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let answers = runtime.block_on(async {
        let tasks: Vec<_> = (0..50).map(|id| tokio::spawn(answer(id))).collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(task.await.unwrap().unwrap());
        }
        answers
    });
    assert_eq!(answers, (0..50).collect::<Vec<_>>());
    assert!(!stroboscope::current().is_valid());
    let collector = recording.finish();
    let spans = collector.spans();
    assert_eq!(spans.len(), 50);
    for span in &spans {
        assert_eq!((span.name.as_str(), span.parent), ("asked", 0));
        assert!(span.end_ns - span.start_ns >= 1_000_000);
        let events: Vec<_> = collector
            .events()
            .into_iter()
            .filter(|(_, id, _)| *id == span.id)
            .collect();
        assert_eq!(events.len(), 1, "the spawned task is in its span");
    }
}

#[test]
fn threads_and_closures_keep_the_context() {
    let recording = Recording::always_on();
    span!("parent").scope(|| {
        let work = stroboscope::in_current_context(|| drop(span!("child")));
        std::thread::spawn(work).join().unwrap();
        std::thread::spawn(|| drop(span!("stranger")))
            .join()
            .unwrap();
    });
    let collector = recording.finish();
    let parent = collector.span("parent");
    assert_eq!(collector.span("child").parent, parent.id);
    assert_eq!(collector.span("stranger").parent, 0);
}

#[test]
fn a_panic_ends_its_spans_and_says_so() {
    let recording = Recording::always_on();
    let result = std::panic::catch_unwind(|| {
        let _span = span!("doomed").entered();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(result.is_err());
    assert!(!stroboscope::current().is_valid());
    let collector = recording.finish();
    assert!(collector.span("doomed").has(SpanFlag::Panicked));
}

#[test]
fn a_span_that_never_ends_is_closed_and_marked() {
    let recording = Recording::always_on();
    std::mem::forget(span!("leaked"));
    let collector = recording.finish();
    assert!(collector.span("leaked").has(SpanFlag::Unfinished));
}

#[test]
fn a_value_that_records_while_being_formatted_does_no_harm() {
    struct Nosy;
    impl std::fmt::Display for Nosy {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            event!("from_inside");
            f.write_str("nosy")
        }
    }
    let recording = Recording::always_on();
    event!("outside", value = stroboscope::display(Nosy));
    let collector = recording.finish();
    let names: Vec<String> = collector
        .events()
        .into_iter()
        .map(|(name, ..)| name)
        .collect();
    assert_eq!(names, ["outside"]);
}

/// Checks burst mode: every record lies inside a window, every window lies in one of the burst
/// config, and a span that a close cuts has the flag for it.
#[test]
fn bursts_have_exact_edges() {
    let config = "32ms/64ms".parse().unwrap();
    let recording = Recording::start(config, SampleMode::Burst);
    let end = std::time::Instant::now() + Duration::from_millis(700);
    while std::time::Instant::now() < end {
        let _span = span!("work").entered();
        event!("tick");
        std::thread::sleep(Duration::from_micros(700));
    }
    let collector = recording.finish();
    let windows = collector.windows();
    assert!(windows.len() >= 8, "{windows:?}");
    let inside = |time_ns: i64| {
        windows
            .iter()
            .any(|&(open, close)| (open..close).contains(&(time_ns as u64)))
    };
    for &(open_ns, close_ns) in &windows {
        assert!(close_ns - open_ns <= 32_000_000);
        assert!(
            config.contains_ms(open_ns / 1_000_000)
                && config.contains_ms((close_ns - 1) / 1_000_000)
        );
    }
    let spans = collector.spans();
    assert!(spans.len() > 50, "{}", spans.len());
    for span in &spans {
        assert!(inside(span.start_ns) && inside(span.end_ns - 1), "{span:?}");
        let at_close = windows
            .iter()
            .any(|&(_, close)| close as i64 == span.end_ns);
        assert_eq!(span.has(SpanFlag::CutClose), at_close, "{span:?}");
    }
    assert!(
        collector
            .events()
            .iter()
            .all(|&(_, _, time_ns)| inside(time_ns))
    );
    assert!(spans.iter().any(|span| span.has(SpanFlag::CutClose)));
}

/// Checks follow mode: a request that enters during a window is recorded to its end, and one that
/// enters between windows is not recorded.
#[test]
fn followed_requests_are_whole() {
    let config: BurstConfig = "16ms/256ms".parse().unwrap();
    let recording = Recording::start(config, SampleMode::Follow);
    let mut entered_inside = 0;
    for _ in 0..12 {
        let root = span!("request");
        let recorded = root.is_recorded();
        entered_inside += usize::from(recorded);
        root.scope(|| {
            std::thread::sleep(Duration::from_millis(40));
            let child = span!("late_child");
            assert!(!recorded || child.is_recorded());
        });
        std::thread::sleep(Duration::from_millis(3));
    }
    while entered_inside < 3 {
        let root = span!("request");
        if root.is_recorded() {
            entered_inside += 1;
            root.scope(|| {
                std::thread::sleep(Duration::from_millis(40));
                drop(span!("late_child"));
            });
        }
    }
    let collector = recording.finish();
    let spans = collector.spans();
    let roots: Vec<_> = spans.iter().filter(|span| span.name == "request").collect();
    assert_eq!(roots.len(), entered_inside);
    for root in roots {
        assert!(
            root.end_ns - root.start_ns >= 40_000_000,
            "whole, though the window is shorter"
        );
        assert!(!root.has(SpanFlag::CutClose) && root.has(SpanFlag::Sampled));
        assert!(
            spans
                .iter()
                .any(|span| span.name == "late_child" && span.parent == root.id)
        );
    }
    assert!(stroboscope::current() == stroboscope::SpanContext::NONE);
}

/// Runs a request that begins between windows and makes steps until the next window ends. With
/// `is_beside`, a request of a caller that records it runs meanwhile. `None` if the machine was too
/// busy: the request began in a window, or fewer than 20 steps were recorded.
fn cut_by_an_opening(is_beside: bool) -> Option<Collector> {
    let recording = Recording::start("128ms/512ms".parse().unwrap(), SampleMode::Follow);
    wait_for("a window to end", || {
        stroboscope::stats().windows > 0 && !span!("probe").is_recorded()
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let request = async {
        // The spawned task belongs to the same request.
        let steps = async {
            let mut recorded = 0;
            loop {
                let is_recorded = span!("step").is_recorded();
                if recorded > 0 && !is_recorded {
                    break recorded;
                }
                recorded += usize::from(is_recorded);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let steps = steps.in_current_span();
        let mut headers = http::HeaderMap::new();
        let sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        headers.insert(TRACEPARENT, sampled.parse().unwrap());
        let beside =
            is_beside.then(|| propagation::extract(&headers).scope("/", || span!("beside")));
        let recorded = tokio::spawn(steps).await.unwrap();
        assert!(beside.is_none_or(|span| span.is_recorded()));
        recorded
    };
    let span = span!("request");
    if span.is_recorded() {
        return None;
    }
    let recorded = runtime.block_on(request.in_span(span));
    let collector = recording.finish();
    // Some steps lie in the guard before the exact window, and are trimmed.
    (recorded >= 20).then_some(collector)
}

/// Checks that a request that began before a window is recorded in part, in one trace, with a flag
/// that its beginning is missing.
#[test]
fn an_async_request_cut_by_an_opening_is_one_trace_and_marked() {
    for is_beside in [false, true] {
        let collector = std::iter::repeat_with(|| cut_by_an_opening(is_beside))
            .flatten()
            .next()
            .unwrap();
        let spans = collector.spans();
        assert!(spans.iter().all(|span| span.name != "request"));
        let steps: Vec<_> = spans.iter().filter(|span| span.name == "step").collect();
        assert!(steps.len() > 5, "{}", steps.len());
        for step in &steps {
            assert!(
                step.has(SpanFlag::CutOpen) && !step.has(SpanFlag::Sampled) && step.parent != 0,
                "{step:?}, beside another request: {is_beside}"
            );
            assert_eq!(step.trace, steps[0].trace);
        }
    }
}

/// Checks that spans of a task spawned more than a period ago, outside of requests, begin requests.
#[test]
fn a_task_older_than_a_period_is_no_request() {
    let recording = Recording::start("32ms/64ms".parse().unwrap(), SampleMode::Follow);
    wait_for("a window to end", || {
        stroboscope::stats().windows > 0 && !span!("probe").is_recorded()
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = async {
            // The task's first poll lasts longer than the first windows after it was spawned.
            std::thread::sleep(Duration::from_millis(200));
            for _ in 0..40 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                drop(span!("served"));
            }
        };
        tokio::spawn(server.in_current_span()).await.unwrap();
    });
    let collector = recording.finish();
    let served: Vec<_> = collector
        .spans()
        .into_iter()
        .filter(|span| span.name == "served")
        .collect();
    assert!(served.len() > 5, "{}", served.len());
    assert!(
        served
            .iter()
            .all(|span| span.parent == 0 && !span.has(SpanFlag::CutOpen)),
        "{served:#?}"
    );
}

#[test]
fn a_ratio_samples_also_between_windows_and_decides_once() {
    let recording = Recording::start(BurstConfig::NEVER, SampleMode::Ratio(0.5));
    wait_for("the start", || stroboscope::stats().running);
    for _ in 0..400 {
        span!("root").scope(|| drop(span!("child")));
    }
    let collector = recording.finish();
    let spans = collector.spans();
    let roots: Vec<_> = spans.iter().filter(|span| span.name == "root").collect();
    assert!((120..280).contains(&roots.len()), "{} of 400", roots.len());
    assert_eq!(
        spans.len(),
        2 * roots.len(),
        "a request is recorded whole or not at all"
    );
    for root in roots {
        assert!(
            spans
                .iter()
                .any(|span| span.name == "child" && span.parent == root.id)
        );
    }
}

/// Checks that a sampled span has the flag `OUTSIDE` exactly if no window covers all of it.
#[test]
fn sampled_spans_outside_of_windows_are_marked() {
    let recording = Recording::start("32ms/64ms".parse().unwrap(), SampleMode::Ratio(1.0));
    let end = std::time::Instant::now() + Duration::from_millis(500);
    while std::time::Instant::now() < end {
        let _root = span!("root").entered();
        for _ in 0..3 {
            let _child = span!("child").entered();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let collector = recording.finish();
    let windows = collector.windows();
    let held = |span: &collector::Span| {
        windows.iter().any(|&(open_ns, close_ns)| {
            open_ns as i64 <= span.start_ns && span.end_ns < close_ns as i64
        })
    };
    let spans = collector.spans();
    for span in &spans {
        assert!(span.has(SpanFlag::Sampled) && !span.has(SpanFlag::CutClose));
        assert_eq!(span.has(SpanFlag::Outside), !held(span), "{span:?}");
        let state = span.attributes.get("w3c.tracestate").map(String::as_str);
        let is_root = span.name == "root";
        assert_eq!(state, is_root.then_some("ot=th:0"), "{span:?}");
    }
    let outside = spans.iter().filter(|span| span.has(SpanFlag::Outside));
    let outside = outside.count();
    assert!(outside > 50 && spans.len() - outside > 50, "{outside}");
}

#[test]
fn the_collector_changes_the_config() {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    collector.direct(SetBurstConfig {
        burst_config: 0,
        at_ns: 0,
    });
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::NEVER)
        .init()
        .unwrap();
    wait_for("the new config", || {
        stroboscope::stats().burst_config == BurstConfig::ALWAYS_ON
    });
    wait_for("a window", || stroboscope::stats().windows > 0);
    drop(span!("after"));
    drop(guard);
    assert_eq!(collector.span("after").parent, 0);
    drop(turn);
}

#[test]
fn refused_and_undeliverable_batches_are_counted() {
    let recording = Recording::always_on();
    let refused = || {
        stroboscope::stats()
            .losses
            .iter()
            .find(|(cause, _)| cause.name() == "collector_refused")
            .map_or(0, |l| l.1)
    };
    let before = refused();
    recording
        .collector
        .refuse
        .store(true, std::sync::atomic::Ordering::Relaxed);
    drop(span!("refused"));
    wait_for("the refusal", || refused() > before);
    assert!(stroboscope::stats().trouble.unwrap().contains("refused"));
    recording.finish();
}

/// Checks that, without a collector, stopping takes at most a second longer than the deadline.
#[test]
fn no_collector_is_no_problem() {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let deadline = Duration::from_millis(300);
    let guard = stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(BurstConfig::ALWAYS_ON)
        .shutdown_deadline(deadline)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    drop(span!("lonely"));
    wait_for("an explanation", || stroboscope::stats().trouble.is_some());
    let trouble = stroboscope::stats().trouble.unwrap();
    assert!(
        trouble.contains("no connection to the collector at http://127.0.0.1:9"),
        "{trouble}"
    );
    let start = std::time::Instant::now();
    drop(guard);
    assert!(start.elapsed() < deadline + Duration::from_secs(1));
    let lost = stroboscope::stats().losses;
    assert!(
        lost.iter()
            .any(|(cause, records)| cause.name() == "shutdown_deadline" && *records >= 1),
        "{lost:?}"
    );
    drop(turn);
}

#[test]
fn a_second_start_does_nothing_and_a_bad_address_is_named() {
    let recording = Recording::always_on();
    let second = stroboscope::builder().init().unwrap();
    assert!(!second.is_active());
    drop(second);
    assert!(stroboscope::stats().running);
    recording.finish();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (address, part) in [
        ("localhost:4317", "scheme"),
        ("ftp://x:1", "ftp"),
        ("", ""),
        ("http//x", ""),
    ] {
        let error = stroboscope::builder()
            .collector(address)
            .init()
            .expect_err(address)
            .to_string();
        assert!(
            error.contains(part) && error.contains("write http://HOST:PORT"),
            "{error}"
        );
    }
    drop(turn);
}
