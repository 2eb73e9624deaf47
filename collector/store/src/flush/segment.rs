//! Steps that storing and forwarding a segment of the log share.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use super::{Counters, FlushError};
use crate::data_dir::{DataDir, DataDirError};
use crate::disk::Disk;
use crate::ledger::Checkpoint;
use crate::wal::{Scan, list_segments_on, read_segment_on, segment_path};

/// Syncs a directory and loads its checkpoint.
///
/// # Errors
/// Returns an error if the directory cannot be synced, or if the checkpoint is damaged or cannot be
/// read.
pub(super) fn loaded_checkpoint(
    disk: &dyn Disk,
    directory: &Path,
    counters: &Counters,
) -> Result<Checkpoint, FlushError> {
    // A killed process may have renamed the checkpoint without syncing its name. The checkpoint
    // decides which segments are deleted, so a power cut must not revert it.
    disk.sync(directory).map_err(DataDirError::at(directory))?;
    let checkpoint = Checkpoint::load(disk, directory)?;
    let checkpoint_segment = &counters.checkpoint_segment;
    checkpoint_segment.store(checkpoint.next_segment, Relaxed);
    Ok(checkpoint)
}

/// Returns the numbers of all segments in the log, in order.
pub(super) fn list_closed(data: &DataDir) -> Result<Vec<u64>, FlushError> {
    let path = data.wal();
    Ok(list_segments_on(&**data.disk(), &path).map_err(DataDirError::at(&path))?)
}

/// Makes the contents of a segment durable.
pub(super) fn sync_closed(data: &DataDir, segment: u64) -> Result<(), FlushError> {
    let path = segment_path(&data.wal(), segment);
    let synced = data.disk().sync(&path);
    Ok(synced.map_err(DataDirError::at(&path))?)
}

/// Reads a closed segment, and logs and counts its damage, unless `counters` is `None`. A missing
/// file counts as an empty segment.
pub(super) fn read_closed(
    data: &DataDir,
    segment: u64,
    counters: Option<&Counters>,
) -> Result<Scan, FlushError> {
    let scan = match read_segment_on(&**data.disk(), &segment_path(&data.wal(), segment)) {
        // For example, an abandoned segment whose file was never created.
        Err(error) if error.kind() == ErrorKind::NotFound => Scan::default(),
        Err(source) => return Err(FlushError::Wal { segment, source }),
        Ok(scan) => scan,
    };
    let Some(counters) = counters else {
        return Ok(scan);
    };
    for note in &scan.notes {
        if note.is_damage() {
            counters.wal_damage.fetch_add(1, Relaxed);
            tracing::error!("{note}");
        } else {
            tracing::warn!("{note}");
        }
    }
    Ok(scan)
}
