//! Forwards closed segments of an agent's log to another collector. Forwarding a segment has three
//! steps. After a crash between any two of them, repeating all steps completes the forwarding:
//!
//! 1. The other collector acknowledges or permanently rejects each payload of the segment.
//! 2. The checkpoint records this. Its ledger has only batches of forwarded segments.
//! 3. The segment is deleted.
//!
//! A repetition may deliver payloads twice. The other collector recognises batches by their number;
//! readers leave out identical copies of OTLP spans.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::segment::{list_closed, loaded_checkpoint, read_closed, sync_closed};
use super::{Counters, FlushError, now_ns};
use crate::data_dir::{DataDir, DataDirError};
use crate::decode::CheckedBatch;
use crate::ledger::{Checkpoint, CheckpointError, FORWARDED, Ledger, Verdict};
use crate::limits::Limits;
use crate::wal::{Payload, PayloadKind, remove_segment};

/// Connection to the collector that an agent forwards to.
pub trait Upstream: std::fmt::Debug + Send {
    /// Delivers the payloads of a segment. Blocks until the other collector has acknowledged or
    /// permanently rejected each of them, at most until the given instant. A repeated call for the
    /// same segment may skip payloads that are acknowledged or rejected already.
    ///
    /// # Errors
    /// Returns the reason, as text for users, if a payload was neither acknowledged nor permanently
    /// rejected.
    fn deliver(&mut self, segment: u64, payloads: &[Payload], until: Instant)
    -> Result<(), String>;
}

/// Forwarder of an agent's closed segments, in order.
#[derive(Debug)]
pub struct Forwarder {
    data: DataDir,
    /// Directory of the checkpoint. It differs from the directory of a store's checkpoint, so a
    /// collector that later opens the data directory stores the rest of the log.
    directory: PathBuf,
    checkpoint: Checkpoint,
    /// False while the checkpoint on disk may be an older one.
    is_saved: bool,
    /// Segments below this number have been read, and their damage is counted.
    read_below: u64,
    /// Segments below this number are those of an earlier run, whose invalid batches are counted.
    recovered_below: u64,
    counters: Arc<Counters>,
    upstream: Box<dyn Upstream>,
}

/// Content of an agent's log at its start.
#[derive(Debug)]
pub struct WaitingLog {
    /// Ledger of the batches that were forwarded or are still in the log.
    pub ledger: Ledger,
    /// Segments to forward, with the sizes of their valid records in bytes.
    pub segments: BTreeMap<u64, u64>,
    /// Number of the next segment.
    pub next_segment: u64,
}

impl Forwarder {
    /// Loads the checkpoint. The caller must hold the lock of the data directory.
    ///
    /// # Errors
    /// Returns an error if the directory holds a store, if `forwarded/` cannot be created or
    /// synced, or if the checkpoint is damaged or cannot be read.
    pub fn load(
        data: &DataDir,
        upstream: Box<dyn Upstream>,
        counters: Arc<Counters>,
    ) -> Result<Self, FlushError> {
        // An agent numbers its segments independently of a store, whose flusher would delete all
        // segments below the store's checkpoint.
        data.refuse_store()?;
        let directory = data.root().join(FORWARDED);
        let (disk, path) = (data.disk(), &directory);
        let created = disk.create_directories(path).and(disk.sync(data.root()));
        created.map_err(DataDirError::at(path))?;
        Ok(Self {
            checkpoint: loaded_checkpoint(&**disk, path, &counters)?,
            data: data.clone(),
            directory,
            is_saved: true,
            read_below: 0,
            recovered_below: 0,
            counters,
            upstream,
        })
    }

