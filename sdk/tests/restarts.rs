//! Tests that a collector gets every record although it is stopped and restarted several times.

mod collector;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use collector::{Collector, wait_for};
use stroboscope::{BurstConfig, event};
use stroboscope_proto::v1::collector_server::CollectorServer;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;

/// Starts serving and returns the runtime and the bound address. If the runtime is dropped, the
/// connections break and the port is closed.
fn serve(collector: Collector, address: SocketAddr) -> (Runtime, SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind(address))
        .unwrap();
    let address = listener.local_addr().unwrap();
    let service =
        CollectorServer::new(collector).accept_compressed(tonic::codec::CompressionEncoding::Zstd);
    let router = tonic::transport::Server::builder().add_service(service);
    runtime.spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    (runtime, address)
}

#[test]
fn what_is_produced_is_delivered() {
    let collector = Collector::default();
    let (mut runtime, address) = serve(collector.clone(), ([127, 0, 0, 1], 0).into());
    let _guard = stroboscope::builder()
        .collector(format!("http://{address}"))
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    wait_for("a window", || stroboscope::stats().windows > 0);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let producer = std::thread::spawn(move || {
        let mut produced = 0u64;
        while !stopped.load(Relaxed) {
            for _ in 0..10 {
                event!("produced", n = produced);
                produced += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        produced
    });
    for _ in 0..8 {
        let before = collector.batches().len();
        wait_for("a batch", || collector.batches().len() > before);
        runtime.shutdown_background();
        // No collector listens, and the records are buffered.
        let buffered = stroboscope::stats().buffered_bytes;
        wait_for("records that wait", || {
            stroboscope::stats().buffered_bytes > buffered
        });
        (runtime, _) = serve(collector.clone(), address);
    }
    stop.store(true, Relaxed);
    let produced = producer.join().unwrap();
    let flushed = stroboscope::flush(Duration::from_secs(10));
    assert!(flushed, "{:?}", stroboscope::stats());
    let arrived: BTreeSet<u64> = collector
        .events_named("produced")
        .iter()
        .map(|attributes| attributes["n"].parse().unwrap())
        .collect();
    assert_eq!(arrived, (0..produced).collect());
    assert_eq!(stroboscope::stats().losses, []);
}
