//! Memory and file descriptors for files that are read concurrently.

/// Maximum size of an object that is fetched at once, in bytes.
const WHOLE_BYTES_MAX: u64 = 256 << 10;
/// Maximum bytes of whole objects in all concurrently open files together.
const WHOLE_BYTES_TOGETHER: u64 = 128 << 20;
/// Maximum files kept open. Linux allows a process 1,024 by default.
const OPEN_FILES_MAX: usize = 512;
/// Rows of 64 bytes that all readers together decode ahead, and the bounds of one file's budget.
/// Smaller batches cost more per row, and batches of more than a page save nothing.
const AHEAD_ROWS: usize = 1 << 20;
const BUDGET_ROWS_MIN: usize = 64;
const BUDGET_ROWS_MAX: usize = 2_048;

/// Read budget of one of several concurrently open files, which share memory and descriptors.
#[derive(Clone, Copy, Debug)]
pub struct ReadBudget {
    /// Rows decoded at a time.
    pub batch_rows: usize,
    /// Maximum size of an object that is kept whole in memory, in bytes.
    pub whole_bytes_max: u64,
    /// True if the file is kept open; otherwise it is opened for each read, as open files per
    /// process are limited.
    pub keeps_open: bool,
}

impl ReadBudget {
    /// Returns the budget of each of `files` files.
    #[must_use]
    pub fn of(files: usize) -> Self {
        let files = files.max(1);
        Self {
            batch_rows: (AHEAD_ROWS / files).clamp(BUDGET_ROWS_MIN, BUDGET_ROWS_MAX),
            whole_bytes_max: WHOLE_BYTES_MAX.min(WHOLE_BYTES_TOGETHER / files as u64),
            keeps_open: files <= OPEN_FILES_MAX,
        }
    }
}
