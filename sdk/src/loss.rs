//! Counters of discarded records, by cause.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stroboscope_proto::v1;

/// Cause for which a record or a part of one, a request's value, or a note about the process was
/// discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
#[non_exhaustive]
pub enum LossCause {
    /// A thread wrote faster than the drain read.
    RingFull,
    /// No ring was available: the thread had none of its own, and no shared ring could take the
    /// record. Or the thread made the record while it wrote another one, for example in code that
    /// formats a field.
    NoRing,
    /// Fields did not fit the largest record, a span had more than 250 fields or about 850 links,
    /// or texts of a tradeoff were too long. The excess was left out, and the record was kept.
    Oversize,
    /// Too many spans were open at once. The oldest were closed as unfinished, or new spans of
    /// `tracing` were not recorded.
    OpenSpansFull,
    /// The buffer of batches that the collector had not acknowledged was full.
    BufferFull,
    /// The collector permanently rejected a batch.
    CollectorRefused,
    /// A string was truncated, because it was too long or the record was nearly full; the record
    /// was kept.
    StringCut,
    /// A span's end arrived, but its begin was not known: the begin had been lost or belonged to an
    /// earlier recording, or the span had been evicted because too many spans were open.
    EndWithoutBegin,
    /// The shutdown deadline passed before everything was shipped.
    ShutdownDeadline,
    /// A value that should have travelled with a request or a data item was dropped because it was
    /// malformed, did not fit, or came from a [public caller](crate::Builder::public_callers).
    BaggageDropped,
    /// The provenance log of a request was too long, or the waiting logs were too many or too
    /// large; the request's other records were kept.
    ProvenanceDropped,
    /// Windows, load measurements and clock steps were not reported, because the buffer was full
    /// for too long or the shipping thread stood still. This cause counts these, not records.
    NotesDropped,
}

impl LossCause {
    /// List of the causes, in a fixed order.
    pub const ALL: [Self; 12] = [
        Self::RingFull,
        Self::NoRing,
        Self::Oversize,
        Self::OpenSpansFull,
        Self::BufferFull,
        Self::CollectorRefused,
        Self::StringCut,
        Self::EndWithoutBegin,
        Self::ShutdownDeadline,
        Self::BaggageDropped,
        Self::ProvenanceDropped,
        Self::NotesDropped,
    ];

    /// Returns a stable name for metrics and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::NoRing => "no_ring",
            Self::Oversize => "oversize",
            Self::OpenSpansFull => "open_spans_full",
            Self::BufferFull => "buffer_full",
            Self::CollectorRefused => "collector_refused",
            Self::StringCut => "string_cut",
            Self::EndWithoutBegin => "end_without_begin",
            Self::ShutdownDeadline => "shutdown_deadline",
            Self::BaggageDropped => "baggage_dropped",
            Self::ProvenanceDropped => "provenance_dropped",
            Self::NotesDropped => "notes_dropped",
        }
    }

    pub(crate) const fn wire(self) -> v1::LossCause {
        match self {
            Self::RingFull => v1::LossCause::RingFull,
            Self::NoRing => v1::LossCause::NoRing,
            Self::Oversize => v1::LossCause::Oversize,
            Self::OpenSpansFull => v1::LossCause::OpenSpansFull,
            Self::BufferFull => v1::LossCause::BufferFull,
            Self::CollectorRefused => v1::LossCause::CollectorRefused,
            Self::StringCut => v1::LossCause::StringCut,
            Self::EndWithoutBegin => v1::LossCause::EndWithoutBegin,
            Self::ShutdownDeadline => v1::LossCause::ShutdownDeadline,
            Self::BaggageDropped => v1::LossCause::BaggageDropped,
            Self::ProvenanceDropped => v1::LossCause::ProvenanceDropped,
            Self::NotesDropped => v1::LossCause::NotesDropped,
        }
    }
}

/// Counters of losses since the process started, one per cause.
#[derive(Debug)]
pub(crate) struct Losses([AtomicU64; LossCause::ALL.len()]);

/// Counters of this process's losses.
pub(crate) static LOSSES: Losses = Losses::new();

impl Losses {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; LossCause::ALL.len()])
    }

    pub(crate) fn add(&self, cause: LossCause, records: u64) {
        if records > 0 {
            self.0[cause as usize].fetch_add(records, Relaxed);
        }
    }

    /// Resets all counters in a forked child.
    pub(crate) fn reset(&self) {
        for counter in &self.0 {
            counter.store(0, Relaxed);
        }
    }

    pub(crate) fn get(&self, cause: LossCause) -> u64 {
        self.0[cause as usize].load(Relaxed)
    }

    /// Returns the sum over all causes, whose change shows that there are new losses.
    pub(crate) fn total(&self) -> u64 {
        LossCause::ALL
            .into_iter()
            .map(|cause| self.get(cause))
            .fold(0, u64::wrapping_add)
    }

    /// Returns the totals for a batch; causes without losses are omitted.
    pub(crate) fn wire(&self) -> Vec<v1::Loss> {
        LossCause::ALL
            .into_iter()
            .map(|cause| (cause, self.get(cause)))
            .filter(|&(_, records)| records > 0)
            .map(|(cause, records)| v1::Loss {
                cause: cause.wire().into(),
                records,
            })
            .collect()
    }
}
