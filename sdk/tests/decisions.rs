//! Tests which requests are recorded between windows: by sample mode, by the parent's sampled flag
//! and by the force header.

mod collector;

use std::sync::{Mutex, PoisonError};

use collector::{Collector, Span, wait_for};
use stroboscope::propagation::{self, FORCE, TRACEPARENT, TRACESTATE};
use stroboscope::{BurstConfig, LossCause, SampleMode, baggage, event, span};

static TURN: Mutex<()> = Mutex::new(());

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: u64 = 0xb7ad_6b71_6920_3331;

/// Stands for the missing flags of a request that was passed on without a trace id: none arrived,
/// nothing is recorded, and no window opens soon.
const UNNAMED: &str = "";

/// The headers of a request: the parent's sampled flag, if there is a parent, and the force header.
#[derive(Clone, Copy)]
struct Asked {
    parent: Option<bool>,
    force: bool,
}

const NOBODY: Asked = Asked {
    parent: None,
    force: false,
};
const SAMPLED: Asked = Asked {
    parent: Some(true),
    force: false,
};
const UNSAMPLED: Asked = Asked {
    parent: Some(false),
    force: false,
};

/// Runs one request in a process with these settings. Returns its recorded spans and the flags of
/// its outgoing `traceparent` header ([`UNNAMED`] without the header).
fn record(
    config: BurstConfig,
    mode: SampleMode,
    accept_force: bool,
    asked: Asked,
) -> (Vec<Span>, String) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(config)
        .sample(mode)
        .accept_force(accept_force)
        .init()
        .unwrap();
    if config == BurstConfig::ALWAYS_ON {
        wait_for("the gate", || stroboscope::stats().windows > 0);
    }
    let mut headers = http::HeaderMap::new();
    if let Some(sampled) = asked.parent {
        let flags = if sampled { "01" } else { "00" };
        headers.insert(
            TRACEPARENT,
            format!("00-{TRACE}-{PARENT:016x}-{flags}").parse().unwrap(),
        );
    }
    if asked.force {
        headers.insert(FORCE, "1".parse().unwrap());
    }
    let mut sent = http::HeaderMap::new();
    propagation::extract(&headers).scope("/page", || {
        event!("seen");
        // The child runs in another thread, which gets the context.
        let child = stroboscope::in_current_context(|| span!("child").scope(|| event!("inside")));
        std::thread::spawn(child).join().unwrap();
        propagation::inject(&mut sent);
    });
    drop(guard);
    assert_eq!(stroboscope::current(), stroboscope::SpanContext::NONE);
    let spans = collector.spans();
    assert_eq!(
        collector.events().len(),
        spans.len(),
        "one event in each span"
    );
    let Some(sent) = sent.get(TRACEPARENT) else {
        assert!(asked.parent.is_none(), "the request keeps its name");
        return (spans, UNNAMED.to_owned());
    };
    let sent = sent.to_str().unwrap().to_owned();
    if asked.parent.is_some() {
        assert!(
            sent.contains(TRACE),
            "the request stays the same one: {sent}"
        );
        assert!(spans.iter().all(|span| span.trace == TRACE));
    }
    (spans, sent[53..].to_owned())
}

fn check(config: BurstConfig, mode: SampleMode, asked: Asked, recorded: bool, flags: &str) {
    let (spans, sent) = record(config, mode, true, asked);
    assert_eq!(spans.len(), if recorded { 2 } else { 0 }, "{spans:#?}");
    assert_eq!(sent, flags);
    if recorded {
        let of = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
        assert_eq!(of("page").parent, asked.parent.map_or(0, |_| PARENT));
        assert_eq!(of("child").parent, of("page").id);
    }
}

const NEVER: BurstConfig = BurstConfig::NEVER;
const ALWAYS: BurstConfig = BurstConfig::ALWAYS_ON;

#[test]
fn burst_records_what_windows_hold_and_samples_nobody() {
    check(NEVER, SampleMode::Burst, NOBODY, false, UNNAMED);
    check(ALWAYS, SampleMode::Burst, NOBODY, true, "02");
}

#[test]
fn follow_samples_what_enters_in_a_window() {
    check(NEVER, SampleMode::Follow, NOBODY, false, UNNAMED);
    check(ALWAYS, SampleMode::Follow, NOBODY, true, "03");
}

