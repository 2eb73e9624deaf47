//! Record of the log: a payload with its time of receipt.

use prost::Message as _;
use stroboscope_proto::v1::Batch;

use super::format::{PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, RecordFormat, read_u32};

/// Length of a payload's header, in bytes.
pub const PAYLOAD_HEADER_BYTES: usize = RECEIVED_BYTES + 1;
const RECEIVED_BYTES: usize = 8;

/// Kind of a payload's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadKind {
    /// `stroboscope.v1.Batch` as protobuf.
    #[default]
    Batch,
    /// `ExportTraceServiceRequest` of OTLP as protobuf.
    OtlpProtobuf,
    /// `ExportTraceServiceRequest` of OTLP as JSON.
    OtlpJson,
    /// `ExportLogsServiceRequest` of OTLP as protobuf.
    OtlpLogsProtobuf,
    /// `ExportLogsServiceRequest` of OTLP as JSON.
    OtlpLogsJson,
    /// Kind that this version of the program does not know.
    Unknown(u8),
}

impl PayloadKind {
    fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Batch,
            1 => Self::OtlpProtobuf,
            2 => Self::OtlpJson,
            3 => Self::OtlpLogsProtobuf,
            4 => Self::OtlpLogsJson,
            other => Self::Unknown(other),
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Batch => 0,
            Self::OtlpProtobuf => 1,
            Self::OtlpJson => 2,
            Self::OtlpLogsProtobuf => 3,
            Self::OtlpLogsJson => 4,
            Self::Unknown(other) => other,
        }
    }
}

/// Content of one record of the log: a batch or an OTLP request, with its time of receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Wall-clock time of receipt, in ns since the Unix epoch.
    pub received_ns: u64,
    pub kind: PayloadKind,
    /// Batch or request, decompressed and redacted.
    pub bytes: Vec<u8>,
}

impl Payload {
    /// Returns the payload of `batch`, received at `received_ns`.
    #[must_use]
    pub fn of(received_ns: u64, batch: &Batch) -> Self {
        Self {
            received_ns,
            kind: PayloadKind::Batch,
            bytes: batch.encode_to_vec(),
        }
    }

    /// Returns the size of this payload in a segment in bytes, including the record header.
    #[must_use]
    pub fn bytes_in_segment(&self) -> u64 {
        (RECORD_HEADER_BYTES + PAYLOAD_HEADER_BYTES + self.bytes.len()) as u64
    }

    /// Appends the record with this payload to `out`.
    pub(super) fn encode(&self, marker: u32, out: &mut Vec<u8>) {
        let received = self.received_ns.to_le_bytes();
        let kind = [self.kind.byte()];
        let mut crc = crc32fast::Hasher::new();
        let length = u32::try_from(PAYLOAD_HEADER_BYTES + self.bytes.len()).unwrap_or(u32::MAX);
        let parts: [&[u8]; 3] = [&received, &kind, &self.bytes];
        parts.iter().for_each(|part| crc.update(part));
        out.extend_from_slice(&marker.to_le_bytes());
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&crc.finalize().to_le_bytes());
        parts.iter().for_each(|part| out.extend_from_slice(part));
    }

    /// Reports whether the format allows a record of this size.
    #[must_use]
    pub fn fits(&self) -> bool {
        PAYLOAD_HEADER_BYTES + self.bytes.len() <= PAYLOAD_BYTES_MAX
    }

    /// Decodes the record at the start of `bytes`, and returns it with its length in bytes. Returns
    /// `None` unless marker, length and checksum are valid.
    pub(super) fn decode(format: RecordFormat, bytes: &[u8]) -> Option<(Self, usize)> {
        if read_u32(bytes, 0)? != format.marker {
            return None;
        }
        let length = read_u32(bytes, 4)? as usize;
        if length > PAYLOAD_BYTES_MAX {
            return None;
        }
        let payload = bytes.get(RECORD_HEADER_BYTES..)?.get(..length)?;
        if crc32fast::hash(payload) != read_u32(bytes, 8)? {
            return None;
        }
        let (received, rest) = payload.split_first_chunk::<RECEIVED_BYTES>()?;
        let (kind, rest) = match format.has_kinds {
            true => rest.split_first().map(|(kind, rest)| (*kind, rest))?,
            false => (0, rest),
        };
        let payload = Self {
            received_ns: u64::from_le_bytes(*received),
            kind: PayloadKind::of(kind),
            bytes: rest.to_vec(),
        };
        Some((payload, RECORD_HEADER_BYTES + length))
    }
}
