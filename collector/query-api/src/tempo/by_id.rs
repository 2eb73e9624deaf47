//! One trace, in protobuf or JSON. Times are as recorded.

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prost::Message;
use serde_json::{Value, json};
use stroboscope_foreign::otlp::message::ResourceSpans;
use stroboscope_foreign::otlp::{resource_spans, resource_spans_json};

use super::refused;
use crate::answer::{Door, Refusal};
use crate::trace::trace_id;

const PROTOBUF: &str = "application/protobuf";

/// Tempo's trace.
#[derive(Clone, PartialEq, Message)]
struct TraceMessage {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

/// Its second version: readers take it for granted that there is a trace in it.
#[derive(Clone, PartialEq, Message)]
struct TraceByIdResponse {
    #[prost(message, optional, tag = "1")]
    trace: Option<TraceMessage>,
}

pub(super) fn routes() -> Router<Door> {
    Router::new()
        .route("/api/traces/{id}", get(first))
        .route("/api/v2/traces/{id}", get(second))
}

async fn found(door: &Door, id: String) -> Result<Vec<ResourceSpans>, Refusal> {
    let found = door.answer(move |traces| {
        let found = traces.by_id_corrected(trace_id(&id).map_err(Refusal::Bad)?)?;
        let found = found.ok_or_else(|| Refusal::NotFound("trace not found".to_owned()))?;
        Ok(resource_spans(found.otlp_parts()))
    });
    found.await
}

fn wants_protobuf(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    accept.is_some_and(|accept| {
        accept
            .to_str()
            .is_ok_and(|accept| accept.contains(PROTOBUF))
    })
}

fn protobuf(message: &impl Message) -> Response {
    ([(header::CONTENT_TYPE, PROTOBUF)], message.encode_to_vec()).into_response()
}

async fn first(State(door): State<Door>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    match found(&door, id).await {
        Err(refusal) => refused(&refusal),
        Ok(resource_spans) if wants_protobuf(&headers) => {
            protobuf(&TraceMessage { resource_spans })
        }
        Ok(spans) => Json(json!({"batches": list_json(&spans)})).into_response(),
    }
}

async fn second(State(door): State<Door>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    match found(&door, id).await {
        Err(refusal) => refused(&refusal),
        Ok(resource_spans) if wants_protobuf(&headers) => protobuf(&TraceByIdResponse {
            trace: Some(TraceMessage { resource_spans }),
        }),
        Ok(spans) => {
            let trace = json!({"resourceSpans": list_json(&spans)});
            Json(json!({"trace": trace})).into_response()
        }
    }
}

fn list_json(spans: &[ResourceSpans]) -> Vec<Value> {
    spans.iter().map(resource_spans_json).collect()
}
