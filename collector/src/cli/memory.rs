//! `--memory-limit` and `--query-memory`, and the bounds derived from them.

use clap::Args;
use stroboscope_server::ingest::Options;
use stroboscope_server::net::NetSettings;
use stroboscope_store::limits::Limits;
use stroboscope_store::query_memory::QueryMemory;

#[cfg(all(target_os = "linux", feature = "jemalloc"))]
use crate::allocator;

use stroboscope_reports::Failure;
use stroboscope_reports::machine_memory::{MemorySource, memory_there_is};
use stroboscope_reports::memory_limit::default_limit;
use stroboscope_reports::size::parse_size;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Sum of the bytes that HTTP reads ahead for three connections: one each to the ports for gRPC,
/// OTLP and pages.
const READ_AHEAD: u64 = (128 + 64 + 64) * KIB;
/// Bytes that HTTP reads ahead for one connection at a port for clients of Jaeger or Tempo.
const READER_READ_AHEAD: u64 = 64 * KIB;
/// Bytes that HTTP reads ahead for one connection at the unix socket.
const UNIX_READ_AHEAD: u64 = 128 * KIB;
/// Minimum of `--memory-limit`, in bytes.
const LEAST: u64 = 256 * MIB;

/// Parses a size, and rejects one that is too small for a collector.
pub(super) fn parse_limit(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    if size < LEAST {
        return Err(format!(
            "{text} is too little: a collector takes 256MiB at least"
        ));
    }
    Ok(size)
}

/// Arguments for the memory of `collect` and `view`.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct MemoryArguments {
    /// Maximum memory of the process. All bounds on received, queued, open and read data derive
    /// from it [default: 60 % of the control group's limit, or of the machine's memory, at least
    /// 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_limit)]
    memory_limit: Option<u64>,
    /// Part of --memory-limit for pages, tools at /mcp, and answers to clients of Jaeger and Tempo.
    /// A single answer may take half of it; a larger one is rejected [default: a quarter of
    /// --memory-limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    query_memory: Option<u64>,
}

impl MemoryArguments {
    pub(super) fn split(self) -> Result<MemorySplit, Failure> {
        let limit = self.memory_limit.unwrap_or_else(default_limit);
        let queries = self.query_memory.unwrap_or(limit / 4);
        if queries > limit / 2 {
            return Err(Failure::new(format!(
                "--query-memory {} MiB is more than half of --memory-limit, {} MiB",
                queries / MIB,
                limit / MIB
            )));
        }
        Ok(MemorySplit {
            limit,
            queries,
            default_of: self.memory_limit.is_none().then(memory_there_is).flatten(),
        })
    }
}

/// Split of the memory of `collect` or `view`, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemorySplit {
    limit: u64,
    queries: u64,
    /// Total memory in bytes from which the default limit was computed, and its source; `None`
    /// if the user set the limit, or if the system does not report its memory.
    default_of: Option<(u64, MemorySource)>,
}

impl std::fmt::Display for MemorySplit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (limit, queries) = (self.limit / MIB, self.queries / MIB);
        write!(f, "memory: at most {limit} MiB")?;
        if let Some((bytes, source)) = self.default_of {
            let of = match source {
                MemorySource::Cgroup => "that its control group may have",
                MemorySource::Machine => "that the machine has",
            };
            let least = match self.limit > bytes / 10 * 6 {
                true => "the minimum, more than ",
                false => "",
            };
            write!(f, " ({least}60 % of the {} MiB {of})", bytes / MIB)?;
        }
        write!(f, ", of these {queries} MiB for queries")?;
        if cfg!(all(target_os = "linux", not(feature = "jemalloc"))) {
            let more = "; built without jemalloc, so the system's allocator may keep more";
            write!(f, "{more}")?;
        }
        Ok(())
    }
}

impl MemorySplit {
    /// Starts threads that return free memory to the system, at once if usage is near the limit.
    /// Does nothing without jemalloc.
    pub(super) fn keep_within(self) -> Result<(), Failure> {
        #[cfg(all(target_os = "linux", feature = "jemalloc"))]
        allocator::keep_within(self.limit).map_err(Failure::of)?;
        Ok(())
    }

    /// Returns the memory for pages, and for answers to clients of Jaeger and Tempo.
    pub(super) fn queries(self) -> QueryMemory {
        QueryMemory::new(bytes(self.queries))
    }

    /// Returns the memory for ingest in bytes: the limit minus the memory for queries, and minus a
    /// sixteenth for the program itself.
    fn ingest(self) -> u64 {
        self.limit - self.queries - self.limit / 16
    }

