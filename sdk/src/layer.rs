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
use crate::span::{Span, add_fields};
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
/// # What fields say
///
/// The fields of tracing-opentelemetry mean the same here: `otel.name` sets a span's name, `otel.kind` its kind, and
/// `otel.status_code` and `otel.status_message` its status, also when they are recorded after the span began. An event at
/// `error` marks its span as failed. So does a status of HTTP or gRPC (`http.response.status_code`, `http.status_code`,
/// `rpc.grpc.status_code`), by OpenTelemetry's rules.
///
/// A span called `request`, `http_request` or the like, with a method and a path, is a web framework's request span. Its name
/// becomes `GET /user/{id}`: the route, if a field has it (`http.route`, `matched_path`), and otherwise the path with `{id}`
/// in place of ids; `package.Service/Method` for gRPC; and `GET (not found)` for a new path with the status 404. It becomes a
/// server span, unless it is inside of another span. tower-http's event "finished processing request" becomes the status of
/// its span.
///
/// # What which stack costs
///
/// | stack | gate closed | gate open |
/// |---|---|---|
/// | [`subscriber()`](crate::subscriber()) alone | `tracing` asks, and is told no: about 3 ns | two records, and about as much again |
/// | `registry().with(layer().gating_all())` | the same | what the registry takes for a span, and two records |
/// | `registry().with(layer())`, beside layers that want every span | what the registry takes for a span | the same |
/// | `registry().with(layer().with_filter(…))` | the same, and the filter's own | the same, and the filter's own |
/// | any of them, what [`TracingFilter`] leaves out and no other layer wants | nothing; at `debug`, one load | the same |
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
    let recorder = Recorder {
        owner: Owner(LAYERS.fetch_add(1, Relaxed)),
    };
    TracingLayer {
        filtered: Filtered::new(recorder, Wanted::default()),
    }
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
        match (self.filter.wants(metadata), self.gating_all) {
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

fn context_of(owner: Owner, id: &Id) -> Option<SpanContext> {
    table::look_up(owner, id.into_u64()).map(|(context, _)| context)
}

#[inline(never)]
#[allow(
    clippy::extra_unused_type_parameters,
    reason = "generic, to be compiled elsewhere, as in `span::quick`"
)]
fn new_span_with_fields<Here>(
    owner: Owner,
    id: &Id,
    known: &'static known::Known,
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

/// Dropping our span ends it.
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
        // Asked first, as to ask is a call now and then.
        let is_quick = !std::thread::panicking();
        let id = id.into_u64();
        let is_closed = is_quick && table::end_quickly(owner, id).is_some();
        if !is_closed && !table::has_none(id) {
            close_slowly(owner, id);
        }
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
