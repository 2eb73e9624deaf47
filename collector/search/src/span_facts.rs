//! Derives the kind and status of a span, in OpenTelemetry's terms, from its stored fields.

use stroboscope_analysis::flow::is_failure;
use stroboscope_analysis::record::{SpanFlags, SpanRecord};

/// Returns the kind of a span whose attributes do not state its kind.
#[must_use]
pub fn kind_of(span: &SpanRecord) -> &'static str {
    if span.flags.contains(SpanFlags::SERVER) {
        "server"
    } else if span.flags.contains(SpanFlags::CLIENT) {
        "client"
    } else if span.process != 0 {
        // Only the Stroboscope SDK records processes, and it records no other kinds.
        "internal"
    } else {
        "unspecified"
    }
}

/// Returns the status of a span: `error`, `ok` or `unset`. A span that panicked has the status
/// `error`. `error` and `code` are the values of its attributes `error` and `otel.status_code`.
#[must_use]
pub fn status_of(span: &SpanRecord, error: Option<&str>, code: Option<&str>) -> &'static str {
    if span.flags.contains(SpanFlags::PANICKED) || error.is_some_and(is_failure) {
        "error"
    } else if code == Some("OK") {
        "ok"
    } else {
        "unset"
    }
}

/// Reports whether the attribute `otel.own_names`, given by its value, lists a name. A listed
/// attribute was recorded on the span itself, and was not derived from another field.
#[must_use]
pub fn is_own_name(name: &str, own_names: Option<&str>) -> bool {
    own_names.is_some_and(|names| names.contains(&format!("\"{name}\"")))
}

/// Reports whether the end of a span was not recorded.
pub(super) fn is_cut_close(span: &SpanRecord) -> bool {
    span.flags.contains(SpanFlags::CUT_CLOSE) || span.flags.contains(SpanFlags::UNFINISHED)
}
