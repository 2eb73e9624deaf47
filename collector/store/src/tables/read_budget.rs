//! Memory and descriptors for files that are read side by side.

/// Objects up to this size are fetched at once,
const WHOLE_BYTES_MAX: u64 = 256 << 10;
/// as long as all files that are open at a time keep no more than this together.
const WHOLE_BYTES_TOGETHER: u64 = 128 << 20;
/// Files that are kept open at most, of the 1,024 that Linux allows a process unless told otherwise.
const OPEN_FILES_MAX: usize = 512;
/// Rows that all readers together decode ahead, of 64 bytes each, and the bounds of one file's budget: few rows
/// at a time cost more each, and more than a page of them costs nothing less.
const AHEAD_ROWS: usize = 1 << 20;
const BUDGET_ROWS_MIN: usize = 64;
const BUDGET_ROWS_MAX: usize = 2_048;

/// The read budget of one of several files that are open at a time: memory and descriptors are divided among them.
#[derive(Clone, Copy, Debug)]
pub struct ReadBudget {
    /// Rows decoded at a time.
    pub batch_rows: usize,
    /// Largest object that is kept whole in memory, in bytes.
    pub whole_bytes_max: u64,
    /// Whether the file is kept open; otherwise it is opened for each read, as a process may have only so many.
    pub keeps_open: bool,
}

impl ReadBudget {
    /// The budget of each of `files` files.
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
