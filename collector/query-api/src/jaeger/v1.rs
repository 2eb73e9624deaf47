//! Version 1 of the API. Each response has an envelope: `errors` contains the error, and the HTTP
//! status matches it.

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use stroboscope_store::flush::now_ns;
use stroboscope_store::query_memory::QueryShare;

use super::find::FindQuery;
use super::trace::write_trace;
use crate::answer::{Door, JSON, Refusal};
use crate::dependencies::calls;
use crate::parameters::Parameters;
use crate::store::Traces;
use crate::trace::{StoredTrace, trace_id};
use crate::written::ResponseBuffer;

/// Default lookback of dependencies before `endTs`, in ns.
const LOOKBACK_NS: i64 = 86_400_000_000_000;

pub(super) fn routes() -> Router<Door> {
    Router::new()
        .route("/api/services", get(services))
        .route("/api/services/{service}/operations", get(operations_of))
        .route("/api/operations", get(operations))
        .route("/api/traces", get(search))
        .route("/api/traces/{id}", get(one))
        .route("/api/dependencies", get(dependencies))
}

fn envelope(answer: Result<Value, Refusal>) -> Response {
    let refusal = match answer {
        Ok(data) => {
            let body = json!({"data": data, "total": 0, "limit": 0, "offset": 0, "errors": null});
            return Json(body).into_response();
        }
        Err(refusal) => refusal,
    };
    let error = json!({"code": refusal.code(), "msg": refusal.to_string()});
    let body = json!({"data": null, "total": 0, "limit": 0, "offset": 0, "errors": [error]});
    refusal.response(Json(body))
}

/// Returns a response with traces, which [`written`] has put into the envelope, or an error.
fn of_traces(answer: Result<ResponseBuffer, Refusal>) -> Response {
    match answer {
        Ok(written) => ([JSON], written.into_body()).into_response(),
        Err(refusal) => envelope(Err(refusal)),
    }
}

/// Writes the traces. Ends, with a warning, before a trace whose text does not fit into memory.
/// Fails if the text of the first trace does not fit.
fn written(mut found: Vec<StoredTrace>, share: QueryShare) -> Result<ResponseBuffer, Refusal> {
    let mut written = ResponseBuffer::new(share);
    loop {
        let mut whole = 0;
        let refusal = match write_traces(&found, &mut whole, &mut written) {
            Ok(()) => return Ok(written),
            Err(refusal) => refusal,
        };
        found.truncate(whole.min(found.len().saturating_sub(1)));
        let Some(last) = found.last_mut() else {
            return Err(refusal);
        };
        let warning = "the response ends here: the text of the next trace does not fit into the memory of the \
                       query; ask for fewer traces";
        last.warnings.push(warning.to_owned());
        written.clear();
    }
}

