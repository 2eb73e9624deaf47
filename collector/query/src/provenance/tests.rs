use std::collections::BTreeSet;

use proptest::prelude::*;
use stroboscope_provenance::{Limits, LogWriter, MergeLog, Reduction};
use stroboscope_store::query_memory::QueryMemory;

use super::*;

/// Byte of an item.
type Byte = (u64, u64);

/// Step of a random program over the bytes of one process.
#[derive(Clone, Debug)]
enum Step {
    /// Reads bytes of an item.
    Read { item: u64, offset: u64, count: u64 },
    /// Merges two values.
    Merge(usize, usize),
    /// Writes values, each as a byte.
    Write {
        item: u64,
        offset: u64,
        values: (usize, usize),
    },
    /// Writes the bytes of a read as one run.
    Copy { item: u64, offset: u64, read: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let offset = 0..6_u64;
    prop_oneof![
        (0..4_u64, offset.clone(), 1..5_u64).prop_map(|(item, offset, count)| Step::Read {
            item,
            offset,
            count
        }),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Step::Merge(a, b)),
        (1..6_u64, offset.clone(), any::<(usize, usize)>()).prop_map(|(item, offset, values)| {
            Step::Write {
                item,
                offset,
                values,
            }
        }),
        (1..6_u64, offset, any::<usize>()).prop_map(|(item, offset, read)| Step::Copy {
            item,
            offset,
            read
        }),
    ]
}

/// Runs a program. Returns the file of its log. Adds the pairs of an output's byte and a source's
/// byte on which it depends, the bytes of outputs, and the bytes of sources.
fn run(
    steps: &[Step],
    depends: &mut BTreeSet<(Byte, Byte)>,
    outputs: &mut BTreeSet<Byte>,
    sources: &mut BTreeSet<Byte>,
) -> Vec<u8> {
    let mut log = MergeLog::default();
    let mut values: Vec<(Label, BTreeSet<Byte>)> = vec![(Label::NULL, BTreeSet::new())];
    let mut reads: Vec<(Labels, u64, u64, u64)> = Vec::new();
    for step in steps {
        match *step {
            Step::Read {
                item,
                offset,
                count,
            } => {
                let labels = log.source(item, offset, count as usize);
                for byte in 0..count {
                    let of = (item, offset + byte);
                    values.push((labels.at(byte as usize), BTreeSet::from([of])));
                    sources.insert(of);
                }
                reads.push((labels, item, offset, count));
            }
            Step::Merge(a, b) => {
                let (a, b) = (&values[a % values.len()], &values[b % values.len()]);
                let of = a.1.union(&b.1).copied().collect();
                values.push((log.merge(a.0, b.0), of));
            }
            Step::Write {
                item,
                offset,
                values: (a, b),
            } => {
                for (byte, value) in [a, b].into_iter().enumerate() {
                    let (label, of) = &values[value % values.len()];
                    let to = (item, offset + byte as u64);
                    log.output(item, to.1, 1, Labels::Shared(*label));
                    outputs.insert(to);
                    depends.extend(of.iter().map(|from| (to, *from)));
                }
            }
            Step::Copy { item, offset, read } => {
                let Some(&(labels, of, from, count)) = reads.get(read % reads.len().max(1)) else {
                    continue;
                };
                log.output(item, offset, count, labels);
                for byte in 0..count {
                    let to = (item, offset + byte);
                    outputs.insert(to);
                    depends.insert((to, (of, from + byte)));
                }
            }
        }
    }
    LogWriter::new(Vec::new())
        .and_then(|writer| writer.finish(&log))
        .unwrap()
}

/// Returns all bytes that a walk along `next` reaches.
fn reached(from: &BTreeSet<Byte>, next: impl Fn(Byte) -> BTreeSet<Byte>) -> BTreeSet<Byte> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<Byte> = from.iter().copied().collect();
    while let Some(byte) = waiting.pop() {
        if reached.insert(byte) {
            waiting.extend(next(byte));
        }
    }
    reached
}

fn bytes_of(
    ranges: impl Fn(&ReachedItem) -> &ByteRanges,
    answer: &ProvenanceAnswer,
) -> BTreeSet<Byte> {
    let items = answer.items.iter();
    items
        .flat_map(|(id, item)| ranges(item).iter().flatten().map(|byte| (*id, byte)))
        .collect()
}

