//! OTLP over gRPC, over real sockets.

use bytes::{BufMut as _, BytesMut};
use prost::Message as _;
use stroboscope_otlp::message::{AnyKind, AnyValue, KeyValue, ResourceSpans, ScopeSpans, Span};
use stroboscope_server::collect::Collector;
use stroboscope_server::ingest::Stop;
use tokio::net::TcpStream;
use tonic::Code;

use crate::grpc::{get, settings};

/// Returns an `ExportTraceServiceRequest` with one span.
fn request() -> Vec<u8> {
    #[derive(prost::Message)]
    struct ExportRequest {
        #[prost(message, repeated, tag = "1")]
        resource_spans: Vec<ResourceSpans>,
    }
    let attribute = |number| KeyValue {
        key: format!("k{number}"),
        value: Some(AnyValue {
            kind: Some(AnyKind::Text("x".to_owned())),
        }),
    };
    let span = Span {
        trace_id: vec![1; 16],
        span_id: vec![1; 8],
        name: "work".to_owned(),
        start_time_unix_nano: 1_000,
        end_time_unix_nano: 2_000,
        attributes: (0..20).map(attribute).collect(),
        ..Span::default()
    };
    let scope = ScopeSpans {
        spans: vec![span],
        ..ScopeSpans::default()
    };
    let resource_spans = vec![ResourceSpans {
        scope_spans: vec![scope],
        ..ResourceSpans::default()
    }];
    ExportRequest { resource_spans }.encode_to_vec()
}

/// Sends a request, and returns the status in the response's headers or trailers.
async fn export(collector: &Collector, request: &[u8]) -> Code {
    let stream = TcpStream::connect(collector.grpc_address()).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let uri = "http://localhost/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let head = http::Request::post(uri)
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let (response, mut body) = client.send_request(head.body(()).unwrap(), false).unwrap();
    let mut message = BytesMut::new();
    message.put_u8(0); // not compressed
    message.put_u32(request.len() as u32);
    message.put_slice(request);
    body.send_data(message.freeze(), true).unwrap();
    let (head, mut body) = response.await.unwrap().into_parts();
    while let Some(data) = body.data().await {
        data.unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or(head.headers);
    connection.abort();
    Code::from_bytes(trailers["grpc-status"].as_bytes())
}

/// Checks that a request that is too large, as sent or with the hashes of redaction, counts once.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_too_large_counts_once() {
    let request = request();
    let check = async |bytes_max: usize, rules: &[&str], expected: Code| {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings(directory.path());
        settings.limits.otlp_request_bytes_max = bytes_max;
        settings.redact.rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let collector = Collector::start(settings).await.unwrap();
        assert_eq!(export(&collector, &request).await, expected);
        let metrics = get(&collector, "/metrics").await;
        let counted: Vec<&str> = metrics
            .lines()
            .filter_map(|line| line.split_once("cause=\"otlp_too_large\"} "))
            .map(|(_, count)| count)
            .collect();
        let once = (expected != Code::Ok).then_some("1");
        assert_eq!(counted, Vec::from_iter(once), "{metrics}");
        collector.stop(Stop::Now).await.unwrap();
    };
    check(request.len(), &[], Code::Ok).await;
    check(request.len() - 1, &[], Code::ResourceExhausted).await;
    check(request.len(), &["hash:*"], Code::ResourceExhausted).await;
}