/// Writes the traces, and counts in `whole` those that fit.
fn write_traces(
    found: &[StoredTrace],
    whole: &mut usize,
    written: &mut ResponseBuffer,
) -> Result<(), Refusal> {
    written.text(r#"{"data":["#)?;
    for trace in found {
        if *whole > 0 {
            written.text(",")?;
        }
        write_trace(trace, written)?;
        *whole += 1;
    }
    written.text(r#"],"total":0,"limit":0,"offset":0,"errors":null}"#)
}

async fn services(State(door): State<Door>) -> Response {
    let answer = door.answer(|traces, _| {
        let services = traces.catalogue.services(&traces.store);
        Ok(services.into_keys().collect::<Vec<_>>().into())
    });
    envelope(answer.await)
}

async fn operations_of(State(door): State<Door>, Path(service): Path<String>) -> Response {
    let answer = door.answer(move |traces, _| {
        let mut services = traces.catalogue.services(&traces.store);
        let operations = services.remove(&service).unwrap_or_default();
        let mut names: Vec<String> = operations.into_iter().map(|(name, _)| name).collect();
        names.dedup();
        Ok(names.into())
    });
    envelope(answer.await)
}

async fn operations(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    let answer = door.answer(move |traces, _| {
        let given = Parameters::of(query.as_deref())?;
        if !given.has("service") {
            return Err(Refusal::Bad("service is required".to_owned()));
        }
        Ok(operations_json(traces, &given))
    });
    envelope(answer.await)
}

/// Returns the operations of the requested service, or of all services if none is named. If a span
/// kind is requested, returns only operations of this kind.
pub(super) fn operations_json(traces: &Traces, given: &Parameters) -> Value {
    let service = given.text(&["service"]);
    let kind = given.text(&["spanKind", "span_kind"]);
    let services = traces.catalogue.services(&traces.store);
    let is_wanted = |name: &str| service.is_none_or(|wanted| wanted == name);
    let all = services.into_iter().filter(|(name, _)| is_wanted(name));
    let mut found: Vec<_> = all
        .flat_map(|(_, operations)| operations)
        .filter(|(_, known)| kind.is_none_or(|kind| kind == known))
        .collect();
    found.sort();
    found.dedup();
    let operation = |(name, kind): (String, String)| json!({"name": name, "spanKind": kind});
    found.into_iter().map(operation).collect()
}

async fn search(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    let answer = door.answer(move |traces, mut share| {
        let given = Parameters::of(query.as_deref())?;
        let ids: Vec<&str> = given.texts("traceID").collect();
        let is_raw = given.text(&["raw"]) == Some("true");
        let mut found = if ids.is_empty() {
            FindQuery::of_v1(&given)?.find(traces, &mut share)?
        } else {
            let mut found = Vec::new();
            for id in ids {
                let id = trace_id(id).map_err(Refusal::Bad)?;
                found.extend(traces.by_id(id, given.spans_max()?, &mut share)?);
            }
            found
        };
        if !is_raw {
            found.iter_mut().for_each(|trace| traces.correct(trace));
        }
        written(found, share)
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
        // The requested times are ignored: they are hints, which some clients give in other units,
        // and the id is sufficient.
        let mut found = traces.by_id(number, given.spans_max()?, &mut share)?;
        if given.text(&["raw"]) != Some("true") {
            found.iter_mut().for_each(|trace| traces.correct(trace));
        }
        let found = found.ok_or_else(|| Refusal::NotFound("trace not found".to_owned()))?;
        written(vec![found], share)
    });
    of_traces(answer.await)
}

async fn dependencies(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    let answer = door.answer(move |traces, _| {
        let given = Parameters::of(query.as_deref())?;
        let to_ns = given.time_ns("endTs", 1_000_000)?.unwrap_or_else(now_ns);
        let lookback_ns = given.time_ns("lookback", 1_000_000)?.unwrap_or(LOOKBACK_NS);
        let calls = calls(traces, &(to_ns.saturating_sub(lookback_ns)..=to_ns))?;
        let link = |((parent, child), count): ((String, String), u64)| {
            json!({"parent": parent, "child": child, "callCount": count})
        };
        Ok(calls.into_iter().map(link).collect())
    });
    envelope(answer.await)
}

#[cfg(test)]
mod tests {
    use stroboscope_otlp::StoredSpan;
    use stroboscope_store::query_memory::QueryMemory;

    use super::*;
    use crate::trace::TraceSpan;

    fn traces(count: u128, name_bytes: usize) -> Vec<StoredTrace> {
        let trace = |id| StoredTrace {
            id,
            spans: vec![TraceSpan {
                stored: StoredSpan {
                    trace_id: id,
                    name: "x".repeat(name_bytes),
                    ..StoredSpan::default()
                },
                ..TraceSpan::default()
            }],
            warnings: Vec::new(),
        };
        (1..=count).map(trace).collect()
    }

    #[tokio::test]
    async fn a_search_whose_text_is_too_large_returns_fewer_traces() {
        // Each query may use half of this memory.
        let memory = QueryMemory::new(8 << 20);
        let whole = written(traces(20, 100_000), memory.share()).unwrap();
        let of = async |written: ResponseBuffer| -> Value {
            let bytes = axum::body::to_bytes(written.into_body(), usize::MAX).await;
            serde_json::from_slice(&bytes.unwrap()).unwrap()
        };
        let whole = of(whole).await;
        let data = whole["data"].as_array().unwrap();
        assert_eq!(data.len(), 20);
        assert!(data.iter().all(|trace| trace["warnings"].is_null()));
        let cut = of(written(traces(100, 100_000), memory.share()).unwrap()).await;
        let data = cut["data"].as_array().unwrap();
        assert!((20..100).contains(&data.len()), "{}", data.len());
        let (last, others) = data.split_last().unwrap();
        let said = last["warnings"][0].as_str().unwrap();
        assert!(said.contains("the response ends here"), "{said}");
        assert!(others.iter().all(|trace| trace["warnings"].is_null()));
        let refused = written(traces(2, 5_000_000), memory.share()).err();
        assert_eq!(refused.map(|refused| refused.code()), Some(413));
    }
}