proptest! {
    /// Compares queries across the logs of three processes with walks from byte to byte.
    #[test]
    fn queries_reach_what_a_walk_reaches(
        programs in prop::collection::vec(prop::collection::vec(step(), 0..14), 3),
        id in 0..6_u64,
        (from, count) in (0..8_u64, 1..8_u64),
    ) {
        let (mut depends, mut outputs, mut sources) = Default::default();
        let files: Vec<Vec<u8>> = programs
            .iter()
            .map(|steps| run(steps, &mut depends, &mut outputs, &mut sources))
            .collect();
        let logs: Vec<ProvenanceLog<'_>> =
            files.iter().map(|file| ProvenanceLog::parse(String::new(), file).unwrap()).collect();
        let logs = ProvenanceLogs::from(logs);
        for direction in [Direction::Backward, Direction::Forward] {
            let (known, is_forward) = match direction {
                Direction::Backward => (&outputs, false),
                Direction::Forward => (&sources, true),
            };
            let asked: BTreeSet<Byte> = (from..from + count)
                .map(|byte| (id, byte))
                .filter(|byte| known.contains(byte))
                .collect();
            let answer = logs.query(direction, id, Some(from..from + count));
            if asked.is_empty() {
                prop_assert!(answer.is_err());
                continue;
            }
            let answer = answer.unwrap();
            let expected = reached(&asked, |byte| {
                let pairs = depends.iter().map(|&(output, source)| match is_forward {
                    true => (source, output),
                    false => (output, source),
                });
                pairs.filter(|pair| pair.0 == byte).map(|pair| pair.1).collect()
            });
            prop_assert_eq!(bytes_of(|item| &item.bytes, &answer), expected.clone());
            let ends = expected.into_iter().filter(|byte| !known.contains(byte)).collect();
            prop_assert_eq!(bytes_of(|item| &item.ends, &answer), ends);
            prop_assert_eq!((answer.left_out, answer.unknown), (0, 0));
            // Each flow is of copies, or of output bytes that each depend on all bytes of the
            // source.
            for flow in &answer.flows {
                for (at, to) in (flow.output_bytes.0..flow.output_bytes.1).enumerate() {
                    let of: Vec<u64> = (flow.source_bytes.0..flow.source_bytes.1).collect();
                    let output = (flow.output, to);
                    let is_pair = |from: &u64| depends.contains(&(output, (flow.source, *from)));
                    let is_true = match flow.is_copy {
                        true => is_pair(&of[at]),
                        false => of.iter().all(is_pair),
                    };
                    prop_assert!(is_true, "{:?}", flow);
                }
            }
        }
    }
}

proptest! {
    /// Compares the parts of an output with the queries of its bytes, one by one.
    #[test]
    fn parts_have_the_ends_of_their_bytes(
        programs in prop::collection::vec(prop::collection::vec(step(), 0..14), 3),
        id in 0..6_u64,
    ) {
        let (mut depends, mut outputs, mut sources) = Default::default();
        let files: Vec<Vec<u8>> = programs
            .iter()
            .map(|steps| run(steps, &mut depends, &mut outputs, &mut sources))
            .collect();
        let logs: Vec<ProvenanceLog<'_>> =
            files.iter().map(|file| ProvenanceLog::parse(String::new(), file).unwrap()).collect();
        let logs = ProvenanceLogs::from(logs);
        let Ok(answer) = logs.query(Direction::Backward, id, None) else {
            return Ok(());
        };
        let ends_of = |byte: u64| {
            let answer = logs.query(Direction::Backward, id, Some(byte..byte + 1));
            let items = answer.map(|answer| answer.items).unwrap_or_default().into_iter();
            let ends = items.filter(|(_, item)| !item.ends.is_empty());
            ends.map(|(id, item)| (id, item.ends)).collect::<BytesByItem>()
        };
        let parts = answer.parts(id, 12);
        let covered: Vec<u64> = parts.iter().flat_map(|part| part.bytes.clone()).collect();
        prop_assert_eq!(covered, (0..12).collect::<Vec<_>>());
        for part in parts {
            let mut union = BytesByItem::new();
            for byte in part.bytes {
                let ends = ends_of(byte);
                prop_assert!(ends.keys().eq(part.ends.keys()));
                for (id, ranges) in ends {
                    let of = union.entry(id).or_default();
                    ranges.iter().for_each(|range| of.insert(range));
                }
            }
            prop_assert_eq!(union, part.ends);
        }
    }
}

