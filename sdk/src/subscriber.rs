//! A subscriber of our own for `tracing`: existing annotations, at hardly more than the cost of ours.

use tracing_core::metadata::LevelFilter;
use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::{Interest, Subscriber};
use tracing_core::{Event, Metadata};

use crate::adapter::entered::{self, Owner};
use crate::adapter::{self, Visitor, known, slab};
use crate::context::{self, SpanContext};
use crate::gate;
use crate::span::add_fields;
use crate::tracing_filter::{OwnOrInForce, TracingFilter};

/// A `tracing` subscriber that does nothing but record for Stroboscope.
///
/// For services that want no other consumer of their `tracing` annotations:
///
/// ```
/// # fn main() -> Result<(), tracing::subscriber::SetGlobalDefaultError> {
/// tracing::subscriber::set_global_default(stroboscope::subscriber())?;
/// # Ok(())
/// # }
/// ```
///
/// It records what [`TracingFilter`] says: `info` and above, without the insides of transports such as h2, hyper, tonic and
/// tower, unless `STROBOSCOPE_TRACING`, [`Builder::tracing`](crate::Builder::tracing) or [`recording`](Self::recording) says
/// otherwise. What is left out is disabled at its callsite.
///
/// While the gate is closed, spans and events are disabled at their callsite, which costs what `tracing` takes to ask:
/// 3 to 5 ns. While it is open, a span costs two to three times its two counter reads: `tracing` calls a subscriber four
/// times for it, and it is found again by its id in each; see [`TracingLayer`](crate::TracingLayer) for all stacks side by side.
///
/// Spans made by `tracing` and by [`span!`](crate::span!) nest in one tree: both live in the same current context.
/// `follows_from` is not recorded. More than 262,144 spans open at once are not recorded, and counted as
/// [`OpenSpansFull`](crate::LossCause::OpenSpansFull).
#[derive(Clone, Debug)]
pub struct TracingSubscriber {
    filter: OwnOrInForce,
}

/// See [`TracingSubscriber`].
#[must_use]
pub const fn subscriber() -> TracingSubscriber {
    TracingSubscriber { filter: OwnOrInForce(None) }
}

impl TracingSubscriber {
    /// Records what this says, in place of what holds for the process: a [`TracingFilter`], or a level. What it leaves out
    /// costs as little as no subscriber.
    #[must_use]
    pub fn recording(self, filter: impl Into<TracingFilter>) -> Self {
        Self { filter: OwnOrInForce(Some(filter.into())) }
    }
}

/// Ids are unique in the process, so all subscribers may share them.
const OWNER: Owner = Owner(0);

impl Subscriber for TracingSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.filter.records(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !gate::is_idle() && self.filter.records(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.max_level())
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let parent = if attributes.is_contextual() {
            context::current()
        } else {
            attributes.parent().and_then(slab::context).unwrap_or(SpanContext::NONE)
        };
        let known = known::of(attributes.metadata());
        slab::insert(known, || adapter::begin(parent, known, attributes))
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        if let Some((known, span)) = slab::recorded(id) {
            add_fields(span, &known.callsite, |writer| values.record(&mut Visitor::new(writer)));
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        adapter::event(event, slab::context);
    }

    fn enter(&self, id: &Id) {
        if let Some(context) = slab::context(id) {
            entered::enter(OWNER, id.into_u64(), context);
        }
    }

    fn exit(&self, id: &Id) {
        entered::exit(OWNER, id.into_u64());
    }

    fn clone_span(&self, id: &Id) -> Id {
        slab::retain(id);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        slab::release(&id)
    }

    fn current_span(&self) -> Current {
        let innermost = entered::innermost(OWNER).map(Id::from_u64);
        match innermost.and_then(|id| slab::known(&id).map(|known| (id, known))) {
            Some((id, known)) => Current::new(id, known.metadata),
            None => Current::none(),
        }
    }
}
