//! Returns one trace, in protobuf or JSON. Clocks are corrected if a finished comparison has proven
//! that they differ.

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use stroboscope_otlp::message::ResourceSpans;
use stroboscope_otlp::resource_spans_json;
use stroboscope_store::query_memory::QueryShare;

use super::refused;
use crate::answer::{Door, JSON, Refusal};
use crate::parameters::Parameters;
use crate::trace::{StoredTrace, trace_id};
use crate::written::ResponseBuffer;

const PROTOBUF: &str = "application/protobuf";

/// Tempo's trace message. Concatenated messages form one message.
#[derive(Clone, PartialEq, Message)]
struct TraceMessage {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

/// Format of the response. In version 2, the trace is a field, and clients rely on its presence.
#[derive(Clone, Copy, Debug)]
enum Form {
    Protobuf { is_field: bool },
    Json { is_field: bool },
}

pub(super) fn routes() -> Router<Door> {
    Router::new()
        .route("/api/traces/{id}", get(first))
        .route("/api/v2/traces/{id}", get(second))
}

async fn first(
    State(door): State<Door>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    answer(&door, id, query, Form::of(&headers, false)).await
}

async fn second(
    State(door): State<Door>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    answer(&door, id, query, Form::of(&headers, true)).await
}

async fn answer(door: &Door, id: String, query: Option<String>, form: Form) -> Response {
    let answer = door.answer(move |traces, mut share| {
        let given = Parameters::of(query.as_deref())?;
        let id = trace_id(&id).map_err(Refusal::Bad)?;
        let found = traces.by_id_corrected(id, given.spans_max()?, &mut share)?;
        let found = found.ok_or_else(|| Refusal::NotFound("trace not found".to_owned()))?;
        form.written(&found, share)
    });
    match answer.await {
        Err(refusal) => refused(&refusal),
        Ok(written) => ([form.content_type()], written.into_body()).into_response(),
    }
}

impl Form {
    fn of(headers: &HeaderMap, is_field: bool) -> Self {
        let accept = headers.get(header::ACCEPT);
        let accept = accept.and_then(|accept| accept.to_str().ok());
        match accept {
            Some(accept) if accept.contains(PROTOBUF) => Self::Protobuf { is_field },
            _ => Self::Json { is_field },
        }
    }

    fn content_type(self) -> (header::HeaderName, &'static str) {
        match self {
            Self::Protobuf { .. } => (header::CONTENT_TYPE, PROTOBUF),
            Self::Json { .. } => JSON,
        }
    }

    fn written(self, trace: &StoredTrace, share: QueryShare) -> Result<ResponseBuffer, Refusal> {
        let mut written = ResponseBuffer::new(share);
        let of_one = |spans| TraceMessage {
            resource_spans: vec![spans],
        };
        match self {
            Self::Protobuf { is_field } => {
                if is_field {
                    let lengths = trace.resource_spans().map(|one| of_one(one).encoded_len());
                    let mut head = Vec::new();
                    encode_key(1, WireType::LengthDelimited, &mut head);
                    encode_varint(lengths.sum::<usize>() as u64, &mut head);
                    written.bytes(&head)?;
                }
                for one in trace.resource_spans() {
                    written.bytes(&of_one(one).encode_to_vec())?;
                }
            }
            Self::Json { is_field } => {
                let (before, after) = if is_field {
                    (r#"{"trace":{"resourceSpans":"#, "}}")
                } else {
                    (r#"{"batches":"#, "}")
                };
                written.text(before)?;
                let messages = trace.resource_spans();
                written.list(messages.map(|message| resource_spans_json(&message)))?;
                written.text(after)?;
            }
        }
        Ok(written)
    }
}
