//! Spans whose begin was read and whose end is outstanding.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use stroboscope_proto::v1::SpanFlag;

use crate::batch::{Fields, set_field};
use crate::callsite::Callsite;
use crate::loss::{LOSSES, LossCause};
use crate::span::links::{LINKS, add_links};

/// Span that has begun and not ended, with its fields so far.
#[derive(Clone, Debug)]
pub(crate) struct OpenSpan {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    pub(crate) parent_id: u64,
    pub(crate) callsite: &'static Callsite,
    pub(crate) start_ticks: u64,
    pub(crate) start_ns: i64,
    pub(crate) flags: u32,
    pub(crate) fields: Fields,
    /// Close, or planned close, of the window in which the span began, in ns since the Unix epoch;
    /// `None` if the span began outside of windows.
    pub(crate) window_close_ns: Option<i64>,
}

impl OpenSpan {
    /// Reports whether the span's request was sampled.
    pub(crate) fn is_sampled(&self) -> bool {
        self.flags & SpanFlag::Sampled as u32 != 0
    }

    /// Returns the close of the span's window, in ns since the Unix epoch, if a window is the only
    /// reason for recording. Returns `None` for sampled requests, and outside of windows.
    pub(crate) fn cut_at_ns(&self) -> Option<i64> {
        self.window_close_ns.filter(|_| !self.is_sampled())
    }

    /// Reports whether the span, which ends at `end_ns`, would be cut or missing if only a window
    /// were the reason for recording it.
    pub(crate) fn is_outside(&self, end_ns: i64) -> bool {
        self.window_close_ns
            .is_none_or(|close_ns| end_ns >= close_ns)
    }

    /// Drops fields beyond [`FIELDS_MAX`], and counts the span if there are any.
    pub(crate) fn limit_fields(&mut self) {
        if self.fields.len() > FIELDS_MAX {
            self.fields.truncate(FIELDS_MAX);
            LOSSES.add(LossCause::Oversize, 1);
        }
    }

    /// Adds fields; replaces existing ones of the same name, except that links are added to links.
    pub(crate) fn add_fields(&mut self, fields: Fields) {
        for (name, value) in fields {
            match name {
                LINKS => add_links(&mut self.fields, value),
                _ => set_field(&mut self.fields, name, value),
            }
        }
    }
}

/// Maximum number of fields of a span, without a few that the SDK derives from them. The collector
/// rejects a batch if one of its records has more than 256.
const FIELDS_MAX: usize = 250;

/// State of a span id whose end is outstanding.
#[derive(Debug)]
enum Entry {
    Open(Box<OpenSpan>),
    /// The span began outside any window, or was shipped without its end. Its end is expected and
    /// ignored.
    Settled,
}

/// Number of ids by which the order of begins may exceed twice the number of outstanding spans: 8
/// KiB.
pub(crate) const ORDER_SPARE: usize = 1_024;

/// Spans that await their end. Their number is bounded; the oldest are evicted first.
#[derive(Debug)]
pub(crate) struct OpenSpans {
    entries: FxHashMap<u64, Entry>,
    /// Ids in order of begin; some may no longer be in `entries`. Its length follows the number of
    /// outstanding spans instead of the bound. With the bound alone, a service grew by 8 bytes per
    /// span up to a megabyte.
    order: VecDeque<u64>,
    max: usize,
}

/// Result of [`OpenSpans::end`]: the span, or the reason that there is none.
#[derive(Debug)]
pub(crate) enum EndOutcome {
    Span(Box<OpenSpan>),
    Settled,
    Unknown,
}

impl OpenSpans {
    pub(crate) fn with_max(max: usize) -> Self {
        Self {
            entries: FxHashMap::default(),
            order: VecDeque::new(),
            max,
        }
    }

    /// Adds a span. If there are too many entries, evicts the oldest one, and returns it if it is
    /// an open span; otherwise returns `None`.
    #[must_use]
    pub(crate) fn begin(&mut self, span: OpenSpan) -> Option<Box<OpenSpan>> {
        self.insert(span.span_id, Entry::Open(Box::new(span)))
    }

    /// Adds the id of a span that began outside any window. Returns an evicted span like
    /// [`begin`](Self::begin).
    #[must_use]
    pub(crate) fn begin_settled(&mut self, span_id: u64) -> Option<Box<OpenSpan>> {
        self.insert(span_id, Entry::Settled)
    }

    fn insert(&mut self, span_id: u64, entry: Entry) -> Option<Box<OpenSpan>> {
        self.entries.insert(span_id, entry);
        self.order.push_back(span_id);
        // Each cleanup removes at least half of the ids, so a begin pays for one or two ids.
        if self.order.len() > 2 * self.entries.len() + ORDER_SPARE {
            let entries = &self.entries;
            self.order.retain(|id| entries.contains_key(id));
        }
        while self.entries.len() > self.max {
            let oldest = self.order.pop_front()?;
            if let Some(Entry::Open(span)) = self.entries.remove(&oldest) {
                return Some(span);
            }
        }
        None
    }

