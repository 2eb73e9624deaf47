//! Links of spans to spans that are not their parents.

use super::fields::add_fields;
use super::{Entered, Span};
use crate::batch::{Fields, OwnedValue, set_field};
use crate::callsite::Callsite;
use crate::context::SpanContext;
use crate::loss::{LOSSES, LossCause};

/// Field with the links of a span, as a list in JSON.
pub(crate) const LINKS: &str = "links";
/// Maximum size of the links of a span, in bytes: about 850 links.
const LINKS_BYTES_MAX: usize = 65_536;

impl Span {
    /// Links this span to a span that caused it, but is not its caller: `producer` is the context
    /// that came with a message. The consumer of a batch calls this once for each message. If one
    /// of the two is known not to be recorded, or the context is invalid, it has no effect.
    ///
    /// The collector lists a request's links. The request's critical path can continue at the
    /// producer that ended last. A span has at most about 850 links; more count as
    /// [`Oversize`](crate::LossCause::Oversize).
    ///
    /// ```
    /// # let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let span = stroboscope::span!("batch");
    /// span.follows(stroboscope::propagation::parse_traceparent(traceparent));
    /// ```
    #[inline]
    pub fn follows(&self, producer: SpanContext) {
        if self.is_recorded() {
            link(self.context(), producer);
        }
    }
}

impl Entered {
    /// Links this span to a span that caused it, like [`Span::follows`].
    #[inline]
    pub fn follows(&self, producer: SpanContext) {
        self.span.follows(producer);
    }
}

/// Links a recorded span to another one, unless that context is invalid or known not to be
/// recorded.
#[inline(never)]
pub(super) fn link(span: SpanContext, to: SpanContext) {
    static FIELD: Callsite = Callsite::new("", &[LINKS], file!(), line!());
    // Only contexts without a recorded span have these marks.
    if !to.is_valid() || to.is_cut() || to.is_unseen() {
        return;
    }
    let (trace_id, span_id) = (to.trace_id(), to.span_id());
    add_fields(span, &FIELD, |writer| {
        let links =
            format_args!(r#"[{{"trace_id":"{trace_id:032x}","span_id":"{span_id:016x}"}}]"#);
        writer.formatted(0, links);
    });
}

/// Adds links to those that the fields of a span have, up to the limit. Replaces another value of
/// this name.
pub(crate) fn add_links(fields: &mut Fields, more: OwnedValue) {
    let known = fields.iter_mut().find(|(name, _)| *name == LINKS);
    let known = known.map(|(_, value)| value);
    let (Some(OwnedValue::Text(known)), OwnedValue::Text(text)) = (known, &more) else {
        return set_field(fields, LINKS, more);
    };
    let is_list = known.starts_with("[{") && known.ends_with("}]");
    let Some(next) = text.strip_prefix('[').filter(|_| is_list) else {
        return set_field(fields, LINKS, more);
    };
    if known.len() + text.len() > LINKS_BYTES_MAX {
        LOSSES.add(LossCause::Oversize, 1);
        return;
    }
    // Enlarges the text in place if the allocator can: a batch may have hundreds of links.
    let mut list = std::mem::take(known).into_string();
    list.pop();
    list.reserve_exact(next.len() + 1);
    list.extend([",", next]);
    *known = list.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> OwnedValue {
        OwnedValue::Text(text.into())
    }

    #[test]
    fn links_are_added_and_other_values_replaced() {
        let mut fields = vec![("user", OwnedValue::Int(7))];
        let mut check = |more: OwnedValue, expected: OwnedValue| {
            add_links(&mut fields, more);
            assert_eq!(fields[1..], [(LINKS, expected)]);
        };
        check(text(r#"[{"a":1}]"#), text(r#"[{"a":1}]"#));
        check(text(r#"[{"b":2}]"#), text(r#"[{"a":1},{"b":2}]"#));
        check(text("none"), text("none"));
        check(text(r#"[{"c":3}]"#), text(r#"[{"c":3}]"#));
        check(OwnedValue::Int(4), OwnedValue::Int(4));
    }

    #[test]
    fn the_links_of_a_span_are_bounded() {
        let mut fields = Fields::new();
        let one = format!(r#"[{{"trace_id":"{:032x}","span_id":"{:016x}"}}]"#, 1, 1);
        (0..10_000).for_each(|_| add_links(&mut fields, text(&one)));
        let [(LINKS, OwnedValue::Text(links))] = &fields[..] else {
            panic!("{fields:?}");
        };
        assert!(links.len() <= LINKS_BYTES_MAX && links.len() > LINKS_BYTES_MAX - 100);
        assert_eq!(links.matches("trace_id").count(), 851);
        assert!(links.starts_with("[{") && links.ends_with("}]"));
    }
}