#[test]
fn a_ratio_samples_at_the_ingress() {
    check(NEVER, SampleMode::Ratio(1.0), NOBODY, true, "03");
    check(NEVER, SampleMode::Ratio(0.0), NOBODY, false, UNNAMED);
}

/// Checks that the parent's decision applies, and that this process's own sample mode is ignored.
#[test]
fn the_parents_flag_is_obeyed() {
    for mode in [
        SampleMode::Burst,
        SampleMode::Follow,
        SampleMode::Ratio(0.0),
        SampleMode::Ratio(1.0),
    ] {
        check(NEVER, mode, SAMPLED, true, "01");
        check(NEVER, mode, UNSAMPLED, false, "00");
        check(ALWAYS, mode, SAMPLED, true, "01");
        // In a window everything is recorded, but that does not set the sampled flag.
        check(ALWAYS, mode, UNSAMPLED, true, "00");
    }
}

#[test]
fn force_records_one_request_to_its_end() {
    let force = |asked: Asked| Asked {
        force: true,
        ..asked
    };
    check(NEVER, SampleMode::Burst, force(NOBODY), true, "03");
    check(NEVER, SampleMode::Burst, force(UNSAMPLED), true, "01");
    check(NEVER, SampleMode::Burst, force(SAMPLED), true, "01");
    check(ALWAYS, SampleMode::Burst, force(NOBODY), true, "03");
}

#[test]
fn force_is_refused_unless_accepted() {
    let (spans, flags) = record(
        NEVER,
        SampleMode::Burst,
        false,
        Asked {
            force: true,
            ..NOBODY
        },
    );
    assert_eq!((spans.len(), flags.as_str()), (0, UNNAMED));
}

/// Checks that callers from outside decide nothing: the trace is a new one, and no baggage of the
/// SDK remains.
#[test]
fn public_callers_decide_nothing() {
    const SENT: &str = "sb.explore.ranker=0;t=d,sb.duplicate=true;t=b,sb.x=1;t=zz,theirs=1";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut headers = http::HeaderMap::new();
    let parent = format!("00-{TRACE}-{PARENT:016x}-01");
    headers.insert(TRACEPARENT, parent.parse().unwrap());
    headers.insert(propagation::TRACESTATE, "ot=th:0".parse().unwrap());
    headers.insert(propagation::BAGGAGE, SENT.parse().unwrap());
    for (config, public, expected) in [
        (NEVER, true, 0),
        (NEVER, false, 1),
        (ALWAYS, true, 1),
        (ALWAYS, false, 1),
    ] {
        let collector = Collector::default();
        let guard = stroboscope::builder()
            .collector(collector.clone().start())
            .burst_config(config)
            .public_callers(public)
            .init()
            .unwrap();
        if config == ALWAYS {
            wait_for("the gate", || stroboscope::stats().windows > 0);
        }
        let dropped = || -> u64 {
            let losses = stroboscope::stats().losses;
            let of_baggage = losses
                .iter()
                .filter(|(cause, _)| *cause == LossCause::BaggageDropped);
            of_baggage.map(|(_, members)| members).sum()
        };
        let before = dropped();
        let mut sent = http::HeaderMap::new();
        propagation::extract(&headers).scope("/page", || {
            assert_eq!(baggage::is_duplicate(), !public);
            propagation::inject(&mut sent);
        });
        drop(guard);
        let of = |name: &str| sent.get(name).map_or("", |value| value.to_str().unwrap());
        let spans = collector.spans();
        assert_eq!(spans.len(), expected, "{config:?}, {public}");
        assert!(spans.iter().all(|span| (span.trace == TRACE) != public));
        assert_eq!(of(TRACEPARENT).contains(TRACE), !public);
        assert_eq!(of(propagation::TRACESTATE).is_empty(), public);
        let members = of(propagation::BAGGAGE).matches('=').count();
        assert_eq!(members > 1, !public, "{}", of(propagation::BAGGAGE));
        assert!(of(propagation::BAGGAGE).contains("theirs=1"));
        assert_eq!(dropped() - before, if public { 3 } else { 0 });
    }
}

