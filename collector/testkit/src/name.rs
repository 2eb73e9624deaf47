//! Names of spans.

use stroboscope_analysis::record::SpanRecord;

/// Reports whether a span has this name, or this service and name, as in `shop:checkout`.
pub(crate) fn is_named(span: &SpanRecord, name: &str) -> bool {
    let rest = name.strip_prefix(&*span.service);
    let rest = rest.and_then(|rest| rest.strip_prefix(':'));
    *span.name == *name || rest == Some(&*span.name)
}
