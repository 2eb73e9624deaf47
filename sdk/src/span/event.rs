//! Events: instants, usually within a span.

use stroboscope_proto::v1::SpanFlag;

use super::quick;
use crate::callsite::Callsite;
use crate::clock::ticks;
use crate::gate::{Now, is_read};
use crate::record::{self, FieldWriter, Head, RecordKind};
use crate::value::Values;
use crate::{context, thread};

/// Writes an event in the current context, outside of the annotated code; used by the macros.
#[doc(hidden)]
#[inline(never)]
#[allow(
    clippy::needless_pass_by_value,
    reason = "a reference would keep the caller's variables in memory"
)]
pub fn event<V: Values>(callsite: &'static Callsite, values: V) {
    if quick::event(callsite, &values).is_none() {
        event_slowly(callsite, values);
    }
}

#[cold]
#[inline(never)]
#[allow(
    clippy::needless_pass_by_value,
    reason = "what was handed over is handed on"
)]
fn event_slowly<V: Values>(callsite: &'static Callsite, values: V) {
    write_event(callsite, |writer| values.write(writer));
}

/// Writes an event into the current span on the fast path. Returns `None`, having written nothing,
/// if the event needs the slow path. `fields` returns true if it ran the service's code.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(crate) fn write_event_quickly(
    callsite: &'static Callsite,
    fields: impl FnOnce(&mut FieldWriter<'_>) -> bool,
) -> Option<()> {
    quick::event_foreign(callsite, fields)
}

/// Writes an event in the current context, if the gate is open, or if the request is sampled and
/// recording runs.
#[inline]
pub(crate) fn write_event(callsite: &'static Callsite, fields: impl FnOnce(&mut FieldWriter<'_>)) {
    let current = context::current();
    if !(Now::read().is_open() || current.is_sampled() && is_read()) {
        return;
    }
    let mut flags = 0;
    if current.is_sampled() {
        flags |= SpanFlag::Sampled as u16;
    }
    thread::write(|place, lineage| {
        let head = Head {
            kind: RecordKind::Event,
            flags,
            ticks: ticks(),
            callsite,
            trace_id: current.trace_id(),
            // A cut context names no recorded span.
            span_id: if current.is_cut() {
                0
            } else {
                current.span_id()
            },
            parent_id: 0,
        };
        record::write(place, lineage, &head, fields)
    });
}
