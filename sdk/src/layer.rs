//! A `tracing_subscriber` layer: existing `tracing` annotations become spans and events of Stroboscope as they are.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use std::any::TypeId;

use tracing_core::metadata::LevelFilter;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::Filtered;
use tracing_subscriber::layer::{Context, Filter, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::adapter::entered::{self, Owner};
use crate::adapter::{self, Visitor, known, table};
use crate::context::{self, SpanContext};
use crate::gate;
use crate::span::add_fields;
use crate::tracing_filter::{OwnOrInForce, TracingFilter};

/// The layer: `tracing_subscriber::registry().with(stroboscope::layer()).init()`.
///
/// Spans made by `tracing` and by [`span!`](crate::span!) nest in one tree: both live in the same current context.
///
/// # What is recorded
///
/// What [`TracingFilter`] says: `info` and above, without the insides of transports such as h2, hyper, tonic and tower,
/// unless `STROBOSCOPE_TRACING`, [`Builder::tracing`](crate::Builder::tracing) or [`recording`](Self::recording) says
/// otherwise. Other layers are not concerned, a log may be more verbose; and what nobody wants is disabled at its callsite
/// and costs nothing. Filters of `tracing_subscriber` come on top: `layer().with_filter(…)` records what both let pass.
///
/// An event outside of any span is recorded, as an event outside of any request.
///
/// # What which stack costs
///
/// | stack | gate closed | gate open |
/// |---|---|---|
/// | [`subscriber()`](crate::subscriber()) alone | `tracing` asks, and is told no: about 3 ns | two records, and about as much again |
/// | `registry().with(layer().gating_all())` | the same | what the registry takes for a span, and two records |
/// | `registry().with(layer())`, beside layers that want every span | what the registry takes for a span | the same |
/// | `registry().with(layer().with_filter(…))` | the same, and the filter's own | the same, and the filter's own |
/// | any of them, what [`TracingFilter`] leaves out and no other layer wants | nothing | nothing |
///
/// A registry makes every span that any of its layers may want, which takes some six times as long as recording it
/// with [`span!`](crate::span!). Only [`gating_all`](Self::gating_all) spares that while the gate is closed, and only where no other layer wants
/// spans of its own then. A per-layer filter on this layer (`with_filter`) does not spare it, and costs more than the
/// layer does. `cargo bench -p stroboscope-bench-rivals` measures all of them.
#[derive(Debug)]
pub struct TracingLayer<S> {
    /// What is made is made by the recorder inside, where `tracing_subscriber` asks the filter once for each callsite.
    /// Entering, leaving and closing go past the filter, which would look the span up in the registry each time: what
    /// is not ours is not in our table.
    filtered: Filtered<Recorder, Wanted, S>,
}

/// See [`TracingLayer`].
#[must_use]
pub fn layer<S>() -> TracingLayer<S> {
    // 0 is our own subscriber's.
    static LAYERS: AtomicU64 = AtomicU64::new(1);
    let recorder = Recorder { owner: Owner(LAYERS.fetch_add(1, Relaxed)) };
    TracingLayer { filtered: Filtered::new(recorder, Wanted::default()) }
}

#[derive(Debug)]
struct Recorder {
    owner: Owner,
}

#[derive(Debug, Default)]
struct Wanted {
    filter: OwnOrInForce,
    gating_all: bool,
}

impl<S> TracingLayer<S> {
    /// Records what this says, in place of what holds for the process: a [`TracingFilter`], or a level.
    #[must_use]
    pub fn recording(mut self, filter: impl Into<TracingFilter>) -> Self {
        self.filtered.filter_mut().filter = OwnOrInForce(Some(filter.into()));
        self
    }

    /// Disables spans and events for the whole stack while the gate is closed: they then cost next to nothing, and no
    /// other layer sees them either. For stacks whose other layers only add to what is recorded during bursts.
    #[must_use]
    pub fn gating_all(mut self) -> Self {
        self.filtered.filter_mut().gating_all = true;
        self
    }
}

impl<S> Default for TracingLayer<S> {
    fn default() -> Self {
        layer()
    }
}

impl<S> Filter<S> for Wanted {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.filter.records(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        match (self.filter.records(metadata), self.gating_all) {
            (false, _) => Interest::never(),
            (true, true) => Interest::sometimes(),
            // Leaves it to the other layers whether a callsite is asked about each time.
            (true, false) => Interest::always(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.max_level())
    }
}

impl Recorder {
    #[inline]
    fn context(&self, id: &Id) -> Option<SpanContext> {
        table::look_up(self.owner, id.into_u64()).map(|(context, _)| context)
    }
}

impl<S> Layer<S> for Recorder
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
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

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !gate::is_idle() {
            adapter::event(event, |id| self.context(id));
        }
    }
}

impl<S> Layer<S> for TracingLayer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_layer(&mut self, subscriber: &mut S) {
        self.filtered.on_layer(subscriber);
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.filtered.register_callsite(metadata)
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>, ctx: Context<'_, S>) -> bool {
        (!self.filtered.filter().gating_all || !gate::is_idle()) && self.filtered.enabled(metadata, ctx)
    }

    fn event_enabled(&self, event: &Event<'_>, ctx: Context<'_, S>) -> bool {
        self.filtered.event_enabled(event, ctx)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Layer::<S>::max_level_hint(&self.filtered)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        self.filtered.on_new_span(attributes, id, ctx);
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        self.filtered.on_event(event, ctx);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        if let Some((span, true)) = table::look_up(self.filtered.inner().owner, id.into_u64())
            && let Some(metadata) = ctx.metadata(id)
        {
            add_fields(span, &known::of(metadata).callsite, |writer| {
                values.record(&mut Visitor::new(writer));
            });
        }
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        let recorder = self.filtered.inner();
        if let Some(context) = recorder.context(id) {
            entered::enter(recorder.owner, id.into_u64(), context);
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        entered::exit(self.filtered.inner().owner, id.into_u64());
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        // Dropping our span ends it.
        drop(table::remove(self.filtered.inner().owner, id.into_u64()));
    }

    // SAFETY: what is given out points to this layer or to a part of it, of the type that was asked for. (A stack learns
    // by this that there is a filter of one layer in here, and does not disable for all what we do not want.)
    #[allow(unsafe_code)]
    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some(std::ptr::from_ref(self).cast());
        }
        // SAFETY: asked on as we were asked.
        unsafe { Layer::<S>::downcast_raw(&self.filtered, id) }
    }
}
