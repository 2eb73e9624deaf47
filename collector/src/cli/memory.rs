//! What `--memory-limit` comes to: one number, and the bounds that follow from it.

use stroboscope_server::doors::DoorSettings;
use stroboscope_server::intake::Options;
use stroboscope_store::limits::Limits;

use super::size::parse_size;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Of one connection at each of the three doors.
const READ_AHEAD: u64 = (128 + 64 + 64) * KIB;
/// With less, not even one request of each kind would find room.
const LEAST: u64 = 256 * MIB;

/// A size that a collector can work with.
pub(super) fn parse_limit(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    if size < LEAST {
        return Err(format!(
            "{text} is too little: a collector takes 256MiB at least"
        ));
    }
    Ok(size)
}

/// How a collector's memory is split.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemorySplit {
    limit: u64,
}

impl MemorySplit {
    pub(super) fn of(limit: u64) -> Self {
        Self { limit }
    }

    /// An eighth is for what arrives, and is checked; what HTTP reads ahead on connections takes another at most.
    pub(super) fn bound_doors(self, doors: &mut DoorSettings) {
        doors.reading_bytes_max = bytes(self.limit / 8);
        let connections = bytes(self.limit / 8 / READ_AHEAD);
        doors.connections_max = doors.connections_max.min(connections);
    }

    /// An eighth is for what is not durable yet. A segment of the log takes some twelve times its bytes while it becomes
    /// Parquet, and as much while it waits for the live model, and is taken in by it: that is three eighths. A fifth is for
    /// open traces.
    pub(super) fn bound_intake(self, options: &mut Options) {
        /// Of an open trace, with its texts.
        const RECORD: u64 = 400;
        options.in_flight_bytes_max = bytes(self.limit / 8);
        options.segment_bytes = options.segment_bytes.min(self.limit / 64);
        let records = bytes(self.limit / 5 / RECORD);
        options.live_records_max = options.live_records_max.min(records);
    }

    /// A request is at most a quarter of what may arrive.
    pub(super) fn bound_requests(self, limits: &mut Limits) {
        let most = bytes(self.limit / 32);
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

    /// The parts and what they grow to are less than the whole.
    #[test]
    fn the_parts_fit() {
        for limit in [LEAST, 512 * MIB, 1_024 * MIB, 2_048 * MIB, 65_536 * MIB] {
            let split = MemorySplit::of(limit);
            let (mut doors, mut options, mut limits) = (
                DoorSettings::default(),
                Options::default(),
                Limits::default(),
            );
            split.bound_doors(&mut doors);
            split.bound_intake(&mut options);
            split.bound_requests(&mut limits);
            let read_ahead = doors.connections_max as u64 * READ_AHEAD;
            let parts = doors.reading_bytes_max as u64
                + read_ahead
                + options.in_flight_bytes_max as u64
                + 24 * options.segment_bytes
                + 400 * options.live_records_max as u64;
            assert!(parts < limit, "{parts} of {limit}");
            // One alone may have half.
            assert!(4 * limits.otlp_request_bytes_max <= doors.reading_bytes_max);
            assert!(doors.connections_max >= 100);
        }
        let mut options = Options::default();
        MemorySplit::of(2_048 * MIB).bound_intake(&mut options);
        let usual = Options::default();
        assert_eq!(options.in_flight_bytes_max, usual.in_flight_bytes_max);
        assert_eq!(options.segment_bytes, usual.segment_bytes);
        assert_eq!(options.live_records_max, usual.live_records_max);
    }
}
