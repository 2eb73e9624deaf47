//! Flushes closed segments to Parquet: the steps of [`super`], one method each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use object_store::path::Path;

use super::segment::{list_closed, loaded_checkpoint, read_closed};
use super::{Counters, FlushError};
use crate::data_dir::DataDir;
use crate::decode::{CheckedBatch, otlp_json, otlp_logs_json, otlp_logs_protobuf, otlp_protobuf};
use crate::ledger::{Checkpoint, Ledger, Verdict};
use crate::limits::Limits;
use crate::record::Rows;
use crate::tables::{PartitionRule, Segments, Store, StoreTable, write_rows};
use crate::wal::{Payload, PayloadKind, remove_segment, segment_path};

/// Observer of data that has become durable in the store, such as a live model. Its methods must
/// not wait.
pub trait Arrivals: std::fmt::Debug + Send {
    /// Receives rows; the last one was received at `received_ns`.
    fn arrived(&self, rows: Box<Rows>, received_ns: i64);

    /// Moves the watermark: everything received before `now_ns` has arrived.
    fn all_arrived_until(&self, now_ns: i64);
}

/// Flusher of segments to the store, in order.
#[derive(Debug)]
pub struct Flusher {
    data: DataDir,
    store: Store,
    checkpoint: Checkpoint,
    counters: Arc<Counters>,
    live: Option<Box<dyn Arrivals>>,
    /// Segment whose flush this process began, and may have failed in the middle.
    begun: Option<u64>,
    /// Segment that is durable in the store, but whose checkpoint could not be saved.
    unsaved: Option<ConvertedSegment>,
}

/// A segment whose Parquet is written, but not yet durable.
#[derive(Debug)]
pub struct ConvertedSegment {
    segment: u64,
    ledger: Ledger,
    paths: Vec<Path>,
    /// New rows for the observer, and the time when the last of them was received.
    arrived: Option<(Box<Rows>, i64)>,
}

impl Flusher {
    /// Loads the checkpoint. The caller holds the lock of the data directory.
    ///
    /// # Errors
    /// Returns an error if the checkpoint is damaged or cannot be read.
    pub fn load(data: &DataDir, store: Store, counters: Arc<Counters>) -> Result<Self, FlushError> {
        let checkpoint = loaded_checkpoint(&**data.disk(), data.root(), &counters)?;
        Ok(Self {
            checkpoint,
            data: data.clone(),
            store,
            counters,
            live: None,
            begun: None,
            unsaved: None,
        })
    }

    /// Sets the observer of data that becomes durable in the store.
    pub fn feed(&mut self, live: Box<dyn Arrivals>) {
        self.live = Some(live);
    }

    /// Notifies the observer that everything received before `now_ns` has been flushed.
    pub fn all_flushed_until(&self, now_ns: i64) {
        if let Some(live) = &self.live {
            live.all_arrived_until(now_ns);
        }
    }

