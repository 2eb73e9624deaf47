//! `tracing_subscriber` layer that turns existing `tracing` annotations into spans and events of
//! Stroboscope.

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
use crate::span::{Span, add_fields};
use crate::tracing_filter::{OwnOrInForce, TracingFilter};

/// Layer for `tracing_subscriber`:
/// `tracing_subscriber::registry().with(stroboscope::layer()).init()`.
///
/// Spans created by `tracing` and by [`span!`](crate::span!) nest in one tree, because both use the
/// same current context.
///
/// # Recorded spans and events
///
/// By default, [`TracingFilter`] selects spans and events at `info` and above, and a few at
/// `debug`, without the internals of transports such as h2, hyper, tonic and tower.
/// `STROBOSCOPE_TRACING`, [`Builder::tracing`](crate::Builder::tracing) and
/// [`recording`](Self::recording) change this. The filter does not affect other layers, so a log
/// may be more verbose. A callsite that no layer wants is disabled and costs at most two loads.
/// Filters of `tracing_subscriber` apply in addition: `layer().with_filter(…)` records the spans
/// and events that both filters accept.
///
/// An event outside of any span is recorded as an event outside of any request.
///
/// # Meaning of fields
///
/// The fields of tracing-opentelemetry have the same meaning here: `otel.name` sets a span's name,
/// `otel.kind` its kind, `otel.status_code` and `otel.status_message` its status. They may be
/// recorded after the span began. The kind `server` applies only to a request's first span in the
/// process. An event at `error`, except the events of tower-http and sqlx below, marks its span as
/// failed. A failing HTTP or gRPC status (`http.response.status_code`, `http.status_code`,
/// `rpc.grpc.status_code`) does so, too, by OpenTelemetry's rules, unless `otel.status_code` is
/// `OK`.
///
/// A span called `request`, `http_request` or similar, with a method, and a path or a route, is a
/// web framework's request span. If it is a client span, or its request's first span in the
/// process, it gets one of these names, unless `otel.name` sets another:
///
/// - `GET /user/{id}`: the route, if a field such as `http.route` has it; otherwise the path with
///   `{id}` in place of ids;
/// - `package.Service/Method` for gRPC;
/// - `GET (not found)` for a new path with the status 404 and no route.
///
/// It then becomes a server span unless it is a client span. tower-http's event "finished
/// processing request" becomes the status of its span.
///
/// sqlx logs an event after each statement, after a slow wait for a connection of its pool, and
/// after other waits if `PoolOptions::acquire_time_level` is `debug` or above. Inside a span, each
/// of these events becomes a span that ends at the event. A statement is in `db.query.text`; the
/// collector names its span by it, without values.
///
/// # Costs by stack
///
/// | stack | gate closed | gate open |
/// |---|---|---|
/// | [`subscriber()`](crate::subscriber()) alone | `tracing` asks, and the subscriber declines: 3 to 5 ns | for a span, two to three times the cost of two records |
/// | `registry().with(layer().gating_all())` | as for `subscriber()` alone | the registry's cost per span, and two records |
/// | `registry().with(layer())`, with layers that want every span | the registry's cost per span | the registry's cost per span, and two records |
/// | `registry().with(layer().with_filter(…))` | as without `with_filter`, plus the filter's cost | as without `with_filter`, plus the filter's cost |
/// | any stack, for callsites that [`TracingFilter`] and all other layers reject | at most two loads | at most two loads |
///
/// A registry creates every span that any of its layers may want, which takes about six times as
/// long as recording it with [`span!`](crate::span!). Only [`gating_all`](Self::gating_all) avoids
/// this while the gate is closed; other layers then see no spans either. A per-layer filter on this
/// layer (`with_filter`) does not avoid it, and costs more than the layer itself.
/// `cargo bench -p stroboscope-bench-rivals` measures several of these stacks.
#[derive(Debug)]
pub struct TracingLayer<S> {
    /// The inner recorder handles new spans and events, for which `tracing_subscriber` consults the
    /// filter once per callsite, or each time if `gating_all` or another layer requires it. Later
    /// calls for a span bypass the filter, because it would look the span up in the registry each
    /// time. They need no filter: spans that it rejects are not in the table.
    filtered: Filtered<Recorder, LayerSettings, S>,
}

/// Creates a [`TracingLayer`].
#[must_use]
pub fn layer<S>() -> TracingLayer<S> {
    // 0 identifies the SDK's own subscriber.
    static LAYERS: AtomicU64 = AtomicU64::new(1);
    let recorder = Recorder {
        owner: Owner(LAYERS.fetch_add(1, Relaxed)),
    };
    TracingLayer {
        filtered: Filtered::new(recorder, LayerSettings::default()),
    }
}

#[derive(Debug)]
struct Recorder {
    owner: Owner,
}

#[derive(Debug, Default)]
struct LayerSettings {
    filter: OwnOrInForce,
    gating_all: bool,
}

