//! What is known of `tracing`'s spans and events by their fields: names, kinds and failures as tracing-opentelemetry reads
//! them (`otel.name`, `otel.kind`, `otel.status_code`, `otel.status_message`), and the spans that web frameworks open for
//! requests (tower-http, tracing-actix-web, and others with a method and a path).
//!
//! Callsites are told apart when they are met, and the drain reads the fields: nothing here runs where a span is recorded.

use stroboscope_proto::v1::SpanFlag;
use tracing_core::Metadata;
use tracing_core::metadata::Level;

use crate::batch::{Fields, OwnedValue};
use crate::callsite::{self, Callsite, Role};
use crate::record::FieldValue;
use crate::request;

/// tower-http's span of a request.
pub(crate) const TOWER_HTTP_SPAN: &str = "tower_http::trace::make_span";
/// tower-http's event that has the status of the response.
pub(crate) const TOWER_HTTP_RESPONSE: &str = "tower_http::trace::on_response";

const METHODS: [&str; 3] = ["http.request.method", "http.method", "method"];
const ROUTES: [&str; 4] = ["http.route", "url.template", "matched_path", "route"];
const PATHS: [&str; 7] = [
    "url.path",
    "http.target",
    "uri",
    "path",
    "url.full",
    "http.url",
    "url",
];
const STATUS: &str = "http.response.status_code";
const STATUSES: [&str; 2] = [STATUS, "http.status_code"];
const CODE: &str = "rpc.grpc.status_code";
const DESCRIPTION: &str = "otel.status_description";
/// Fields of events that say what went wrong, the best first.
const CAUSES: [&str; 5] = [
    "error",
    "err",
    "exception.message",
    "classification",
    "message",
];

/// What the fields of a callsite's spans or events say.
pub(super) fn role_of(metadata: &Metadata<'_>) -> Role {
    let mut fields = metadata.fields().iter().map(|field| field.name());
    let described = |name: &str| {
        let of_opentelemetry = ["otel.name", "otel.kind", "otel.status_code"].contains(&name);
        of_opentelemetry || STATUSES.contains(&name) || METHODS.contains(&name) || name == CODE
    };
    match metadata.is_event() {
        true if metadata.target() == TOWER_HTTP_RESPONSE => Role::Response,
        true if *metadata.level() == Level::ERROR => Role::Failure,
        false if fields.any(described) => Role::Described,
        _ => Role::Plain,
    }
}

/// Fields that an event gives to the span it is in; `None`, if it is about itself only.
pub(crate) fn fields_of_span<'a>(
    role: Role,
    mut fields: impl Iterator<Item = (&'static str, FieldValue<'a>)> + Clone,
) -> Option<Fields> {
    match role {
        Role::Plain | Role::Described => None,
        Role::Response => {
            let status = fields.find(|(name, _)| *name == "status");
            let status = status.and_then(|(_, value)| OwnedValue::from(value).number());
            // tower-http gives the code of a gRPC call in its place.
            let status = status.map(|status| match status {
                0..=16 => (CODE, OwnedValue::Int(status)),
                _ => (STATUS, OwnedValue::Int(status)),
            });
            Some(status.into_iter().collect())
        }
        Role::Failure => {
            let cause = CAUSES.iter().find_map(|cause| {
                let mut fields = fields.clone();
                fields.find(|(name, _)| name == cause)
            });
            let cause = cause.map(|(_, value)| (DESCRIPTION, value.into()));
            Some(failed().into_iter().chain(cause).collect())
        }
    }
}

/// Puts what a span's fields say of it into its flags and into the attributes that say the same of all spans. The name it
/// has then, if it is another one than its callsite's.
pub(crate) fn describe(
    callsite: &Callsite,
    fields: &mut Fields,
    flags: &mut u32,
) -> Option<&'static str> {
    if callsite.role != Role::Described {
        return None;
    }
    let is_root = *flags & SpanFlag::LocalRoot as u32 != 0;
    let kind = take(fields, "otel.kind").map(|kind| kind.to_ascii_lowercase());
    match kind.as_deref() {
        // Below a server span of ours it is the same request once more.
        Some("server") if is_root => *flags |= SpanFlag::Server as u32,
        Some("client") => *flags |= SpanFlag::Client as u32,
        Some("producer" | "consumer") => {
            fields.extend(kind.map(|kind| ("span.kind", OwnedValue::Text(kind.into()))));
        }
        _ => {}
    }
    let is_client = *flags & SpanFlag::Client as u32 != 0;
    let of_request = (is_root || is_client)
        .then(|| request_name(callsite, fields))
        .flatten();
    if of_request.is_some() && !is_client {
        *flags |= SpanFlag::Server as u32;
    }
    describe_status(fields, is_client);
    let given = take(fields, "otel.name").filter(|name| !name.is_empty());
    given
        .map(|name| callsite::named(&name))
        .or(of_request)
        .map(|callsite| callsite.name)
}

