use proptest::prelude::*;
use std::vec::Vec;

use super::*;
use crate::label::Label;
use crate::limits::Limits;
use crate::log::MergeLog;
use crate::log::tests::{programs, run};
use crate::read::ReadLog;
use crate::resolve::{inputs_of, sweep};
use crate::source::{Item, Labels};

/// A small log with nodes, sources, outputs and losses, and its file in two appends.
fn small() -> (MergeLog, Vec<u8>) {
    let mut log = MergeLog::new(Limits::with_nodes(3));
    let mut writer = LogWriter::new(Vec::new()).unwrap();
    log.source(1, 0, 10);
    let sum = log.merge(Label::input(0), Label::input(5));
    log.output(1, 0, 4, Labels::Shared(sum));
    log.describe(item(1, 7, "GET /a", b"text"));
    writer.append(&log).unwrap();
    // The source grew, so that its record is split.
    log.source(1, 10, 20);
    log.source(2, 7, 1);
    let range = log.range(12, 20);
    let all = log.merge(sum, range);
    log.output(1, 4, 1, Labels::Shared(all));
    log.output(2, 0, 9, Labels::Inputs(Label::input(20)));
    log.describe(item(2, 0, "", b""));
    log.describe(item(3, u64::MAX, "ключ", &[0; 9]));
    let coarse = log.merge(Label::input(1), Label::input(9));
    log.output(3, 0, 1, Labels::Shared(coarse));
    let file = writer.finish(&log).unwrap();
    (log, file)
}

fn item(id: u64, span: u64, name: &str, content: &[u8]) -> Item {
    Item {
        id,
        span,
        name: name.into(),
        content: content.into(),
    }
}

fn check_equal(file: &LogFile<'_>, log: &MergeLog) {
    assert_eq!((file.inputs(), file.nodes()), (log.inputs(), log.nodes()));
    for index in 0..=log.nodes() {
        assert_eq!(file.node(index), log.node(index), "node {index}");
    }
    for input in 0..=log.inputs() {
        let origin = |log: &dyn Fn(u32) -> Option<crate::Source>| {
            let source = log(input)?;
            Some((source.id, source.offset + u64::from(input - source.first)))
        };
        let found = origin(&|input| file.source_of(input));
        assert_eq!(
            found,
            origin(&|input| log.source_of(input)),
            "input {input}"
        );
    }
    assert_eq!(file.outputs(), log.outputs());
    assert_eq!(file.items(), log.items());
    assert_eq!(file.losses(), Some(log.losses()));
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let (log, bytes) = small();
    assert_eq!(log.losses().coarse_merges, 1);
    let file = LogFile::parse(&bytes).unwrap();
    check_equal(&file, &log);
    assert_eq!(file.sources().len(), 3);
    let empty = LogWriter::new(Vec::new())
        .unwrap()
        .finish(&MergeLog::default())
        .unwrap();
    check_equal(&LogFile::parse(&empty).unwrap(), &MergeLog::default());
}

#[test]
fn every_cut_is_an_error() {
    let (log, bytes) = small();
    for cut in 0..bytes.len() {
        let error = LogFile::parse(&bytes[..cut]).unwrap_err();
        let expected = if cut == 0 { "no file" } else { "cut off" };
        assert!(error.to_string().contains(expected), "{cut}: {error}");
        if let Ok((file, error)) = LogFile::recover(&bytes[..cut]) {
            assert!(error.is_some() && file.losses().is_none(), "{cut}");
            for index in 0..file.nodes() {
                assert_eq!(file.node(index), log.node(index));
            }
            assert!(log.outputs().starts_with(file.outputs()));
        }
    }
    let (file, _) = LogFile::recover(&bytes[..bytes.len() - 1]).unwrap();
    assert_eq!((file.nodes(), file.outputs().len()), (3, 4));
}

#[test]
fn every_changed_byte_is_an_error() {
    let (_, bytes) = small();
    for place in 0..bytes.len() {
        for change in 1..=u8::MAX {
            let mut changed = bytes.clone();
            changed[place] ^= change;
            let error = LogFile::parse(&changed).unwrap_err();
            assert!(!error.to_string().is_empty(), "{place}");
        }
    }
}

#[test]
fn errors_name_the_cause() {
    let (_, bytes) = small();
    let check = |bytes: &[u8], expected: FileError, text: &str| {
        let error = LogFile::parse(bytes).unwrap_err();
        assert_eq!(error, expected);
        assert!(error.to_string().contains(text), "{error}");
    };
    check(
        b"PAR1 and more",
        FileError::Foreign,
        "no file of a provenance log",
    );
    check(b"", FileError::Foreign, "no file of a provenance log");
    let with_version = |version: u8| {
        let mut other = bytes.clone();
        other[8] = version;
        let sum = checksum(None, &other[..12], &[]);
        other[12..16].copy_from_slice(&sum.to_le_bytes());
        other
    };
    check(
        &with_version(3),
        FileError::Version { found: 3 },
        "use a newer program",
    );
    check(&with_version(0), FileError::Foreign, "no file");
    let mut flipped = bytes.clone();
    flipped[HEADER_BYTES + SEGMENT_BYTES] ^= 1;
    check(
        &flipped,
        FileError::Corrupt { at: 16 },
        "the checksum at byte 16",
    );
    let mut longer = bytes.clone();
    longer.push(0);
    check(
        &longer,
        FileError::Surplus { at: bytes.len() },
        "but its file goes on",
    );
}

