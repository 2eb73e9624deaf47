//! Damaged files of logs: each yields an error, and the log's parts before the damage.

use proptest::prelude::*;
use stroboscope_provenance::{
    Label, Labels, LogFile, LogWriter, MergeLog, ReadLog, Resolver, inputs_of, sweep,
};

/// Damage of a file. Its position is taken modulo the length of the file.
#[derive(Clone, Debug)]
enum Damage {
    Cut(usize),
    Flip(usize, u8),
    Overwrite(usize, Vec<u8>),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let foreign = prop::collection::vec(any::<u8>(), 1..64);
    prop_oneof![
        any::<usize>().prop_map(Damage::Cut),
        (any::<usize>(), 1..=u8::MAX).prop_map(|(at, change)| Damage::Flip(at, change)),
        (any::<usize>(), foreign.clone()).prop_map(|(at, bytes)| Damage::Overwrite(at, bytes)),
        (any::<usize>(), foreign).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (any::<usize>(), 1..64_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
    ]
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        match self {
            Self::Cut(at) => bytes.truncate(at % len),
            Self::Flip(at, change) => bytes[at % len] ^= change,
            Self::Overwrite(at, foreign) => {
                let (at, end) = (at % len, (at % len + foreign.len()).min(len));
                bytes[at..end].copy_from_slice(&foreign[..end - at]);
            }
            Self::Insert(at, foreign) => {
                bytes.splice(at % len..at % len, foreign.iter().copied());
            }
            Self::Remove(at, count) => {
                bytes.drain(at % len..(at % len + count).min(len));
            }
        }
    }
}

/// Writes a log of random merges in parts, with an output after each merge.
fn write(steps: &[(usize, usize)], parts: usize) -> (MergeLog, Vec<u8>) {
    let (mut log, mut labels) = (MergeLog::default(), Vec::new());
    let mut writer = LogWriter::new(Vec::new()).expect("written");
    for (part, steps) in (0_u64..).zip(steps.chunks(steps.len().div_ceil(parts))) {
        if let Labels::Inputs(first) = log.source(part, 7, 40) {
            labels.extend((0..40).map(|at| Labels::Inputs(first).at(at)));
        }
        for (a, b) in steps {
            let label: Label = log.merge(labels[a % labels.len()], labels[b % labels.len()]);
            labels.push(label);
            log.output(part, *a as u64, 3, Labels::Shared(label));
        }
        writer.append(&log).expect("written");
    }
    let bytes = writer.finish(&log).expect("written");
    (log, bytes)
}

/// Checks that a file holds a prefix of a log, and that queries of it are those of the log.
fn check_prefix(file: &LogFile<'_>, log: &MergeLog) -> Result<(), TestCaseError> {
    prop_assert!(file.nodes() <= log.nodes() && file.inputs() <= log.inputs());
    for index in 0..file.nodes() {
        prop_assert_eq!(file.node(index), log.node(index));
    }
    prop_assert_eq!(file.node(file.nodes()), None);
    for input in 0..file.inputs() {
        let origin = |source: stroboscope_provenance::Source| {
            (source.id, source.offset + u64::from(input - source.first))
        };
        if let Some(source) = file.source_of(input) {
            prop_assert_eq!(Some(origin(source)), log.source_of(input).map(origin));
        }
    }
    prop_assert!(log.outputs().starts_with(file.outputs()));
    let mut labels = Vec::new();
    labels.extend(file.outputs().iter().map(|output| output.labels.at(0)));
    let mut resolver = Resolver::default();
    sweep(file, &labels, |label, inputs| {
        assert_eq!(*inputs, inputs_of(log, label));
        assert_eq!(*inputs, resolver.inputs(file, label));
    });
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 400 }))]
    #[test]
    fn a_damaged_file_is_an_error_and_a_prefix(
        steps in prop::collection::vec((any::<usize>(), any::<usize>()), 1..60),
        parts in 1..6_usize,
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        let (log, whole) = write(&steps, parts);
        let mut bytes = whole.clone();
        for damage in &damages {
            if !bytes.is_empty() {
                damage.apply(&mut bytes);
            }
        }
        let parsed = LogFile::parse(&bytes).map(|_| ());
        prop_assert_eq!(parsed.is_ok(), bytes == whole);
        match LogFile::recover(&bytes) {
            Ok((file, error)) => {
                prop_assert_eq!(parsed.err(), error);
                check_prefix(&file, &log)?;
            }
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                prop_assert_eq!(parsed, Err(error));
            }
        }
    }
}
