//! A `tracing_subscriber` layer: existing `tracing` annotations become spans and events of Stroboscope as they are.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::adapter::entered::{self, Owner};
use crate::adapter::{self, Visitor, known, table};
use crate::context::{self, SpanContext};
use crate::gate;
use crate::span::add_fields;

/// The layer: `tracing_subscriber::registry().with(stroboscope::layer()).init()`.
///
/// Spans made by `tracing` and by [`span!`](crate::span!) nest in one tree: both live in the same current context.
///
/// # What which stack costs
///
/// | stack | gate closed | gate open |
/// |---|---|---|
/// | [`subscriber()`](crate::subscriber()) alone | `tracing` asks, and is told no: about 3 ns | two records, and about as much again |
/// | `registry().with(layer().gating_all())` | the same | what the registry takes for a span, and two records |
/// | `registry().with(layer())`, beside layers that want every span | what the registry takes for a span | the same |
/// | `registry().with(layer().with_filter(…))` | the same, and the filter's own | the same, and the filter's own |
///
/// A registry makes every span that any of its layers may want, which takes some six times as long as recording it
/// with [`span!`](crate::span!). Only [`gating_all`](Self::gating_all) spares that while the gate is closed, and only where no other layer wants
/// spans of its own then. A per-layer filter on this layer (`with_filter`) does not spare it, and costs more than the
/// layer does. `cargo bench -p stroboscope-bench-rivals` measures all of them.
#[derive(Debug)]
pub struct TracingLayer {
    owner: Owner,
    gating_all: bool,
}

/// See [`TracingLayer`].
#[must_use]
pub fn layer() -> TracingLayer {
    // 0 is our own subscriber's.
    static LAYERS: AtomicU64 = AtomicU64::new(1);
    TracingLayer { owner: Owner(LAYERS.fetch_add(1, Relaxed)), gating_all: false }
}

impl TracingLayer {
    /// Disables spans and events for the whole stack while the gate is closed: they then cost next to nothing, and no
    /// other layer sees them either. For stacks whose other layers only add to what is recorded during bursts.
    #[must_use]
    pub fn gating_all(self) -> Self {
        Self { gating_all: true, ..self }
    }

    #[inline]
    fn context(&self, id: &Id) -> Option<SpanContext> {
        table::look_up(self.owner, id.into_u64()).map(|(context, _)| context)
    }
}

impl Default for TracingLayer {
    fn default() -> Self {
        layer()
    }
}

impl<S> Layer<S> for TracingLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // "Always" leaves it to the other layers whether a callsite is asked about each time.
        if self.gating_all { Interest::sometimes() } else { Interest::always() }
    }

    #[inline]
    fn enabled(&self, _: &Metadata<'_>, _: Context<'_, S>) -> bool {
        !self.gating_all || !gate::is_idle()
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        if gate::is_idle() {
            return;
        }
        let parent = if attributes.is_contextual() {
            context::current()
        } else {
            attributes.parent().and_then(|parent| self.context(parent)).unwrap_or(SpanContext::NONE)
        };
        let known = known::of(attributes.metadata());
        let span = adapter::begin(parent, known, attributes);
        if !span.is_none() {
            table::insert(self.owner, id.into_u64(), span);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        if let Some((span, true)) = table::look_up(self.owner, id.into_u64())
            && let Some(metadata) = ctx.metadata(id)
        {
            add_fields(span, &known::of(metadata).callsite, |writer| {
                values.record(&mut Visitor::new(writer));
            });
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !gate::is_idle() {
            adapter::event(event, |id| self.context(id));
        }
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        if let Some(context) = self.context(id) {
            entered::enter(self.owner, id.into_u64(), context);
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        entered::exit(self.owner, id.into_u64());
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        // Dropping our span ends it.
        drop(table::remove(self.owner, id.into_u64()));
    }
}
