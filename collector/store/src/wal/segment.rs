//! Segment files: their names.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, LocalDisk, remove_if_there};

/// Path of segment `number` in the log `folder`.
#[must_use]
pub fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:010}.wal"))
}

/// Numbers of the segments in `folder`, in order. Files of other names are not ours and are left alone; a folder
/// that does not exist holds none.
///
/// # Errors
/// When the folder cannot be listed.
pub fn list_segments(folder: &Path) -> io::Result<Vec<u64>> {
    list_segments_on(&LocalDisk, folder)
}

/// As [`list_segments`], on another disk.
///
/// # Errors
/// As there.
pub fn list_segments_on(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<u64>> {
    let names = match disk.names(folder) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let number_of = |name: String| {
        let digits = name.strip_suffix(".wal")?;
        digits.parse().ok().filter(|_| digits.len() >= 10)
    };
    let mut numbers: Vec<u64> = names.into_iter().filter_map(number_of).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Deletes segment `number`; that it is gone already is fine (a crash came between deletion and now).
///
/// # Errors
/// When the file is there and cannot be deleted.
pub(crate) fn remove_segment(disk: &dyn Disk, folder: &Path, number: u64) -> io::Result<()> {
    remove_if_there(disk, &segment_path(folder, number))
}
