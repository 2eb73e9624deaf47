//! `--memory-limit` of subcommands that read.

use std::sync::OnceLock;

use stroboscope_store::query_memory::QueryMemory;

use crate::machine_memory::memory_there_is;
use crate::size::parse_size;

const MIB: u64 = 1 << 20;
/// Minimum of the default limit, in bytes.
const LEAST_DEFAULT: u64 = 256 * MIB;
/// Minimum limit in bytes.
const LEAST_TO_READ: u64 = 32 * MIB;
/// Assumed memory in bytes of a machine that does not report its memory.
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

/// Returns the memory of the subcommand that this process runs, shared by all stores that it opens.
/// `limit` is in bytes, `None` for the default limit. Only the first call's `limit` counts.
pub fn of_verb(limit: Option<u64>) -> QueryMemory {
    static OF_PROCESS: OnceLock<QueryMemory> = OnceLock::new();
    let limit = || usize::try_from(limit.unwrap_or_else(default_limit)).unwrap_or(usize::MAX);
    OF_PROCESS
        .get_or_init(|| QueryMemory::of_one_query(limit()))
        .clone()
}

/// Returns the default limit in bytes: 60 % of the available memory, and 256 MiB at least. The rest
/// is for the system and other programs.
#[must_use]
pub fn default_limit() -> u64 {
    let there_is = memory_there_is().map_or(UNKNOWN, |(bytes, _)| bytes);
    (there_is / 10 * 6).max(LEAST_DEFAULT)
}
