//! A `tracing_subscriber` layer: existing `tracing` annotations become spans and events of Stroboscope as they are.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, RwLock};

use tracing_core::field::{Field, FieldSet, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Metadata, Subscriber, callsite::Identifier};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::callsite::Callsite;
use crate::context::{self, SpanContext};
use crate::gate;
use crate::record::FieldWriter;
use crate::span::{Span, write_event};
use crate::value::{Value, debug, display};

/// The layer: `tracing_subscriber::registry().with(stroboscope::layer()).init()`.
///
/// Spans made by `tracing` and by [`span!`](crate::span!) nest in one tree: both live in the same current context.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingLayer(());

/// See [`TracingLayer`].
#[must_use]
pub const fn layer() -> TracingLayer {
    TracingLayer(())
}

/// Our span beside theirs, and the contexts that were current when it was entered, innermost last: a span can be
/// entered again before it is left, on the same thread or on another.
struct Beside {
    span: Span,
    entered: Vec<SpanContext>,
}

impl<S> Layer<S> for TracingLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        if gate::is_idle() {
            return;
        }
        let Some(theirs) = ctx.span(id) else { return };
        let parent = if attributes.is_root() {
            SpanContext::NONE
        } else if let Some(explicit) = attributes.parent().and_then(|parent| ctx.span(parent)) {
            explicit.extensions().get::<Beside>().map_or(SpanContext::NONE, |beside| beside.span.context())
        } else {
            context::current()
        };
        let span = Span::begin_under(parent, callsite_of(attributes.metadata()), 0, |writer| {
            attributes.values().record(&mut Visitor { fields: attributes.metadata().fields(), writer });
        });
        if span.context().is_valid() {
            theirs.extensions_mut().replace(Beside { span, entered: Vec::new() });
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let Some(theirs) = ctx.span(id) else { return };
        let extensions = theirs.extensions();
        let Some(beside) = extensions.get::<Beside>() else { return };
        beside.span.add_fields(callsite_of(theirs.metadata()), |writer| {
            values.record(&mut Visitor { fields: theirs.metadata().fields(), writer });
        });
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let _ = ctx;
        if !gate::is_idle() {
            write_event(callsite_of(event.metadata()), |writer| {
                event.record(&mut Visitor { fields: event.metadata().fields(), writer });
            });
        }
    }

    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        let Some(theirs) = ctx.span(id) else { return };
        if let Some(beside) = theirs.extensions_mut().get_mut::<Beside>() {
            let previous = context::replace(beside.span.context());
            beside.entered.push(previous);
        }
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        let Some(theirs) = ctx.span(id) else { return };
        if let Some(previous) =
            theirs.extensions_mut().get_mut::<Beside>().and_then(|beside| beside.entered.pop())
        {
            context::replace(previous);
        }
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        if let Some(theirs) = ctx.span(&id) {
            // Dropping our span ends it.
            drop(theirs.extensions_mut().remove::<Beside>());
        }
    }
}

/// Writes `tracing`'s fields by their position in the callsite.
struct Visitor<'a, 'w> {
    fields: &'a FieldSet,
    writer: &'a mut FieldWriter<'w>,
}

impl Visitor<'_, '_> {
    fn write(&mut self, field: &Field, value: &(impl Value + ?Sized)) {
        debug_assert!(self.fields.contains(field));
        // tracing allows 32 fields, fewer than fit.
        if let Ok(index) = u8::try_from(field.index()) {
            value.write(index, self.writer);
        }
    }
}

impl Visit for Visitor<'_, '_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.write(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.write(field, &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.write(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.write(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.write(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.write(field, &display(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.write(field, &debug(value));
    }
}

/// Our callsite for one of theirs. Callsites are statics, so the map is bounded by the program's source.
static CALLSITES: LazyLock<RwLock<HashMap<Identifier, &'static Callsite>>> = LazyLock::new(RwLock::default);

fn callsite_of(metadata: &'static Metadata<'static>) -> &'static Callsite {
    let id = metadata.callsite();
    if let Ok(known) = CALLSITES.read()
        && let Some(callsite) = known.get(&id)
    {
        return callsite;
    }
    let fields: Vec<&'static str> = metadata.fields().iter().map(|field| field.name()).collect();
    let made: &'static Callsite = Box::leak(Box::new(Callsite::new(
        event_or_span_name(metadata),
        Box::leak(fields.into_boxed_slice()),
        metadata.file().unwrap_or(""),
        metadata.line().unwrap_or(0),
    )));
    match CALLSITES.write() {
        Ok(mut known) => known.entry(id).or_insert(made),
        Err(_) => made,
    }
}

/// Events of `tracing` are named after their place in the source ("event src/main.rs:7"); the target says more to
/// people and, unlike the place, stays the same from version to version.
fn event_or_span_name(metadata: &'static Metadata<'static>) -> &'static str {
    if metadata.is_event() && metadata.name().starts_with("event ") {
        metadata.target()
    } else {
        metadata.name()
    }
}