    /// Bounds the memory of the ports. Requests that are being received and checked take at most an
    /// eighth of the ingest memory. HTTP's read-ahead takes at most an eighth of the memory that is
    /// not for queries. `readers` is the number of ports for clients of Jaeger and Tempo, and
    /// `has_unix` is true if there is a unix socket.
    pub(super) fn bound_doors(self, doors: &mut NetSettings, readers: u64, has_unix: bool) {
        doors.reading_bytes_max = bytes(self.ingest() / 8);
        let unix = u64::from(has_unix) * UNIX_READ_AHEAD;
        let read_ahead = READ_AHEAD + readers * READER_READ_AHEAD + unix;
        let connections = bytes((self.limit - self.queries) / 8 / read_ahead);
        doors.connections_max = doors.connections_max.min(connections);
    }

    /// Divides the ingest memory. An eighth is for data that is not durable yet. A log segment has
    /// at most a sixty-fourth. It takes about twelve times its size during its conversion to
    /// Parquet, and as much again until the live model has absorbed it: together three eighths. A
    /// fifth is for open traces.
    pub(super) fn bound_intake(self, options: &mut Options) {
        /// Estimated memory of one record of an open trace, with its texts, in bytes.
        const RECORD: u64 = 400;
        options.in_flight_bytes_max = bytes(self.ingest() / 8);
        options.segment_bytes = options.segment_bytes.min(self.ingest() / 64);
        let records = bytes(self.ingest() / 5 / RECORD);
        options.live_records_max = options.live_records_max.min(records);
    }

    /// Bounds the size of one request to a quarter of the memory for requests that are being
    /// received.
    pub(super) fn bound_requests(self, limits: &mut Limits) {
        let most = bytes(self.ingest() / 32);
        limits.otlp_request_bytes_max = limits.otlp_request_bytes_max.min(most);
        limits.message_bytes_max = limits.message_bytes_max.min(most);
    }
}

fn bytes(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_least() {
        assert!(parse_limit("255MiB").is_err() && parse_limit("256MiB").is_ok());
    }

    fn split(limit: u64, queries: Option<u64>) -> Result<MemorySplit, Failure> {
        let arguments = MemoryArguments {
            memory_limit: Some(limit),
            query_memory: queries,
        };
        arguments.split()
    }

    /// Checks that the sum of all parts, at their maximum sizes, stays below the limit.
    #[test]
    fn the_parts_fit() {
        let limits = [LEAST, 512 * MIB, 1_024 * MIB, 2_048 * MIB, 65_536 * MIB];
        for (limit, has_unix) in limits.into_iter().flat_map(|of| [(of, false), (of, true)]) {
            let split = split(limit, None).unwrap();
            let (mut doors, mut options, mut limits) = (
                NetSettings::default(),
                Options::default(),
                Limits::default(),
            );
            split.bound_doors(&mut doors, 2, has_unix);
            split.bound_intake(&mut options);
            split.bound_requests(&mut limits);
            let unix = if has_unix { UNIX_READ_AHEAD } else { 0 };
            let read_ahead = READ_AHEAD + 2 * READER_READ_AHEAD + unix;
            let read_ahead = doors.connections_max as u64 * read_ahead;
            let parts = doors.reading_bytes_max as u64
                + read_ahead
                + options.in_flight_bytes_max as u64
                + 24 * options.segment_bytes
                + 400 * options.live_records_max as u64
                + split.queries
                + limit / 16;
            assert!(parts < limit, "{parts} of {limit}");
            // A single request takes at most a quarter of the memory for requests.
            assert!(4 * limits.otlp_request_bytes_max <= doors.reading_bytes_max);
            assert!(doors.connections_max >= if has_unix { 48 } else { 60 });
        }
    }

    #[test]
    fn queries_have_half_at_most() {
        assert!(split(512 * MIB, Some(256 * MIB)).is_ok());
        let refused = split(512 * MIB, Some(257 * MIB)).unwrap_err();
        assert!(
            refused.cause.contains("--query-memory 257 MiB"),
            "{refused:?}"
        );
    }

    #[test]
    fn a_default_says_what_it_is_a_part_of() {
        let arguments = MemoryArguments {
            memory_limit: None,
            query_memory: None,
        };
        let split = arguments.split().unwrap();
        let (there_is, _) = memory_there_is().expect("Linux says");
        assert_eq!(split.limit, (there_is / 10 * 6).max(LEAST));
        assert!(split.to_string().contains("(60 % of the "), "{split}");
        let given = self::split(512 * MIB, None).unwrap().to_string();
        let expected = "memory: at most 512 MiB, of these 128 MiB for queries";
        assert!(given.starts_with(expected), "{given}");
    }

    #[test]
    fn a_raised_default_is_no_share() {
        let split = MemorySplit {
            limit: LEAST,
            queries: LEAST / 4,
            default_of: Some((400 * MIB, MemorySource::Machine)),
        };
        let of = "(the minimum, more than 60 % of the 400 MiB that the machine has)";
        assert!(split.to_string().contains(of), "{split}");
    }
}
