//! Counters of intake and flushing, for the status display and for Prometheus.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::decode::OtlpTaken;
use crate::wal::PayloadKind;

/// Counters and state of one collector, since it started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of batches stored.
    pub stored: AtomicU64,
    /// Number of received batches that were stored already.
    pub duplicate: AtomicU64,
    /// Number of batches and OTLP requests that the log did not accept, so that the sender retries.
    pub pushed_back: AtomicU64,
    /// Number of records stored: spans, events, and log records from OTLP.
    pub records: AtomicU64,
    /// Number of group commits to the log.
    pub commits: AtomicU64,
    /// Size of the records appended to the log, in bytes.
    pub wal_bytes_written: AtomicU64,
    /// Size in bytes of the log segments that are not flushed to the tables yet (in an agent: not
    /// forwarded), without those that were abandoned after a failed write.
    pub wal_bytes: AtomicU64,
    /// Number of bytes written to Parquet files by flushes.
    pub parquet_bytes: AtomicU64,
    /// Number of log segments flushed to the tables, or forwarded by an agent.
    pub flushes: AtomicU64,
    /// Number of failed attempts to flush or forward a segment.
    pub flush_failures: AtomicU64,
    /// Next segment of the checkpoint. All segments below it are durable in the tables, or
    /// forwarded by an agent.
    pub checkpoint_segment: AtomicU64,
    /// Time at which a segment was last flushed or forwarded, in ns since the Unix epoch; 0 for
    /// never.
    pub last_flush_ns: AtomicI64,
    /// Number of damaged places found in the log. Flushing a segment again counts them again.
    pub wal_damage: AtomicU64,
    /// Number of records in the log that could not be decoded. Flushing a segment again counts them
    /// again.
    pub wal_undecodable: AtomicU64,
    /// Number of OTLP requests stored, of spans or of log records.
    pub otlp_requests: AtomicU64,
    /// Number of OTLP spans rejected from requests that were accepted.
    pub otlp_rejected_spans: AtomicU64,
    /// Number of OTLP log records rejected because they were invalid.
    pub otlp_rejected_logs: AtomicU64,
    /// Number of OTLP log records left out because they belong to no trace.
    pub otlp_logs_without_trace: AtomicU64,
    /// Number of OTLP texts in which invalid UTF-8 was replaced.
    pub otlp_replaced_texts: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

/// Snapshot of the outcomes of batches and requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Number of batches by outcome. `pushed_back` and `refused` also count OTLP requests;
    /// `refused` also counts calls and streams.
    pub batches: BTreeMap<&'static str, u64>,
    /// Number of refused batches, requests, calls and streams by cause.
    pub refused: BTreeMap<&'static str, u64>,
    /// Number of records stored: spans, events, and log records from OTLP.
    pub records: u64,
}

impl Counters {
    /// Counts a refused batch, request, call or stream by its cause.
    pub fn refuse(&self, cause: &'static str) {
        if let Ok(mut refused) = self.refused.lock() {
            *refused.entry(cause).or_default() += 1;
        }
    }

    /// Counts the rejected records and the replaced texts of an accepted OTLP request.
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

    /// Returns the outcomes of batches and requests so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let refused = self.refused.lock();
        let refused = refused.map(|refused| refused.clone()).unwrap_or_default();
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
