//! Messages of failed assertions: the reason, a tree of the trace, and the caller's line.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use stroboscope::span;

use super::checkout;

thread_local! {
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Returns the message of a panic and the file in which it happened.
pub(super) fn panic_of(work: impl FnOnce()) -> (String, String) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = take_hook();
        set_hook(Box::new(move |info| {
            let file = info.location().map_or("", |at| at.file()).to_owned();
            PANICKED_AT.with(|at| at.replace(file));
            default(info);
        }));
    });
    let payload = catch_unwind(AssertUnwindSafe(work)).expect_err("a panic");
    let message = payload.downcast::<String>().expect("a message");
    (*message, PANICKED_AT.with(|at| at.take()))
}

/// Checks the message of a panic in this file. Durations are written as `…`, and several spaces as
/// one, except indentation.
#[track_caller]
fn check(work: impl FnOnce(), expected: &str) {
    let (message, file) = panic_of(work);
    let is_duration = |word: &&str| {
        let number = word.trim_end_matches(['n', 'µ', 'm', 's']);
        number != *word && number.parse::<f64>().is_ok()
    };
    let masked = |word: &'static str| if is_duration(&word) { "…" } else { word };
    let line = |line: &'static str| line.split(' ').filter(|word| !word.is_empty()).map(masked);
    let lines = String::leak(message).lines();
    let lines: Vec<String> = lines
        .map(|text| {
            let indent = text.len() - text.trim_start().len();
            " ".repeat(indent) + &line(text).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(lines.join("\n"), expected);
    assert!(file.ends_with("messages.rs"), "{file}");
}

const TREE: &str = "Trace checkout: …

span from takes critical attributes
checkout … … …
  db.query … … … row=0
  render … … …";

#[test]
fn failed_assertions_show_the_trace() {
    let recording = stroboscope_testkit::start();
    checkout(1);
    let traces = recording.traces();
    let trace = traces.only("checkout");
    check(
        || trace.assert_holds("{ name = \"render\" } before { name = \"db.query\" }"),
        &format!(
            "the trace violates `{{ name = \"render\" }} before {{ name = \"db.query\" }}`\n\n{TREE}"
        ),
    );
    check(
        || trace.assert_calls("db.query", 2..),
        &format!("the trace has 1 spans named db.query, not 2..\n\n{TREE}"),
    );
    check(
        || trace.assert_critical("cache"),
        &format!("no span named cache is on the critical path\n\n{TREE}"),
    );
    check(
        || _ = traces.only("payment"),
        &format!("no trace is named payment\n\n{TREE}"),
    );
    check(
        || _ = trace.holds("{ name = }"),
        "the formula has a syntax error: column 10: expected a text in quotes, a number or a \
         duration, found `}`\n{ name = }\n         ^",
    );
    check(
        || _ = trace.holds("{ kernel = syscall }"),
        &format!(
            "the trace cannot tell whether `{{ kernel = syscall }}` holds: tests do not record the \
             kernel\n\n{TREE}"
        ),
    );
    checkout(1);
    let traces = recording.traces();
    check(
        || _ = traces.only("checkout"),
        &format!("2 traces are named checkout\n\n{TREE}\n\n{TREE}"),
    );
}

#[test]
fn a_large_trace_is_shown_in_part() {
    let recording = stroboscope_testkit::start();
    checkout(2_000);
    let traces = recording.traces();
    let (message, _) = panic_of(|| traces.only("checkout").assert_calls("render", 2..));
    assert!(message.ends_with("\n\n1802 more spans are not shown."));
    // The reason, the heading, the head, 200 spans, the end, and three empty lines.
    let lines = message.lines().count();
    assert_eq!(lines, 1 + 1 + 1 + 200 + 1 + 3, "{message}");
}

/// A formula about spans that have not ended is unknown, not false.
#[test]
fn spans_that_have_not_ended_make_formulas_unknown() {
    let recording = stroboscope_testkit::start();
    let open = span!("outer").entered();
    checkout(1);
    let traces = recording.traces();
    check(
        || _ = traces.only("outer"),
        "no trace is named outer. A span of the test has not ended, so it was not recorded\n\n\
         Trace (no root): …\n\nspan from takes critical attributes\ncheckout … … …\n  db.query … … … \
         row=0\n  render … … …\n\nSpans that have not ended are missing.",
    );
    assert!(traces[0].holds(r#"{ name = "render" }"#), "it was recorded");
    let (message, _) = panic_of(|| _ = traces[0].holds(r#"{ name = "cache" }"#));
    assert!(message.contains("holds: a span has not ended"), "{message}");
    let (message, _) = panic_of(|| traces[0].assert_calls("cache", ..1));
    assert!(message.contains("cannot tell how many spans"), "{message}");
    drop(open);

    let traces = recording.traces();
    assert!(!traces.only("outer").holds(r#"{ name = "cache" }"#));

    // The request has ended, but not a task in it.
    let request = span!("request").entered();
    let task = span!("task");
    drop(request);
    let traces = recording.traces();
    let trace = traces.only("request");
    assert!(trace.holds(r#"{ name = "request" }"#), "it was recorded");
    let (message, _) = panic_of(|| _ = trace.holds(r#"{ name = "task" }"#));
    assert!(message.contains("holds: a span has not ended"), "{message}");
    drop(task);
    assert_eq!(recording.traces().only("request").calls("task"), 1);
}
