//! A store whose parts have different sizes is read completely, with the same results as in one
//! part.

use std::sync::mpsc::channel;
use std::time::Duration;

use stroboscope_analysis::convergence::LineLimit;
use stroboscope_query::{InferSettings, Inference, PartsWanted, Selection, Source, infer_with};
use stroboscope_store::record::{Rows, SpanRow};
use stroboscope_store::tables::{PartitionRule, Store, write_rows};

/// Numbers of traces, and of spans per trace. The few traces of many spans have the lower ids. Both
/// kinds have about equally many rows.
const HEAVY: (u128, usize) = (30, 301);
const LIGHT: (u128, usize) = (4_500, 2);
const EPOCH_NS: i64 = 1_767_322_800_000_000_000;
/// Time limit, longer than any run on a loaded machine. A longer wait means a deadlock.
const WATCHDOG: Duration = Duration::from_secs(300);

/// Adds a trace: a root span, and inside it the other spans, one after another.
fn trace(trace_id: u128, spans: usize, rows: &mut Rows) {
    let mut text = |text: &str| rows.strings.intern(text);
    let (host, service, page) = (text("host"), text("web"), text("page"));
    let steps: Vec<_> = (0..5).map(|step| text(&format!("step {step}"))).collect();
    let begin_ns = EPOCH_NS + (trace_id % 1_000_003) as i64 * 1_000_000;
    let span = |span_id: usize, parent_id, name, start_ns: i64, end_ns: i64| SpanRow {
        trace_id,
        trace_name: None,
        span_id: span_id as u64,
        parent_id,
        service,
        name,
        host,
        process: 7,
        start_ns: begin_ns + start_ns,
        end_ns: begin_ns + end_ns,
        flags: 0,
        attributes: None,
    };
    rows.spans.push(span(1, 0, page, 0, spans as i64 * 1_000));
    for child in 1..spans {
        let start_ns = child as i64 * 1_000 - 500;
        rows.spans.push(span(
            child + 1,
            1,
            steps[child % steps.len()],
            start_ns,
            start_ns + 400,
        ));
    }
}

fn infer_in_parts(
    directory: std::path::PathBuf,
    parts: usize,
    convergence_every: u64,
) -> Inference {
    let (done, inferred) = channel();
    // If the thread hangs, the test fails without waiting for it.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let source = Source::open(&directory, runtime.handle().clone()).unwrap();
        let source = source.with_parts(PartsWanted::Exactly(parts));
        let settings = InferSettings {
            convergence: (convergence_every > 0).then_some(LineLimit::Traces(convergence_every)),
            ..InferSettings::default()
        };
        let _ = done.send(infer_with(&source, Selection::default(), &settings).unwrap());
    });
    inferred
        .recv_timeout(WATCHDOG)
        .unwrap_or_else(|_| panic!("{parts} parts do not come to an end"))
}

#[test]
fn parts_of_different_weight_come_to_an_end() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut rows = Rows::default();
    for number in 0..HEAVY.0 {
        trace((number + 1) << 100, HEAVY.1, &mut rows);
    }
    for number in 0..LIGHT.0 {
        trace(1 << 127 | number << 80 | 1, LIGHT.1, &mut rows);
    }
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    write_rows(
        &store,
        "seg-0000000000",
        rows,
        &PartitionRule::received(EPOCH_NS, EPOCH_NS),
    )
    .unwrap();
    let traces = (HEAVY.0 + LIGHT.0) as u64;
    let found = |parts| infer_in_parts(directory.path().to_owned(), parts, 10);
    let one = found(1);
    assert_eq!(
        (
            one.model.traces(),
            one.notes.traces,
            one.notes.complete_traces
        ),
        (traces, traces, traces)
    );
    assert!(
        !one.relations.all_happens_before().is_empty(),
        "{:?}",
        one.model
    );
    for parts in [2, 3, 5] {
        let several = found(parts);
        assert_eq!(several.model.parts(), one.model.parts(), "{parts} parts");
        assert_eq!(several.relations, one.relations, "{parts} parts");
        assert_eq!(several.roots, one.roots);
        assert_eq!(several.convergence.last(), one.convergence.last());
        // The same parts give the same series, whichever is read fastest.
        assert_eq!(
            found(parts).convergence,
            several.convergence,
            "{parts} parts"
        );
    }
}