    pub(crate) fn end(&mut self, span_id: u64) -> EndOutcome {
        match self.entries.remove(&span_id) {
            Some(Entry::Open(span)) => EndOutcome::Span(span),
            Some(Entry::Settled) => EndOutcome::Settled,
            None => EndOutcome::Unknown,
        }
    }

    /// Adds fields to a span; returns them if the span is unknown: its begin was not read, or the
    /// span has ended or was evicted.
    #[must_use]
    pub(crate) fn add_fields(&mut self, span_id: u64, fields: Fields) -> Option<Fields> {
        match self.entries.get_mut(&span_id) {
            Some(Entry::Open(span)) => span.add_fields(fields),
            Some(Entry::Settled) => {}
            None => return Some(fields),
        }
        None
    }

    /// Adds flags to an open span and its ancestors, up to the first that has them or is not open.
    pub(crate) fn add_flags(&mut self, span_id: u64, flags: u32) {
        let mut next = span_id;
        while let Some(Entry::Open(span)) = self.entries.get_mut(&next)
            && span.flags & flags != flags
        {
            span.flags |= flags;
            next = span.parent_id;
        }
    }

    /// Removes the open spans for which `is_due` is true; their ends will be ignored.
    pub(crate) fn take_due(&mut self, is_due: impl Fn(&OpenSpan) -> bool) -> Vec<OpenSpan> {
        let mut taken = Vec::new();
        for entry in self.entries.values_mut() {
            if matches!(entry, Entry::Open(span) if is_due(span))
                && let Entry::Open(span) = std::mem::replace(entry, Entry::Settled)
            {
                taken.push(*span);
            }
        }
        // Sorts by time, because the map has no order.
        taken.sort_by_key(|span| (span.start_ns, span.span_id));
        taken
    }

    /// Returns the parents of a trace's open spans.
    pub(crate) fn parents(&self, trace_id: u128) -> Vec<u64> {
        let parent = |entry: &Entry| match entry {
            Entry::Open(span) if span.trace_id == trace_id => Some(span.parent_id),
            _ => None,
        };
        self.entries.values().filter_map(parent).collect()
    }

    /// Returns the length of the order of begins.
    #[cfg(test)]
    pub(crate) fn order_len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static CALLSITE: Callsite = Callsite::new("work", &[], file!(), line!());

    fn span(span_id: u64) -> OpenSpan {
        OpenSpan {
            trace_id: 1,
            span_id,
            parent_id: 0,
            callsite: &CALLSITE,
            start_ticks: span_id,
            start_ns: span_id.cast_signed(),
            flags: 0,
            fields: Fields::new(),
            window_close_ns: None,
        }
    }

    /// Ends a million spans, keeps a few open, and adds one crowd: memory follows the number of
    /// outstanding spans.
    #[test]
    fn memory_follows_what_is_outstanding() {
        let mut open = OpenSpans::with_max(65_536);
        let begin = |open: &mut OpenSpans, id| assert!(open.begin(span(id)).is_none());
        for id in 0..1_000_000 {
            begin(&mut open, id);
            if id % 100_000 != 0 {
                assert!(matches!(open.end(id), EndOutcome::Span(ended) if ended.span_id == id));
            }
            assert!(
                open.order_len() <= 2 * (open.len() + 1) + ORDER_SPARE,
                "{} of {}",
                open.order_len(),
                open.len()
            );
        }
        assert_eq!(open.len(), 10);
        assert!(
            open.order.capacity() <= 4 * ORDER_SPARE,
            "{}",
            open.order.capacity()
        );
        (2_000_000..2_010_000).for_each(|id| begin(&mut open, id));
        assert!(open.order_len() >= open.len());
        (2_000_000..2_010_000).for_each(|id| assert!(matches!(open.end(id), EndOutcome::Span(_))));
        begin(&mut open, 3_000_000);
        assert!(
            open.order_len() <= 2 * open.len() + ORDER_SPARE,
            "{}",
            open.order_len()
        );
    }

    /// Checks that the oldest span is evicted when there are too many, regardless of cleanups of
    /// the order.
    #[test]
    fn the_oldest_goes_first() {
        let mut open = OpenSpans::with_max(100);
        let mut outstanding = VecDeque::new();
        let mut random = 7u64;
        for id in 0..50_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let evicted = open.begin(span(id)).map(|span| span.span_id);
            outstanding.push_back(id);
            let expected = if outstanding.len() > 100 {
                outstanding.pop_front()
            } else {
                None
            };
            assert_eq!(evicted, expected);
            if random >> 63 == 0 {
                let place = (random >> 33) as usize % outstanding.len();
                let ended = outstanding.remove(place).unwrap();
                assert!(matches!(open.end(ended), EndOutcome::Span(_)));
            }
        }
    }
}
