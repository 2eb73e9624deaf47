//! Spans as services send them, as fast as they are acknowledged.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use prost::Message as _;
use stroboscope_proto::v1::collector_client::CollectorClient;
use stroboscope_proto::v1::{Batch, ShipOutcome, ShipRequest};
use stroboscope_testkit::batches::batch;
use stroboscope_testkit::workload;

use crate::Failure;
use crate::process::CollectorProcess;

/// Spans of a request, about: what exporters send by default.
const SPANS_PER_REQUEST: usize = 512;
/// Different requests, which are sent again and again with other ids.
const REQUESTS: u64 = 32;
/// Batches of one stream that wait for their acknowledgement.
const BATCHES_IN_FLIGHT: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// `stroboscope.v1`: batches with an event for every other span, and attributes.
    Native,
    /// OTLP in protobuf over HTTP/1.1, four attributes a span.
    OtlpHttp,
}

/// What was acknowledged, and what was not.
pub(crate) struct Sent {
    pub(crate) spans: u64,
    pub(crate) refused: u64,
}

/// A request, and where in it the ids of traces are.
pub(crate) struct Prepared {
    bytes: Vec<u8>,
    spans: u64,
    ids: Vec<usize>,
}

impl Load {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::OtlpHttp => "otlp-http",
        }
    }

    pub(crate) fn prepare(self) -> Vec<Prepared> {
        match self {
            Self::Native => Vec::new(),
            Self::OtlpHttp => (0..REQUESTS).map(otlp_request).collect(),
        }
    }

    pub(crate) fn send(
        self,
        collector: &CollectorProcess,
        prepared: &[Prepared],
        connections: usize,
        duration: Duration,
    ) -> Result<Sent, Failure> {
        let (spans, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let until = Instant::now() + duration;
        let failed = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..connections as u64)
                .map(|number| {
                    let (spans, refused) = (&spans, &refused);
                    scope.spawn(move || match self {
                        Self::Native => native(&collector.grpc, number, until, spans, refused),
                        Self::OtlpHttp => {
                            otlp_http(&collector.otlp, prepared, number, until, spans, refused)
                        }
                    })
                })
                .collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended
                .filter_map(|end| end.unwrap_or_else(|_| Err("panicked".into())).err())
                .next()
        });
        match failed {
            Some(failure) => Err(failure),
            None => Ok(Sent {
                spans: spans.into_inner(),
                refused: refused.into_inner(),
            }),
        }
    }
}

fn native(
    address: &str,
    number: u64,
    until: Instant,
    spans: &AtomicU64,
    refused: &AtomicU64,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let channel = tonic::transport::Channel::from_shared(format!("http://{address}"))?;
        let mut client = CollectorClient::new(channel.connect().await?);
        let (sender, requests) = tokio::sync::mpsc::channel(BATCHES_IN_FLIGHT);
        let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
        let (mut sequence, mut waiting) = (0, 0);
        // Made once: what is measured is the collector.
        let model: Batch = batch(u128::from(number) + 1, 0, SPANS_PER_REQUEST);
        let mut replies = None;
        let mut stream = Some(requests);
        loop {
            while waiting < BATCHES_IN_FLIGHT && Instant::now() < until {
                let batch = Batch {
                    sequence,
                    ..model.clone()
                };
                sender.send(ShipRequest { batch: Some(batch) }).await?;
                (sequence, waiting) = (sequence + 1, waiting + 1);
            }
            if waiting == 0 {
                return Ok(());
            }
            if let Some(stream) = stream.take() {
                replies = Some(client.ship(stream).await?.into_inner());
            }
            let replies = replies.as_mut().ok_or("no stream")?;
            let reply = replies.message().await?.ok_or("the stream ended")?;
            waiting -= 1;
            if reply.outcome == ShipOutcome::Stored as i32 {
                spans.fetch_add(SPANS_PER_REQUEST as u64, Relaxed);
            } else {
                refused.fetch_add(1, Relaxed);
            }
        }
    })
}

fn otlp_http(
    address: &str,
    prepared: &[Prepared],
    number: u64,
    until: Instant,
    spans: &AtomicU64,
    refused: &AtomicU64,
) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answer = [0; 4096];
    let mut own: Vec<Vec<u8>> = prepared.iter().map(|one| one.bytes.clone()).collect();
    let mut round = number << 40;
    while Instant::now() < until {
        for (one, bytes) in prepared.iter().zip(&mut own) {
            round += 1;
            for at in &one.ids {
                bytes[*at..*at + 8].copy_from_slice(&round.to_be_bytes());
            }
            let head = format!(
                "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
                bytes.len()
            );
            stream.write_all(head.as_bytes())?;
            stream.write_all(bytes)?;
            // An answer is short, and has no body where all was taken.
            let mut length = 0;
            while !answer[..length].windows(4).any(|end| end == b"\r\n\r\n") {
                length += match stream.read(&mut answer[length..])? {
                    0 => return Err("the connection ended".into()),
                    read => read,
                };
            }
            if answer.starts_with(b"HTTP/1.1 200") {
                spans.fetch_add(one.spans, Relaxed);
            } else {
                refused.fetch_add(1, Relaxed);
                std::thread::sleep(Duration::from_millis(100));
                stream = TcpStream::connect(address)?;
            }
        }
    }
    Ok(())
}

/// Requests of the simulated fleet, as the SDK of one of its services would export them.
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
            // Upper half of zeros, so that the place is found in the bytes; it is overwritten.
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
