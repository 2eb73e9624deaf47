//! One record of the log: when a batch was received, and the batch.

use prost::Message as _;
use stroboscope_proto::v1::Batch;

use super::wal::{PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, read_u32};

/// Bytes of a payload before the batch.
pub const PAYLOAD_HEADER_BYTES: usize = 8;

/// What one record carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Wall clock at receipt, ns since the Unix epoch.
    pub received_ns: u64,
    /// A `stroboscope.v1.Batch`, as protobuf.
    pub batch: Vec<u8>,
}

impl Payload {
    /// The payload of `batch`, received at `received_ns`.
    #[must_use]
    pub fn of(received_ns: u64, batch: &Batch) -> Self {
        Self {
            received_ns,
            batch: batch.encode_to_vec(),
        }
    }

    /// Bytes this payload takes in a segment, its record header included.
    #[must_use]
    pub fn bytes_in_segment(&self) -> u64 {
        (RECORD_HEADER_BYTES + PAYLOAD_HEADER_BYTES + self.batch.len()) as u64
    }

    /// Appends the record to `out`.
    pub(super) fn encode(&self, marker: u32, out: &mut Vec<u8>) {
        let received = self.received_ns.to_le_bytes();
        let mut crc = crc32fast::Hasher::new();
        crc.update(&received);
        crc.update(&self.batch);
        let length = u32::try_from(PAYLOAD_HEADER_BYTES + self.batch.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&marker.to_le_bytes());
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&crc.finalize().to_le_bytes());
        out.extend_from_slice(&received);
        out.extend_from_slice(&self.batch);
    }

    /// Whether the record fits the format at all.
    pub(super) fn fits(&self) -> bool {
        PAYLOAD_HEADER_BYTES + self.batch.len() <= PAYLOAD_BYTES_MAX
    }

    /// The whole record at the start of `bytes` and its length, if marker, length and checksum hold.
    pub(super) fn decode(marker: u32, bytes: &[u8]) -> Option<(Self, usize)> {
        if read_u32(bytes, 0)? != marker {
            return None;
        }
        let length = read_u32(bytes, 4)? as usize;
        if !(PAYLOAD_HEADER_BYTES..=PAYLOAD_BYTES_MAX).contains(&length) {
            return None;
        }
        let payload = bytes.get(RECORD_HEADER_BYTES..)?.get(..length)?;
        if crc32fast::hash(payload) != read_u32(bytes, 8)? {
            return None;
        }
        let received = payload.first_chunk::<PAYLOAD_HEADER_BYTES>()?;
        let batch = payload[PAYLOAD_HEADER_BYTES..].to_vec();
        Some((
            Self {
                received_ns: u64::from_le_bytes(*received),
                batch,
            },
            RECORD_HEADER_BYTES + length,
        ))
    }
}
