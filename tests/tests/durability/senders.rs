//! Senders that report acknowledgements. They are processes, so that tests can kill them, too.
//!
//! Senders in Rust are this test program, run for one of its ignored tests. Except for [`quiet`],
//! they print `sent` before a message goes out, and `acknowledged` after the answer.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use stroboscope_proto::v1::{self, ShipOutcome, collector_client::CollectorClient};
use stroboscope_tests::Server;
use tonic::transport::Endpoint;

use crate::Ports;

pub(crate) const SPANS_PER_BATCH: u64 = 5;

/// Returns the Python that has OpenTelemetry's packages. If there is none, prints this and returns
/// `None`.
pub(crate) fn python(test: &str) -> Option<String> {
    let python = std::env::var("STROBOSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let packages =
        "import opentelemetry.exporter.otlp.proto.http, opentelemetry.exporter.otlp.proto.grpc";
    let status = Command::new(&python)
        .args(["-c", packages])
        .stderr(Stdio::null())
        .status();
    if status.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    eprintln!(
        "SKIPPED: the clients of OTLP in {test}: pip install opentelemetry-sdk opentelemetry-exporter-otlp, and name \
         its python by STROBOSCOPE_TEST_PYTHON"
    );
    None
}

/// Starts this program in a role.
fn start(role: &str, doors: &Ports, number: u64) -> Server {
    let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
    command.args([
        &format!("senders::{role}"),
        "--exact",
        "--ignored",
        "--nocapture",
    ]);
    command.env("STROBOSCOPE_COLLECTOR", format!("http://{}", doors.grpc));
    command.env("STROBOSCOPE_TEST_NUMBER", number.to_string());
    command.stdin(Stdio::null());
    Server::start(command)
}

/// Starts a client with OpenTelemetry's own SDK for Python.
fn start_python(python: &str, protocol: &str, doors: &Ports) -> Server {
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/otlp_client.py"));
    let endpoint = match protocol {
        "grpc" => format!("http://{}", doors.grpc),
        _ => format!("http://{}/v1/traces", doors.otlp),
    };
    command.args([protocol, &endpoint, "1000000", "20"]);
    command.stdin(Stdio::null());
    Server::start(command)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Protocol,
    Sdk,
    /// The SDK with few spans, by the burst-config that its collector sets.
    Quiet,
    Otlp(&'static str),
}

/// All senders, including ended ones.
#[derive(Default)]
pub(crate) struct Fleet {
    pub(crate) running: Vec<(Role, Server)>,
    pub(crate) said: Vec<(Role, String)>,
    started: u64,
}

impl Fleet {
    pub(crate) fn start(&mut self, role: Role, doors: &Ports, python: Option<&str>) {
        self.started += 1;
        let server = match (role, python) {
            (Role::Protocol, _) => start("protocol", doors, self.started),
            (Role::Sdk, _) => start("sdk", doors, self.started),
            (Role::Quiet, _) => start("quiet", doors, self.started),
            (Role::Otlp(protocol), Some(python)) => start_python(python, protocol, doors),
            (Role::Otlp(_), None) => return,
        };
        self.running.push((role, server));
    }

    /// Sends a signal to all running senders.
    pub(crate) fn signal(&self, signal: i32) {
        for (_, sender) in &self.running {
            sender.signal(signal);
        }
    }

    /// Waits until each running sender has received a dozen more acknowledgements, so that the
    /// check covers enough messages.
    pub(crate) fn wait_for_acknowledgements(&mut self) {
        let count = |said: &str| {
            let is_one = |line: &&str| line.starts_with(['{']) || line.starts_with("acknowledged ");
            said.lines().filter(is_one).count()
        };
        let before: Vec<usize> = self
            .running
            .iter()
            .map(|(_, one)| count(&one.said()))
            .collect();
        for ((_, sender), before) in self.running.iter_mut().zip(before) {
            sender.wait_for("an acknowledgement", |said| {
                (count(said) >= before + 12).then_some(())
            });
        }
    }

    pub(crate) fn kill(&mut self, at: usize) -> Role {
        let (role, server) = self.running.swap_remove(at);
        self.said.push((role, server.killed()));
        role
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The reader may have gone.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn environment() -> (String, u64) {
    let number = std::env::var("STROBOSCOPE_TEST_NUMBER").expect("started by a test");
    let collector = std::env::var("STROBOSCOPE_COLLECTOR").expect("started by a test");
    (collector, number.parse().expect("a number"))
}

pub(crate) fn batch(incarnation: u128, sequence: u64) -> v1::Batch {
    let n = SPANS_PER_BATCH;
    let now_ns = 1_700_000_000_000_000_000 + sequence * 1_000_000;
    let id = |i: u64| (incarnation << 64) | u128::from(sequence * n + i + 1);
    v1::Batch {
        process: Some(v1::Process {
            incarnation: incarnation.to_be_bytes().to_vec(),
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

/// Sends batches by our protocol, four at a time. After a connection breaks, continues with the
/// first unacknowledged batch.
#[test]
#[ignore = "a process of the tests beside this one"]
fn protocol() {
    let (collector, number) = environment();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let endpoint = Endpoint::from_shared(collector).expect("an address");
        let mut acknowledged = BTreeSet::new();
        loop {
            if let Ok(channel) = endpoint.connect().await {
                // The session ends with an error when the collector dies. The loop then connects
                // again.
                let _ = session(channel, number.into(), &mut acknowledged).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

async fn session(
    channel: tonic::transport::Channel,
    incarnation: u128,
    acknowledged: &mut BTreeSet<u64>,
) -> Result<(), tonic::Status> {
    let (requests, receiver) = tokio::sync::mpsc::channel(8);
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut replies = CollectorClient::new(channel)
        .ship(stream)
        .await?
        .into_inner();
    let mut next = (0..)
        .find(|sequence| !acknowledged.contains(sequence))
        .unwrap_or(0);
    loop {
        for _ in 0..4 {
            say(&format!("sent {incarnation} {next}"));
            let batch = Some(batch(incarnation, next));
            if requests.send(v1::ShipRequest { batch }).await.is_err() {
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
            say(&format!("acknowledged {incarnation} {}", reply.sequence));
            acknowledged.insert(reply.sequence);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Records with the SDK. Everything that it recorded before a successful flush counts as
/// acknowledged.
#[test]
#[ignore = "a process of the tests beside this one"]
fn sdk() {
    let (_, number) = environment();
    let guard = stroboscope::builder()
        .service(format!("sdk-{number}"))
        .burst_config("always".parse().expect("a burst-config"))
        .env()
        .expect("the environment")
        .init()
        .expect("the SDK starts");
    assert!(guard.is_active());
    let mut recorded = 0_u64;
    loop {
        for _ in 0..20 {
            recorded += 1;
            say(&format!("sent {number} {recorded}"));
            stroboscope::span!("work", n = recorded).scope(|| ());
        }
        if stroboscope::flush(Duration::from_millis(500)) {
            say(&format!("acknowledged {number} {recorded}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Records few spans with the SDK, until SIGTERM.
#[test]
#[ignore = "a process of the tests beside this one"]
fn quiet() {
    let (_, number) = environment();
    let guard = stroboscope::builder()
        .service(format!("quiet-{number}"))
        .env()
        .expect("the environment")
        .init()
        .expect("the SDK starts");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let kind = tokio::signal::unix::SignalKind::terminate();
        let mut terminated = tokio::signal::unix::signal(kind).expect("a signal's handler");
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            tokio::select! {
                _ = terminated.recv() => return,
                _ = ticks.tick() => stroboscope::span!("work").scope(|| ()),
            }
        }
    });
    drop(guard);
    say("ended");
}
