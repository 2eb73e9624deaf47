//! # The write-ahead log on disk
//!
//! A log is a directory of segments `wal/NNNNNNNNNN.wal`, numbered upwards in decimal. All integers
//! are little-endian.
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
//! Payloads of version 1 have no kind: all are batches. Such segments, from before an upgrade, are
//! still read. OTLP requests are logged unchanged, so an acknowledgement waits for a check and a
//! sync, but not for a conversion. A kind from a later version is counted and logged like an
//! undecodable record, so new kinds need no new version.
//!
//! The marker is chosen at random for each segment. It lets a reader find the next record after
//! damage. It is random so that a client cannot send a batch that contains a fake record.
//!
//! ## Writing
//!
//! One thread writes. It takes all waiting appends, writes them with one `write`, calls `fdatasync`
//! once, and only then answers any of them (group commit). A new segment's name is made durable by
//! an `fsync` of the directory before its first record is answered.
//!
//! - A failed *write* (a full disk) fails every append of the group. The segment is truncated to
//!   the last good length and used again. If it cannot be truncated, it is abandoned, and a new one
//!   begins.
//! - A failed *fdatasync* always abandons the segment: after it, the kernel may mark pages clean
//!   that never reached the disk, and a second fdatasync would report success wrongly.
//!
//! An abandoned segment may contain whole records whose append was answered with an error. They are
//! read like any other. If the sender retries such a batch, the log contains it twice, and the
//! ledger keeps one.
//!
//! ## Recovery
//!
//! A process never appends to a segment of an earlier one: it begins a new one. Segments are read
//! in the order of their numbers. The marker, length and checksum of each record must be valid. If
//! they are not, the reader looks for the next place at which all three are:
//!
//! - If there is none, this is the torn tail that a kill or a power cut leaves. Nothing in it was
//!   acknowledged. It is skipped, with a line in the log.
//! - If there is one, the bytes between were damaged. They are reported with file, offset and
//!   length, and reading continues after them.
//!
//! A segment with a damaged header is reported. The marker of its first record is used to read the
//! rest.

/// Magic bytes at the start of a segment.
pub(super) const MAGIC: &[u8; 8] = b"STRBWAL\0";
/// Version of the format.
pub(super) const VERSION: u32 = 2;
/// Previous version of the format, without kinds.
pub(super) const VERSION_WITHOUT_KINDS: u32 = 1;
/// Length of a segment's header, in bytes.
pub const HEADER_BYTES: usize = 28;
/// Length of a record's header, before its payload, in bytes.
pub const RECORD_HEADER_BYTES: usize = 12;
/// Maximum length of a payload, in bytes. A greater length is damage, and is not allocated.
///
/// An OTLP request may have 64 MiB, and a few more bytes come before it here.
pub(super) const PAYLOAD_BYTES_MAX: usize = (64 << 20) + (4 << 10);

/// Format by which the records of a segment are found and read.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFormat {
    pub(super) marker: u32,
    pub(super) has_kinds: bool,
}

/// Returns the header of segment `number`.
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

/// Returns the format of the records after a header, or the header's problem.
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

/// Returns the little-endian u32 at `offset`, if it is there.
pub(super) fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes
        .get(offset..)?
        .first_chunk::<4>()
        .map(|chunk| u32::from_le_bytes(*chunk))
}