/// Builds a file of one segment with a valid checksum.
fn forged(kind: u32, count: u32, inputs: u32, records: &[u8]) -> Vec<u8> {
    let mut bytes = LogWriter::new(Vec::new())
        .unwrap()
        .finish(&MergeLog::default())
        .unwrap();
    bytes.truncate(HEADER_BYTES);
    let header: Vec<u8> = [kind, count, inputs]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    bytes.extend(&header);
    bytes.extend(checksum(Some(HEADER_BYTES as u64), &header, records).to_le_bytes());
    bytes.extend(records);
    bytes
}

#[test]
fn content_that_no_log_has_is_an_error() {
    let check = |kind, records: Vec<u8>, text: &str| {
        let error = LogFile::parse(&forged(kind, 1, 4, &records)).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    };
    let node = |high: u32, low: u32| [low.to_le_bytes(), high.to_le_bytes()].concat();
    let first_node = Label::node(0).raw();
    // A node that is its own parent, a null parent, equal parents, and unassigned inputs.
    for bad in [
        node(1, first_node),
        node(0, 1),
        node(2, 2),
        node(1, 9),
        node(9, 1),
        node(first_node, 1),
    ] {
        check(NODES, bad, "a node with parents");
    }
    let source = |first: u32, count: u32| {
        [vec![0; 16], [first, count].map(u32::to_le_bytes).concat()].concat()
    };
    for bad in [source(1, 4), source(0, 5), source(0, 0)] {
        check(SOURCES, bad, "a source whose inputs");
    }
    let output = |count: u64, label: u32, kind: u32| {
        [
            vec![0; 16],
            count.to_le_bytes().to_vec(),
            [label, kind].map(u32::to_le_bytes).concat(),
        ]
        .concat()
    };
    for bad in [
        output(1, first_node, 0),
        output(1, 5, 0),
        output(3, 3, 1),
        output(1, 1, 2),
        output(u64::MAX, 1, 1),
        output(1, 0xFC00_0000, 0),
    ] {
        check(OUTPUTS, bad, "an output with an unknown label");
    }
    let beyond = |record: Vec<u8>| [&record[..8], &[0xFF; 8], &record[16..]].concat();
    check(SOURCES, beyond(source(0, 1)), "a source beyond");
    check(OUTPUTS, beyond(output(1, 1, 0)), "an output beyond");
    check(
        END,
        [1_u64.to_le_bytes().to_vec(), vec![0; 56]].concat(),
        "totals that differ",
    );
    check(ITEMS, vec![0; 8], "an item that is cut off");
    check(9, vec![0; 8], "an unknown kind");
    let error = LogFile::parse(&forged(NODES, 0, u32::MAX, &[])).unwrap_err();
    assert!(error.to_string().contains("impossible number of inputs"));
}

#[test]
fn rewritten_items_leave_all_else_as_it_was() {
    let (log, bytes) = small();
    let rewrite = |change: &mut dyn FnMut(&mut Item)| rewrite_items(&bytes, change).unwrap();
    assert_eq!(rewrite(&mut |_| {}), bytes);

    let rewritten = rewrite(&mut |item| {
        item.name = if item.id == 3 { "" } else { "a longer name" }.into();
        item.content = item.content.repeat(2).into();
    });
    let file = LogFile::parse(&rewritten).unwrap();
    let expected = [
        item(1, 7, "a longer name", b"texttext"),
        item(2, 0, "a longer name", b""),
        item(3, u64::MAX, "", &[0; 18]),
    ];
    assert_eq!(file.items(), expected);
    let restored = rewrite_items(&rewritten, |item| {
        let of_log = log.items().iter().find(|of_log| of_log.id == item.id);
        *item = of_log.unwrap().clone();
    });
    assert_eq!(restored.unwrap(), bytes);
    let text = b"texttext";
    assert!(rewritten.windows(text.len()).any(|window| window == text));
    let text = "ключ".as_bytes();
    assert!(!rewritten.windows(text.len()).any(|window| window == text));

    for cut in 0..bytes.len() {
        assert!(rewrite_items(&bytes[..cut], |_| {}).is_err(), "{cut}");
    }
}

