//! Flushes closed segments to Parquet. Steps 2 to 5 of the [module](super) are methods of
//! [`Flusher`].

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
use crate::tables::{PartitionRule, Segments, Store, StoreTable, sort_and_write};
use crate::wal::{Payload, PayloadKind, remove_segment, segment_path};

/// Observer of data that has become durable in the tables, such as a live model. Its methods must
/// not block.
pub trait Arrivals: std::fmt::Debug + Send {
    /// Receives the new rows of a segment with records. The collector received the latest record at
    /// `received_ns`, in ns since the Unix epoch.
    fn arrived(&self, rows: Box<Rows>, received_ns: i64);

    /// Moves the watermark to `now_ns` (ns since the Unix epoch): all data that the collector
    /// received before this time have arrived at this observer.
    fn all_arrived_until(&self, now_ns: i64);
}

/// Flushes segments of the log to the tables, in order.
#[derive(Debug)]
pub struct Flusher {
    data: DataDir,
    store: Store,
    checkpoint: Checkpoint,
    counters: Arc<Counters>,
    live: Option<Box<dyn Arrivals>>,
    /// Segment whose flush began in this process and has not succeeded yet.
    begun: Option<u64>,
    /// Segment that is durable in the tables, but whose checkpoint could not be saved; `None` if
    /// there is none.
    unsaved: Option<ConvertedSegment>,
}

/// Segment whose Parquet files are written.
#[derive(Debug)]
pub struct ConvertedSegment {
    segment: u64,
    ledger: Ledger,
    paths: Vec<Path>,
    /// New rows for the observer, and the arrival of the segment's latest record in ns since the
    /// Unix epoch; `None` without an observer, or if the segment has no records.
    arrived: Option<(Box<Rows>, i64)>,
}

impl Flusher {
    /// Loads the checkpoint. The caller must hold the lock of the data directory.
    ///
    /// # Errors
    /// Returns an error if the checkpoint is damaged or cannot be read, or if the data directory
    /// cannot be synced.
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

    /// Sets the observer of data that becomes durable in the tables.
    pub fn feed(&mut self, live: Box<dyn Arrivals>) {
        self.live = Some(live);
    }

    /// Notifies the observer that everything received before `now_ns` has been flushed, which moves
    /// its watermark.
    pub fn all_flushed_until(&self, now_ns: i64) {
        if let Some(live) = &self.live {
            live.all_arrived_until(now_ns);
        }
    }

