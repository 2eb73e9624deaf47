//! SIGKILL to the collector under load: acknowledged data is in the store once, and the services
//! continue.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use stroboscope_newsfeed::{Fleet, FleetOptions};
use stroboscope_proto::v1::{self, ShipOutcome, collector_client::CollectorClient};
use stroboscope_store::tables::{Store, TraceReader, read_batches};
use stroboscope_tests::{Program, Server};
use tonic::transport::Endpoint;

const SPANS_PER_BATCH: u64 = 50;

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address")
}

fn collect(program: &Program, address: SocketAddr) -> Server {
    let mut command: Command = program.command(&["collect"]);
    command.args(["--listen", &address.to_string(), "--http", "127.0.0.1:0"]);
    command.args(["--otlp-http", "none"]);
    let server = Server::start(command);
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        assert!(
            Instant::now() < deadline,
            "it does not listen: {}",
            server.said()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    server
}

/// A sender that remembers which of its batches were acknowledged.
struct Sender {
    incarnation: u128,
    acknowledged: BTreeSet<u64>,
}

impl Sender {
    fn batch(&self, sequence: u64) -> v1::Batch {
        let n = SPANS_PER_BATCH;
        let now_ns = 1_700_000_000_000_000_000 + sequence * 1_000_000;
        let id = |i: u64| (self.incarnation << 64) | u128::from(sequence * n + i + 1);
        v1::Batch {
            process: Some(v1::Process {
                incarnation: self.incarnation.to_be_bytes().to_vec(),
                service: "sender".to_owned(),
                host: "host".to_owned(),
                pid: 1,
                started_ns: now_ns,
                sdk_version: "test".to_owned(),
            }),
            sequence,
            strings: vec![String::new(), "work".to_owned()],
            spans: Some(v1::Spans {
                base_ns: now_ns,
                trace_ids: (0..n).flat_map(|i| id(i).to_be_bytes()).collect(),
                span_ids: (0..n).map(|i| i + 1).collect(),
                parent_ids: vec![0; n as usize],
                name_string: vec![1; n as usize],
                start_ns: vec![0; n as usize],
                duration_ns: vec![1_000; n as usize],
                flags: vec![0; n as usize],
                attribute_count: vec![],
                attributes: None,
            }),
            from_ns: now_ns,
            to_ns: now_ns + 1_000_000,
            ..v1::Batch::default()
        }
    }

    /// Sends until `stop` is set. After each reconnect, continues with the first unacknowledged
    /// batch.
    async fn run(mut self, address: SocketAddr, stop: Arc<AtomicBool>) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        while !stop.load(Relaxed) {
            let Ok(channel) = endpoint.connect().await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            // The session ends with an error when the collector dies. The loop then connects again.
            let _ = self.session(channel, &stop).await;
        }
        self
    }

    async fn session(
        &mut self,
        channel: tonic::transport::Channel,
        stop: &AtomicBool,
    ) -> Result<(), tonic::Status> {
        let (requests, receiver) = tokio::sync::mpsc::channel(8);
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let mut replies = CollectorClient::new(channel)
            .ship(stream)
            .await?
            .into_inner();
        let mut next = (0..)
            .find(|sequence| !self.acknowledged.contains(sequence))
            .unwrap_or(0);
        while !stop.load(Relaxed) {
            for _ in 0..4 {
                let request = v1::ShipRequest {
                    batch: Some(self.batch(next)),
                };
                if requests.send(request).await.is_err() {
                    return Ok(());
                }
                next += 1;
            }
            for _ in 0..4 {
                let Some(reply) = replies.message().await? else {
                    return Ok(());
                };
                let stored = [ShipOutcome::Stored as i32, ShipOutcome::Duplicate as i32];
                assert!(stored.contains(&reply.outcome), "{reply:?}");
                self.acknowledged.insert(reply.sequence);
            }
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_batches_survive_sigkill_once_and_services_do_not_notice() {
    let program = Program::new();
    let address = free_address();
    let mut server = collect(&program, address);
    let stop = Arc::new(AtomicBool::new(false));
    let senders: Vec<_> = (1..=3)
        .map(|n| Sender {
            incarnation: 0xabc0 + n,
            acknowledged: BTreeSet::new(),
        })
        .map(|sender| tokio::spawn(sender.run(address, Arc::clone(&stop))))
        .collect();
    let mut fleet = Fleet::start(FleetOptions {
        prefix_args: vec!["newsfeed".to_owned()],
        collector: Some(format!("http://{address}")),
        burst_config: Some("always".to_owned()),
        rate_per_s: 15.0,
        seconds: 8.0,
        ..FleetOptions::new(Program::path())
    })
    .await
    .expect("the newsfeed starts");
    let load = tokio::spawn(async move {
        let report = fleet.run_load().await;
        let stopped = fleet.stop().await;
        (report, stopped)
    });
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        server.kill();
        server = collect(&program, address);
    }
    let (report, stopped) = load.await.expect("the load runs");
    let report = report.expect("the newsfeed lives");
    stop.store(true, Relaxed);
    let mut acknowledged: BTreeMap<u128, BTreeSet<u64>> = BTreeMap::new();
    for sender in senders {
        let sender = sender.await.expect("a sender does not panic");
        acknowledged.insert(sender.incarnation, sender.acknowledged);
    }
    assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());
    println!("{report}");
    assert!(stopped.iter().all(|stopped| stopped.clean), "{stopped:?}");
    assert_eq!((report.failed, report.ok), (0, report.sent), "{report}");
    let runtime = tokio::runtime::Handle::current();
    let checked =
        tokio::task::spawn_blocking(move || check_store(&program, &acknowledged, runtime));
    checked.await.expect("the store is as it must be");
}

fn check_store(
    program: &Program,
    acknowledged: &BTreeMap<u128, BTreeSet<u64>>,
    runtime: tokio::runtime::Handle,
) {
    let store = Store::local(&program.data(), runtime).expect("the store opens");
    let mut stored: BTreeMap<u128, Vec<u64>> = BTreeMap::new();
    let mut services = BTreeSet::new();
    for batch in read_batches(&store).expect("batches") {
        stored
            .entry(batch.process)
            .or_default()
            .push(batch.sequence);
        services.insert(batch.service.to_string());
        assert!(
            batch.losses.is_empty(),
            "{}: {:?}",
            batch.service,
            batch.losses
        );
    }
    let all: Vec<&str> = services.iter().map(String::as_str).collect();
    assert_eq!(all, ["client", "edge", "ranker", "sender", "store", "web"]);
    for (process, sequences) in &stored {
        // In order, without a hole, none twice.
        assert!(
            sequences.iter().copied().eq(0..sequences.len() as u64),
            "{process:x}: {sequences:?}"
        );
    }
    let mut spans: BTreeMap<u128, u64> = BTreeMap::new();
    for trace in TraceReader::open(&store).expect("traces") {
        for span in &trace.spans {
            *spans.entry(span.process).or_default() += 1;
        }
    }
    for (incarnation, sequences) in acknowledged {
        assert!(
            sequences.len() > 20,
            "{incarnation:x} sent {}",
            sequences.len()
        );
        let kept = &stored[incarnation];
        assert!(
            sequences.iter().all(|sequence| kept.contains(sequence)),
            "{incarnation:x}: acknowledged and gone"
        );
        assert_eq!(
            spans[incarnation],
            kept.len() as u64 * SPANS_PER_BATCH,
            "{incarnation:x}: spans"
        );
    }
    let acknowledged: usize = acknowledged.values().map(BTreeSet::len).sum();
    println!("{acknowledged} batches acknowledged to the senders, all in the store, once");
}
