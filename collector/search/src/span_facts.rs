//! Kind and status of a span, as OpenTelemetry has them, from what is stored of it.

use stroboscope_analysis::flow::is_failure;
use stroboscope_analysis::record::{SpanFlags, SpanRecord};

/// The kind of a span whose attributes say nothing of it.
#[must_use]
pub fn kind_of(span: &SpanRecord) -> &'static str {
    if span.flags.contains(SpanFlags::SERVER) {
        "server"
    } else if span.flags.contains(SpanFlags::CLIENT) {
        "client"
    } else if span.process != 0 {
        // Our own SDK has no other kinds.
        "internal"
    } else {
        "unspecified"
    }
}

/// The status of a span, with its attributes `error` and `otel.status_code`.
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

/// Whether `otel.own_names` lists a name: the span itself has an attribute of it, and it is not made of another field.
#[must_use]
pub fn is_own_name(name: &str, own_names: Option<&str>) -> bool {
    own_names.is_some_and(|names| names.contains(&format!("\"{name}\"")))
}

/// Whether the end of a span was not recorded.
pub(super) fn is_cut_close(span: &SpanRecord) -> bool {
    span.flags.contains(SpanFlags::CUT_CLOSE) || span.flags.contains(SpanFlags::UNFINISHED)
}
