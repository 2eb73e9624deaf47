//! Requests inside longer-lived spans, such as those of connections and of workers' loops.

use stroboscope_proto::v1::SpanFlag;

use super::Span;
use super::fields::mark_connection;
use super::links::link;
use crate::callsite::Callsite;
use crate::captured::unseen_request;
use crate::context::{self, SpanContext};
use crate::record::FieldWriter;
use crate::value::Values;

impl Span {
    /// Begins a new request, even inside another span; used by the macros.
    #[doc(hidden)]
    #[inline(never)]
    #[allow(
        clippy::needless_pass_by_value,
        reason = "as `begin`, which the macros call in other cases"
    )]
    pub fn begin_request<V: Values>(callsite: &'static Callsite, values: V) -> Self {
        Self::begin_request_in(context::current(), callsite, |writer| values.write(writer))
    }

    /// Begins a request inside another span, if there is one. Unless one of them is known not
    /// to be recorded, links the request to that span, and marks that span as a connection.
    pub(crate) fn begin_request_in(
        outer: SpanContext,
        callsite: &'static Callsite,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Self {
        let span = Self::begin_under(
            SpanContext::NONE,
            callsite,
            SpanFlag::Request as u16,
            fields,
        );
        if !outer.is_valid() {
            return span;
        }
        if span.word.is_none() {
            // Spans below must not join the outer span, which may be recorded.
            return Self::unrecorded(unseen_request());
        }
        // Only contexts without a recorded span have these marks.
        if span.is_recorded() && !outer.is_cut() && !outer.is_unseen() {
            mark_connection(outer, callsite);
            link(span.context(), outer);
        }
        span
    }
}
