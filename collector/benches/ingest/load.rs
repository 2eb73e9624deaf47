//! Sends spans in the forms that services use, at a given rate or as fast as they are acknowledged.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use prost::Message as _;
use stroboscope_fixtures::batches::batch;
use stroboscope_fixtures::workload;
use stroboscope_proto::v1::collector_client::CollectorClient;
use stroboscope_proto::v1::gateway_client::GatewayClient;
use stroboscope_proto::v1::{
    Batch, ForwardKind, ForwardRequest, ShipOutcome, ShipReply, ShipRequest,
};
use tokio_stream::StreamExt as _;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::Failure;

/// Approximate number of spans of a request: the default batch size of exporters.
const SPANS_PER_REQUEST: usize = 512;
/// Number of distinct OTLP requests. They are sent repeatedly with different ids.
const REQUESTS: u64 = 32;
/// Maximum number of unacknowledged batches of one stream.
const BATCHES_IN_FLIGHT: usize = 8;

/// Incarnation of the next connection. Two connections with one incarnation would send duplicates.
static INCARNATIONS: AtomicU64 = AtomicU64::new(1);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Batches of `stroboscope.v1`, with an event for every other span, and attributes.
    Native,
    /// The batches of `Native`, in the messages of an agent that forwards them.
    Forwarded,
    /// OTLP in protobuf over HTTP/1.1, with four attributes per span.
    OtlpHttp,
}

/// The addresses of a collector, and the source address of its gRPC senders.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) from: IpAddr,
    pub(crate) grpc: String,
    pub(crate) otlp: String,
}

/// Numbers of acknowledged spans, and of refused batches or requests, so far.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) spans: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Times from sending to acknowledgement, in microseconds. A reader removes them.
    pub(crate) acknowledged_us: Mutex<Vec<u32>>,
}

impl Sent {
    fn acknowledged(&self, spans: u64, since: Instant) {
        self.spans.fetch_add(spans, Relaxed);
        if let Ok(mut times) = self.acknowledged_us.lock() {
            times.push(u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
    }
}

/// Rate at which one connection sends, and end of the sending.
#[derive(Clone, Copy)]
struct LineLimit {
    begun: Instant,
    until: Instant,
    /// Spans per second; `None` to send as fast as the collector acknowledges.
    spans_per_s: Option<f64>,
}

impl LineLimit {
    /// Returns the time until the next request is due; `None` if it is due now.
    fn wait(&self, spans: u64) -> Option<Duration> {
        let due_s = spans as f64 / self.spans_per_s?;
        let due = self.begun + Duration::from_secs_f64(due_s);
        due.checked_duration_since(Instant::now())
            .filter(|wait| !wait.is_zero())
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

/// A request, with the positions of the trace ids in its bytes.
pub(crate) struct Prepared {
    bytes: Vec<u8>,
    spans: u64,
    ids: Vec<usize>,
}

impl Load {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Forwarded => "forwarded",
            Self::OtlpHttp => "otlp-http",
        }
    }

    pub(crate) fn prepare(self) -> Vec<Prepared> {
        match self {
            Self::Native | Self::Forwarded => Vec::new(),
            Self::OtlpHttp => (0..REQUESTS).map(otlp_request).collect(),
        }
    }

    /// Sends for `duration` over this number of connections, together at most `spans_per_s` spans
    /// per second.
    pub(crate) fn send(
        self,
        target: &Target,
        prepared: &[Prepared],
        connections: usize,
        duration: Duration,
        spans_per_s: Option<f64>,
        sent: &Sent,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let pace = LineLimit {
            begun,
            until: begun + duration,
            spans_per_s: spans_per_s.map(|all| all / connections as f64),
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..connections as u64)
                .map(|number| {
                    scope.spawn(move || match self {
                        Self::Native => native(target, pace, sent, ship),
                        Self::Forwarded => native(target, pace, sent, forward),
                        Self::OtlpHttp => otlp_http(&target.otlp, prepared, number, pace, sent),
                    })
                })
                .collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            let ended: Vec<_> = ended
                .map(|end| end.unwrap_or_else(|_| Err("panicked".into())))
                .collect();
            ended.into_iter().collect()
        })
    }
}

type Requests<T> = tokio_stream::wrappers::ReceiverStream<T>;

/// Opens the stream by which services ship.
async fn ship(channel: Channel, batches: Requests<Batch>) -> Result<Streaming<ShipReply>, Failure> {
    let requests = batches.map(|batch| ShipRequest { batch: Some(batch) });
    let mut client = CollectorClient::new(channel);
    Ok(client.ship(requests).await?.into_inner())
}

/// Opens the stream by which agents forward.
async fn forward(
    channel: Channel,
    batches: Requests<Batch>,
) -> Result<Streaming<ShipReply>, Failure> {
    let requests = batches.map(|batch| ForwardRequest {
        sequence: batch.sequence,
        kind: ForwardKind::Batch.into(),
        payload: batch.encode_to_vec(),
    });
    let mut client = GatewayClient::new(channel);
    Ok(client.forward(requests).await?.into_inner())
}

