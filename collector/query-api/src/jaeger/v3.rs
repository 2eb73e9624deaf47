//! Version 3 of the API: services, operations, summaries, and traces as OTLP's JSON. Clocks are
//! corrected in traces, unless the client requests raw ones, but not in summaries.

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use stroboscope_otlp::resource_spans_json;
use stroboscope_store::query_memory::QueryShare;

use super::find::FindQuery;
use super::summary::summary_json;
use super::v1::operations_json;
use crate::answer::{Door, JSON, Refusal};
use crate::parameters::Parameters;
use crate::trace::{StoredTrace, trace_id};
use crate::written::ResponseBuffer;

const NONE_FOUND: &str = "No traces found";

pub(super) fn routes() -> Router<Door> {
    Router::new()
        .route("/api/v3/services", get(services))
        .route("/api/v3/operations", get(operations))
        .route("/api/v3/trace-summaries", get(summaries))
        .route("/api/v3/traces", get(search))
        .route("/api/v3/traces/{id}", get(one))
}

fn answered(answer: Result<Value, Refusal>) -> Response {
    match answer {
        Ok(body) => Json(body).into_response(),
        Err(refusal) => {
            let error = json!({"httpCode": refusal.code(), "message": refusal.to_string()});
            refusal.response(Json(json!({"error": error})))
        }
    }
}

fn of_traces(answer: Result<ResponseBuffer, Refusal>) -> Response {
    match answer {
        Ok(written) => ([JSON], written.into_body()).into_response(),
        Err(refusal) => answered(Err(refusal)),
    }
}

async fn services(State(door): State<Door>) -> Response {
    let answer = door.answer(|traces, _| {
        let services = traces.catalogue.services(&traces.store);
        Ok(json!({"services": services.into_keys().collect::<Vec<_>>()}))
    });
    answered(answer.await)
}

async fn operations(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    let answer = door.answer(move |traces, _| {
        let given = Parameters::of(query.as_deref())?;
        Ok(json!({"operations": operations_json(traces, &given)}))
    });
    answered(answer.await)
}

async fn summaries(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    let answer = door.answer(move |traces, mut share| {
        let given = Parameters::of(query.as_deref())?;
        let found = FindQuery::of_v3(&given)?.find(traces, &mut share)?;
        let summaries: Vec<Value> = found.iter().map(summary_json).collect();
        Ok(json!({"summaries": summaries}))
    });
    answered(answer.await)
}

async fn search(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    let answer = door.answer(move |traces, mut share| {
        let given = Parameters::of(query.as_deref())?;
        let mut found = FindQuery::of_v3(&given)?.find(traces, &mut share)?;
        if !is_raw(&given) {
            found.iter_mut().for_each(|trace| traces.correct(trace));
        }
        result(&found, share)
    });
    of_traces(answer.await)
}

async fn one(
    State(door): State<Door>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let answer = door.answer(move |traces, mut share| {
        let given = Parameters::of(query.as_deref())?;
        let number = trace_id(&id).map_err(Refusal::Bad)?;
        let mut found = traces.by_id(number, given.spans_max()?, &mut share)?;
        if !is_raw(&given) {
            found.iter_mut().for_each(|trace| traces.correct(trace));
        }
        result(found.as_slice(), share)
    });
    of_traces(answer.await)
}

/// Reports whether the client wants times as recorded.
fn is_raw(given: &Parameters) -> bool {
    let names = [
        "raw_traces",
        "rawTraces",
        "query.raw_traces",
        "query.rawTraces",
    ];
    given.text(&names) == Some("true")
}

fn result(found: &[StoredTrace], share: QueryShare) -> Result<ResponseBuffer, Refusal> {
    if found.is_empty() {
        return Err(Refusal::NotFound(NONE_FOUND.to_owned()));
    }
    let mut written = ResponseBuffer::new(share);
    written.text(r#"{"result":{"resourceSpans":"#)?;
    // Each trace is converted separately, because clients expect the spans of a trace together.
    let messages = found.iter().flat_map(StoredTrace::resource_spans);
    written.list(messages.map(|message| resource_spans_json(&message)))?;
    written.text("}}")?;
    Ok(written)
}
