//! `compare` on two recordings of KUtrace, between which the waits in a queue became shorter.

use std::sync::Arc;

use stroboscope_analysis::compare::CompareSettings;
use stroboscope_analysis::flow::FlowSettings;
use stroboscope_import::Importer;
use stroboscope_query::{InferSettings, PeriodOf, Selection, Source, compare};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::tables::Store;

const REQUESTS: u64 = 80;

/// Returns the JSON of KUtrace for a server whose RPCs wait in a queue for about `mean_wait` units
/// of 10 ns.
fn recording(first_thread: u64, mean_wait: u64) -> String {
    let mut rows = Vec::new();
    let mut say = |start: u64, length: u64, rest: String| {
        let seconds = |units: u64| format!("{}.{:08}", units / 100_000_000, units % 100_000_000);
        rows.push(format!(
            "[ {}, {}, {rest}]",
            seconds(start),
            seconds(length)
        ));
    };
    let (receiver, worker) = (first_thread, first_thread + 5);
    for rpc in 0..REQUESTS {
        let (at, id) = (100_000_000 + rpc * 1_000_000, 1 + rpc % 16);
        let wait = mean_wait * (70 + rpc * 37 % 61) / 100;
        let taken = at + 2_000 + wait;
        let work = 3_000 + rpc * 53 % 400;
        let (reading, working) = (65_536 + receiver, 65_536 + worker);
        say(
            at,
            1,
            format!("0, {receiver}, {id}, 513, {id}, 0, 0, \"sleep.{id}\""),
        );
        say(
            at + 1,
            1_900,
            format!("0, {receiver}, {id}, {reading}, 0, 0, 2, \"server.{receiver}\""),
        );
        say(
            at + 2_000,
            wait,
            format!("-1, -1, {id}, 538, 0, 0, 0, \"queue~0\""),
        );
        say(
            taken,
            1,
            format!("1, {worker}, {id}, 513, {id}, 0, 0, \"sleep.{id}\""),
        );
        say(
            taken + 2,
            work,
            format!("1, {worker}, {id}, {working}, 0, 0, 3, \"server.{worker}\""),
        );
        say(
            taken + work + 2,
            500,
            format!("1, {worker}, {id}, 2049, 5, 44, 1, \"write\""),
        );
        say(
            taken + work + 503,
            1,
            format!("1, {worker}, {id}, 514, {id}, 0, 0, \"sleep.{id}\""),
        );
    }
    let rows = rows.join(",\n");
    format!(
        "{{ \"Comment\" : \"V2 with IPC field\", \"axisLabelX\" : \"Time (sec)\", \"tracebase\" : \"2021-10-28_14:01:00\", \
         \"version\" : 3, \"events\" : [ {rows},\n[999.0, 0.0, 0, 0, 0, 0, 0, 0, 0, \"\"]\n]}}"
    )
}

fn period(runtime: &tokio::runtime::Runtime, directory: &std::path::Path, text: &str) -> PeriodOf {
    let file = directory.join("trace.json");
    std::fs::write(&file, text).unwrap();
    let data = directory.join("data");
    let handle = || runtime.handle().clone();
    let dir = DataDir::create(&data).unwrap();
    let importer = Importer::new(dir, Store::local(&data, handle()).unwrap());
    let bad = &mut |line: u64, reason: &_| panic!("{line}: {reason}");
    importer.file(&file, bad).unwrap();
    PeriodOf {
        source: Arc::new(Source::open(&data, handle()).unwrap()),
        selection: Selection::default(),
        only: None,
    }
}

#[test]
fn a_queue_that_became_shorter_is_named() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let before = period(&runtime, directories[0].path(), &recording(8_287, 69_690));
    let after = period(&runtime, directories[1].path(), &recording(412, 260));
    let compared = compare(
        [&before, &after],
        &InferSettings::default(),
        FlowSettings::default(),
        &CompareSettings::default(),
    )
    .unwrap();
    // Each RPC is one request, and there are no others.
    assert_eq!(compared.before.flows.requests(), REQUESTS);
    assert_eq!(compared.after.flows.requests(), REQUESTS);
    let change_us = compared.comparison.change_ns / 1_000.0;
    assert!((-720.0..-670.0).contains(&change_us), "{change_us}");
    let cause = compared.comparison.causes.first().expect("a cause");
    let said = format!("{:?}", cause.operation);
    // Operations are compared by names without numbers.
    assert!(said.contains("queue~*"), "{said} {change_us}");
    assert!(
        cause.contribution_ns < -600_000.0,
        "{}",
        cause.contribution_ns
    );
}
