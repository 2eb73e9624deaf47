//! From closed segments to Parquet: the steps of [`super`], one method each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use object_store::path::Path;

use super::{Counters, FlushError};
use crate::data_dir::{DataDir, DataDirError};
use crate::decode::{CheckedBatch, otlp_json, otlp_logs_json, otlp_logs_protobuf, otlp_protobuf};
use crate::ledger::{Checkpoint, Ledger, Verdict};
use crate::limits::Limits;
use crate::record::Rows;
use crate::tables::{PartitionRule, Segments, Store, StoreTable, write_rows};
use crate::wal::{
    Payload, PayloadKind, Scan, list_segments_on, read_segment_on, remove_segment, segment_path,
};

/// Who is told of what has become durable in the store, such as a live model. Must not wait.
pub trait Arrivals: std::fmt::Debug + Send {
    /// Rows, of which the last was received at `received_ns`.
    fn arrived(&self, rows: Box<Rows>, received_ns: i64);

    /// The watermark: everything received before `now_ns` has arrived.
    fn all_arrived_until(&self, now_ns: i64);
}

/// Puts segments into the store, in order.
#[derive(Debug)]
pub struct Flusher {
    data: DataDir,
    store: Store,
    checkpoint: Checkpoint,
    counters: Arc<Counters>,
    live: Option<Box<dyn Arrivals>>,
    /// The segment that was begun, and perhaps left in the middle, by this process.
    begun: Option<u64>,
    /// It is durable in the store, and only the checkpoint could not say so.
    unsaved: Option<Converted>,
}

/// A segment whose Parquet is written, but not yet durable.
#[derive(Debug)]
pub struct Converted {
    segment: u64,
    ledger: Ledger,
    paths: Vec<Path>,
    /// For those who are told: what is new, and when the last of it was received.
    arrived: Option<(Box<Rows>, i64)>,
}

impl Flusher {
    /// Loads the checkpoint. The caller holds the data folder's lock.
    ///
    /// # Errors
    /// When the checkpoint is damaged or cannot be read.
    pub fn load(data: &DataDir, store: Store, counters: Arc<Counters>) -> Result<Self, FlushError> {
        // A process that was killed may have renamed the checkpoint without syncing its name. Segments are deleted by
        // what it says, so it must not be another one after a power cut.
        let root = data.root();
        let synced = data.disk().sync(root);
        synced.map_err(|source| DataDirError::Io {
            path: root.to_owned(),
            source,
        })?;
        let checkpoint = Checkpoint::load(&**data.disk(), data.root())?;
        counters
            .checkpoint_segment
            .store(checkpoint.next_segment, Relaxed);
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

    /// Tells somebody, from now on, of what is durable in the store.
    pub fn feed(&mut self, live: Box<dyn Arrivals>) {
        self.live = Some(live);
    }

    /// Tells the live model that everything received before `now_ns` has been flushed.
    pub fn all_flushed_until(&self, now_ns: i64) {
        if let Some(live) = &self.live {
            live.all_arrived_until(now_ns);
        }
    }

    /// The ledger of what is in the store.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.checkpoint.ledger
    }

    /// The number of the next segment: above all that are in the log, in the checkpoint or in the store. The store
    /// is asked too, so that a lost checkpoint never lets a new segment overwrite an old one's objects.
    ///
    /// # Errors
    /// When log or store cannot be listed.
    pub fn next_segment(&self) -> Result<u64, FlushError> {
        let mut next = self.checkpoint.next_segment;
        let listed = list_segments_on(&**self.data.disk(), &self.data.wal()).map_err(|source| {
            FlushError::Wal {
                segment: next,
                source,
            }
        })?;
        next = listed.last().map_or(next, |&last| next.max(last + 1));
        // Of all tables: a segment of OTLP has no batches.
        for table in StoreTable::ALL {
            let files = self.store.list(table)?;
            let found = files.iter().filter_map(|(path, _)| Segments::of(path));
            next = found.fold(next, |next, segments| next.max(segments.last + 1));
        }
        Ok(next)
    }

