//! Adapter from `tracing` to the SDK, for the layer and the subscriber. Each stores its open spans,
//! usually without a lock or an allocation: the layer in [`table`], the subscriber in [`slab`].

mod cell;
pub(crate) mod conventions;
pub(crate) mod entered;
pub(crate) mod known;
pub(crate) mod slab;
pub(crate) mod table;
mod visitor;

pub(crate) use visitor::Visitor;

use std::sync::{MutexGuard, RwLockWriteGuard};

use rustc_hash::FxHashMap;
use tracing_core::Event;
use tracing_core::span::{Attributes, Id};

use crate::context::{self, Scope, SpanContext};
use crate::record::FieldWriter;
use crate::span::{Span, write_event, write_event_quickly};
use known::AdaptedCallsite;

/// Guards of the locks of callsites, slots and spans, in the order in which they are taken.
pub(crate) struct AdapterLocks {
    _callsites: RwLockWriteGuard<'static, known::Rest>,
    _slots: MutexGuard<'static, Vec<u32>>,
    _spans: MutexGuard<'static, Option<FxHashMap<(u64, u64), Span>>>,
}

/// Locks the adapter until the result is dropped, so that a fork copies it in a consistent state.
pub(crate) fn lock() -> AdapterLocks {
    AdapterLocks {
        _callsites: known::lock(),
        _slots: slab::lock(),
        _spans: table::rest(),
    }
}

/// Begins an SDK span for a `tracing` span. Returns [`Span::NONE`] if there is neither a span nor a
/// context to propagate.
#[cold]
#[inline(never)]
pub(crate) fn begin(
    parent: SpanContext,
    known: &'static AdaptedCallsite,
    attributes: &Attributes<'_>,
) -> Span {
    let fields = |writer: &mut FieldWriter<'_>| {
        attributes.values().record(&mut Visitor::new(writer));
    };
    if known.is_request {
        return Span::begin_request_in(parent, &known.callsite, fields);
    }
    let span = Span::begin_under(parent, &known.callsite, 0, fields);
    if span.is_none() && parent.is_valid() {
        // The span is not recorded. Its descendants must inherit this decision instead of sampling
        // again.
        return Span::unrecorded(parent);
    }
    span
}

/// Begins a span with fields inside the current span, like [`begin`].
#[inline(always)]
pub(crate) fn begin_with_fields(
    known: &'static AdaptedCallsite,
    attributes: &Attributes<'_>,
) -> Span {
    let begun = Span::begin_quickly_with(&known.callsite, |writer| {
        let mut visitor = Visitor::new(writer);
        attributes.values().record(&mut visitor);
        visitor.has_run_code()
    });
    begun.map_or_else(
        || begin(context::current(), known, attributes),
        Span::from_words,
    )
}

/// Records an event in the current span, or in the parent that the event names explicitly. An event
/// that is explicitly a root, or names an unknown parent, belongs to no span.
#[inline(always)]
pub(crate) fn event(event: &Event<'_>, context_of: impl FnOnce(&Id) -> Option<SpanContext>) {
    let quickly = |known: &'static AdaptedCallsite| {
        write_event_quickly(&known.callsite, |writer| {
            let mut visitor = Visitor::new(writer);
            event.record(&mut visitor);
            visitor.has_run_code()
        })
    };
    if !event.is_contextual() || known::find(event.metadata()).and_then(quickly).is_none() {
        event_slowly(event, context_of);
    }
}

#[cold]
#[inline(never)]
fn event_slowly(event: &Event<'_>, context_of: impl FnOnce(&Id) -> Option<SpanContext>) {
    let _scope = (!event.is_contextual()).then(|| {
        let named = event.parent().and_then(context_of);
        Scope::enter(named.unwrap_or(SpanContext::NONE))
    });
    write_event(&known::of(event.metadata()).callsite, |writer| {
        event.record(&mut Visitor::new(writer));
    });
}
