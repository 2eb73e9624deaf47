//! Budget of memory and file descriptors for files that are read together.

/// Maximum size of an object that is read into memory as a whole, in bytes.
const WHOLE_BYTES_MAX: u64 = 256 << 10;
/// Maximum total size of objects in memory, for files that are read together, in bytes.
const WHOLE_BYTES_TOGETHER: u64 = 128 << 20;
/// Maximum number of files read together for which all are kept open; of more files, none is. By
/// default, Linux allows a process 1,024.
const OPEN_FILES_MAX: usize = 512;
/// Number of rows (64 bytes each for spans) that the readers of all files together may decode
/// ahead. The budget of one file has bounds: smaller batches cost more per row, and batches of more
/// than a page save nothing.
const AHEAD_ROWS: usize = 1 << 20;
const BUDGET_ROWS_MIN: usize = 64;
const BUDGET_ROWS_MAX: usize = 2_048;

/// Budget of one of several files that are read together.
#[derive(Clone, Copy, Debug)]
pub struct ReadBudget {
    /// Maximum number of rows that are decoded at a time.
    pub batch_rows: usize,
    /// Maximum size of an object that is kept whole in memory, in bytes.
    pub whole_bytes_max: u64,
    /// True if the file is kept open. Otherwise it is opened for each read, because the system
    /// limits the open files of a process.
    pub keeps_open: bool,
}

impl ReadBudget {
    /// Returns the budget of each of `files` files that are read together.
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