impl<S> TracingLayer<S> {
    /// Sets a filter for this layer, a [`TracingFilter`] or a level, in place of the process-wide
    /// one.
    #[must_use]
    pub fn recording(mut self, filter: impl Into<TracingFilter>) -> Self {
        self.filtered.filter_mut().filter = OwnOrInForce(Some(filter.into()));
        self
    }

    /// Disables spans and events for the whole stack while nothing can be recorded. They then cost
    /// almost nothing, but no other layer sees them either. Use it in stacks whose other layers
    /// only add to the records of bursts.
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

impl<S> Filter<S> for LayerSettings {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.filter.records(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        match (self.filter.wants(metadata), self.gating_all) {
            (false, _) => Interest::never(),
            (true, true) => Interest::sometimes(),
            // Lets the other layers decide whether a callsite is checked each time.
            (true, false) => Interest::always(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.max_level())
    }
}

fn context_of(owner: Owner, id: &Id) -> Option<SpanContext> {
    table::look_up(owner, id.into_u64()).map(|(context, _)| context)
}

#[inline(never)]
#[allow(
    clippy::extra_unused_type_parameters,
    reason = "generic, to be compiled elsewhere, as in `span::quick`"
)]
fn new_span_with_fields<ThreadRef>(
    owner: Owner,
    id: &Id,
    known: &'static known::AdaptedCallsite,
    attributes: &Attributes<'_>,
) {
    let span = adapter::begin_with_fields(known, attributes);
    if !span.is_none() {
        table::insert(owner, id.into_u64(), span.into_words());
    }
}

#[cold]
#[inline(never)]
fn new_span_slowly(owner: Owner, id: &Id, attributes: &Attributes<'_>) {
    let parent = if attributes.is_contextual() {
        context::current()
    } else {
        attributes
            .parent()
            .and_then(|parent| context_of(owner, parent))
            .unwrap_or(SpanContext::NONE)
    };
    let span = adapter::begin(parent, known::of(attributes.metadata()), attributes);
    if !span.is_none() {
        table::insert(owner, id.into_u64(), span.into_words());
    }
}

#[cold]
#[inline(never)]
fn enter_slowly(owner: Owner, id: u64) {
    if let Some((context, _)) = table::look_up(owner, id) {
        entered::enter(owner, id, context);
    }
}

/// Ends the SDK's span by dropping it.
#[cold]
#[inline(never)]
fn close_slowly(owner: Owner, id: u64) {
    drop(table::remove(owner, id));
}

impl<S> Layer<S> for Recorder
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    #[inline]
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        if gate::is_idle() {
            return;
        }
        if attributes.is_contextual()
            && let Some(known) = known::find(attributes.metadata())
        {
            if !known.callsite.fields.is_empty() {
                return new_span_with_fields::<()>(self.owner, id, known, attributes);
            }
            if let Some(span) = Span::begin_quickly(&known.callsite) {
                return table::insert(self.owner, id.into_u64(), span);
            }
        }
        new_span_slowly(self.owner, id, attributes);
    }

    #[inline]
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !gate::is_idle() {
            adapter::event(event, |id| context_of(self.owner, id));
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
        (!self.filtered.filter().gating_all || !gate::is_idle())
            && self.filtered.enabled(metadata, ctx)
    }

    fn event_enabled(&self, event: &Event<'_>, ctx: Context<'_, S>) -> bool {
        self.filtered.event_enabled(event, ctx)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Layer::<S>::max_level_hint(&self.filtered)
    }

    #[inline]
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        self.filtered.on_new_span(attributes, id, ctx);
    }

    #[inline]
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

    #[inline]
    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        let owner = self.filtered.inner().owner;
        let id = id.into_u64();
        let words = table::words(owner, id);
        let is_absent = words.is_none() && table::has_none(id);
        let entered = words.and_then(|words| entered::enter_quickly(owner, id, words));
        if !is_absent && entered.is_none() {
            enter_slowly(owner, id);
        }
    }

    #[inline]
    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        let owner = self.filtered.inner().owner;
        if entered::exit_quickly(owner, id.into_u64()).is_none() {
            entered::exit(owner, id.into_u64());
        }
    }

    #[inline]
    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let owner = self.filtered.inner().owner;
        // Checked first, because the check is sometimes a function call.
        let is_quick = !std::thread::panicking();
        let id = id.into_u64();
        let is_closed = is_quick && table::end_quickly(owner, id).is_some();
        if !is_closed && !table::has_none(id) {
            close_slowly(owner, id);
        }
    }

    // SAFETY: the returned pointer points to this layer or to a part of it, of the requested type.
    // (Through this call, a stack learns that this is a per-layer filter: callsites that it rejects
    // stay enabled for other layers.)
    #[allow(unsafe_code)]
    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some(std::ptr::from_ref(self).cast());
        }
        // SAFETY: forwards the call unchanged.
        unsafe { Layer::<S>::downcast_raw(&self.filtered, id) }
    }
}
