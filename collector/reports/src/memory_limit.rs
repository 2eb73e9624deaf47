//! `--memory-limit` of reports, workers and tools, and its default.

use std::sync::OnceLock;

use stroboscope_store::query_memory::QueryMemory;

use crate::machine_memory::memory_there_is;
use crate::size::parse_size;

const MIB: u64 = 1 << 20;
/// Minimum of the default limit, in bytes.
const LEAST_DEFAULT: u64 = 256 * MIB;
/// Minimum that [`parse_reading_limit`] accepts, in bytes.
const LEAST_TO_READ: u64 = 32 * MIB;
/// Assumed memory in bytes if neither the machine nor a control group reports any.
const UNKNOWN: u64 = 4_096 * MIB;

/// Parses a memory limit, and rejects one that is too small for reading.
///
/// # Errors
/// Returns a description of the problem with the text.
pub fn parse_reading_limit(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    if size < LEAST_TO_READ {
        return Err(format!(
            "{text} is too little: reading takes 32MiB at least"
        ));
    }
    Ok(size)
}

/// Returns the memory of the subcommand that this process runs. All calls return the same memory,
/// so only the first call's `limit` counts. `limit` is in bytes; `None` stands for the default.
pub fn of_verb(limit: Option<u64>) -> QueryMemory {
    static OF_PROCESS: OnceLock<QueryMemory> = OnceLock::new();
    let limit = || usize::try_from(limit.unwrap_or_else(default_limit)).unwrap_or(usize::MAX);
    OF_PROCESS
        .get_or_init(|| QueryMemory::of_one_query(limit()))
        .clone()
}

/// Returns the default limit in bytes: 60 % of the available memory, or of 4 GiB if that is
/// unknown, and 256 MiB at least.
pub fn default_limit() -> u64 {
    let there_is = memory_there_is().map_or(UNKNOWN, |(bytes, _)| bytes);
    (there_is / 10 * 6).max(LEAST_DEFAULT)
}
