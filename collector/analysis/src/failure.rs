//! Determines the outcome of requests, the origins of failures, and the paths that failures travel.
//!
//! A request failed if one of its root spans failed. A request without a recorded root failed if a
//! failure travels out of its recorded part. If other spans failed but the request did not, it
//! recovered.
//!
//! A failure starts at its *origin*, a failed span that no failure below it reaches. It travels
//! from a span to its parent. It also travels through spans that are not marked as failed, because
//! spans of functions rarely are. It does not travel through unmarked spans of servers and clients,
//! because these spans record their outcome. In this way, the failure of a failed request travels
//! from its origin to a failed root, if a root was recorded. Of several origins, the one that ended
//! first counts: the others may be consequences.

use crate::flow::{ERROR, failed_spans, is_failure};
use crate::name_rule::normalise;
use crate::record::{RecordOwner, SpanFlags, SpanRecord, TraceRecords};
use crate::segment::SpanTree;
use foldhash::HashSet;
use std::iter;

const ERROR_TYPE: &str = "error.type";
const EXCEPTION_TYPE: &str = "exception.type";
const GRPC_CODE: &str = "rpc.grpc.status_code";
/// Attribute names of an HTTP response's status: the current convention first, then the former.
const HTTP_STATUSES: [&str; 2] = ["http.response.status_code", "http.status_code"];
/// Names of the attributes that hold a message, by preference. [`ERROR`] may hold one as well.
const MESSAGES: [&str; 3] = [
    "otel.status_description",
    "exception.message",
    "error.message",
];
/// Maximum length of a shortened text, in characters.
const TEXT_CHARS_MAX: usize = 200;
/// Maximum number of digits of a status code that is kept as it is.
const CODE_DIGITS_MAX: usize = 10;

/// Names of the attributes that describe a failure. [`StatedFailure`] reads them, so the records
/// must include them.
pub const FAILURE_KEYS: [&str; 9] = [
    ERROR,
    ERROR_TYPE,
    EXCEPTION_TYPE,
    GRPC_CODE,
    HTTP_STATUSES[0],
    HTTP_STATUSES[1],
    MESSAGES[0],
    MESSAGES[1],
    MESSAGES[2],
];

/// Returns true for an attribute that describes a failure or the response, and so is not a reason
/// for the failure.
#[must_use]
pub fn is_of_failure(key: &str) -> bool {
    const PARTS: [&str; 5] = ["error", "exception", "otel.status", "http.response", "err"];
    let is_part = |part: &&str| {
        let rest = key.strip_prefix(*part);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '_']))
    };
    PARTS.iter().any(is_part) || FAILURE_KEYS.contains(&key) || key == "cancelled"
}

/// The spans through which a failure travelled, from its origin up to the last failed span. In a
/// failed request, the last is the root span, if it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureTrail<'a> {
    /// True if the request itself failed; otherwise it recovered.
    pub has_reached_root: bool,
    /// The spans, at least one, from the origin upwards.
    pub spans: Vec<&'a SpanRecord>,
}

/// Finds the origins of failures. Reusing a finder between requests saves allocations.
#[derive(Clone, Debug, Default)]
pub struct FailureFinder {
    tree: SpanTree,
    failed: HashSet<u64>,
    /// Numbers of the spans, parents before their children.
    order: Vec<usize>,
    /// By span number: true if a failure below the span travels up to it.
    is_below: Vec<bool>,
    /// By span number: true if a failure that reaches the span travels to a failed root or, if no
    /// root was recorded, out of the recorded part.
    is_connected: Vec<bool>,
}

impl FailureFinder {
    /// Returns the trail of a request's failure, or `None` if no span failed. The records must
    /// include the attribute [`ERROR`].
    pub fn trail<'a>(&mut self, records: &'a TraceRecords) -> Option<FailureTrail<'a>> {
        self.failed.clear();
        self.failed.extend(failed_spans(records));
        if self.failed.is_empty() {
            return None;
        }
        let spans = &records.spans;
        self.tree.build(spans, &mut Vec::new());
        self.list_spans();
        let (tree, failed, order) = (&self.tree, &self.failed, &self.order);
        let (is_below, is_connected) = (&mut self.is_below, &mut self.is_connected);
        let has_failed = |number: usize| failed.contains(&tree.span(spans, number).span_id);
        let passes = |number: usize| {
            let flags = tree.span(spans, number).flags;
            has_failed(number)
                || !(flags.contains(SpanFlags::SERVER) || flags.contains(SpanFlags::CLIENT))
        };
        is_below.clear();
        is_below.resize(tree.len(), false);
        for &number in order.iter().rev() {
            let mut children = tree.children(number).iter().map(|child| *child as usize);
            is_below[number] =
                children.any(|child| has_failed(child) || (passes(child) && is_below[child]));
        }
        let has_root = spans.iter().any(|span| span.parent_id == 0);
        is_connected.clear();
        is_connected.resize(tree.len(), false);
        for &root in tree.roots() {
            let root = root as usize;
            is_connected[root] = match has_root {
                true => tree.span(spans, root).parent_id == 0 && has_failed(root),
                false => passes(root),
            };
        }
        for &number in order {
            if let Some(parent) = tree.parent(number) {
                is_connected[number] = is_connected[parent] && passes(number);
            }
        }
        let mut spans_in_order = order.iter();
        let has_reached_root =
            spans_in_order.any(|number| has_failed(*number) && is_connected[*number]);
        let origins = order.iter().copied().filter(|number| {
            has_failed(*number)
                && !is_below[*number]
                && (is_connected[*number] || !has_reached_root)
        });
        let origin = origins.min_by_key(|number| {
            let span = tree.span(spans, *number);
            (span.end_ns, span.start_ns, *number)
        })?;
        let passing = |at: &usize| tree.parent(*at).filter(|parent| passes(*parent));
        let mut trail: Vec<usize> = iter::successors(Some(origin), passing).collect();
        let last = trail.iter().rposition(|number| has_failed(*number))?;
        trail.truncate(last + 1);
        let trail = trail.into_iter();
        Some(FailureTrail {
            has_reached_root,
            spans: trail.map(|number| tree.span(spans, number)).collect(),
        })
    }

    fn list_spans(&mut self) {
        self.order.clear();
        let roots = self.tree.roots().iter();
        self.order.extend(roots.map(|root| *root as usize));
        let mut next = 0;
        while let Some(&number) = self.order.get(next) {
            let children = self.tree.children(number).iter();
            self.order.extend(children.map(|child| *child as usize));
            next += 1;
        }
    }
}

