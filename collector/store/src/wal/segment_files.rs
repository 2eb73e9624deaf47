//! Names of the files of log segments.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, LocalDisk, remove_if_there};

/// Returns the path of segment `number` in the log directory `directory`.
#[must_use]
pub fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.wal"))
}

/// Returns the numbers of the segments in `directory`, in order. Ignores files with other names. A
/// missing directory has no segments.
///
/// # Errors
/// Returns an error if the directory cannot be listed.
pub fn list_segments(directory: &Path) -> io::Result<Vec<u64>> {
    list_segments_on(&LocalDisk, directory)
}

/// Returns the numbers of the segments like [`list_segments`], on another disk.
///
/// # Errors
/// Returns an error if the directory cannot be listed.
pub fn list_segments_on(disk: &dyn Disk, directory: &Path) -> io::Result<Vec<u64>> {
    let names = match disk.names(directory) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let number_of = |name: String| {
        let digits = name.strip_suffix(".wal")?;
        // `parse` also accepts a plus sign.
        let is_number = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number)
    };
    let mut numbers: Vec<u64> = names.into_iter().filter_map(number_of).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Deletes segment `number`. A missing file is no error, because the file may have been deleted
/// before a crash.
///
/// # Errors
/// Returns an error if the file exists and cannot be deleted.
pub(crate) fn remove_segment(disk: &dyn Disk, directory: &Path, number: u64) -> io::Result<()> {
    remove_if_there(disk, &segment_path(directory, number))
}
