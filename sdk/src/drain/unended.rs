//! Closes spans without an end: unsampled ones whose window is over, sampled ones open for too
//! long, and all when recording stops.

use stroboscope_proto::v1::{self, SpanFlag};

use super::open_spans::OpenSpan;
use super::{Drain, end_at};
use crate::gate::foresight;

/// Time in ns after a window's close during which the drain awaits the end of a span.
const CUT_PATIENCE_NS: i64 = 50_000_000;

impl Drain {
    /// Closes unsampled spans whose window is over and sampled spans open for too long. It uses the
    /// age of each span on the monotonic clock, so that steps of the wall clock have no effect.
    /// Passes full batches to `ship`.
    pub(super) fn close_due(&mut self, now_ticks: u64, ship: &mut dyn FnMut(v1::Batch)) {
        let (span_ns_max, timeline) = (self.limits.span_ns_max, &self.timeline);
        let is_due = |span: &OpenSpan| {
            let end_ns = end_at(timeline, span, now_ticks);
            match span.cut_at_ns() {
                // Waits a little longer, because the record of an end may still be in a ring.
                Some(cut_at_ns) => cut_at_ns.saturating_add(CUT_PATIENCE_NS) < end_ns,
                None => span.start_ns.saturating_add(span_ns_max) < end_ns,
            }
        };
        let due = self.open.take_due(is_due);
        self.close_unended(due, now_ticks, ship);
    }

    /// Closes all open spans when recording stops. Passes full batches to `ship`.
    pub(crate) fn close_all(&mut self, now_ticks: u64, ship: &mut dyn FnMut(v1::Batch)) {
        let all = self.open.take_due(|_| true);
        self.close_unended(all, now_ticks, ship);
    }

    fn close_unended(
        &mut self,
        spans: Vec<OpenSpan>,
        now_ticks: u64,
        ship: &mut dyn FnMut(v1::Batch),
    ) {
        for span in spans {
            foresight::saw_span_without_end();
            let now_ns = end_at(&self.timeline, &span, now_ticks);
            let (end_ns, flag) = match span.cut_at_ns() {
                Some(cut_at_ns) if cut_at_ns <= now_ns => (cut_at_ns, SpanFlag::CutClose),
                _ => (now_ns, SpanFlag::Unfinished),
            };
            self.close(span, end_ns, flag as u32);
            self.ship_full(ship);
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::super::Limits;
    use super::*;
    use crate::batch::OwnedValue;
    use crate::callsite::Callsite;
    use crate::clock::SystemClock;

    static CALLSITE: Callsite = Callsite::new("work", &["text"], file!(), line!());

    /// A collector permanently rejects messages above 16 MiB, and the stream with them.
    #[test]
    fn spans_that_are_closed_together_fill_several_batches() {
        const SPANS: u64 = 20_000;
        let mut drain = Drain::new(&SystemClock, Limits::default());
        for span_id in 1..=SPANS {
            let text = format!("{span_id:01000}");
            let evicted = drain.open.begin(OpenSpan {
                trace_id: 1,
                span_id,
                parent_id: 0,
                callsite: &CALLSITE,
                start_ticks: 0,
                start_ns: 1,
                flags: 0,
                fields: vec![("text", OwnedValue::Text(text.into()))],
                window_close_ns: Some(2),
            });
            assert!(evicted.is_none());
        }
        let mut batches = Vec::new();
        drain.close_all(1, &mut |batch| batches.push(batch));
        batches.push(drain.batch());
        let spans = |batch: &v1::Batch| batch.spans.as_ref().unwrap().span_ids.len();
        assert_eq!(batches.iter().map(spans).sum::<usize>(), SPANS as usize);
        let largest = batches.iter().map(v1::Batch::encoded_len).max();
        assert!(largest < Some(2 << 20), "{largest:?}");
    }
}
