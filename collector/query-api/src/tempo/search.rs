//! Search by TraceQL: returns the newest traces that certainly match, the latest first.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_otlp::any_json;
use stroboscope_query::{losses, may_lack_records};
use stroboscope_search::{Field, TraceQl, Unit, parse_traceql};
use stroboscope_store::query_memory::QueryShare;
use stroboscope_store::tables::{AttributeKeys, read_batches};

use super::fields::told;
use super::refused;
use crate::answer::{Door, Refusal};
use crate::parameters::Parameters;
use crate::store::{Search, Traces};
use crate::trace::{StoredTrace, TraceSpan};

/// Default numbers of traces and of spans per trace, each followed by its maximum.
const TRACES: u64 = 20;
const TRACES_MAX: u64 = 1_000;
const SPANS: u64 = 3;
const SPANS_MAX: u64 = 1_000;
/// Text for a missing root, as in Tempo.
const NO_ROOT: &str = "<root span not yet received>";

pub(super) fn routes() -> Router<Door> {
    Router::new().route("/api/search", get(search))
}

async fn search(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    let answer = door.answer(move |traces, mut share| {
        let given = Parameters::of(query.as_deref())?;
        found(traces, &given, &mut share)
    });
    match answer.await {
        Ok(found) => Json(found).into_response(),
        Err(refusal) => refused(&refusal),
    }
}

fn found(traces: &Traces, given: &Parameters, share: &mut QueryShare) -> Result<Value, Refusal> {
    let query = parse_traceql(given.text(&["q"]).unwrap_or_default());
    let query = query.map_err(|error| Refusal::Bad(format!("q: {error}")))?;
    let from_ns = given.time_ns("start", 1_000_000_000)?.unwrap_or(i64::MIN);
    let to_ns = given.time_ns("end", 1_000_000_000)?.unwrap_or(i64::MAX);
    let traces_max = given.number(&["limit"])?.filter(|limit| *limit > 0);
    let spans_max = given.number(&["spss"])?.filter(|limit| *limit > 0);
    let spans_max = spans_max.unwrap_or(SPANS).min(SPANS_MAX) as usize;
    // Matching spans of each trace that has matched so far.
    let witnesses: Mutex<HashMap<u128, Vec<u64>>> = Mutex::default();
    // Few queries need the losses.
    let losses = LazyLock::new(|| {
        let batches = read_batches(&traces.store).map(losses);
        batches.inspect_err(|error| tracing::warn!(%error, "batches cannot be read"))
    });
    let may_lack = |records: &TraceRecords| match &*losses {
        Ok(losses) => may_lack_records(records, losses),
        Err(_) => true,
    };
    let is_one = |records: &TraceRecords| {
        let Some(witness) = witness(records, &query, may_lack) else {
            return false;
        };
        let mut known = witnesses.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(records.id.0, witness);
        true
    };
    let search = Search {
        begins_ns: from_ns..=to_ns,
        keys: AttributeKeys::of(query.formula.keys()),
        is_one: &is_one,
        traces_max: traces_max.unwrap_or(TRACES).min(TRACES_MAX) as usize,
        has_warnings: false,
    };
    let found = traces.find(&search, share)?;
    let witnesses = witnesses
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let asked = query.formula.fields();
    let fields: Vec<Field> = query.select.iter().chain(&asked).cloned().collect();
    let trace = |trace: &StoredTrace| {
        let witness = witnesses.get(&trace.id).map_or(&[][..], |ids| &**ids);
        trace_json(trace, witness, spans_max, &fields)
    };
    let found: Vec<Value> = found.iter().map(trace).collect();
    Ok(json!({"traces": found, "metrics": {}}))
}

/// Returns the sorted ids of the spans that match a selector of the query, if the trace satisfies
/// the query; `None` if it does not, or if that is unknown. `may_lack` reports whether records of a
/// trace may have been lost.
fn witness(
    records: &TraceRecords,
    query: &TraceQl,
    may_lack: impl Fn(&TraceRecords) -> bool,
) -> Option<Vec<u64>> {
    let unit = Unit::of_request(records, false);
    let is_sure = |unit: &Unit<'_>| unit.of_whole(&query.formula).is_sure();
    // Most matches do not depend on records that may have been lost.
    let is_one =
        is_sure(&unit) && (is_sure(&Unit::of_request(records, true)) || !may_lack(records));
    let span_id = |place: usize| unit.names(place).1;
    is_one.then(|| {
        let places = unit.spanset(&query.formula).into_iter();
        let spans = places.filter(|place| unit.is_span(*place));
        let mut ids: Vec<u64> = spans.map(span_id).collect();
        ids.sort_unstable();
        ids
    })
}

fn trace_json(trace: &StoredTrace, witness: &[u64], spans_max: usize, fields: &[Field]) -> Value {
    let (from_ns, to_ns) = trace.times_ns();
    let root = trace.spans.iter().find(|span| span.stored.parent_id == 0);
    let is_witness = |span: &&TraceSpan| witness.binary_search(&span.stored.span_id).is_ok();
    let matched: Vec<&TraceSpan> = trace.spans.iter().filter(is_witness).collect();
    let spans = matched.iter().take(spans_max);
    let spans: Vec<Value> = spans.map(|span| span_json(span, fields)).collect();
    let services = trace.services().into_iter();
    let services = services.map(|(name, (spans, errors))| {
        let counts = json!({"spanCount": spans, "errorCount": errors});
        (name.to_owned(), counts)
    });
    let duration_ms = (to_ns - from_ns).max(0) / 1_000_000;
    json!({
        "traceID": format!("{:032x}", trace.id),
        "rootServiceName": root.map_or(NO_ROOT, |root| &root.stored.service),
        "rootTraceName": root.map_or("", |root| &root.stored.name),
        "startTimeUnixNano": from_ns.to_string(),
        // Clients read it as a 32-bit integer.
        "durationMs": u32::try_from(duration_ms).unwrap_or(u32::MAX),
        "spanSets": [{"spans": spans, "matched": matched.len()}],
        "serviceStats": services.collect::<serde_json::Map<_, _>>(),
    })
}

fn span_json(span: &TraceSpan, fields: &[Field]) -> Value {
    let pair = |(key, value)| json!({"key": key, "value": any_json(&value)});
    let attributes: Vec<Value> = told(span, fields).into_iter().map(pair).collect();
    let stored = &span.stored;
    json!({
        "spanID": format!("{:016x}", stored.span_id),
        "name": stored.name,
        "startTimeUnixNano": stored.start_ns.to_string(),
        "durationNanos": (stored.end_ns - stored.start_ns).max(0).to_string(),
        "attributes": attributes,
    })
}