    /// Returns the ledger of the batches in the tables.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.checkpoint.ledger
    }

    /// Returns the number of the next segment, which is above all segments in the log, the
    /// checkpoint and the tables. The tables are included so that a new segment never overwrites
    /// the objects of an old one, even if the checkpoint was lost.
    ///
    /// # Errors
    /// Returns an error if the log or the tables cannot be listed.
    pub fn next_segment(&self) -> Result<u64, FlushError> {
        let mut next = self.checkpoint.next_segment;
        let listed = list_closed(&self.data)?;
        next = listed.last().map_or(next, |&last| next.max(last + 1));
        // Checks all tables, because a segment of OTLP requests has no batches.
        for table in StoreTable::ALL {
            let files = self.store.list(table)?;
            let found = files.iter().filter_map(|(path, _)| Segments::of(path));
            next = found.fold(next, |next, segments| next.max(segments.last + 1));
        }
        Ok(next)
    }

    /// Flushes all segments of a log that has no writer any more. Returns the number of segments
    /// flushed.
    ///
    /// # Errors
    /// Returns an error if the log or the tables cannot be listed, or the error of the first
    /// segment that fails. The segments before it are flushed.
    pub fn recover(&mut self) -> Result<usize, FlushError> {
        let first = self.checkpoint.next_segment;
        let listed = list_closed(&self.data)?;
        let (done, waiting): (Vec<u64>, Vec<u64>) =
            listed.into_iter().partition(|&number| number < first);
        // A crash may have prevented the deletion of segments that the checkpoint covers.
        let mut done = done.into_iter();
        done.try_for_each(|segment| self.remove(segment))?;
        self.warn_if_behind(&waiting)?;
        let mut left = self.objects_of(&waiting)?;
        for &segment in &waiting {
            self.put(segment, left.remove(&segment).unwrap_or_default())?;
        }
        Ok(waiting.len())
    }

    /// Warns if the checkpoint lacks stored batches, because it was lost or replaced by an older
    /// one. `waiting` are the segments in the log that the checkpoint does not cover.
    fn warn_if_behind(&self, waiting: &[u64]) -> Result<(), FlushError> {
        let next = self.checkpoint.next_segment;
        let is_unknown = |of: Segments| of.last >= next && !waiting.contains(&of.last);
        let files = self.store.list(StoreTable::Batches)?;
        let mut stored = files.iter().filter_map(|(path, _)| Segments::of(path));
        if stored.any(is_unknown) {
            tracing::warn!(
                "the checkpoint is missing or older than the store, so retried batches may be stored twice: stop the \
                 collector, and run `stroboscope store check --repair --data {}`",
                self.data.root().display()
            );
        }
        Ok(())
    }

    /// Flushes one closed segment (steps 2 to 5).
    ///
    /// # Errors
    /// Returns an error from the step that fails. The call may then be repeated.
    pub fn flush(&mut self, segment: u64) -> Result<(), FlushError> {
        let left = match self.begun == Some(segment) {
            true => self.objects_of(&[segment])?.remove(&segment),
            false => None,
        };
        self.put(segment, left.unwrap_or_default())
    }

    /// Flushes like [`Flusher::flush`]. `left` are the objects that an earlier attempt wrote.
    fn put(&mut self, segment: u64, left: Vec<Path>) -> Result<(), FlushError> {
        // Skips the conversion of a segment that is flushed but could not be deleted. A repetition
        // would drop its batches as duplicates, and overwrite its objects without their rows.
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

    /// Performs steps 2 and 3, and then removes the objects of an earlier attempt that were not
    /// overwritten. Since that attempt, the segment may have lost unsynced data, which the senders
    /// will send again.
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

    /// Returns the objects of these segments in the tables, by segment. Omits compacted objects.
    fn objects_of(&self, segments: &[u64]) -> Result<BTreeMap<u64, Vec<Path>>, FlushError> {
        let mut found: BTreeMap<u64, Vec<Path>> = BTreeMap::new();
        if segments.is_empty() {
            return Ok(found);
        }
        for table in StoreTable::OF_SEGMENTS {
            for (path, _) in self.store.list(table)? {
                if let Some(segment) = segment_of(&path).filter(|of| segments.contains(of)) {
                    found.entry(segment).or_default().push(path);
                }
            }
        }
        Ok(found)
    }

    /// Writes the data of a segment as objects, without batches that are stored already (step 2).
    ///
    /// # Errors
    /// Returns an error if the segment cannot be read or an object cannot be written.
    pub fn convert(&self, segment: u64) -> Result<ConvertedSegment, FlushError> {
        let path = segment_path(&self.data.wal(), segment);
        let scan = read_closed(&self.data, segment, Some(&*self.counters))?;
        let mut ledger = self.checkpoint.ledger.clone();
        let mut rows = Rows::default();
        let received = scan.payloads.iter().map(|payload| payload.received_ns);
        let (first, last) = (received.clone().min(), received.max());
        let time = |ns: Option<u64>| i64::try_from(ns.unwrap_or(0)).unwrap_or(i64::MAX);
        let (first_ns, last_ns) = (time(first), time(last));
        for payload in &scan.payloads {
            if let Err(reason) = take(payload, &mut ledger, &mut rows) {
                self.counters.wal_undecodable.fetch_add(1, Relaxed);
                tracing::error!(path = %path.display(), cause = %reason, "lost a batch");
            }
        }
        if last_ns > 0 {
            ledger.forget_idle(last_ns);
        }
        // A failed append leaves a segment without records. Its time, 0, would set clocks back.
        let is_observed = self.live.is_some() && !scan.payloads.is_empty();
        let rule = PartitionRule::received(first_ns, last_ns);
        let name = Segments::one(segment).name();
        let written = sort_and_write(&self.store, &name, &mut rows, &rule)?;
        self.counters
            .parquet_bytes
            .fetch_add(written.bytes, Relaxed);
        Ok(ConvertedSegment {
            segment,
            ledger,
            paths: written.paths,
            arrived: is_observed.then(|| (Box::new(rows), last_ns)),
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
    /// Returns an error if the disk fails. The flusher then keeps using the old checkpoint.
    pub fn save(&mut self, mut converted: ConvertedSegment) -> Result<(), FlushError> {
        let next = Checkpoint {
            next_segment: converted.segment + 1,
            ledger: std::mem::take(&mut converted.ledger),
        };
        if let Err(error) = next.save(&**self.data.disk(), self.data.root()) {
            // The new checkpoint may be durable despite the error. The objects of the segment must
            // therefore not change any more, and a retry only saves the checkpoint.
            self.unsaved = Some(ConvertedSegment {
                ledger: next.ledger,
                ..converted
            });
            return Err(error.into());
        }
        self.checkpoint = next;
        let checkpoint_segment = &self.counters.checkpoint_segment;
        checkpoint_segment.store(self.checkpoint.next_segment, Relaxed);
        // Notifies the observer once per segment, because the segment is never converted again.
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

/// Returns the segment from which this object was converted; `None` for compacted and imported
/// objects.
fn segment_of(path: &Path) -> Option<u64> {
    let segments = Segments::of(path).filter(|segments| !segments.is_compacted());
    segments.map(|segments| segments.first)
}

/// Converts a record of the log to rows, and enters a batch into the ledger. Skips a batch that is
/// stored already. Returns the reason as an error if the record cannot be decoded.
fn take(payload: &Payload, ledger: &mut Ledger, rows: &mut Rows) -> Result<(), String> {
    let limits = Limits::default();
    let taken = match payload.kind {
        PayloadKind::Batch => {
            let batch = CheckedBatch::from_bytes(&payload.bytes, &limits)
                .map_err(|refusal| refusal.to_string())?;
            // Leaves out only proven duplicates, because acknowledged data must be kept when in
            // doubt.
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
            let reason = "of record is of a later version of this program";
            return Err(format!("kind {kind} {reason}"));
        }
    };
    taken.map(drop).map_err(|error| error.to_string())
}

/// Returns the wall-clock time, in ns since the Unix epoch.
#[must_use]
pub fn now_ns() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}
