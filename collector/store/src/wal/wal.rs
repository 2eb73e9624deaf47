//! # The write-ahead log on disk
//!
//! A log is a folder of segments `wal/NNNNNNNNNN.wal`, numbered upwards in decimal. All integers are little-endian.
//!
//! ```text
//! segment := header record*
//! header  := magic "STRBWAL\0" · u32 version (2) · u32 marker · u64 segment number · u32 crc32 of the 24 bytes before
//! record  := u32 marker · u32 length · u32 crc32 of the payload · payload (length bytes)
//! payload := u64 received_ns (wall clock, ns since the Unix epoch) · u8 kind · bytes
//! kind    := 0: a stroboscope.v1.Batch as protobuf | 1: an OTLP ExportTraceServiceRequest as protobuf | 2: as JSON
//!          | 3: an OTLP ExportLogsServiceRequest as protobuf | 4: as JSON
//! ```
//!
//! Payloads of version 1 have no kind: all are batches. Such segments, of before an upgrade, are still read. What OTLP
//! sends is logged as it came: an acknowledgement waits for a check and a sync, and for no rewriting. A kind that a
//! program does not know, of a later one, is counted and told like what cannot be decoded: new kinds need no new version.
//!
//! The marker is chosen at random for each segment. It is there so that a reader finds the next record behind
//! damage, and random so that nobody can send a batch that contains something that looks like a record.
//!
//! ## Writing
//!
//! One thread writes. It takes all appends that wait, writes them with one `write`, calls `fdatasync` once, and only
//! then answers any of them (group commit). A new segment's name is made durable by an `fsync` of the folder before
//! its first record is answered.
//!
//! - A failed *write* (a full disk) fails every append of the group; the segment is cut back to the last good length
//!   and used again. When it cannot be cut, it is abandoned: a new one is begun.
//! - A failed *fdatasync* always abandons the segment, for after one the kernel may call pages clean that never
//!   reached the disk, and a second fdatasync would lie.
//!
//! An abandoned segment may hold whole records whose append was answered with an error. They are read like any other;
//! when the sender sends such a batch again, it is in the log twice, and the ledger keeps one.
//!
//! ## Recovery
//!
//! A process never appends to a segment of an earlier one: it begins a new one. Segments are read in order of number.
//! At each record: marker, length and checksum must hold. Where they do not, the reader looks for the next place at
//! which all three hold:
//!
//! - There is none: this is the torn tail that a kill or a power cut leaves. Nobody was told that what is in it is
//!   durable. It is left out, with a line in the log.
//! - There is one: the bytes between were damaged. That is reported with file, offset and length, and reading goes on
//!   behind it.
//!
//! A segment whose header is damaged is reported; the marker of its first record is used to read the rest.

/// What a segment begins with.
pub(super) const MAGIC: &[u8; 8] = b"STRBWAL\0";
/// Version of the format.
pub(super) const VERSION: u32 = 2;
/// The one before it, without kinds.
pub(super) const VERSION_WITHOUT_KINDS: u32 = 1;
/// Bytes of a segment's header.
pub const HEADER_BYTES: usize = 28;
/// Bytes before each record's payload.
pub const RECORD_HEADER_BYTES: usize = 12;
/// No payload is longer: a length beyond it is damage, and is not allocated.
///
/// A request of OTLP may be of 64 MiB, and has a few bytes in front of it here.
pub(super) const PAYLOAD_BYTES_MAX: usize = (64 << 20) + (4 << 10);

/// How the records of a segment are told and read.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFormat {
    pub(super) marker: u32,
    pub(super) has_kinds: bool,
}

/// The header of segment `number`.
pub(super) fn encode_header(number: u64, marker: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&marker.to_le_bytes());
    header[16..24].copy_from_slice(&number.to_le_bytes());
    let crc = crc32fast::hash(&header[..24]);
    header[24..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// What is wrong with a header, or how the records behind it are to be read.
pub(super) fn decode_header(bytes: &[u8]) -> Result<RecordFormat, &'static str> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err("the header is cut short");
    };
    if &header[..8] != MAGIC {
        return Err("this is not a WAL segment");
    }
    if read_u32(header, 24) != Some(crc32fast::hash(&header[..24])) {
        return Err("the header's checksum does not match");
    }
    let version = read_u32(header, 8);
    if ![Some(VERSION), Some(VERSION_WITHOUT_KINDS)].contains(&version) {
        return Err("the segment was written by another version of the format");
    }
    Ok(RecordFormat {
        marker: read_u32(header, 12).unwrap_or_default(),
        has_kinds: version != Some(VERSION_WITHOUT_KINDS),
    })
}

/// The little-endian u32 at `offset`, if it is there.
pub(super) fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes
        .get(offset..)?
        .first_chunk::<4>()
        .map(|chunk| u32::from_le_bytes(*chunk))
}
