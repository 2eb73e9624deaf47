//! Context that short records of a ring omit.

use super::{RecordKind, first_word};

/// Trace of a ring's last records, and the spans they were in, as a circular list. The writer and
/// the reader of a ring follow its records by the same rules, so after the same record their
/// lineages are equivalent, even in stale parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lineage {
    trace_id: [u64; 2],
    spans: [u64; DEPTH],
    /// Index of the innermost span; less than [`DEPTH`].
    top: usize,
}

/// Number of innermost spans that a lineage stores. The first record after a return to a span
/// further out is a long one.
const DEPTH: usize = 8;

impl Lineage {
    /// Lineage of a new ring. It differs from the lineage after a record outside any span, whose
    /// ids are 0.
    pub(crate) const UNKNOWN: Self = Self {
        trace_id: [0, 0],
        spans: [u64::MAX; DEPTH],
        top: 0,
    };

    #[inline]
    pub(crate) fn innermost(&self) -> u64 {
        debug_assert!(self.top < DEPTH);
        // SAFETY: `top` is less than DEPTH wherever it is set, which is only in this file.
        unsafe { *self.spans.get_unchecked(self.top) }
    }

    pub(crate) fn trace_id(&self) -> u128 {
        let [high, low] = self.trace_id;
        u128::from(high) << 64 | u128::from(low)
    }

    #[inline]
    pub(super) fn is_in(&self, trace_id: u128, span_id: u64) -> bool {
        let ([high, low], [own_high, own_low]) = (halves(trace_id), self.trace_id);
        (high ^ own_high) | (low ^ own_low) | (span_id ^ self.innermost()) == 0
    }

    /// Applies a record that names its trace and span.
    #[inline]
    pub(super) fn restart(&mut self, trace_id: u128, span_id: u64) {
        self.trace_id = halves(trace_id);
        self.spans[self.top % DEPTH] = span_id;
    }

    /// Applies the beginning of a span inside the innermost one.
    #[inline]
    pub(super) fn push(&mut self, span_id: u64) {
        self.top = self.top.wrapping_add(1) % DEPTH;
        self.spans[self.top] = span_id;
    }

    /// Applies the end of the innermost span.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.top = self.top.wrapping_sub(1) % DEPTH;
    }

    /// Applies the end of a span, which may be the innermost one.
    #[inline]
    pub(super) fn close(&mut self, span_id: u64) {
        if span_id == self.innermost() {
            self.pop();
        }
    }

    /// Applies the record in these words.
    #[inline]
    pub(crate) fn follow(&mut self, record: &[u64]) {
        let kind = record.first().map_or(0, |&first| first as u8);
        let trace_id = |high, low| u128::from(high) << 64 | u128::from(low);
        match *record {
            [_, _, _, high, low, span_id, ..] if kind == RecordKind::Event as u8 => {
                self.restart(trace_id(high, low), span_id);
            }
            [_, _, _, high, low, span_id, parent_id, ..] if kind == RecordKind::Begin as u8 => {
                self.restart(trace_id(high, low), parent_id);
                self.push(span_id);
            }
            [_, _, _, span_id, ..] if kind == RecordKind::Child as u8 => self.push(span_id),
            [_, _] if kind == RecordKind::EndInnermost as u8 => self.pop(),
            [_, _, _, _, _, span_id, ..] if kind == RecordKind::Close as u8 => self.close(span_id),
            _ => {}
        }
    }

    /// Encodes the lineage as a CONTEXT record.
    pub(crate) fn as_record(&self) -> [u64; 3 + DEPTH] {
        let mut record = [0; 3 + DEPTH];
        record[0] = first_word(RecordKind::Context, 0, 3 + DEPTH);
        record[1..3].copy_from_slice(&self.trace_id);
        for (age, word) in record[3..].iter_mut().enumerate() {
            *word = self.spans[self.top.wrapping_sub(age) % DEPTH];
        }
        record
    }

    /// Decodes a CONTEXT record; returns `None` if it has another length.
    pub(super) fn from_record(record: &[u64]) -> Option<Self> {
        let (&[_, high, low], spans) = record.split_first_chunk()?;
        let mut spans: [u64; DEPTH] = spans.try_into().ok()?;
        spans.reverse();
        Some(Self {
            trace_id: [high, low],
            spans,
            top: DEPTH - 1,
        })
    }
}

#[inline]
const fn halves(trace_id: u128) -> [u64; 2] {
    [(trace_id >> 64) as u64, trace_id as u64]
}