    /// Returns the ledger of the batches in the store.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.checkpoint.ledger
    }

    /// Returns the number of the next segment: above all in the log, the checkpoint and the store.
    /// It includes the store, so that a lost checkpoint never lets a new segment overwrite an old
    /// one's objects.
    ///
    /// # Errors
    /// Returns an error if the log or the store cannot be listed.
    pub fn next_segment(&self) -> Result<u64, FlushError> {
        let mut next = self.checkpoint.next_segment;
        let listed = list_closed(&self.data)?;
        next = listed.last().map_or(next, |&last| next.max(last + 1));
        // Checks all tables: an OTLP segment has no batches.
        for table in StoreTable::ALL {
            let files = self.store.list(table)?;
            let found = files.iter().filter_map(|(path, _)| Segments::of(path));
            next = found.fold(next, |next, segments| next.max(segments.last + 1));
        }
        Ok(next)
    }

    /// Flushes everything in the log to the store; only for a log without a writer. Returns the
    /// number of segments flushed.
    ///
    /// # Errors
    /// Returns an error at the first segment that fails. Those before it are in the store.
    pub fn recover(&mut self) -> Result<usize, FlushError> {
        let first = self.checkpoint.next_segment;
        let listed = list_closed(&self.data)?;
        let (done, waiting): (Vec<u64>, Vec<u64>) =
            listed.into_iter().partition(|&number| number < first);
        // A crash came between checkpoint and deletion.
        done.into_iter()
            .try_for_each(|segment| self.remove(segment))?;
        let mut left = self.objects_of(&waiting)?;
        for &segment in &waiting {
            self.put(segment, left.remove(&segment).unwrap_or_default())?;
        }
        Ok(waiting.len())
    }

    /// Does all steps for one closed segment.
    ///
    /// # Errors
    /// Returns an error from the step that fails. The segment then still exists and may be flushed
    /// again.
    pub fn flush(&mut self, segment: u64) -> Result<(), FlushError> {
        let left = match self.begun == Some(segment) {
            true => self.objects_of(&[segment])?.remove(&segment),
            false => None,
        };
        self.put(segment, left.unwrap_or_default())
    }

    /// Flushes like [`Flusher::flush`]; `left` are objects of an earlier attempt.
    fn put(&mut self, segment: u64, left: Vec<Path>) -> Result<(), FlushError> {
        // A segment that is in the store already, but could not be deleted, must not be converted
        // again. All its batches would count as duplicates, and the remaining rows would replace
        // its objects.
        if segment >= self.checkpoint.next_segment {
            self.begun = Some(segment);
            let converted = match self.unsaved.take_if(|unsaved| unsaved.segment == segment) {
                Some(unsaved) => unsaved,
                None => self.convert_anew(segment, left)?,
            };
            self.save(converted)?;
            self.begun = None;
            self.counters.flushes.fetch_add(1, Relaxed);
            self.counters.last_flush_ns.store(now_ns(), Relaxed);
        }
        self.remove(segment)
    }

    /// Does steps 2 and 3, and then removes objects of an earlier attempt that were not
    /// overwritten. The segment may have lost data that was never synced, and its senders will send
    /// that data again.
    fn convert_anew(&self, segment: u64, left: Vec<Path>) -> Result<ConvertedSegment, FlushError> {
        let converted = self.convert(segment)?;
        self.make_durable(&converted)?;
        let is_stale = |path: &Path| !converted.paths.contains(path);
        let stale: Vec<Path> = left.into_iter().filter(is_stale).collect();
        if !stale.is_empty() {
            tracing::info!(
                count = stale.len(),
                segment,
                "removing files left by an earlier attempt to flush a WAL segment"
            );
            self.store.remove(&stale)?;
        }
        Ok(converted)
    }

    /// Returns the objects in the store of each of these segments.
    fn objects_of(&self, segments: &[u64]) -> Result<BTreeMap<u64, Vec<Path>>, FlushError> {
        let mut found: BTreeMap<u64, Vec<Path>> = BTreeMap::new();
        if segments.is_empty() {
            return Ok(found);
        }
        for table in TABLES {
            for (path, _) in self.store.list(table)? {
                if let Some(segment) = segment_of(&path).filter(|of| segments.contains(of)) {
                    found.entry(segment).or_default().push(path);
                }
            }
        }
        Ok(found)
    }

    /// Writes the segment's batches that are not in the store yet as objects (step 2).
    ///
    /// # Errors
    /// Returns an error if the segment cannot be read or an object cannot be written.
    pub fn convert(&self, segment: u64) -> Result<ConvertedSegment, FlushError> {
        let path = segment_path(&self.data.wal(), segment);
        let scan = read_closed(&self.data, segment, &self.counters)?;
        let mut ledger = self.checkpoint.ledger.clone();
        let mut rows = Rows::default();
        let received = || {
            scan.payloads
                .iter()
                .map(|payload| i64::try_from(payload.received_ns).unwrap_or(i64::MAX))
        };
        let (first_ns, last_ns) = (received().min().unwrap_or(0), received().max().unwrap_or(0));
        for payload in &scan.payloads {
            if let Err(reason) = take(payload, &mut ledger, &mut rows) {
                self.counters.wal_undecodable.fetch_add(1, Relaxed);
                tracing::error!(path = %path.display(), cause = %reason, "lost a batch");
            }
        }
        if last_ns > 0 {
            ledger.forget_idle(last_ns);
        }
        let arrived = self
            .live
            .as_ref()
            .map(|_| (Box::new(rows.clone()), last_ns));
        let rule = PartitionRule::received(first_ns, last_ns);
        let written = write_rows(&self.store, &Segments::one(segment).name(), rows, &rule)?;
        self.counters
            .parquet_bytes
            .fetch_add(written.bytes, Relaxed);
        Ok(ConvertedSegment {
            segment,
            ledger,
            paths: written.paths,
            arrived,
        })
    }

    /// Syncs the objects (step 3).
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub fn make_durable(&self, converted: &ConvertedSegment) -> Result<(), FlushError> {
        Ok(self.store.make_durable(&converted.paths)?)
    }

    /// Saves the checkpoint (step 4).
    ///
    /// # Errors
    /// Returns an error if the disk fails. The old checkpoint then remains in force.
    pub fn save(&mut self, mut converted: ConvertedSegment) -> Result<(), FlushError> {
        let next = Checkpoint {
            next_segment: converted.segment + 1,
            ledger: std::mem::take(&mut converted.ledger),
        };
        if let Err(error) = next.save(&**self.data.disk(), self.data.root()) {
            // The new checkpoint may be durable nevertheless. So nothing of the segment may change
            // any more, and a retry continues from here.
            self.unsaved = Some(ConvertedSegment {
                ledger: next.ledger,
                ..converted
            });
            return Err(error.into());
        }
        self.checkpoint = next;
        self.counters
            .checkpoint_segment
            .store(self.checkpoint.next_segment, Relaxed);
        // Runs once per segment: from here on it is never converted again.
        if let (Some(live), Some((rows, received_ns))) = (&self.live, converted.arrived) {
            live.arrived(rows, received_ns);
        }
        Ok(())
    }

    /// Deletes the segment (step 5).
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub fn remove(&self, segment: u64) -> Result<(), FlushError> {
        remove_segment(&**self.data.disk(), &self.data.wal(), segment)
            .map_err(|source| FlushError::Wal { segment, source })
    }
}

