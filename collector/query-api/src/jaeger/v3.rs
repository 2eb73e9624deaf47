//! The third version: services, operations, summaries, and traces as OTLP's JSON. Times of traces are as recorded.

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use stroboscope_foreign::otlp::{resource_spans, resource_spans_json};

use super::find::Wanted;
use super::summary::summary_json;
use super::v1::operations_json;
use crate::answer::{Door, Refusal};
use crate::parameters::Parameters;
use crate::trace::{StoredTrace, trace_id};

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
            let code = refusal.code();
            let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let body = json!({"error": {"httpCode": code, "message": refusal.to_string()}});
            (status, Json(body)).into_response()
        }
    }
}

async fn services(State(door): State<Door>) -> Response {
    let answer = door.answer(|traces| {
        let services = traces.catalogue.services(&traces.store);
        Ok(json!({"services": services.into_keys().collect::<Vec<_>>()}))
    });
    answered(answer.await)
}

async fn operations(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    let answer = door.answer(move |traces| {
        let given = Parameters::of(query.as_deref())?;
        Ok(json!({"operations": operations_json(traces, &given)}))
    });
    answered(answer.await)
}

async fn summaries(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    let answer = door.answer(move |traces| {
        let given = Parameters::of(query.as_deref())?;
        let found = Wanted::of_v3(&given)?.find(traces)?;
        let summaries: Vec<Value> = found.iter().map(summary_json).collect();
        Ok(json!({"summaries": summaries}))
    });
    answered(answer.await)
}

async fn search(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    let answer = door.answer(move |traces| {
        let given = Parameters::of(query.as_deref())?;
        let mut found = Wanted::of_v3(&given)?.find(traces)?;
        if !is_raw(&given) {
            found.iter_mut().for_each(|trace| traces.correct(trace));
        }
        result(&found)
    });
    answered(answer.await)
}

async fn one(
    State(door): State<Door>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let answer = door.answer(move |traces| {
        let given = Parameters::of(query.as_deref())?;
        let number = trace_id(&id).map_err(Refusal::Bad)?;
        let found = if is_raw(&given) {
            traces.by_id(number)?
        } else {
            traces.by_id_corrected(number)?
        };
        result(found.as_slice())
    });
    answered(answer.await)
}

/// Whether times are wanted as they were recorded.
fn is_raw(given: &Parameters) -> bool {
    let names = [
        "raw_traces",
        "rawTraces",
        "query.raw_traces",
        "query.rawTraces",
    ];
    given.text(&names) == Some("true")
}

fn result(found: &[StoredTrace]) -> Result<Value, Refusal> {
    if found.is_empty() {
        return Err(Refusal::NotFound(NONE_FOUND.to_owned()));
    }
    // Each trace by itself: who reads them tells them apart by their order.
    let messages = found
        .iter()
        .flat_map(|trace| resource_spans(trace.otlp_parts()));
    let spans: Vec<Value> = messages
        .map(|message| resource_spans_json(&message))
        .collect();
    Ok(json!({"result": {"resourceSpans": spans}}))
}