proptest! {
    /// Compares the sources of all outputs with walks from byte to byte.
    #[test]
    fn a_map_has_the_sources_of_each_output(
        programs in prop::collection::vec(prop::collection::vec(step(), 0..14), 3),
        chosen in prop::collection::btree_set(0..6_u64, 0..6),
        (are_outputs_chosen, are_sources_chosen) in any::<(bool, bool)>(),
    ) {
        let (mut depends, mut outputs, mut sources) = Default::default();
        let files: Vec<Vec<u8>> = programs
            .iter()
            .map(|steps| run(steps, &mut depends, &mut outputs, &mut sources))
            .collect();
        let logs: Vec<ProvenanceLog<'_>> =
            files.iter().map(|file| ProvenanceLog::parse(String::new(), file).unwrap()).collect();
        let logs = ProvenanceLogs::from(logs);
        let is_chosen = |id: u64| chosen.contains(&id);
        let is_output = |id: u64| match are_outputs_chosen {
            true => is_chosen(id),
            false => !logs.has(Direction::Forward, id),
        };
        let is_source: &dyn Fn(u64) -> bool = &is_chosen;
        let mut share = QueryMemory::unbounded().share();
        let map = logs.map(&is_output, are_sources_chosen.then_some(is_source), &mut share);
        let map = map.unwrap();
        prop_assert_eq!((map.left_out, map.unknown), (0, 0));
        let mut found = BTreeSet::new();
        for (output, items) in &map.outputs {
            let bytes = items.iter().flat_map(|(id, ranges)| {
                ranges.iter().flatten().map(|byte| (*output, (*id, byte))).collect::<Vec<_>>()
            });
            found.extend(bytes);
        }
        let reads: BTreeSet<u64> = sources.iter().map(|byte| byte.0).collect();
        let mut expected = BTreeSet::new();
        for from in &outputs {
            let is_asked = if are_outputs_chosen { is_chosen(from.0) } else { !reads.contains(&from.0) };
            if !is_asked {
                continue;
            }
            let next = |byte: Byte| -> BTreeSet<Byte> {
                let pairs = depends.iter().filter(|pair| pair.0 == byte);
                pairs.map(|pair| pair.1).collect()
            };
            // The output's own bytes count only if it depends on them.
            let all = reached(&next(*from), next);
            let ends = all.into_iter().filter(|byte| match are_sources_chosen {
                true => is_chosen(byte.0),
                false => !outputs.contains(byte),
            });
            expected.extend(ends.map(|byte| (from.0, byte)));
        }
        prop_assert_eq!(found, expected);
    }
}

/// Each of a thousand labels of the first log depends on a gigabyte, so its queries take long for
/// its size. The second log is small.
#[test]
fn a_log_of_too_many_steps_ends_only_its_own_flows() {
    let mut log = MergeLog::new(Limits {
        reduction: Reduction::Repeated,
        ..Limits::default()
    });
    let gigabyte = 1 << 30;
    let labels = log.source(1, 0, gigabyte);
    let mut all = log.range(0, gigabyte as u32 - 100);
    for gap in 1..50 {
        all = log.merge(all, labels.at(gigabyte - 2 * gap));
    }
    for output in 0..1_000 {
        all = log.merge(all, labels.at(output));
        log.output(2, output as u64, 1, Labels::Shared(all));
    }
    let large = LogWriter::new(Vec::new()).and_then(|writer| writer.finish(&log));
    let mut log = MergeLog::default();
    let labels = log.source(2, 0, 1);
    log.output(3, 0, 1, labels);
    let small = LogWriter::new(Vec::new()).and_then(|writer| writer.finish(&log));
    let (large, small) = (large.unwrap(), small.unwrap());
    assert!(large.len() < 100_000, "{}", large.len());
    let parse = |name: &str, bytes| ProvenanceLog::parse(name.into(), bytes).unwrap();
    let logs = ProvenanceLogs::from(vec![parse("large", &large), parse("small", &small)]);
    assert!(logs.iter().all(|log| log.problem().is_none()));
    let answer = logs.query(Direction::Backward, 3, None).unwrap();
    assert!(answer.items.contains_key(&2));
    logs.query(Direction::Backward, 2, None).unwrap();
    assert_eq!(logs[1].problem(), None);
    let problem = logs[0].problem().unwrap();
    assert!(problem.contains("too many steps"), "{problem}");
    // Later queries of the log end at once, and others are complete.
    let answer = logs.query(Direction::Backward, 2, None).unwrap();
    assert_eq!(answer.flows, []);
    let answer = logs.query(Direction::Backward, 3, None).unwrap();
    assert!(answer.items.contains_key(&2));
}

