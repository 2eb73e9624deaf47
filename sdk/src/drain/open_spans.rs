//! Spans whose begin was read and whose end was not, yet.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::batch::Fields;
use crate::record::FieldValue;

/// A span that began.
#[derive(Clone, Debug)]
pub(crate) struct OpenSpan {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    pub(crate) parent_id: u64,
    pub(crate) name: &'static str,
    pub(crate) start_ticks: u64,
    pub(crate) start_ns: i64,
    pub(crate) flags: u32,
    pub(crate) fields: Fields,
    /// When its window closes, if it is recorded because of a window; `None` if its request was sampled.
    pub(crate) cut_at_ns: Option<i64>,
}

/// What is known of a span id whose end is outstanding.
#[derive(Debug)]
enum Entry {
    Open(Box<OpenSpan>),
    /// Nothing more to say: it began outside any window, or was shipped when its window closed. Its end is expected
    /// and means nothing.
    Settled,
}

/// Spans waiting for their end, oldest first; bounded.
#[derive(Debug)]
pub(crate) struct OpenSpans {
    entries: FxHashMap<u64, Entry>,
    /// Ids in order of begin; some of them may have gone from `entries`.
    order: VecDeque<u64>,
    max: usize,
}

/// What an end closes.
#[derive(Debug)]
pub(crate) enum Ended {
    Span(Box<OpenSpan>),
    Settled,
    Unknown,
}

impl OpenSpans {
    pub(crate) fn with_max(max: usize) -> Self {
        Self { entries: FxHashMap::default(), order: VecDeque::new(), max }
    }

    /// Adds a span that began; when there are too many, the oldest that is still open is handed back.
    #[must_use]
    pub(crate) fn begin(&mut self, span: OpenSpan) -> Option<Box<OpenSpan>> {
        self.insert(span.span_id, Entry::Open(Box::new(span)))
    }

    /// Notes a span that began outside any window.
    #[must_use]
    pub(crate) fn begin_settled(&mut self, span_id: u64) -> Option<Box<OpenSpan>> {
        self.insert(span_id, Entry::Settled)
    }

    fn insert(&mut self, span_id: u64, entry: Entry) -> Option<Box<OpenSpan>> {
        self.entries.insert(span_id, entry);
        self.order.push_back(span_id);
        if self.order.len() > 2 * self.max {
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

    pub(crate) fn end(&mut self, span_id: u64) -> Ended {
        match self.entries.remove(&span_id) {
            Some(Entry::Open(span)) => Ended::Span(span),
            Some(Entry::Settled) => Ended::Settled,
            None => Ended::Unknown,
        }
    }

    pub(crate) fn add_fields<'a>(
        &mut self,
        span_id: u64,
        fields: impl Iterator<Item = (&'static str, FieldValue<'a>)>,
    ) {
        if let Some(Entry::Open(span)) = self.entries.get_mut(&span_id) {
            for (key, value) in fields.map(|(key, value)| (key, value.into())) {
                match span.fields.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, known)) => *known = value,
                    None => span.fields.push((key, value)),
                }
            }
        }
    }

    /// Takes the open spans for which `is_due` holds; their ends will mean nothing.
    pub(crate) fn take_due(&mut self, is_due: impl Fn(&OpenSpan) -> bool) -> Vec<OpenSpan> {
        let mut taken = Vec::new();
        for entry in self.entries.values_mut() {
            if matches!(entry, Entry::Open(span) if is_due(span))
                && let Entry::Open(span) = std::mem::replace(entry, Entry::Settled)
            {
                taken.push(*span);
            }
        }
        // In order of time, whatever the map's order.
        taken.sort_by_key(|span| (span.start_ns, span.span_id));
        taken
    }

    #[cfg(test)]
    pub(crate) fn order_len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
