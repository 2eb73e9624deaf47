//! Summary of a trace for the lists of Jaeger's API version 3.

use serde_json::{Value, json};

use crate::trace::StoredTrace;

/// Returns the root and the times of a trace, and the counts of its spans, in total and by service.
/// Times are texts.
#[must_use]
pub fn summary_json(trace: &StoredTrace) -> Value {
    let (from_ns, to_ns) = trace.times_ns();
    let root = trace.root();
    let text = |of: fn(&crate::trace::TraceSpan) -> &str| root.map_or("", of);
    let errors = trace.spans.iter().filter(|span| span.is_error()).count();
    let services = trace.services().into_iter();
    let services = services.map(|(name, (spans, errors))| {
        json!({"name": name, "spanCount": spans, "errorSpanCount": errors})
    });
    json!({
        "traceId": format!("{:032x}", trace.id),
        "rootServiceName": text(|span| &span.stored.service),
        "rootOperationName": text(|span| &span.stored.name),
        "minStartTimeUnixNano": from_ns.to_string(),
        "maxEndTimeUnixNano": to_ns.to_string(),
        "spanCount": trace.spans.len(),
        "errorSpanCount": errors,
        "orphanSpanCount": trace.orphans().count(),
        "services": services.collect::<Vec<_>>(),
    })
}
