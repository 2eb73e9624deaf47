//! Ingress of requests: parsed headers and the span that begins with a request.

use std::future::Future;
use std::sync::Arc;

use stroboscope_proto::v1::SpanFlag;

use crate::baggage::ambient::{CarriedScope, RequestContext};
use crate::baggage::{Baggage, count_request};
use crate::callsite::{self, Callsite};
use crate::captured::{unrecorded_request, unseen_request};
use crate::context::{Scope, SpanContext};
use crate::span::{FutureExt as _, Span};
use crate::{gate, sampling};

/// Data that arrived with a request; returned by
/// [`propagation::extract`](crate::propagation::extract).
///
/// `tower::ServerLayer` uses it automatically. In any other kind of server:
///
/// ```
/// # let headers = http::HeaderMap::new();
/// let incoming = stroboscope::propagation::extract(&headers);
/// let answer = incoming.scope("/page", || "the request's work, in its span and with its baggage");
/// ```
#[derive(Clone, Debug, Default)]
pub struct IncomingContext {
    context: SpanContext,
    carried: Arc<RequestContext>,
    forced: bool,
    /// True if a caller that is not public sent an invalid `traceparent`, or several. The caller
    /// takes part in tracing, so the request's calls must carry new ids.
    is_malformed: bool,
}

impl IncomingContext {
    pub(crate) fn new(context: SpanContext, carried: RequestContext, forced: bool) -> Self {
        Self {
            context,
            carried: Arc::new(carried),
            forced,
            is_malformed: false,
        }
    }

    pub(crate) fn malformed(mut self, is_malformed: bool) -> Self {
        self.is_malformed = is_malformed;
        self
    }

    /// Returns the caller's span; [`SpanContext::NONE`] if the caller sent no valid `traceparent`
    /// or several, or if callers are [public](crate::Builder::public_callers).
    #[must_use]
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Returns the request's baggage.
    #[must_use]
    pub fn baggage(&self) -> Baggage {
        self.carried.snapshot()
    }

    #[cfg_attr(not(feature = "tower"), allow(dead_code))]
    pub(crate) fn carried(&self) -> &Arc<RequestContext> {
        &self.carried
    }

    /// Runs `work` as this request: in a server span of this name without its first slash (`/`
    /// stays as it is), and with the request's baggage.
    pub fn scope<T>(&self, name: &str, work: impl FnOnce() -> T) -> T {
        let span = self.begin(name);
        let _carried = CarriedScope::enter(Some(Arc::clone(&self.carried)));
        span.scope(work)
    }

    /// Runs a future as this request, like [`scope`](Self::scope).
    pub fn run<F: Future>(&self, name: &str, future: F) -> impl Future<Output = F::Output> {
        let span = self.begin(name);
        let future = {
            let _carried = CarriedScope::enter(Some(Arc::clone(&self.carried)));
            let _scope = Scope::enter(span.context());
            future.in_current_span()
        };
        future.in_span(span)
    }

    /// Begins the server span of this request, named after a path.
    pub(crate) fn begin(&self, name: &str) -> Span {
        self.begin_as(|| callsite::named_after_path(name))
    }

    /// Begins the server span with a name that is computed only if the span may be recorded.
    pub(crate) fn begin_as(&self, name: impl FnOnce() -> &'static Callsite) -> Span {
        const FLAGS: u16 = SpanFlag::Server as u16 | SpanFlag::LocalRoot as u16;
        count_request();
        let (asked, remote) = (gate::Now::read(), self.context);
        if self.forced && sampling::accepts_force() && gate::is_read() {
            return Span::begin_forced(remote, name(), FLAGS);
        }
        let follows = remote.is_sampled() && gate::is_read();
        if asked.is_open() || follows || asked.asks_roots() && !remote.is_valid() {
            let span = Span::begin_under(remote, name(), FLAGS, |_| {});
            // A span without a context means that the window or recording ended in between.
            if span.context().is_valid() {
                if remote.is_sampled() {
                    self.record_probability(&span);
                }
                return span;
            }
        }
        // The request is not recorded, but keeps its identity: if a window opens meanwhile, its
        // records are known to be only a part. If no window can open, a request without ids needs
        // none.
        match remote.is_valid() {
            true => Span::unrecorded(remote.cut()),
            // The specification requires new ids in place of invalid ones.
            false if self.is_malformed => Span::unrecorded(unrecorded_request()),
            false if gate::is_read() => Span::unrecorded(unseen_request()),
            false => Span::NONE,
        }
    }
    /// Records the probability with which the sender's sampler kept the request, if it is stated.
    fn record_probability(&self, span: &Span) {
        let stated = self.carried.tracestate.as_deref();
        if let Some(stated) = stated.and_then(sampling::stated_threshold) {
            span.record(sampling::STATE_FIELD, stated);
        }
    }
}
