//! Records that add to a span after it began.

#[cfg(feature = "tracing")]
use stroboscope_proto::v1::SpanFlag;

use crate::callsite::Callsite;
use crate::clock::ticks;
use crate::context::SpanContext;
use crate::record::{self, FieldWriter, Head, RecordKind};
use crate::thread;

/// Adds fields to an open span that is recorded.
pub(crate) fn add_fields(
    span: SpanContext,
    callsite: &'static Callsite,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) {
    add(span, callsite, 0, fields);
}

/// Marks an open span, if it is recorded, as one that requests begin inside of.
#[cfg(feature = "tracing")]
pub(crate) fn mark_connection(span: SpanContext, callsite: &'static Callsite) {
    add(span, callsite, SpanFlag::Connection as u16, |_| {});
}

fn add(
    span: SpanContext,
    callsite: &'static Callsite,
    flags: u16,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) {
    thread::write(|place, lineage| {
        let head = Head {
            kind: RecordKind::Fields,
            flags,
            ticks: ticks(),
            callsite,
            trace_id: 0,
            span_id: span.span_id(),
            parent_id: 0,
        };
        record::write(place, lineage, &head, fields)
    });
}
