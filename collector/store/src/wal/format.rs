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
//! Payloads of version 1 have no kind, because all are batches. Readers still accept segments of
//! version 1, which may remain from before an upgrade. OTLP requests are logged decompressed and
//! redacted, but otherwise unchanged, so an acknowledgement waits for a check and a sync, but not
//! for Parquet. A record of an unknown kind counts as undecodable, so new kinds need no new
//! version.
//!
//! The marker lets a reader find the next record after damage. Each segment has a random marker, so
//! that a client cannot send a batch that contains a fake record.
//!
//! ## Writing
//!
//! One thread writes. It takes the waiting appends until they have 16 MiB, writes them together,
//! calls `fdatasync` once, and only then answers them (group commit). When it begins a
//! segment, it calls `fsync` on the directory before it answers the first append, so that the
//! segment's name is durable.
//!
//! - A failed *write* (for example on a full disk) fails every record of the group. The writer
//!   truncates the segment to the last good length and continues it. If it cannot truncate the
//!   segment, it abandons it and begins a new one.
//! - After a failed *fdatasync*, the writer always abandons the segment. The kernel may have marked
//!   pages as clean that never reached the disk, and a second fdatasync would then report success
//!   wrongly.
//!
//! An abandoned segment may contain whole records whose append was answered with an error. Readers
//! treat them like any other records. If the sender retries such a batch, the log contains it
//! twice, and the ledger discards the duplicate.
//!
//! ## Recovery
//!
//! A process never appends to a segment of an earlier process, but begins a new one. Segments are
//! read in the order of their numbers. The marker, length and checksum of each record must be
//! valid. If they are not, the reader looks for the next offset at which all three are valid:
//!
//! - If there is none, the reader takes the rest for a torn tail that a kill or a power cut left,
//!   in which nothing was acknowledged. It skips the rest, and the collector logs a warning.
//! - If there is one, the bytes in between are damaged. The collector logs an error with file,
//!   offset and length, and the reader continues after them.
//!
//! A complete header that is damaged or of an unknown version is logged as an error, too. The
//! reader then uses the first record's marker for all records, and reads them as version 2. A file
//! that is shorter than a header counts as a torn tail, unless it is empty.

/// Magic bytes at the start of a segment.
pub(super) const MAGIC: &[u8; 8] = b"STRBWAL\0";
/// Version of the format that is written.
pub(super) const VERSION: u32 = 2;
/// Previous version of the format, without kinds, which is still read.
pub(super) const VERSION_WITHOUT_KINDS: u32 = 1;
/// Length of a segment's header, in bytes.
pub const HEADER_BYTES: usize = 28;
/// Length of a record's header, before its payload, in bytes.
pub const RECORD_HEADER_BYTES: usize = 12;
/// Maximum length of a payload, in bytes. The reader treats a greater length as damage.
///
/// An OTLP request may have 64 MiB, and the payload's header precedes it.
pub const PAYLOAD_BYTES_MAX: usize = (64 << 20) + (4 << 10);

/// Marker and layout of the records of a segment.
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

/// Returns the format of the records after a header. Fails with a description of the header's
/// problem.
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

/// Returns the little-endian u32 at `offset`; `None` if `bytes` has fewer than four bytes there.
pub(super) fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    let chunk = bytes.get(offset..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*chunk))
}
