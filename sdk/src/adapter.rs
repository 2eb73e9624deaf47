//! What the layer and the subscriber for `tracing` share: spans of ours kept beside spans of `tracing`, without a lock
//! and without an allocation per span.

mod cell;
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

use crate::context::{Scope, SpanContext};
use crate::span::{Span, write_event};
use known::Known;

/// All locks of the adapter, in the order in which they are taken.
pub(crate) struct Held {
    _callsites: RwLockWriteGuard<'static, known::Rest>,
    _slots: MutexGuard<'static, Vec<u32>>,
    _spans: MutexGuard<'static, Option<FxHashMap<(u64, u64), Span>>>,
}

/// Holds still until the result is dropped: for a fork.
pub(crate) fn lock() -> Held {
    Held { _callsites: known::lock(), _slots: slab::lock(), _spans: table::rest() }
}

/// Begins our span for one of theirs; [`Span::NONE`] when there is neither a span nor a context to hand on.
#[inline]
pub(crate) fn begin(parent: SpanContext, known: &'static Known, attributes: &Attributes<'_>) -> Span {
    let span = if known.callsite.fields.is_empty() {
        Span::begin_bare(parent, &known.callsite)
    } else {
        Span::begin_under(parent, &known.callsite, 0, |writer| {
            attributes.values().record(&mut Visitor::new(writer));
        })
    };
    if span.is_none() && parent.is_valid() {
        // Not recorded, because its request was not chosen. What is below must know that, and not choose again.
        return Span::unrecorded(parent);
    }
    span
}

/// Records an event, in the span it names if it names one.
#[inline]
pub(crate) fn event(event: &Event<'_>, context_of: impl FnOnce(&Id) -> Option<SpanContext>) {
    let _scope = (!event.is_contextual()).then(|| {
        let named = event.parent().and_then(context_of);
        Scope::enter(named.unwrap_or(SpanContext::NONE))
    });
    write_event(&known::of(event.metadata()).callsite, |writer| event.record(&mut Visitor::new(writer)));
}
