//! Tests which logs of tracked bytes ship: their requests, items and sources, and their absence in
//! requests that are not tracked.

#![cfg(feature = "provenance")]

mod collector;

use std::sync::{Mutex, PoisonError};
use std::task::{Context, Waker};

use collector::{Collector, wait_for};
use stroboscope::baggage::Provenance;
use stroboscope::tracked::{self, DataLinkage, TrackedBuf};
use stroboscope::{BurstConfig, FutureExt as _, span};
use stroboscope_proto::v1;
use stroboscope_provenance::{LogFile, ReadLog as _, inputs_of};

static TURN: Mutex<()> = Mutex::new(());

/// Runs `work` in a process that records always, and returns the logs that it shipped.
fn logs(share: f64, work: impl FnOnce()) -> Vec<v1::ProvenanceLog> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .provenance(share)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    work();
    drop(guard);
    let batches = collector.batches();
    let logs = batches.into_iter().flat_map(|batch| batch.provenance);
    logs.collect()
}

/// Multiplies an order by a price, as a service that tracks its bytes does.
fn serve(body: &[u8], provenance: &Provenance) -> (Vec<u8>, Provenance) {
    tracked::scope(|| {
        let order = tracked::receive(provenance, "order", body);
        let price = tracked::source("price", *b"12");
        let product =
            order.parse::<u64, DataLinkage>().unwrap() * price.parse::<u64, DataLinkage>().unwrap();
        let mut answer = TrackedBuf::from(&b"sum="[..]);
        answer.push_text(&product);
        let sent = tracked::send_with_content(&answer, "invoice", 5);
        (answer.into_bytes(), sent)
    })
}

/// Returns the names of the sources of the first byte of a run of output bytes.
fn sources(file: &LogFile<'_>, output: usize) -> Vec<String> {
    let inputs = inputs_of(file, file.outputs()[output].labels.at(0));
    let sources = file.sources().iter();
    let read =
        sources.filter(|source| inputs.ranges_within(source.first, source.first).count() > 0);
    let name = |id| file.items().iter().find(|item| item.id == id).unwrap();
    read.map(|source| name(source.id).name.to_string())
        .collect()
}

#[test]
fn a_log_ships_with_its_request_and_names_the_sources() {
    let mut ids = (0, 0);
    let logs = logs(1.0, || {
        let span = span!("page");
        ids = (span.context().trace_id(), span.context().span_id());
        span.scope(|| {
            let (body, provenance) = serve(b"10", &Provenance::default());
            assert_eq!(body, b"sum=120");
            let (body, _) = serve(b"3", &provenance);
            assert_eq!(body, b"sum=36");
        });
    });
    let [first, second] = &logs[..] else {
        panic!("two logs: {logs:?}");
    };
    for log in [first, second] {
        assert_eq!(log.trace_id, ids.0.to_be_bytes());
        assert_eq!(log.span_id, ids.1);
        assert!(log.time_ns > 1_700_000_000_000_000_000);
        let file = LogFile::parse(&log.log).unwrap();
        assert_eq!(sources(&file, 0), ["order", "price"]);
        let named = file.items().iter().find(|item| &*item.name == "invoice");
        let item = named.expect("the output's name");
        assert_eq!(item.id, file.outputs()[0].id);
        assert_eq!(item.span, ids.1);
        assert_eq!(item.content.len(), 5);
    }
    let [first, second] = [first, second].map(|log| LogFile::parse(&log.log).unwrap());
    assert_eq!(
        second.sources()[0].id,
        first.outputs()[0].id,
        "the output of one service is the source of the next one"
    );
}

#[test]
fn requests_that_are_not_tracked_give_the_same_bytes_without_logs() {
    let in_request = || span!("page").scope(|| serve(b"10", &Provenance::default()));
    let shipped = logs(0.0, || {
        assert_eq!(in_request(), (b"sum=120".to_vec(), Provenance::default()));
    });
    assert!(shipped.is_empty());
    let outside = logs(1.0, || {
        let answer = serve(b"10", &Provenance::default());
        assert_eq!(answer, (b"sum=120".to_vec(), Provenance::default()));
    });
    assert!(outside.is_empty(), "outside of a request");
    assert_eq!(in_request(), (b"sum=120".to_vec(), Provenance::default()));
}

#[test]
fn a_share_of_requests_is_tracked_whole() {
    let requests = 400;
    let mut expected = Vec::new();
    let mut shipped = logs(0.25, || {
        for _ in 0..requests {
            let span = span!("page");
            let trace = span.context().trace_id();
            // All processes of a request decide alike, by a hash of the trace id.
            if (trace as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) < 1 << 62 {
                expected.push(trace.to_be_bytes().to_vec());
            }
            span.scope(|| serve(b"1", &Provenance::default()));
        }
    });
    shipped.sort_by(|a, b| a.trace_id.cmp(&b.trace_id));
    expected.sort();
    let shipped: Vec<_> = shipped.into_iter().map(|log| log.trace_id).collect();
    assert_eq!(shipped, expected);
    assert!((40..200).contains(&shipped.len()), "{}", shipped.len());
}

#[test]
fn a_future_that_is_dropped_ships_its_outputs() {
    let logs = logs(1.0, || {
        let pending = tracked::run(async {
            // Belongs to the log of the outer future.
            tracked::run(async { serve(b"7", &Provenance::default()) }).await;
            std::future::pending::<()>().await;
        });
        let mut pending = Box::pin(pending.in_span(span!("page")));
        let mut context = Context::from_waker(Waker::noop());
        assert!(pending.as_mut().poll(&mut context).is_pending());
        assert!(!tracked::is_tracking());
    });
    assert_eq!(logs.len(), 1);
    let file = LogFile::parse(&logs[0].log).unwrap();
    assert_eq!(sources(&file, 0), ["order", "price"]);
}