/// Runs one request with these headers in a process that samples by `mode`. Returns the attribute
/// `w3c.tracestate` of its root, if the request is recorded, and the header `tracestate` of its
/// calls.
fn states(mode: SampleMode, headers: &[(&'static str, &str)]) -> [Option<String>; 2] {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(NEVER)
        .sample(mode)
        .accept_force(true)
        .init()
        .unwrap();
    let mut received = http::HeaderMap::new();
    for (name, value) in headers {
        received.insert(*name, value.parse().unwrap());
    }
    let mut sent = http::HeaderMap::new();
    propagation::extract(&received).scope("/page", || {
        span!("child").scope(|| propagation::inject(&mut sent));
    });
    drop(guard);
    let spans = collector.spans();
    let child = spans.iter().find(|span| span.name == "child");
    assert!(child.is_none_or(|child| !child.attributes.contains_key("w3c.tracestate")));
    let root = spans.iter().find(|span| span.name == "page");
    let stored = root.and_then(|root| root.attributes.get("w3c.tracestate").cloned());
    let sent = sent.get(TRACESTATE).map(|state| state.to_str().unwrap());
    [stored, sent.map(str::to_owned)]
}

#[test]
fn the_ratio_is_stated() {
    let check = |mode, headers: &[_], stored: Option<&str>, sent: Option<&str>| {
        let expected = [stored, sent].map(|state| state.map(str::to_owned));
        assert_eq!(states(mode, headers), expected, "{mode:?} {headers:?}");
    };
    let all = SampleMode::Ratio(1.0);
    check(all, &[], Some("ot=th:0"), Some("ot=th:0"));
    check(SampleMode::Ratio(0.0), &[], None, None);
    // A request is sampled for another reason than the ratio.
    check(all, &[(FORCE, "1")], None, None);
    // The request began in another process, so its sender states the probability.
    let parent = |flags| format!("00-{TRACE}-{PARENT:016x}-{flags}");
    let sampled = (TRACEPARENT, &*parent("03"));
    check(all, &[sampled], None, None);
    let state = "a=1,ot=rv:ffffffffffffff;th:c,b=2";
    let given = (TRACESTATE, state);
    let stored = Some("ot=rv:ffffffffffffff;th:c");
    check(all, &[sampled, given], stored, Some(state));
    check(SampleMode::Follow, &[sampled, given], stored, Some(state));
    let without = (TRACESTATE, "a=1,ot=rv:ffffffffffffff");
    check(all, &[sampled, without], None, Some(without.1));
    let unsampled = (TRACEPARENT, &*parent("02"));
    check(all, &[unsampled, given], None, Some(state));
    check(all, &[unsampled, given, (FORCE, "1")], None, Some(state));
}

/// Checks that some requests are recorded and others are not, and that the calls of the recorded
/// ones state the ratio as a threshold.
#[test]
fn a_quarter_has_the_highest_trace_ids() {
    let mut recorded = 0;
    for _ in 0..30 {
        let [stored, sent] = states(SampleMode::Ratio(0.25), &[]);
        let threshold = stored.is_some().then(|| "ot=th:c".to_owned());
        assert_eq!((&stored, &sent), (&threshold, &threshold));
        recorded += u32::from(stored.is_some());
    }
    // Fails with a probability of 2e-4 and 3e-11.
    assert!((1..25).contains(&recorded), "{recorded}");
}

/// Checks that, while the process does not record, requests keep their trace id and sampled flag,
/// and nothing is buffered or lost.
#[test]
fn without_recording_a_sampled_request_only_passes_through() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = stroboscope::stats();
    let mut headers = http::HeaderMap::new();
    headers.insert(
        TRACEPARENT,
        format!("00-{TRACE}-{PARENT:016x}-01").parse().unwrap(),
    );
    headers.insert(FORCE, "1".parse().unwrap());
    let mut sent = http::HeaderMap::new();
    for _ in 0..100_000 {
        propagation::extract(&headers).scope("/page", || {
            let _child = span!("child").entered();
            event!("inside");
            propagation::inject(&mut sent);
        });
    }
    assert_eq!(sent[TRACEPARENT], headers[TRACEPARENT]);
    let after = stroboscope::stats();
    assert_eq!(
        (after.rings_bytes, after.losses),
        (before.rings_bytes, before.losses)
    );
}
