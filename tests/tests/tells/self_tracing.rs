//! The collector's own traces, by our SDK, and never about themselves.

use std::time::Duration;

use stroboscope_fixtures::batches::batch;
use stroboscope_tests::Program;

use crate::{Collector, collect, get, metric, ship, wait_for};

const ALWAYS: (&str, &str) = ("STROBOSCOPE_BURST_CONFIG", "always");
/// Metrics that increase when data is accepted and stored.
const GROWING: [&str; 4] = [
    "records_total",
    "wal_written_bytes_total",
    "parquet_bytes_total",
    "flushes_total",
];

fn growth(collector: &Collector) -> [f64; 4] {
    GROWING.map(|name| metric(&collector.pages, name))
}

/// Waits until none of the [`GROWING`] metrics increases for a second, and checks that this stays
/// so.
fn stays_idle(collector: &Collector) {
    let mut before = growth(collector);
    wait_for("an end of what grows", || {
        std::thread::sleep(Duration::from_secs(1));
        std::mem::replace(&mut before, growth(collector)) == before
    });
    let idle = growth(collector);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(growth(collector), idle, "{GROWING:?} of an idle collector");
}

/// Waits until this many processes have reported, including the collector that traces itself.
fn are_known_to(collector: &Collector, count: f64) {
    wait_for("the processes", || {
        metric(&collector.pages, "processes") >= count
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_traces_what_it_does_for_others() {
    let program = Program::new();
    let arguments = [
        "--own-traces",
        "self",
        "--flush-interval",
        "100ms",
        "--redact",
        "drop:secret",
    ];
    let mut collector = collect(&program, &arguments, &[ALWAYS]);
    are_known_to(&collector, 1.0);
    stays_idle(&collector);
    for sequence in 0..20 {
        let replies = ship(&collector.grpc, vec![batch(7, sequence, 5)]).await;
        assert_eq!(replies.len(), 1);
    }
    let _ = get(&collector.pages, "/model");
    let records = metric(&collector.pages, "records_total");
    wait_for("its own spans", || {
        metric(&collector.pages, "records_total") > records.max(100.0)
    });
    stays_idle(&collector);
    assert!(
        collector.server.stop(libc::SIGTERM).success(),
        "{}",
        collector.server.said()
    );

    let inferred = program.run(&["infer", "--json"]);
    let inferred = inferred.stdout;
    for operation in [
        "batch",
        "redact",
        "check",
        "commit",
        "log_append",
        "log_sync",
        "acknowledge",
    ] {
        let task = format!("stroboscope-collector:{operation}");
        assert!(inferred.contains(&task), "{task} is not in {inferred}");
    }
    assert!(
        inferred.contains("stroboscope-collector:flush"),
        "{inferred}"
    );
    assert!(
        inferred.contains("stroboscope-collector:GET /model"),
        "{inferred}"
    );
    let path = program.run(&["critical-path", "--root", "stroboscope-collector:batch"]);
    assert!(path.stdout.contains("log_sync"), "{path:#?}");
}

#[test]
fn an_agent_traces_requests_for_its_first_page() {
    let (program, of_agent) = (Program::new(), Program::new());
    let mut gateway = collect(&program, &["--flush-interval", "100ms"], &[]);
    let forward = format!("http://{}", gateway.grpc);
    let arguments = ["--forward", &forward, "--own-traces", "self"];
    let mut agent = collect(&of_agent, &arguments, &[ALWAYS]);
    are_known_to(&gateway, 1.0);
    let _ = get(&agent.pages, "/");
    for collector in [&mut agent, &mut gateway] {
        let said = collector.server.said();
        assert!(collector.server.stop(libc::SIGTERM).success(), "{said}");
    }
    let root = "stroboscope-collector:GET /";
    let _ = program.run(&["critical-path", "--root", root]).succeeds();
}

/// Two collectors that send their own traces to each other do not trace this either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collectors_that_trace_into_each_other_are_idle() {
    let (one, other) = (Program::new(), Program::new());
    let socket = one.data().with_extension("socket");
    let to_one = format!("unix:{}", socket.display());
    let flush = ["--flush-interval", "100ms"];
    let second = collect(
        &other,
        &[&["--own-traces", &to_one], &flush[..]].concat(),
        &[ALWAYS],
    );
    let to_second = format!("http://{}", second.grpc);
    let unix = ["--unix", &socket.display().to_string()].map(str::to_owned);
    let first_arguments = ["--own-traces", &to_second, &unix[0], &unix[1]];
    let first = collect(&one, &[&first_arguments, &flush[..]].concat(), &[ALWAYS]);
    assert_eq!(ship(&first.grpc, vec![batch(7, 0, 5)]).await.len(), 1);
    wait_for("what the first did, in the second", || {
        metric(&second.pages, "records_total") > 0.0
    });
    are_known_to(&first, 2.0);
    stays_idle(&first);
    stays_idle(&second);
}

#[test]
fn what_cannot_be_is_said() {
    let program = Program::new();
    let arguments = ["collect", "--own-traces", "https://elsewhere:4317"];
    program
        .run(&arguments)
        .fails_with(2, &["--own-traces", "self"]);
    let tokens = program.file("tokens", "write 0123456789abcdef\n");
    let arguments = ["collect", "--own-traces", "self", "--token-file", &tokens];
    program
        .run(&arguments)
        .fails_with(2, &["STROBOSCOPE_TOKEN"]);
}
