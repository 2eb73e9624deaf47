//! Writes fields that are added to a span after its begin.

use stroboscope_proto::v1::SpanFlag;

use super::Span;
use crate::callsite::Callsite;
use crate::clock::ticks;
use crate::context::{self, SpanContext};
use crate::gate::{self, Now};
use crate::record::{self, FieldWriter, Head, RecordKind};
use crate::thread;
use crate::value::Value;

/// Adds a field to the current span. Use it for values that are known only after the span began,
/// for example in a function with [`#[trace]`](macro@crate::trace). It replaces a field of the same
/// name. Outside of spans, and while the request is not recorded, it has no effect. It formats the
/// value only if the current span may be recorded. For a span in a variable, see [`Span::record`].
///
/// ```
/// # fn load() -> Vec<u8> { Vec::new() }
/// #[stroboscope::trace]
/// fn page() -> Vec<u8> {
///     let page = load();
///     stroboscope::record("bytes", page.len());
///     page
/// }
/// ```
#[inline]
#[allow(
    clippy::needless_pass_by_value,
    reason = "as `span!` takes values: a number, a text, or a wrapped value"
)]
pub fn record(field: &'static str, value: impl Value) {
    if !gate::is_idle() {
        record_in_current(field, value.argument());
    }
}

#[inline(never)]
fn record_in_current(field: &'static str, value: impl Value) {
    if let Some(current) = current_recorded() {
        add_field(current.span_id(), field, &value);
    }
}

impl Span {
    /// Adds a field that is known only after the span began; replaces a field of the same name. On
    /// a span that is not recorded, it has no effect and does not format the value. Values are as
    /// in [`span!`](crate::span!).
    ///
    /// ```
    /// let span = stroboscope::span!("page", user = 7);
    /// span.record("cache", "miss");
    /// span.record("cause", stroboscope::display("cold"));
    /// ```
    #[inline]
    #[allow(clippy::needless_pass_by_value, reason = "as above")]
    pub fn record(&self, field: &'static str, value: impl Value) {
        if self.is_recorded() {
            record_in(self.ids[2], field, value.argument());
        }
    }
}

#[inline(never)]
fn record_in(span_id: u64, field: &'static str, value: impl Value) {
    add_field(span_id, field, &value);
}

/// Returns the current span, if it may be recorded.
pub(super) fn current_recorded() -> Option<SpanContext> {
    if gate::is_idle() {
        return None;
    }
    let current = context::current();
    // Only contexts without a recorded span have these marks.
    let is_span = current.is_valid() && !current.is_cut() && !current.is_unseen();
    (is_span && (current.is_sampled() || Now::read().is_open())).then_some(current)
}

/// Adds a field to an open span. If the span is not recorded, the drain discards the field.
fn add_field(span_id: u64, field: &'static str, value: &impl Value) {
    static NAMELESS: Callsite = Callsite::new("", &[], file!(), line!());
    let head = head(span_id, &NAMELESS, 0).naming(field);
    thread::write(|place, lineage| {
        record::write(place, lineage, &head, |writer| value.write(0, writer))
    });
}

/// Adds fields to an open span. If the span is not recorded, the drain discards them.
pub(crate) fn add_fields(
    span: SpanContext,
    callsite: &'static Callsite,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) {
    add(span, callsite, 0, fields);
}

/// Marks an open span and its open ancestors as spans inside which requests begin. If the span is
/// not recorded, the drain discards the mark.
pub(super) fn mark_connection(span: SpanContext, callsite: &'static Callsite) {
    add(span, callsite, SpanFlag::Connection as u16, |_| {});
}

fn add(
    span: SpanContext,
    callsite: &'static Callsite,
    flags: u16,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) {
    let head = head(span.span_id(), callsite, flags);
    thread::write(|place, lineage| record::write(place, lineage, &head, fields));
}

fn head(span_id: u64, callsite: &'static Callsite, flags: u16) -> Head {
    Head {
        kind: RecordKind::Fields,
        flags,
        ticks: ticks(),
        callsite,
        trace_id: 0,
        span_id,
        parent_id: 0,
    }
}
