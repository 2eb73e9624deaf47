//! Test from an annotated service to its critical path, over a real socket.

use std::time::Duration;

use stroboscope::{BurstConfig, event, span};
use stroboscope_query::{InferSettings, PathsQuestion, Selection, Source, Study};
use stroboscope_server::collect::{Collector, CollectorSettings};
use stroboscope_server::grpc::ListenAddresses;
use stroboscope_server::ingest::{Options, Stop};
use stroboscope_server::net::NetSettings;
use stroboscope_server::redact::RedactSettings;
use stroboscope_store::limits::Limits;

const REQUESTS: u64 = 100;

/// Serves one request. Returns whether it was recorded, because the gate opens a moment after the
/// start.
fn serve(number: u64) -> bool {
    let request = span!("request", number = number);
    let is_recorded = request.is_recorded();
    let _request = request.entered();
    {
        let _parse = span!("parse").entered();
        event!("parsed");
    }
    let _read = span!("read").entered();
    // This sleep is longer than the rest, so it determines the request's latency.
    std::thread::sleep(Duration::from_millis(2));
    is_recorded
}

#[test]
fn what_a_service_does_is_what_the_analysis_finds() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let settings = CollectorSettings {
        data: directory.path().to_owned(),
        listen: ListenAddresses {
            grpc: anywhere,
            unix: None,
        },
        otlp_http: None,
        http: None,
        site: None,
        forward: None,
        burst_config: None,
        doors: NetSettings::default(),
        redact: RedactSettings::default(),
        intake: Options::default(),
        limits: Limits::default(),
        publishing: None,
    };
    let collector = runtime.block_on(Collector::start(settings)).unwrap();
    let guard = stroboscope::builder()
        .service("shop")
        .collector(format!("http://{}", collector.grpc_address()))
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    let requests = (0..REQUESTS).filter(|&number| serve(number)).count() as u64;
    assert!(requests > REQUESTS / 2, "{requests} recorded");
    guard.shutdown_within(Duration::from_secs(10));
    runtime.block_on(collector.stop(Stop::Flush)).unwrap();

    let source = Source::open(directory.path(), runtime.handle().clone()).unwrap();
    let recorded = source.recorded().unwrap();
    assert_eq!(
        (
            recorded.processes,
            recorded.lost_records(),
            recorded.missing_batches
        ),
        (1, 0, 0)
    );
    assert_eq!(recorded.records, requests * 4);
    let study = Study::new(source, Selection::default(), InferSettings::default());
    let inference = study.inference().unwrap();
    assert_eq!(
        (inference.notes.traces, inference.notes.complete_traces),
        (requests, requests)
    );
    let paths = study.ask(&PathsQuestion::default()).unwrap();
    let operations = paths.aggregate.by_operation(inference.model.labels());
    let share = |name: &str| {
        let operation = operations
            .iter()
            .find(|operation| operation.operation == name);
        let operation = operation.unwrap_or_else(|| panic!("{name} is missing: {operations:?}"));
        (operation.duration_shares + operation.wait_shares).mean(paths.aggregate.traces())
    };
    assert!(share("shop:read") > 0.8, "{}", share("shop:read"));
    assert!(share("shop:parse") < 0.1, "{}", share("shop:parse"));
}
