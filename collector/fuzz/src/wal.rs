//! Target that reads segments of the write-ahead log, as a machine that lost power may leave them.

use stroboscope_store::decode::{
    CheckedBatch, otlp_json, otlp_logs_json, otlp_logs_protobuf, otlp_protobuf,
};
use stroboscope_store::limits::Limits;
use stroboscope_store::record::Rows;
use stroboscope_store::wal::{
    HEADER_BYTES, PayloadKind, RECORD_HEADER_BYTES, ScanNote, read_segment, segment_path,
};

use crate::import::directory;

/// Reads a segment. A byte selects whether to correct checksums, which no mutation would hit.
pub(crate) fn wal(bytes: &[u8]) {
    let Some((first, content)) = bytes.split_first() else {
        return;
    };
    let mut content = content.to_vec();
    if *first & 1 == 1 {
        mend(&mut content);
    }
    let directory = directory();
    let path = segment_path(directory.path(), 1);
    std::fs::write(&path, &content).expect("written");
    let scan = read_segment(&path).expect("it can be read");
    // Each byte belongs to a record, or to a note.
    let of_records: u64 = scan
        .payloads
        .iter()
        .map(|payload| payload.bytes_in_segment())
        .sum();
    let told: u64 = scan
        .notes
        .iter()
        .map(|note| match note {
            ScanNote::TornTail { bytes, .. } | ScanNote::Damaged { bytes, .. } => *bytes,
            ScanNote::BadHeader { .. } => 0,
        })
        .sum();
    let of_header = HEADER_BYTES as u64 * u64::from(content.len() >= HEADER_BYTES);
    // Records of the first version are a byte shorter.
    let is_old = content.get(8..12) == Some(&1_u32.to_le_bytes())
        && !scan
            .notes
            .iter()
            .any(|note| matches!(note, ScanNote::BadHeader { .. }));
    let shorter = if is_old {
        scan.payloads.len() as u64
    } else {
        0
    };
    assert_eq!(
        of_records - shorter + told + of_header,
        content.len() as u64
    );
    let limits = Limits::default();
    for payload in &scan.payloads {
        let (bytes, mut rows) = (&payload.bytes[..], Rows::default());
        match payload.kind {
            PayloadKind::Batch => {
                if let Ok(batch) = CheckedBatch::from_bytes(bytes, &limits) {
                    batch.append_to(payload.received_ns, &mut rows);
                }
            }
            PayloadKind::OtlpProtobuf => drop(otlp_protobuf(bytes, &limits, &mut rows)),
            PayloadKind::OtlpJson => drop(otlp_json(bytes, &limits, &mut rows)),
            PayloadKind::OtlpLogsProtobuf => drop(otlp_logs_protobuf(bytes, &limits, &mut rows)),
            PayloadKind::OtlpLogsJson => drop(otlp_logs_json(bytes, &limits, &mut rows)),
            PayloadKind::Unknown(_) => {}
        }
    }
}

/// Corrects markers and checksums, as far as lengths lead.
fn mend(content: &mut [u8]) {
    let Some(marker) = content
        .get(HEADER_BYTES..HEADER_BYTES + 4)
        .map(<[u8]>::to_vec)
    else {
        return;
    };
    let mut offset = HEADER_BYTES;
    while let Some(head) = content.get(offset..offset + RECORD_HEADER_BYTES) {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let start = offset + RECORD_HEADER_BYTES;
        let Some(payload) = content.get(start..).and_then(|rest| rest.get(..length)) else {
            return;
        };
        let crc = crc32fast::hash(payload).to_le_bytes();
        content[offset..offset + 4].copy_from_slice(&marker);
        content[offset + 8..offset + 12].copy_from_slice(&crc);
        offset = start + length;
    }
}
