//! Naming conventions for fields of `tracing`'s spans and events. The SDK reads names, kinds and
//! failures like tracing-opentelemetry (`otel.name`, `otel.kind`, `otel.status_code`,
//! `otel.status_message`). It also recognises the request spans of web frameworks, such as
//! tower-http and tracing-actix-web, by their name, method, and route or path.
//!
//! A recording thread runs this code only when it registers a callsite; the drain reads the fields
//! of events and finished spans.

use stroboscope_proto::v1::SpanFlag;
use tracing_core::Metadata;
use tracing_core::metadata::Level;

use crate::batch::{Fields, OwnedValue, set_field};
use crate::callsite::{self, Callsite, Role};
use crate::record::FieldValue;
use crate::request;

/// Target of tower-http's request span.
pub(crate) const TOWER_HTTP_SPAN: &str = "tower_http::trace::make_span";
/// Target of tower-http's event with the status of the response.
pub(crate) const TOWER_HTTP_RESPONSE: &str = "tower_http::trace::on_response";
/// Targets of sqlx's events after each statement, and after the wait for a connection of a pool.
pub(crate) const SQLX: [&str; 2] = ["sqlx::query", "sqlx::pool::acquire"];

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
/// Fields of events that describe a failure, in order of preference.
const CAUSES: [&str; 5] = [
    "error",
    "err",
    "exception.message",
    "classification",
    "message",
];

/// Classifies a callsite by its target, level and fields.
pub(super) fn role_of(metadata: &Metadata<'_>) -> Role {
    let mut fields = metadata.fields().iter().map(|field| field.name());
    let described = |name: &str| {
        let of_opentelemetry = ["otel.name", "otel.kind", "otel.status_code"].contains(&name);
        of_opentelemetry || STATUSES.contains(&name) || METHODS.contains(&name) || name == CODE
    };
    match metadata.is_event() {
        true if metadata.target() == TOWER_HTTP_RESPONSE => Role::Response,
        true if SQLX.contains(&metadata.target()) => Role::Elapsed,
        true if *metadata.level() == Level::ERROR => Role::Failure,
        false if fields.any(described) => Role::Described,
        _ => Role::Plain,
    }
}

/// Returns the fields that an event with this role adds to its span, or `None` if the role adds
/// none.
pub(crate) fn fields_of_span<'a>(
    role: Role,
    mut fields: impl Iterator<Item = (&'static str, FieldValue<'a>)> + Clone,
) -> Option<Fields> {
    match role {
        Role::Plain | Role::Described | Role::Elapsed => None,
        Role::Response => {
            let status = fields.find(|(name, _)| *name == "status");
            let status = status.and_then(|(_, value)| OwnedValue::from(value).number());
            // tower-http puts the code of a gRPC call in the same field.
            let status = status.map(|status| match status {
                0..=16 => (CODE, OwnedValue::Int(status)),
                _ => (STATUS, OwnedValue::Int(status)),
            });
            Some(status.into_iter().collect())
        }
        Role::Failure => {
            let cause = CAUSES.iter().find_map(|cause| {
                let is_text = |value: &FieldValue<'_>| matches!(value, FieldValue::Text(_));
                let mut fields = fields.clone();
                fields.find(|(name, value)| name == cause && is_text(value))
            });
            let cause = cause.map(|(_, value)| (DESCRIPTION, value.into()));
            Some(failed().into_iter().chain(cause).collect())
        }
    }
}

