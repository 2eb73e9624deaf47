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
/// While the gate is closed, spans and events are disabled at their callsite, which costs what `tracing` takes to ask:
/// 3 to 5 ns. While it is open, a span costs two to three times its two counter reads: `tracing` calls a subscriber four
/// times for it, and it is found again by its id in each; see [`TracingLayer`](crate::TracingLayer) for all stacks side by side.
///
/// Spans made by `tracing` and by [`span!`](crate::span!) nest in one tree: both live in the same current context.
/// `follows_from` is not recorded. More than 262,144 spans open at once are not recorded, and counted as
/// [`OpenSpansFull`](crate::LossCause::OpenSpansFull).
#[derive(Clone, Copy, Debug)]
pub struct TracingSubscriber {
    max_level: LevelFilter,
}

/// See [`TracingSubscriber`].
#[must_use]
pub const fn subscriber() -> TracingSubscriber {
    TracingSubscriber { max_level: LevelFilter::TRACE }
}

impl TracingSubscriber {
    /// Leaves out what is more verbose than this; that costs as little as no subscriber. Default: nothing is left out.
    #[must_use]
    pub const fn with_max_level(self, max_level: LevelFilter) -> Self {
        Self { max_level }
    }
}

/// Ids are unique in the process, so all subscribers may share them.
const OWNER: Owner = Owner(0);

impl Subscriber for TracingSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if *metadata.level() > self.max_level { Interest::never() } else { Interest::sometimes() }
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !gate::is_idle() && *metadata.level() <= self.max_level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.max_level)
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
