//! The usual case of beginning, entering, leaving and ending a span: a ring that has room, a parent, nobody who listens for
//! markers, no panic.
//!
//! What is in here calls nothing, except as the last thing it does, when the case is not the usual one after all; so it
//! saves no registers, which would be a good part of all its work. And it is generic, so that it is compiled with the
//! program that is annotated: only there may thread-locals be known to be in reach of one instruction.

#![allow(clippy::extra_unused_type_parameters, reason = "generic, to be compiled elsewhere")]

use stroboscope_proto::v1::SpanFlag;

use super::{HAS_CONTEXT, HELD, RECORDED};
use crate::callsite::Callsite;
use crate::clock::ticks;
use crate::context::{self, SpanContext};
use crate::gate::{Now, is_read};
use crate::record::{self, Head, RecordKind};
use crate::value::Values;
use crate::{marker, thread};

/// The state of a span that [`begin`] made.
pub(super) const STATE: u64 = HAS_CONTEXT | RECORDED;

/// Begins a child. `None`: nothing was done.
#[inline(always)]
pub(super) fn begin<V: Values>(
    parent: SpanContext,
    callsite: &'static Callsite,
    values: &V,
) -> Option<SpanContext> {
    if V::RUNS_CODE || !parent.is_valid() || parent.is_cut() {
        return None;
    }
    if !(Now::read().is_open() || parent.is_sampled() && is_read()) {
        return None;
    }
    let claim = thread::claim()?;
    let context = parent.child(thread::span_id_quickly()?);
    claim.write(|place, lineage| {
        let head = Head {
            kind: RecordKind::Begin,
            flags: if context.is_sampled() { SpanFlag::Sampled as u16 } else { 0 },
            ticks: ticks(),
            callsite,
            trace_id: context.trace_id(),
            span_id: context.span_id(),
            parent_id: parent.span_id(),
        };
        record::write(place, lineage, &head, |writer| values.write(writer))
    });
    Some(context)
}

/// The open half of [`Span::entered`](super::Span::entered). Plain numbers travel in registers; structures would in
/// memory.
#[inline(never)]
pub(super) fn enter<Here>(high: u64, low: u64, span_id: u64, flags: u64) {
    context::set(SpanContext::from_words([high, low, span_id, flags]));
}

/// The open half of dropping an [`Entered`](super::Entered): what was current before is so again, and the span ends. Not
/// in a panic.
#[inline(never)]
pub(super) fn leave<Here>(high: u64, low: u64, outer_id: u64, flags: u64, span_id: u64, state: u64) {
    if leave_to([high, low, outer_id, flags], span_id, state).is_none() {
        leave_slowly(high, low, outer_id, flags, span_id, state);
    }
}

/// `None`: the span has not ended; all is to be done again.
#[inline(always)]
pub(super) fn leave_to(outer: [u64; 4], span_id: u64, state: u64) -> Option<()> {
    if marker::is_followed() || state & (HAS_CONTEXT | RECORDED | HELD) != STATE {
        return None;
    }
    // First: what ends the span is no longer inside it.
    context::put(SpanContext::from_words(outer));
    end(span_id, state)
}

/// Ends a span, not in a panic. `None`: nothing was done.
#[inline(always)]
pub(super) fn end(span_id: u64, state: u64) -> Option<()> {
    if state & (RECORDED | HELD) != RECORDED {
        return None;
    }
    let claim = thread::claim()?;
    claim.write(|place, lineage| record::write_end(place, lineage, 0, ticks(), span_id));
    Some(())
}

#[cold]
#[inline(never)]
pub(super) fn leave_slowly(high: u64, low: u64, outer_id: u64, flags: u64, span_id: u64, state: u64) {
    context::set(SpanContext::from_words([high, low, outer_id, flags]));
    super::end(span_id, state);
}
