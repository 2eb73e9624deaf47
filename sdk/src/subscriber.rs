//! Subscriber for `tracing` that records existing annotations at a lower cost than the layer.

use tracing_core::metadata::LevelFilter;
use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::{Interest, Subscriber};
use tracing_core::{Event, Metadata};

use crate::adapter::entered::{self, Owner};
use crate::adapter::known::AdaptedCallsite;
use crate::adapter::{self, Visitor, known, slab};
use crate::context::{self, SpanContext};
use crate::gate;
use crate::span::add_fields;
use crate::tracing_filter::{OwnOrInForce, TracingFilter};

/// A `tracing` subscriber that only records for Stroboscope.
///
/// Use it in services that need no other consumer of their `tracing` annotations:
///
/// ```
/// # fn main() -> Result<(), tracing::subscriber::SetGlobalDefaultError> {
/// tracing::subscriber::set_global_default(stroboscope::subscriber())?;
/// # Ok(())
/// # }
/// ```
///
/// By default, [`TracingFilter`] selects spans and events at `info` and above, and a few at
/// `debug`, without the internals of transports such as h2, hyper, tonic and tower.
/// `STROBOSCOPE_TRACING`, [`Builder::tracing`](crate::Builder::tracing) and
/// [`recording`](Self::recording) change this. Callsites that the filter rejects are disabled.
///
/// While nothing can be recorded, spans and events are disabled, and cost only `tracing`'s check,
/// which asks the subscriber. While the gate is open, a span costs two to three times as much as
/// its two counter reads, because `tracing` calls a subscriber five times per span and knows the
/// span only by its id. See [`TracingLayer`](crate::TracingLayer) for a comparison of all stacks.
///
/// Spans created by `tracing` and by [`span!`](crate::span!) nest in one tree, because both use the
/// same current context. `follows_from` is not recorded. At most 262,144 spans are recorded as open
/// at once; further ones are not recorded, but counted as
/// [`OpenSpansFull`](crate::LossCause::OpenSpansFull).
#[derive(Clone, Debug)]
pub struct TracingSubscriber {
    filter: OwnOrInForce,
}

/// Creates a [`TracingSubscriber`].
#[must_use]
pub const fn subscriber() -> TracingSubscriber {
    TracingSubscriber {
        filter: OwnOrInForce(None),
    }
}

impl TracingSubscriber {
    /// Sets a filter for this subscriber, a [`TracingFilter`] or a level, in place of the
    /// process-wide one. Spans and events that it rejects cost hardly more than without a
    /// subscriber.
    #[must_use]
    pub fn recording(self, filter: impl Into<TracingFilter>) -> Self {
        Self {
            filter: OwnOrInForce(Some(filter.into())),
        }
    }
}

// Methods called for every span are marked as inline, so that they are compiled with the program
// that installs the subscriber: only there can the compiler know that thread-locals are reachable
// with one instruction. In unusual cases, each ends in one call, and so saves no registers.

/// Owner of all spans of these subscribers. They share it, because the ids are unique in the
/// process.
const OWNER: Owner = Owner(0);

impl Subscriber for TracingSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.filter.wants(metadata) {
            Interest::sometimes()
        } else {
            Interest::never()
        }
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !gate::is_idle() && self.filter.records(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.max_level())
    }

    #[inline]
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        if attributes.is_contextual()
            && let Some(known) = known::find(attributes.metadata())
        {
            if !known.callsite.fields.is_empty() {
                return new_span_with_fields::<()>(known, attributes);
            }
            if let Some(id) = slab::insert_quickly(known) {
                return id;
            }
        }
        new_span_slowly(attributes)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        if let Some((known, span)) = slab::recorded(id) {
            add_fields(span, &known.callsite, |writer| {
                values.record(&mut Visitor::new(writer));
            });
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    #[inline]
    fn event(&self, event: &Event<'_>) {
        adapter::event(event, slab::context);
    }

    #[inline]
    fn enter(&self, id: &Id) {
        let quickly =
            slab::words(id).and_then(|words| entered::enter_quickly(OWNER, id.into_u64(), words));
        if quickly.is_none() {
            enter_slowly(id);
        }
    }

    #[inline]
    fn exit(&self, id: &Id) {
        if entered::exit_quickly(OWNER, id.into_u64()).is_none() {
            entered::exit(OWNER, id.into_u64());
        }
    }

    fn clone_span(&self, id: &Id) -> Id {
        slab::retain(id);
        id.clone()
    }

    #[inline]
    fn try_close(&self, id: Id) -> bool {
        // Checked first, because the check is sometimes a function call.
        let is_quick = !std::thread::panicking();
        is_quick && slab::release_quickly(&id).is_some() || slab::release(id)
    }

    fn current_span(&self) -> Current {
        let innermost = entered::innermost(OWNER).map(Id::from_u64);
        match innermost.and_then(|id| slab::known(&id).map(|known| (id, known))) {
            Some((id, known)) => Current::new(id, known.metadata),
            None => Current::none(),
        }
    }
}

#[inline(never)]
#[allow(
    clippy::extra_unused_type_parameters,
    reason = "generic, to be compiled elsewhere, as in `span::quick`"
)]
fn new_span_with_fields<ThreadRef>(
    known: &'static AdaptedCallsite,
    attributes: &Attributes<'_>,
) -> Id {
    slab::insert(known, || adapter::begin_with_fields(known, attributes))
}

