//! Counters of intake and flushing, for people and for Prometheus.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::decode::OtlpTaken;
use crate::wal::PayloadKind;

/// Counters of one collector, since it started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Batches stored.
    pub stored: AtomicU64,
    /// Batches that were stored already.
    pub duplicate: AtomicU64,
    /// Batches rejected for now, which the sender retries.
    pub pushed_back: AtomicU64,
    /// Spans and events stored.
    pub records: AtomicU64,
    /// Group commits.
    pub commits: AtomicU64,
    /// Bytes appended to the log.
    pub wal_bytes_written: AtomicU64,
    /// Bytes of the log that are not in the store yet.
    pub wal_bytes: AtomicU64,
    /// Bytes of Parquet written.
    pub parquet_bytes: AtomicU64,
    /// Segments flushed to the store.
    pub flushes: AtomicU64,
    /// Flushes that failed.
    pub flush_failures: AtomicU64,
    /// Segment below which all segments are durable in the store, from the checkpoint.
    pub checkpoint_segment: AtomicU64,
    /// Time of the last successful flush, in ns since the Unix epoch; 0 for never.
    pub last_flush_ns: AtomicI64,
    /// Damaged places found in the log.
    pub wal_damage: AtomicU64,
    /// Batches in the log that could not be decoded.
    pub wal_undecodable: AtomicU64,
    /// OTLP requests stored.
    pub otlp_requests: AtomicU64,
    /// OTLP spans rejected from requests whose other spans were stored.
    pub otlp_rejected_spans: AtomicU64,
    /// OTLP log records that were invalid.
    pub otlp_rejected_logs: AtomicU64,
    /// OTLP log records left out because they belong to no request.
    pub otlp_logs_without_trace: AtomicU64,
    /// OTLP texts in which invalid UTF-8 was replaced.
    pub otlp_replaced_texts: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

/// Copy of the counters of batch outcomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Batches by outcome.
    pub batches: BTreeMap<&'static str, u64>,
    /// Refused batches by cause.
    pub refused: BTreeMap<&'static str, u64>,
    /// Spans and events stored.
    pub records: u64,
}

impl Counters {
    /// Counts a rejected batch.
    pub fn refuse(&self, cause: &'static str) {
        if let Ok(mut refused) = self.refused.lock() {
            *refused.entry(cause).or_default() += 1;
        }
    }

    /// Counts records left out of an OTLP request, and replaced texts.
    pub fn leave_out(&self, kind: PayloadKind, taken: &OtlpTaken) {
        let rejected = match kind {
            PayloadKind::OtlpLogsProtobuf | PayloadKind::OtlpLogsJson => &self.otlp_rejected_logs,
            _ => &self.otlp_rejected_spans,
        };
        rejected.fetch_add(taken.rejected - taken.without_trace, Relaxed);
        self.otlp_logs_without_trace
            .fetch_add(taken.without_trace, Relaxed);
        self.otlp_replaced_texts
            .fetch_add(taken.replaced_texts, Relaxed);
    }

    /// Returns the outcomes of batches so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let refused = self
            .refused
            .lock()
            .map(|refused| refused.clone())
            .unwrap_or_default();
        let batches = [
            ("stored", self.stored.load(Relaxed)),
            ("duplicate", self.duplicate.load(Relaxed)),
            ("refused", refused.values().sum()),
            ("pushed_back", self.pushed_back.load(Relaxed)),
        ];
        Totals {
            batches: batches.into(),
            refused,
            records: self.records.load(Relaxed),
        }
    }
}