fn native<F>(
    target: &Target,
    pace: LineLimit,
    sent: &Sent,
    open: impl Fn(Channel, Requests<Batch>) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<Streaming<ShipReply>, Failure>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let address = format!("http://{}", target.grpc);
        let channel = Channel::from_shared(address)?;
        let channel = channel.local_address(Some(target.from)).connect().await?;
        let (sender, requests) = tokio::sync::mpsc::channel(BATCHES_IN_FLIGHT);
        let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
        let (mut sequence, mut waiting) = (0, VecDeque::new());
        // The batch is built once, because only the collector is to be measured.
        let incarnation = INCARNATIONS.fetch_add(1, Relaxed);
        let model: Batch = batch(u128::from(incarnation), 0, SPANS_PER_REQUEST);
        let mut replies = None;
        let mut stream = Some(requests);
        loop {
            while waiting.len() < BATCHES_IN_FLIGHT && !pace.is_over() {
                if let Some(wait) = pace.wait(sequence * SPANS_PER_REQUEST as u64) {
                    if !waiting.is_empty() {
                        break;
                    }
                    tokio::time::sleep(wait).await;
                }
                let batch = Batch {
                    sequence,
                    ..model.clone()
                };
                waiting.push_back(Instant::now());
                sender.send(batch).await?;
                sequence += 1;
            }
            let Some(since) = waiting.pop_front() else {
                return Ok(());
            };
            if let Some(stream) = stream.take() {
                replies = Some(open(channel.clone(), stream).await?);
            }
            let replies = replies.as_mut().ok_or("no stream")?;
            let reply = replies.message().await?.ok_or("the stream ended")?;
            if reply.outcome == ShipOutcome::Stored as i32 {
                sent.acknowledged(SPANS_PER_REQUEST as u64, since);
            } else {
                sent.refused.fetch_add(1, Relaxed);
            }
        }
    })
}

fn otlp_http(
    address: &str,
    prepared: &[Prepared],
    number: u64,
    pace: LineLimit,
    sent: &Sent,
) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut own: Vec<Vec<u8>> = prepared.iter().map(|one| one.bytes.clone()).collect();
    let (mut round, mut spans) = (number << 40, 0);
    while !pace.is_over() {
        for (one, bytes) in prepared.iter().zip(&mut own) {
            round += 1;
            for at in &one.ids {
                bytes[*at..*at + 8].copy_from_slice(&round.to_be_bytes());
            }
            if let Some(wait) = pace.wait(spans) {
                std::thread::sleep(wait);
            }
            spans += one.spans;
            let since = Instant::now();
            let head = format!(
                "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
                bytes.len()
            );
            stream.write_all(head.as_bytes())?;
            stream.write_all(bytes)?;
            if is_taken(&mut stream)? {
                sent.acknowledged(one.spans, since);
            } else {
                sent.refused.fetch_add(1, Relaxed);
                std::thread::sleep(Duration::from_millis(100));
                stream = TcpStream::connect(address)?;
            }
        }
    }
    Ok(())
}

/// Reads a whole answer with a known length. Returns true if the request was accepted.
fn is_taken(stream: &mut TcpStream) -> Result<bool, Failure> {
    let (mut answer, mut length) = ([0; 4096], 0);
    loop {
        length += match stream.read(&mut answer[length..])? {
            0 => return Err("the connection ended".into()),
            read => read,
        };
        let mut ends = answer[..length].windows(4);
        let Some(head) = ends.position(|end| end == b"\r\n\r\n") else {
            continue;
        };
        let text = std::str::from_utf8(&answer[..head])?.to_ascii_lowercase();
        let body = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        let body: usize = body.map_or(Ok(0), |length| length.trim().parse())?;
        if length >= head + 4 + body {
            return Ok(text.starts_with("http/1.1 200"));
        }
    }
}

/// Returns a request of the simulated fleet, as the SDK of one of its services would export it.
fn otlp_request(number: u64) -> Prepared {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

    let pair = |key: &str, value: Value| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    };
    let text = |text: &str| Value::StringValue(text.to_owned());
    let mut spans = Vec::new();
    let mut at = number * 1_000;
    while spans.len() < SPANS_PER_REQUEST {
        let request = workload::request(1, at);
        at += 1;
        for (index, span) in request.spans.iter().enumerate() {
            let (_, name, ..) = workload::texts(span);
            // The upper half is a pattern that is found in the bytes, and overwritten later.
            let trace_id = [[0xfe; 8], (request.trace_id as u64).to_be_bytes()].concat();
            spans.push(Span {
                trace_id,
                span_id: (index as u64 + 1).to_be_bytes().to_vec(),
                parent_span_id: if index == 0 {
                    Vec::new()
                } else {
                    1_u64.to_be_bytes().to_vec()
                },
                name: name.to_owned(),
                kind: 1,
                start_time_unix_nano: span.start_ns,
                end_time_unix_nano: span.end_ns,
                attributes: vec![
                    pair("rpc.system", text("grpc")),
                    pair("rpc.method", text(name)),
                    pair("user.tier", text(["free", "paid"][index % 2])),
                    pair("items", Value::IntValue((at % 40) as i64)),
                ],
                ..Span::default()
            });
        }
    }
    let count = spans.len() as u64;
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: vec![
                    pair("service.name", text("ranker")),
                    pair("host.name", text("host-07")),
                    pair("telemetry.sdk.language", text("rust")),
                ],
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: "ranker".to_owned(),
                    ..InstrumentationScope::default()
                }),
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    let bytes = request.encode_to_vec();
    let ids = (0..bytes.len() - 8)
        .filter(|at| bytes[*at..*at + 8] == [0xfe; 8])
        .collect();
    Prepared {
        bytes,
        spans: count,
        ids,
    }
}
