//! `--memory-limit` of verbs that read.

use std::sync::OnceLock;

use stroboscope_store::memory::QueryMemory;

use crate::machine_memory::memory_there_is;
use crate::size::parse_size;

const MIB: u64 = 1 << 20;
/// A default is no smaller.
const LEAST_DEFAULT: u64 = 256 * MIB;
/// With less, not even the buffers of a few files would find room.
const LEAST_TO_READ: u64 = 32 * MIB;
/// Memory of a machine that does not say.
const UNKNOWN: u64 = 4_096 * MIB;

/// A size that a verb can read within.
///
/// # Errors
/// Returns what is wrong with the text.
pub fn parse_reading_limit(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    if size < LEAST_TO_READ {
        return Err(format!(
            "{text} is too little: reading takes 32MiB at least"
        ));
    }
    Ok(size)
}

/// The memory of the one verb that this process runs, whatever number of stores it opens.
pub fn of_verb(limit: Option<u64>) -> QueryMemory {
    static OF_PROCESS: OnceLock<QueryMemory> = OnceLock::new();
    let limit = || usize::try_from(limit.unwrap_or_else(default_limit)).unwrap_or(usize::MAX);
    OF_PROCESS
        .get_or_init(|| QueryMemory::of_one_query(limit()))
        .clone()
}

/// Most of what there is: the rest is for the system, and for what is beside it.
#[must_use]
pub fn default_limit() -> u64 {
    let there_is = memory_there_is().map_or(UNKNOWN, |(bytes, _)| bytes);
    (there_is / 10 * 6).max(LEAST_DEFAULT)
}