/// Maps outputs that together have more flows than one query lists. Each output is one byte that
/// depends on every second byte of a source.
#[test]
fn a_map_of_many_flows_is_complete() {
    const RANGES: u64 = 1_024;
    let outputs = FLOWS_MAX as u64 / RANGES + 1;
    let mut log = MergeLog::default();
    let labels = log.source(1, 0, 2 * RANGES as usize);
    let of_source = (0..RANGES).map(|byte| labels.at(2 * byte as usize));
    let all = of_source
        .reduce(|sum, label| log.merge(sum, label))
        .unwrap();
    for output in 0..outputs {
        log.output(2 + output, 0, 1, Labels::Shared(all));
    }
    let file = LogWriter::new(Vec::new())
        .and_then(|writer| writer.finish(&log))
        .unwrap();
    let logs = ProvenanceLogs::from(vec![ProvenanceLog::parse(String::new(), &file).unwrap()]);
    let mut share = QueryMemory::unbounded().share();
    let map = logs.map(&|_| true, None, &mut share).unwrap();
    assert_eq!((map.left_out, map.outputs.len() as u64), (0, outputs));
    assert!(
        map.outputs
            .iter()
            .all(|(_, sources)| sources[&1].bytes() == RANGES)
    );
    let mut share = QueryMemory::of_one_query(1 << 17).share();
    let error = logs
        .map(&|_| true, None, &mut share)
        .unwrap_err()
        .to_string();
    assert!(error.contains("--trace"), "{error}");
}

#[test]
fn an_answer_lists_flows_and_ends() {
    let mut edge = MergeLog::default();
    let Labels::Inputs(first) = edge.source(1, 0, 10) else {
        panic!("the log has room");
    };
    let word = edge.range(2, 4);
    edge.output(2, 0, 4, Labels::Inputs(first));
    edge.output(2, 4, 2, Labels::Shared(word));
    let mut back = MergeLog::default();
    let labels = back.source(2, 0, 6);
    back.output(3, 0, 1, Labels::Shared(labels.at(5)));
    let file = |log: &MergeLog| {
        let writer = LogWriter::new(Vec::new());
        writer.and_then(|writer| writer.finish(log)).unwrap()
    };
    let files = [file(&edge), file(&back)];
    let parsed = files
        .each_ref()
        .map(|file| ProvenanceLog::parse(String::new(), file));
    let logs = ProvenanceLogs::from(Vec::from(parsed.map(Result::unwrap)));
    let flow = |log, output, output_bytes, source, source_bytes, is_copy| ByteFlow {
        log,
        output,
        output_bytes,
        source,
        source_bytes,
        is_copy,
    };
    let why = logs.query(Direction::Backward, 3, None).unwrap();
    let flows = [
        flow(0, 2, (5, 6), 1, (2, 5), false),
        flow(1, 3, (0, 1), 2, (5, 6), false),
    ];
    assert_eq!(why.flows, flows);
    assert_eq!(why.items[&1].ends.to_string(), "2..5");
    assert!(why.items[&2].ends.is_empty());
    let of = logs.query(Direction::Forward, 1, Some(3..4)).unwrap();
    assert_eq!(of.items[&2].bytes.to_string(), "3..6");
    assert_eq!(of.items[&3].ends.to_string(), "0..1");
    let copy = logs.query(Direction::Backward, 2, Some(1..3)).unwrap();
    assert_eq!(copy.flows, [flow(0, 2, (1, 3), 1, (1, 3), true)]);
    let unknown = logs.query(Direction::Backward, 9, None).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "no log has the output 0000000000000009; there are: 0000000000000002, 0000000000000003"
    );
    let outside = logs.query(Direction::Backward, 3, Some(4..5)).unwrap_err();
    assert!(outside.to_string().ends_with("the logs have 0..1"));
}
