//! Available attributes and their values, for completion in clients.

use std::collections::BTreeSet;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use stroboscope_search::Field;

use super::refused;
use crate::answer::{Door, Refusal};
use crate::attributes::{attribute_names, attribute_values};
use crate::parameters::Parameters;
use crate::store::Traces;

/// Default and maximum number of values of an attribute.
const VALUES: u64 = 1_000;
const INTRINSICS: [&str; 14] = [
    "duration",
    "event:name",
    "event:timeSinceStart",
    "instrumentation:name",
    "instrumentation:version",
    "kind",
    "link:spanID",
    "link:traceID",
    "name",
    "rootName",
    "rootServiceName",
    "status",
    "statusMessage",
    "traceDuration",
];
/// Prefixes of attributes that are derived from other fields of OTLP, and are hidden from clients.
const MADE: [&str; 3] = ["otel.", "w3c.", "scope."];

pub(super) fn routes() -> Router<Door> {
    Router::new()
        .route("/api/search/tags", get(tags))
        .route("/api/v2/search/tags", get(scopes))
        .route("/api/search/tag/{tag}/values", get(plain_values))
        .route("/api/v2/search/tag/{tag}/values", get(values))
}

fn answered(answer: Result<Value, Refusal>) -> Response {
    match answer {
        Ok(answer) => Json(answer).into_response(),
        Err(refusal) => refused(&refusal),
    }
}

/// Returns the names of the attributes of resources, and the names of the attributes of spans.
fn names(traces: &Traces) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut resource, mut span) = (BTreeSet::new(), BTreeSet::new());
    resource.insert("service.name".to_owned());
    for name in attribute_names(&traces.store) {
        match name.strip_prefix("resource.") {
            Some(name) => _ = resource.insert(name.to_owned()),
            None if MADE.iter().any(|made| name.starts_with(made)) => {}
            None if name == "links" => {}
            None => _ = span.insert(name),
        }
    }
    (resource, span)
}

async fn scopes(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    let answer = door.answer(move |traces, _| {
        let given = Parameters::of(query.as_deref())?;
        let wanted = given.text(&["scope"]).filter(|scope| *scope != "none");
        let (resource, span) = names(traces);
        let scope = |name: &str, tags: Value| {
            let is_wanted = wanted.is_none_or(|wanted| wanted == name);
            is_wanted.then(|| json!({"name": name, "tags": tags}))
        };
        let scopes = [
            scope("resource", json!(resource)),
            scope("span", json!(span)),
            scope("intrinsic", json!(INTRINSICS)),
        ];
        Ok(json!({"scopes": scopes.into_iter().flatten().collect::<Vec<_>>()}))
    });
    answered(answer.await)
}

async fn tags(State(door): State<Door>) -> Response {
    let answer = door.answer(|traces, _| {
        let (mut names, span) = names(traces);
        names.extend(span);
        Ok(json!({"tagNames": names}))
    });
    answered(answer.await)
}

async fn values(
    State(door): State<Door>,
    Path(tag): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let answer = door.answer(move |traces, _| {
        let found = found(traces, &tag, query.as_deref())?;
        let value = |(kind, value)| json!({"type": kind, "value": value});
        Ok(json!({"tagValues": found.into_iter().map(value).collect::<Vec<_>>()}))
    });
    answered(answer.await)
}

async fn plain_values(
    State(door): State<Door>,
    Path(tag): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let answer = door.answer(move |traces, _| {
        let found = found(traces, &tag, query.as_deref())?;
        let values: Vec<String> = found.into_iter().map(|(_, value)| value).collect();
        Ok(json!({"tagValues": values}))
    });
    answered(answer.await)
}

/// Returns the values of a field, with their types.
fn found(
    traces: &Traces,
    tag: &str,
    query: Option<&str>,
) -> Result<Vec<(&'static str, String)>, Refusal> {
    let given = Parameters::of(query)?;
    let most = given
        .number(&["limit", "maxTagValues"])?
        .filter(|most| *most > 0);
    let most = most.unwrap_or(VALUES).min(VALUES) as usize;
    let services = || traces.catalogue.services(&traces.store);
    let keywords = |words: &[&str]| {
        let words = words.iter();
        words.map(|word| ("keyword", (*word).to_owned())).collect()
    };
    let texts = |texts: BTreeSet<String>| {
        let texts = texts.into_iter().take(most);
        texts.map(|text| ("string", text)).collect()
    };
    Ok(match tag {
        "service.name"
        | ".service.name"
        | "resource.service.name"
        | "rootServiceName"
        | "trace:rootService" => texts(services().into_keys().collect()),
        "name" | "span:name" | "rootName" | "trace:rootName" => {
            let operations = services().into_values().flatten();
            texts(operations.map(|(name, _)| name).collect())
        }
        "status" | "span:status" => keywords(&["error", "ok", "unset"]),
        "kind" | "span:kind" => keywords(&[
            "client",
            "consumer",
            "internal",
            "producer",
            "server",
            "unspecified",
        ]),
        tag => {
            let keys = Field::of_word(tag).map(|field| field.asked_keys());
            let names = keys.unwrap_or_else(|| vec![tag.to_owned(), format!("resource.{tag}")]);
            attribute_values(&traces.store, &names, most)
        }
    })
}