/// Translates a finished span's fields into flags and standard attributes, such as `error` and
/// `span.kind`. Returns the span's name if the fields determine one, otherwise `None`. Changes only
/// spans of callsites with [`Role::Described`].
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
        // A server span inside another span repeats the enclosing request.
        Some("server") if is_root => *flags |= SpanFlag::Server as u32,
        Some("client") => *flags |= SpanFlag::Client as u32,
        Some("producer" | "consumer") => {
            let kind = kind.unwrap_or_default().into();
            set_field(fields, "span.kind", OwnedValue::Text(kind));
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

/// Marks a span as failed if its `otel.status_code` is `ERROR`. Without the code `ERROR` or `OK`,
/// the status of its response decides. Renames `otel.status_message` to `otel.status_description`.
fn describe_status(fields: &mut Fields, is_client: bool) {
    if let Some(message) = take(fields, "otel.status_message") {
        set_field(fields, DESCRIPTION, OwnedValue::Text(message));
    }
    let given = text(fields, &["otel.status_code"]).map(str::to_ascii_uppercase);
    match given.as_deref() {
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

/// Reports whether web frameworks give this name to their request spans, such as `HTTP request`.
pub(super) fn is_request(name: &str) -> bool {
    let letters = name.bytes().filter(u8::is_ascii_alphabetic);
    let letters = letters.map(|letter| letter.to_ascii_lowercase());
    let names = ["request", "httprequest", "http"];
    names.iter().any(|known| letters.clone().eq(known.bytes()))
}

/// Returns the callsite that names a web framework's request span, or `None` for other spans. A
/// request span has a name such as `request`, a method, and a route or a path.
fn request_name(callsite: &Callsite, fields: &Fields) -> Option<&'static Callsite> {
    if !is_request(callsite.name) {
        return None;
    }
    let is_method = |method: &&str| {
        (3..=16).contains(&method.len()) && method.bytes().all(|byte| byte.is_ascii_uppercase())
    };
    let method = text(fields, &METHODS).filter(is_method)?;
    let route = text(fields, &ROUTES).filter(|route| route.starts_with('/'));
    match (route, text(fields, &PATHS).map(path_of)) {
        // Uses the same name as the tower layers, so that both ends of a gRPC call have one name.
        (None, Some(path)) if method == "POST" && is_grpc(path) => {
            Some(callsite::named_after_path(path))
        }
        (None, Some(path)) if number(fields, &STATUSES) == Some(404) => {
            Some(request::callsite_of_missing(method, path))
        }
        (None, None) => None,
        (route, path) => Some(request::callsite(method, route, path.unwrap_or_default())),
    }
}

/// Reports whether a path has gRPC's form `/package.Service/Method`.
fn is_grpc(path: &str) -> bool {
    let mut parts = path.split('/');
    let is_call = (parts.next(), parts.next(), parts.next(), parts.next());
    matches!(is_call, (Some(""), Some(service), Some(method), None) if service.contains('.') && !method.is_empty())
}

/// Returns the path of a URI or of a bare path, without the query and the fragment.
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

/// Removes a text field and returns its value; `None` if there is no text field of this name.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 10] = [
        "method",
        "uri",
        "http.route",
        "otel.name",
        "otel.kind",
        "span.kind",
        "otel.status_code",
        "otel.status_message",
        DESCRIPTION,
        "http.status_code",
    ];

    fn request(fields: &[(&'static str, &str)]) -> Option<&'static str> {
        let callsite = Callsite::new("request", &[], "", 0).with_role(Role::Described);
        let text =
            |(name, value): &(&'static str, &str)| (*name, OwnedValue::Text((*value).into()));
        let mut fields = fields.iter().map(text).collect();
        describe(&callsite, &mut fields, &mut (SpanFlag::LocalRoot as u32))
    }

    #[test]
    fn requests_have_names_of_their_kind() {
        for (method, uri, expected) in [
            ("GET", "/item/42?page=3", Some("GET /item/{id}")),
            (
                "GET",
                "https://shop.example/item/42#top",
                Some("GET /item/{id}"),
            ),
            ("GET", "https://shop.example", Some("GET /")),
            ("POST", "/shop.v1.Cart/Add", Some("shop.v1.Cart/Add")),
            ("POST", "/shop/add", Some("POST /shop/add")),
            ("POST", "/files/a.txt", Some("POST /files/a.txt")),
            ("POST", "/a.txt/", Some("POST /a.txt/")),
            ("get", "/item/42", None),
        ] {
            let name = request(&[("method", method), ("uri", uri)]);
            assert_eq!(name, expected, "{method} {uri}");
        }
    }

    proptest! {
        #[test]
        fn any_fields_give_a_name_and_each_attribute_once(
            values in prop::collection::vec(("\\PC*", any::<u64>(), any::<bool>()), NAMES.len()),
            flags in any::<u32>(),
        ) {
            let value = |(text, number, is_text): (String, u64, bool)| match is_text {
                true => OwnedValue::Text(text.into()),
                false => OwnedValue::Uint(number),
            };
            let mut fields: Fields = NAMES.into_iter().zip(values.into_iter().map(value)).collect();
            let callsite = Callsite::new("request", &[], "", 0).with_role(Role::Described);
            let mut flags = flags;
            let name = describe(&callsite, &mut fields, &mut flags);
            prop_assert!(name.is_none_or(|name| !name.is_empty()));
            let mut names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            prop_assert_eq!(names.len(), all, "{:?}", fields);
        }
    }
}