/// Marks a span as failed by what it says of its status, or else by the status of its response.
fn describe_status(fields: &mut Fields, is_client: bool) {
    if let Some(message) = take(fields, "otel.status_message") {
        fields.push((DESCRIPTION, OwnedValue::Text(message)));
    }
    let said = text(fields, &["otel.status_code"]).map(str::to_ascii_uppercase);
    match said.as_deref() {
        Some("ERROR") => {
            drop(take(fields, "otel.status_code"));
            mark_failed(fields, None);
        }
        Some("OK") => {}
        _ => {
            let code = number(fields, &[CODE]);
            let code = code.filter(|code| request::is_failed_code(*code, is_client));
            let status = number(fields, &STATUSES);
            let status = status.filter(|status| request::is_failed_status(*status, is_client));
            if let Some(number) = code.or(status) {
                mark_failed(fields, Some(number));
            }
        }
    }
}

fn failed() -> Fields {
    vec![("error", OwnedValue::Bool(true))]
}

fn mark_failed(fields: &mut Fields, number: Option<u32>) {
    let has = |name: &str, fields: &Fields| fields.iter().any(|(known, _)| *known == name);
    if !has("error", fields) {
        fields.append(&mut failed());
    }
    if let Some(number) = number.filter(|_| !has("error.type", fields)) {
        fields.push(("error.type", OwnedValue::Text(number.to_string().into())));
    }
}

/// The name of a request, if this is a span that web frameworks open for one: it is called `request` or the like, and has a
/// method and a path.
fn request_name(callsite: &Callsite, fields: &Fields) -> Option<&'static Callsite> {
    let letters = callsite
        .name
        .bytes()
        .filter(u8::is_ascii_alphabetic)
        .map(|letter| letter.to_ascii_lowercase());
    if !["request", "httprequest", "http"]
        .iter()
        .any(|name| letters.clone().eq(name.bytes()))
    {
        return None;
    }
    let is_method = |method: &&str| {
        (3..=16).contains(&method.len()) && method.bytes().all(|byte| byte.is_ascii_uppercase())
    };
    let method = text(fields, &METHODS).filter(is_method)?;
    let route = text(fields, &ROUTES).filter(|route| route.starts_with('/'));
    match (route, text(fields, &PATHS).map(path_of)) {
        (None, Some(path)) if number(fields, &STATUSES) == Some(404) => {
            Some(request::callsite_of_missing(method, path))
        }
        (None, None) => None,
        (route, path) => Some(request::callsite(method, route, path.unwrap_or_default())),
    }
}

/// The path in what may be a whole URI.
fn path_of(uri: &str) -> &str {
    let uri = uri.split(['?', '#']).next().unwrap_or_default();
    let path = match uri.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => uri,
    };
    match path {
        "" => "/",
        path => path,
    }
}

fn text<'a>(fields: &'a Fields, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| {
        fields.iter().find_map(|(known, value)| match value {
            OwnedValue::Text(text) if known == name => Some(&**text),
            _ => None,
        })
    })
}

/// Takes a text out.
fn take(fields: &mut Fields, name: &str) -> Option<Box<str>> {
    let is_it = |(known, value): &(&str, OwnedValue)| {
        *known == name && matches!(value, OwnedValue::Text(_))
    };
    let at = fields.iter().position(is_it)?;
    match fields.remove(at).1 {
        OwnedValue::Text(text) => Some(text),
        _ => None,
    }
}

fn number(fields: &Fields, names: &[&str]) -> Option<u32> {
    let mut numbers = names
        .iter()
        .filter_map(|name| fields.iter().find(|(known, _)| known == name)?.1.number());
    numbers.next().and_then(|number| number.try_into().ok())
}