/// Type and message of a failure, as the failed span states them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatedFailure {
    /// The type of the error, `panic`, a status such as `HTTP 503`, or else `error`.
    pub kind: String,
    /// The message; empty if there is none. [`StatedFailure::of`] shortens it to one line and
    /// replaces ids.
    pub message: String,
}

impl StatedFailure {
    /// Reads the failure from a span's attributes and from those of the events in the span. The
    /// records must include [`FAILURE_KEYS`].
    #[must_use]
    pub fn of(records: &TraceRecords, span: &SpanRecord) -> StatedFailure {
        let full = StatedFailure::in_full(records, span);
        StatedFailure {
            message: first_line(&full.message),
            ..full
        }
    }

    /// Reads the failure with all lines and ids of its message.
    #[must_use]
    pub fn in_full(records: &TraceRecords, span: &SpanRecord) -> StatedFailure {
        let said = FailureAttributes::of(records, span);
        let kind = said.kind(span.flags.contains(SpanFlags::PANICKED));
        StatedFailure {
            message: without_kind(said.message().trim(), &kind).to_owned(),
            kind,
        }
    }
}

/// The attributes of a failed span and of the events in it, as (owner, value, name).
struct FailureAttributes<'a>(Vec<(RecordOwner, &'a str, &'a str)>);

impl<'a> FailureAttributes<'a> {
    fn of(records: &'a TraceRecords, span: &SpanRecord) -> FailureAttributes<'a> {
        let of_span = records.attributes.iter().filter(|said| match said.owner {
            RecordOwner::Span(id) | RecordOwner::InSpan(id, _) => id == span.span_id,
            RecordOwner::Event(_) => false,
        });
        let mut said: Vec<_> = of_span
            .map(|said| (said.owner, &*said.value, &*said.key))
            .filter(|(_, value, _)| !value.trim().is_empty())
            .collect();
        // The span itself comes before its events.
        said.sort_unstable();
        FailureAttributes(said)
    }

    fn first(&self, keys: &[&str]) -> Option<&'a str> {
        let of = |wanted: &&str| {
            let said = self.0.iter().find(|(_, _, key)| key == wanted)?;
            Some(said.1)
        };
        keys.iter().find_map(of)
    }

    fn kind(&self, has_panicked: bool) -> String {
        let of_error = self.first(&[ERROR_TYPE]);
        // A numeric status is reported below, with its protocol if that is known.
        let is_name = |name: &&str| !name.bytes().all(|byte| byte.is_ascii_digit());
        let name = of_error.filter(|name| is_name(name) && *name != "_OTHER");
        if let Some(name) = name.or_else(|| self.first(&[EXCEPTION_TYPE])) {
            return first_line(name);
        }
        if has_panicked {
            return "panic".to_owned();
        }
        let code = self.first(&[GRPC_CODE]).filter(|code| *code != "0");
        if let Some(code) = code {
            let name = grpc_name(code).map_or_else(|| code_text(code), str::to_owned);
            return format!("gRPC {name}");
        }
        let is_failed = |status: &&str| status.parse().is_ok_and(|status: u16| status >= 400);
        if let Some(status) = self.first(&HTTP_STATUSES).filter(is_failed) {
            return format!("HTTP {status}");
        }
        of_error.map_or_else(|| "error".to_owned(), code_text)
    }

    fn message(&self) -> &'a str {
        let of_error = || {
            let error = self.first(&[ERROR]);
            error.filter(|error| is_failure(error) && !["true", "1"].contains(error))
        };
        self.first(&MESSAGES).or_else(of_error).unwrap_or_default()
    }
}

/// Returns a message without the type of the error at its beginning, as in the status that
/// OpenTelemetry's SDK for Python sets: `ValueError: no such item`.
fn without_kind<'a>(message: &'a str, kind: &str) -> &'a str {
    let name = kind.rsplit(['.', ':']).next().unwrap_or(kind);
    let mut kinds = [kind, name].into_iter();
    let rest = kinds.find_map(|kind| message.strip_prefix(kind)?.strip_prefix(": "));
    rest.unwrap_or(message)
}

/// Returns the first line of a text, shortened to [`TEXT_CHARS_MAX`], with ids replaced.
fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let end = line.char_indices().nth(TEXT_CHARS_MAX);
    let line = end.map_or(line, |(end, _)| &line[..end]);
    normalise(line).into_owned()
}

/// Returns a code: its digits if it is a short number, otherwise its first line.
fn code_text(code: &str) -> String {
    let is_short = code.len() <= CODE_DIGITS_MAX;
    match is_short && code.bytes().all(|byte| byte.is_ascii_digit()) {
        true => code.to_owned(),
        false => first_line(code),
    }
}

/// Returns the name of a gRPC status code, or `None` for an unknown code.
fn grpc_name(code: &str) -> Option<&'static str> {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    NAMES.get(code.parse::<usize>().ok()?).copied()
}

#[cfg(test)]
mod tests;
