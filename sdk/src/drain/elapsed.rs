//! Spans of work that sqlx logs after its end: statements, and waits for connections.

use stroboscope_proto::v1::SpanFlag;

use super::open_spans::OpenSpan;
use super::{Drain, named};
use crate::batch::{Fields, OwnedValue};
use crate::callsite::Role;
use crate::gate::window_log::Snapshot;
use crate::record::{self, FieldValue, Head};
use crate::thread;

/// Work that has ended.
#[derive(Debug, PartialEq)]
struct ElapsedWork {
    duration_ns: i64,
    fields: Fields,
}

impl ElapsedWork {
    /// Returns the work that the fields of an event describe; `None` if they have no duration.
    fn of<'a>(fields: impl Iterator<Item = (&'static str, FieldValue<'a>)>) -> Option<Self> {
        let (mut duration_ns, mut others) = (None, Fields::new());
        let (mut summary, mut text) = (None, None);
        for (name, value) in fields {
            match (name, value) {
                // The spelling is sqlx's. The conversion to an integer saturates.
                ("elapsed_secs" | "aquired_after_secs", FieldValue::Double(seconds))
                    if seconds >= 0.0 =>
                {
                    duration_ns = Some((seconds * 1e9) as i64);
                }
                ("summary", FieldValue::Text(value)) => summary = Some(value),
                ("db.statement", FieldValue::Text(value)) => text = Some(value.trim()),
                ("elapsed" | "elapsed_secs" | "message", _) => {}
                (name, value) => others.push((name, value.into())),
            }
        }
        // The summary of a short statement is all of it.
        let text = text.filter(|text| !text.is_empty()).or(summary);
        others.extend(text.map(|text| ("db.query.text", OwnedValue::Text(text.into()))));
        Some(Self {
            duration_ns: duration_ns?,
            fields: others,
        })
    }
}

impl Drain {
    /// Records the work described by an event, as a span that ends at `end_ns`. Cuts or trims it
    /// like other spans. Returns false if the event describes no work, or belongs to no span.
    pub(super) fn elapsed(
        &mut self,
        head: &Head,
        fields: &record::Fields<'_>,
        end_ns: i64,
        windows: &Snapshot,
    ) -> bool {
        if head.callsite.role != Role::Elapsed || head.span_id == 0 {
            return false;
        }
        let Some(work) = ElapsedWork::of(named(head.callsite, fields.clone())) else {
            return false;
        };
        let start_ns = end_ns.saturating_sub(work.duration_ns);
        let span = OpenSpan {
            trace_id: head.trace_id,
            span_id: thread::span_id(),
            parent_id: head.span_id,
            callsite: head.callsite,
            start_ticks: head.ticks,
            start_ns,
            flags: u32::from(head.flags) & SpanFlag::Sampled as u32,
            fields: work.fields,
            window_close_ns: windows.find(start_ns).map(|window| window.close_ns),
        };
        match span.cut_at_ns() {
            None if !span.is_sampled() => self.counts.trimmed += 1,
            Some(cut_at_ns) if end_ns >= cut_at_ns => {
                self.close(span, cut_at_ns, SpanFlag::CutClose as u32);
            }
            _ => self.close(span, end_ns, 0),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &[(&'static str, FieldValue<'_>)], expected: Option<(i64, &str)>) {
        let work = ElapsedWork::of(fields.iter().copied());
        let expected = expected.map(|(duration_ns, text)| ElapsedWork {
            duration_ns,
            fields: vec![("db.query.text", OwnedValue::Text(text.into()))],
        });
        assert_eq!(work, expected, "{fields:?}");
    }

    #[test]
    fn events_of_sqlx_describe_work() {
        let (text, seconds) = (FieldValue::Text, |seconds| {
            ("elapsed_secs", FieldValue::Double(seconds))
        });
        let long = "\n\nSELECT a, b, c FROM t\n";
        check(
            &[
                ("message", text("slow statement")),
                ("summary", text("SELECT a, b, c …")),
                ("db.statement", text(long)),
                ("elapsed", text("1.5ms")),
                seconds(0.0015),
            ],
            Some((1_500_000, long.trim())),
        );
        let short = [
            ("summary", text("SELECT 1")),
            ("db.statement", text("")),
            seconds(0.0),
        ];
        check(&short, Some((0, "SELECT 1")));
        check(
            &[("summary", text("a")), seconds(f64::INFINITY)],
            Some((i64::MAX, "a")),
        );
        check(&[("summary", text("a")), seconds(f64::NAN)], None);
        check(&[("summary", text("a")), seconds(-1.0)], None);
        check(&[("summary", text("a")), ("elapsed", text("1s"))], None);
        let wait = ("aquired_after_secs", FieldValue::Double(0.5));
        let wait = ElapsedWork::of([("message", text("acquired connection")), wait].into_iter());
        let expected = ElapsedWork {
            duration_ns: 500_000_000,
            fields: vec![],
        };
        assert_eq!(wait, Some(expected));
    }
}