/// Tables that segments are converted to.
const TABLES: [StoreTable; 3] = [StoreTable::Spans, StoreTable::Events, StoreTable::Batches];

/// Returns the segment that this object was converted from; none for compacted objects.
fn segment_of(path: &Path) -> Option<u64> {
    let segments = Segments::of(path).filter(|segments| !segments.is_compacted());
    segments.map(|segments| segments.first)
}

/// Converts a record of the log to rows, unless they exist already. The log contains checked data,
/// under the limits of its time.
fn take(payload: &Payload, ledger: &mut Ledger, rows: &mut Rows) -> Result<(), String> {
    let limits = Limits::default();
    let taken = match payload.kind {
        PayloadKind::Batch => {
            let batch = CheckedBatch::from_bytes(&payload.bytes, &limits)
                .map_err(|refusal| refusal.to_string())?;
            // Leaves out only a certain duplicate: acknowledged data is kept when in doubt.
            if ledger.verdict(batch.incarnation(), batch.sequence()) != Verdict::Duplicate {
                batch.append_to(payload.received_ns, rows);
                ledger.enter(&batch, payload.received_ns);
            }
            return Ok(());
        }
        PayloadKind::OtlpProtobuf => otlp_protobuf(&payload.bytes, &limits, rows),
        PayloadKind::OtlpJson => otlp_json(&payload.bytes, &limits, rows),
        PayloadKind::OtlpLogsProtobuf => otlp_logs_protobuf(&payload.bytes, &limits, rows),
        PayloadKind::OtlpLogsJson => otlp_logs_json(&payload.bytes, &limits, rows),
        PayloadKind::Unknown(kind) => {
            return Err(format!(
                "kind {kind} of record is of a later version of this program"
            ));
        }
    };
    taken.map(drop).map_err(|error| error.to_string())
}

/// Returns the wall-clock time, in ns since the Unix epoch.
#[must_use]
pub fn now_ns() -> i64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}