#[test]
fn another_log_is_an_error() {
    let (log, _) = small();
    let other = MergeLog::default();
    let mut fewer = MergeLog::default();
    fewer.source(1, 0, log.inputs() as usize);
    for other in [other, fewer] {
        let mut writer = LogWriter::new(Vec::new()).unwrap();
        writer.append(&log).unwrap();
        let error = writer.append(&other).unwrap_err();
        assert!(error.to_string().contains("another log"), "{error}");
    }
}

/// Returns the offsets of the segments in a file, and its length.
fn offsets(bytes: &[u8]) -> Vec<usize> {
    let version = reader::version(bytes).unwrap();
    let mut offsets = vec![HEADER_BYTES];
    while let Some(at) = offsets.last().copied().filter(|at| *at < bytes.len()) {
        let segment = reader::segment(bytes, version, at).unwrap();
        offsets.push(at + SEGMENT_BYTES + segment.records.len());
    }
    offsets
}

/// Returns a file as version 1 would have it.
fn old(bytes: &[u8]) -> Vec<u8> {
    let mut old = bytes.to_vec();
    old[8] = 1;
    let sum = checksum(None, &old[..12], &[]);
    old[12..16].copy_from_slice(&sum.to_le_bytes());
    for parts in offsets(bytes).windows(2) {
        let segment = &mut old[parts[0]..parts[1]];
        let sum = checksum(None, &segment[..12], &segment[SEGMENT_BYTES..]);
        segment[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    old
}

#[test]
fn a_segment_that_is_repeated_missing_or_moved_is_an_error() {
    let (_, bytes) = small();
    let offsets = offsets(&bytes);
    assert!(offsets.len() > 8, "{offsets:?}");
    let check = |order: &mut dyn Iterator<Item = usize>, first: usize| {
        let mut changed = bytes[..HEADER_BYTES].to_vec();
        order.for_each(|index| changed.extend(&bytes[offsets[index]..offsets[index + 1]]));
        let (_, error) = LogFile::recover(&changed).unwrap();
        let at = offsets[first];
        assert_eq!(error, Some(FileError::Corrupt { at }), "{first}");
    };
    let segments = offsets.len() - 1;
    // Leaves out the end segment, at which reading stops.
    for index in 0..segments - 1 {
        check(&mut (0..=index).chain(index..segments), index + 1);
        check(&mut (0..segments).filter(|of| *of != index), index);
        let moved = (0..segments).filter(|of| *of != index).chain([index]);
        check(&mut moved.into_iter(), index);
    }
}

#[test]
fn files_of_version_1_are_read() {
    let (log, bytes) = small();
    let old = old(&bytes);
    check_equal(&LogFile::parse(&old).unwrap(), &log);
    let renamed = |bytes: &[u8]| rewrite_items(bytes, |item| item.name = "longer".into()).unwrap();
    let rewritten = renamed(&old);
    assert_eq!(rewritten, self::old(&renamed(&bytes)));
    assert_eq!(LogFile::parse(&rewritten).unwrap().outputs(), log.outputs());
}

#[test]
fn several_items_of_a_segment_are_rewritten() {
    let items = [item(1, 0, "one", b"1"), item(2, 0, "three", b"")];
    let records = items.iter().flat_map(writer::item_record);
    let records: Vec<u8> = records.collect();
    let mut bytes = forged(ITEMS, (records.len() / 8) as u32, 0, &records);
    let end = writer::segment_header(Some(bytes.len() as u64), [END, 1, 0], &[0; END_BYTES]);
    bytes.extend(end);
    bytes.extend([0; END_BYTES]);
    let rewritten = rewrite_items(&bytes, |item| item.name = "a new name".into()).unwrap();
    let file = LogFile::parse(&rewritten).unwrap();
    let expected = [
        item(1, 0, "a new name", b"1"),
        item(2, 0, "a new name", b""),
    ];
    assert_eq!(file.items(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn queries_of_a_file_agree_with_those_of_its_log(steps in programs(), parts in 1..9_usize) {
        let mut log = MergeLog::default();
        let mut writer = LogWriter::new(Vec::new()).unwrap();
        let mut labels = Vec::new();
        for part in steps.chunks(steps.len().div_ceil(parts)) {
            labels.extend(run(&mut log, part).into_iter().map(|(label, _)| label));
            writer.append(&log).unwrap();
        }
        let bytes = writer.finish(&log).unwrap();
        let file = LogFile::parse(&bytes).unwrap();
        check_equal(&file, &log);
        let mut swept = 0;
        sweep(&file, &labels, |label, inputs| {
            swept += 1;
            assert_eq!(*inputs, inputs_of(&log, label));
        });
        prop_assert!(swept > 0);
    }

    #[test]
    fn random_bytes_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = LogFile::parse(&bytes);
        let (_, mut file) = small();
        file.truncate(HEADER_BYTES + bytes.len() % 64);
        file.append(&mut bytes);
        let _ = LogFile::recover(&file);
    }
}