    /// Puts everything that is in the log into the store; for a log that nobody appends to. Returns how many
    /// segments that were.
    ///
    /// # Errors
    /// At the first segment that fails; those before it are in the store.
    pub fn recover(&mut self) -> Result<usize, FlushError> {
        let first = self.checkpoint.next_segment;
        let listed = list_segments_on(&**self.data.disk(), &self.data.wal()).map_err(|source| {
            FlushError::Wal {
                segment: first,
                source,
            }
        })?;
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

    /// All steps for one closed segment.
    ///
    /// # Errors
    /// At the step that fails; the segment is still there then, and may be flushed again.
    pub fn flush(&mut self, segment: u64) -> Result<(), FlushError> {
        let left = match self.begun == Some(segment) {
            true => self.objects_of(&[segment])?.remove(&segment),
            false => None,
        };
        self.put(segment, left.unwrap_or_default())
    }

    /// As [`Flusher::flush`]; `left` are objects of an earlier try.
    fn put(&mut self, segment: u64, left: Vec<Path>) -> Result<(), FlushError> {
        // One that is in the store already, and only could not be deleted, must not be converted again: all its batches
        // would be duplicates, and what is left of it would replace its objects.
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

    /// Steps 2 and 3, after which no object of an earlier try is left that this one did not replace: the segment may have
    /// lost since what was never synced, and what is not in it any more will come again.
    fn convert_anew(&self, segment: u64, left: Vec<Path>) -> Result<Converted, FlushError> {
        let converted = self.convert(segment)?;
        self.make_durable(&converted)?;
        let is_stale = |path: &Path| !converted.paths.contains(path);
        let stale: Vec<Path> = left.into_iter().filter(is_stale).collect();
        if !stale.is_empty() {
            tracing::info!(
                count = stale.len(),
                segment,
                "removing files that an earlier try to put a WAL segment into the store left"
            );
            self.store.remove(&stale)?;
        }
        Ok(converted)
    }

    /// The objects in the store of each of these segments.
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

    /// Step 2: the segment's batches, those that are not in the store yet, become objects.
    ///
    /// # Errors
    /// When the segment cannot be read or an object not be written.
    pub fn convert(&self, segment: u64) -> Result<Converted, FlushError> {
        let path = segment_path(&self.data.wal(), segment);
        let scan = self.read(segment, &path)?;
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
        Ok(Converted {
            segment,
            ledger,
            paths: written.paths,
            arrived,
        })
    }

    /// Step 3: the objects are synced.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn make_durable(&self, converted: &Converted) -> Result<(), FlushError> {
        Ok(self.store.make_durable(&converted.paths)?)
    }

    /// Step 4.
    ///
    /// # Errors
    /// When the disk fails; then the old checkpoint stands.
    pub fn save(&mut self, mut converted: Converted) -> Result<(), FlushError> {
        let next = Checkpoint {
            next_segment: converted.segment + 1,
            ledger: std::mem::take(&mut converted.ledger),
        };
        if let Err(error) = next.save(&**self.data.disk(), self.data.root()) {
            // It may be durable all the same: then nothing of the segment may change any more, which is tried again from
            // here.
            self.unsaved = Some(Converted {
                ledger: next.ledger,
                ..converted
            });
            return Err(error.into());
        }
        self.checkpoint = next;
        self.counters
            .checkpoint_segment
            .store(self.checkpoint.next_segment, Relaxed);
        // Once for each segment: from here on it is never converted again.
        if let (Some(live), Some((rows, received_ns))) = (&self.live, converted.arrived) {
            live.arrived(rows, received_ns);
        }
        Ok(())
    }

    /// Step 5.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn remove(&self, segment: u64) -> Result<(), FlushError> {
        remove_segment(&**self.data.disk(), &self.data.wal(), segment)
            .map_err(|source| FlushError::Wal { segment, source })
    }

    fn read(&self, segment: u64, path: &std::path::Path) -> Result<Scan, FlushError> {
        let scan = match read_segment_on(&**self.data.disk(), path) {
            // An abandoned segment whose file was never made.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Scan::default(),
            Err(source) => return Err(FlushError::Wal { segment, source }),
            Ok(scan) => scan,
        };
        for note in &scan.notes {
            if note.is_damage() {
                self.counters.wal_damage.fetch_add(1, Relaxed);
                tracing::error!("{note}");
            } else {
                tracing::warn!("{note}");
            }
        }
        Ok(scan)
    }
}

/// The tables that segments become.
const TABLES: [StoreTable; 3] = [StoreTable::Spans, StoreTable::Events, StoreTable::Batches];

/// The one segment that became this object; none of objects that others were made into.
fn segment_of(path: &Path) -> Option<u64> {
    let segments = Segments::of(path).filter(|segments| !segments.is_compacted());
    segments.map(|segments| segments.first)
}

/// Puts what is in a record of the log into rows, unless it is there already. What is in the log was checked before; its
/// limits were those of that time.
fn take(payload: &Payload, ledger: &mut Ledger, rows: &mut Rows) -> Result<(), String> {
    let limits = Limits::default();
    let taken = match payload.kind {
        PayloadKind::Batch => {
            let batch = CheckedBatch::from_bytes(&payload.bytes, &limits)
                .map_err(|refusal| refusal.to_string())?;
            // Only a certain duplicate is left out: what was acknowledged is kept in doubt.
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

/// The wall clock, ns since the Unix epoch.
#[must_use]
pub fn now_ns() -> i64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}