    /// Reads the log that an earlier run left, and deletes segments that are forwarded already. The
    /// log must have no writer. Syncs the log, because a run that was killed may have written
    /// batches without syncing them, and the returned ledger acknowledges these as duplicates.
    ///
    /// # Errors
    /// Returns an error if the log cannot be synced or read, or if a forwarded segment cannot be
    /// deleted.
    pub fn recover(&mut self) -> Result<WaitingLog, FlushError> {
        let first = self.checkpoint.next_segment;
        let mut waiting = WaitingLog {
            ledger: self.checkpoint.ledger.clone(),
            segments: BTreeMap::new(),
            next_segment: first,
        };
        for segment in list_closed(&self.data)? {
            waiting.next_segment = waiting.next_segment.max(segment + 1);
            if segment < first {
                // A crash came between checkpoint and deletion.
                self.remove(segment)?;
                continue;
            }
            sync_closed(&self.data, segment)?;
            let payloads = self.read(segment)?;
            self.enter(segment, &payloads, &mut waiting.ledger);
            let bytes = payloads.iter().map(Payload::bytes_in_segment).sum();
            waiting.segments.insert(segment, bytes);
        }
        self.recovered_below = waiting.next_segment;
        Ok(waiting)
    }

    /// Performs all steps for one closed segment. Waits for its delivery until `until` at the
    /// latest.
    ///
    /// # Errors
    /// Returns an error from the step that fails. The call may then be repeated.
    pub fn forward(&mut self, segment: u64, until: Instant) -> Result<(), FlushError> {
        if segment >= self.checkpoint.next_segment {
            let payloads = self.read(segment)?;
            let delivered = self.upstream.deliver(segment, &payloads, until);
            delivered.map_err(FlushError::Upstream)?;
            let mut ledger = self.checkpoint.ledger.clone();
            self.enter(segment, &payloads, &mut ledger);
            if let Some(last) = payloads.last() {
                ledger.forget_idle(i64::try_from(last.received_ns).unwrap_or(i64::MAX));
            }
            self.checkpoint = Checkpoint {
                next_segment: segment + 1,
                ledger,
            };
            self.is_saved = false;
        }
        if !self.is_saved {
            if let Err(error) = self.save() {
                if !error.is_full() {
                    return Err(error.into());
                }
                // The disk is full, so the segment is deleted first to make room for the
                // checkpoint. Otherwise, a log that filled the disk would never shrink. After a
                // crash in between, the ledger lacks only this segment's batches. Their senders
                // have acknowledgements, and the other collector recognises retries.
                self.remove(segment)?;
                self.save()?;
            }
            self.is_saved = true;
            let counters = &self.counters;
            counters.checkpoint_segment.store(segment + 1, Relaxed);
            counters.flushes.fetch_add(1, Relaxed);
            counters.last_flush_ns.store(now_ns(), Relaxed);
        }
        self.remove(segment)
    }

    /// Reads a segment. Counts its damage the first time only: a segment is read at the start and
    /// for each attempt to deliver it.
    fn read(&mut self, segment: u64) -> Result<Vec<Payload>, FlushError> {
        let counters = (segment >= self.read_below).then_some(&*self.counters);
        let scan = read_closed(&self.data, segment, counters)?;
        self.read_below = self.read_below.max(segment + 1);
        Ok(scan.payloads)
    }

    /// Enters the batches among these payloads of a segment into the ledger. Counts invalid ones,
    /// except if they were counted at the start.
    fn enter(&self, segment: u64, payloads: &[Payload], ledger: &mut Ledger) {
        let limits = Limits::default();
        for payload in payloads {
            if payload.kind != PayloadKind::Batch {
                continue;
            }
            match CheckedBatch::from_bytes(&payload.bytes, &limits) {
                Ok(batch) => {
                    if ledger.verdict(batch.incarnation(), batch.sequence()) != Verdict::Duplicate {
                        ledger.enter(&batch, payload.received_ns);
                    }
                }
                Err(_) if segment < self.recovered_below => {}
                Err(refusal) => {
                    self.counters.wal_undecodable.fetch_add(1, Relaxed);
                    tracing::error!(cause = %refusal, "the log contains an invalid batch");
                }
            }
        }
    }

    fn save(&self) -> Result<(), CheckpointError> {
        self.checkpoint.save(&**self.data.disk(), &self.directory)
    }

    fn remove(&self, segment: u64) -> Result<(), FlushError> {
        remove_segment(&**self.data.disk(), &self.data.wal(), segment)
            .map_err(|source| FlushError::Wal { segment, source })
    }
}