#[cold]
#[inline(never)]
fn new_span_slowly(attributes: &Attributes<'_>) -> Id {
    let parent = if attributes.is_contextual() {
        context::current()
    } else {
        attributes
            .parent()
            .and_then(slab::context)
            .unwrap_or(SpanContext::NONE)
    };
    let known = known::of(attributes.metadata());
    slab::insert(known, || adapter::begin(parent, known, attributes))
}

#[cold]
#[inline(never)]
fn enter_slowly(id: &Id) {
    if let Some(context) = slab::context(id) {
        entered::enter(OWNER, id.into_u64(), context);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::PoisonError;

    use super::*;
    use crate::context::Scope;
    use crate::thread;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// Runs `work` in a new thread, inside a window, once through each of the two `tracing`
    /// adapters.
    fn in_window<T: Send + 'static>(work: fn() -> T) -> [T; 2] {
        let _turn = gate::TURN.lock().unwrap_or_else(PoisonError::into_inner);
        gate::set_window_ticks(0, u64::MAX);
        gate::set_open(true);
        let layered = || tracing_subscriber::registry().with(crate::layer());
        let stacks = [
            tracing::Dispatch::new(subscriber()),
            tracing::Dispatch::new(layered()),
        ];
        let done = stacks.map(|stack| {
            let subscribed = move || tracing::dispatcher::with_default(&stack, work);
            std::thread::spawn(subscribed).join()
        });
        gate::set_open(false);
        done.map(Result::unwrap)
    }

    struct OnFormat<F>(F);

    impl<F: Fn()> fmt::Debug for OnFormat<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (self.0)();
            f.write_str("formatted")
        }
    }

    #[test]
    fn usual_spans_take_the_fast_path() {
        let looked = in_window(|| {
            let _root = tracing::info_span!("root").entered();
            let usual = || {
                let outer = tracing::info_span!("outer").entered();
                let inner =
                    tracing::info_span!("inner", a = 1, b = "text", c = ?OnFormat(|| {})).entered();
                tracing::info!(a = 1, "message");
                let other = tracing::info_span!("other");
                other.in_scope(|| tracing::info!("message"));
                other.in_scope(|| {});
                drop((other, inner, outer));
            };
            // Registers the callsites and takes the first look at the ring.
            usual();
            let before = thread::looks();
            (0..10).for_each(|_| usual());
            thread::looks() - before
        });
        let is_crowded = known::IS_CROWDED.load(std::sync::atomic::Ordering::Relaxed);
        assert!(looked == [0, 0] || is_crowded, "{looked:?}");
    }

    #[test]
    fn contexts_nest_and_come_back() {
        in_window(|| {
            let current = || context::current().span_id();
            let root = tracing::info_span!("root").entered();
            let at_root = current();
            for _ in 0..3 {
                let one = tracing::info_span!("one");
                let two = tracing::info_span!("two", n = 2).entered();
                let in_two = current();
                assert_ne!(in_two, at_root);
                // Enters the spans again and leaves them in another order.
                let in_one = one.in_scope(current);
                assert_eq!(one.in_scope(current), in_one);
                assert_eq!(current(), in_two);
                let entered = one.enter();
                drop(two);
                assert_eq!(current(), in_one);
                drop(entered);
                assert_eq!(current(), at_root);
                // Nests the SDK's spans inside `tracing`'s, and vice versa.
                let ours = crate::Span::begin(&OURS, ()).entered();
                let in_ours = current();
                tracing::info_span!("three").in_scope(|| assert_ne!(current(), in_ours));
                assert_eq!(current(), in_ours);
                drop(ours);
                assert_eq!(current(), at_root);
            }
            drop(root);
            assert_eq!(context::current(), SpanContext::NONE);
        });
    }

    static OURS: crate::callsite::Callsite =
        crate::callsite::Callsite::new("ours", &[], "here.rs", 1);

    /// Checks that code which formats a field may do anything: later records belong to the thread's
    /// context at that time.
    #[test]
    fn formatting_may_change_the_context() {
        in_window(|| {
            let _root = tracing::info_span!("root").entered();
            let other = SpanContext::new(7 << 64 | 9, context::current().span_id(), false);
            let change = || std::mem::forget(Scope::enter(other));
            for _ in 0..2 {
                drop(tracing::info_span!("formatted", a = ?OnFormat(|| {})));
            }
            drop(tracing::info_span!("changes", a = ?OnFormat(change)));
            assert_eq!(context::current(), other);
            tracing::info_span!("after").in_scope(|| {
                assert_eq!(context::current().trace_id(), other.trace_id());
            });
        });
    }

    #[test]
    fn formatting_may_panic() {
        in_window(|| {
            let _root = tracing::info_span!("root").entered();
            let panicked = std::panic::catch_unwind(|| {
                drop(
                    tracing::info_span!("panics", a = ?OnFormat(|| std::panic::resume_unwind(Box::new(())))),
                );
            });
            assert!(panicked.is_err());
            let at_root = context::current();
            tracing::info_span!("after").in_scope(|| assert_ne!(context::current(), at_root));
            assert_eq!(context::current(), at_root);
        });
    }
}
