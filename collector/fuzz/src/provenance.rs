//! Target that reads files of provenance logs, as a crash or another program may leave them.

use stroboscope_provenance::{
    InputSet, LabelKind, LogFile, Parents, Reach, ReadLog, Resolver, sweep,
};

const HEADER_BYTES: usize = 16;
const SEGMENT_BYTES: usize = 16;

/// Reads a file. Bits of a byte select whether to correct checksums, which no mutation would hit.
///
/// The first errors of both ways to read agree, and all queries of the recovered part agree.
pub(crate) fn provenance(bytes: &[u8]) {
    let Some((first, content)) = bytes.split_first() else {
        return;
    };
    let mut content = content.to_vec();
    if *first & 1 == 1 {
        mend(&mut content);
    }
    let (file, error) = match LogFile::recover(&content) {
        Ok(recovered) => recovered,
        Err(error) => {
            assert_eq!(LogFile::parse(&content).err(), Some(error));
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(LogFile::parse(&content).err(), error);
    assert!(error.is_some() || file.losses().is_some());
    // All records are in the bytes.
    let records = u64::from(file.nodes()) * 8 + 24 * file.sources().len() as u64;
    assert!(records + 32 * file.outputs().len() as u64 <= content.len() as u64);
    for index in 0..file.nodes() {
        match file.node(index).expect("a checked node").parents() {
            Parents::Union(a, b) => {
                for parent in [a, b] {
                    assert!(!matches!(parent.kind(), LabelKind::Node(of) if of >= index));
                }
            }
            Parents::Range(first, last) => assert!(first < last && last < file.inputs()),
        }
    }
    assert!(file.node(file.nodes()).is_none());
    check_queries(&file);
}

/// Checks that the queries of the outputs agree.
fn check_queries(file: &LogFile<'_>) {
    let ends = |count: u64| [0, count.saturating_sub(1) as usize];
    let labels: Vec<_> = file
        .outputs()
        .iter()
        .flat_map(|output| ends(output.count).map(|at| output.labels.at(at)))
        .take(64)
        .collect();
    let mut resolver = Resolver::default();
    let wanted: InputSet = (0..file.inputs().min(3)).collect();
    let reach = Reach::new(file, wanted.clone());
    sweep(file, &labels, |label, inputs| {
        assert_eq!(*inputs, resolver.inputs(file, label), "{label:?}");
        let last = file.inputs().checked_sub(1);
        assert!(inputs.ranges().all(|range| Some(*range.end()) <= last));
        let is_reached = wanted
            .ranges()
            .any(|of| inputs.intersects(*of.start(), *of.end()));
        assert_eq!(reach.contains(label), is_reached, "{label:?}");
        if let Some(range) = inputs.ranges().next() {
            let source = file.source_of(*range.start());
            assert!(source.is_none_or(|source| source.first <= *range.start()));
        }
    });
}

/// Corrects the checksums of the header and of the segments, as far as kinds and counts lead.
fn mend(content: &mut [u8]) {
    let is_old = content.get(8) == Some(&1);
    let (mut at, mut end) = (0, HEADER_BYTES);
    while let Some(part) = content.get_mut(at..end) {
        let mut hasher = crc32fast::Hasher::new();
        if at > 0 && !is_old {
            hasher.update(&(at as u64).to_le_bytes());
        }
        hasher.update(&part[..12]);
        hasher.update(&part[16..]);
        part[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
        let Some(head) = content.get(end..end + SEGMENT_BYTES) else {
            return;
        };
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let record_bytes = match number(0) {
            1 => 8,
            2 => 24,
            3 => 32,
            5 => 8,
            _ => 64,
        };
        at = end;
        end += SEGMENT_BYTES + record_bytes * number(4) as usize;
    }
}
