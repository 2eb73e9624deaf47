//! Random programs over tracked values, compared with a naive set for each byte.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stroboscope_provenance::{
    CopyLinkage, DataLinkage, IndexLinkage, Label, Limits, Linkage, LogFile, LogWriter, MergeLog,
    ReadLog, Recording, Reduction, Tracked, TrackedBuf, inputs_of, sweep,
};

/// Byte of a source: the id and the offset.
type Origin = (u64, u64);
type Set = BTreeSet<Origin>;

/// Step of a program over buffers, which are named by their places, modulo their number.
#[derive(Clone, Debug)]
enum Step {
    Source(Vec<u8>),
    Untracked(Vec<u8>),
    Slice(usize, usize, usize),
    Concat(usize, usize),
    Map(usize),
    Zip(usize, usize),
    Sum(usize),
    Parse(usize, usize),
    /// Looks up each byte of the first buffer in the second.
    Index(usize, usize),
    /// Chooses bytes of the second or third buffer by those of the first.
    Select(usize, usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = || 0..40_usize;
    let bytes = || prop::collection::vec(any::<u8>(), 0..12);
    let step = prop_oneof![
        3 => bytes().prop_map(Step::Source),
        1 => bytes().prop_map(Step::Untracked),
        3 => (at(), 0..20_usize, 0..20_usize).prop_map(|(of, a, b)| Step::Slice(of, a, b)),
        3 => (at(), at()).prop_map(|(a, b)| Step::Concat(a, b)),
        1 => at().prop_map(Step::Map),
        2 => (at(), at()).prop_map(|(a, b)| Step::Zip(a, b)),
        2 => at().prop_map(Step::Sum),
        2 => (at(), at()).prop_map(|(a, b)| Step::Parse(a, b)),
        2 => (at(), at()).prop_map(|(a, b)| Step::Index(a, b)),
        1 => (at(), at(), at()).prop_map(|(a, b, c)| Step::Select(a, b, c)),
    ];
    prop::collection::vec(step, 1..60)
}

/// Buffer without labels, with the origins of each byte.
#[derive(Clone, Debug, Default)]
struct Naive {
    bytes: Vec<u8>,
    sets: Vec<Set>,
}

impl Naive {
    fn push(&mut self, byte: u8, set: Set) {
        self.bytes.push(byte);
        self.sets.push(set);
    }

    fn all(&self) -> Set {
        self.sets.iter().flatten().copied().collect()
    }

    fn pairs(&self) -> impl Iterator<Item = (u8, Set)> {
        self.bytes.iter().copied().zip(self.sets.iter().cloned())
    }
}

fn if_set(condition: bool, set: Set) -> Set {
    if condition { set } else { Set::new() }
}

/// Runs a step on tracked buffers.
fn tracked<L: Linkage>(step: &Step, id: u64, made: &[TrackedBuf]) -> TrackedBuf {
    let of = |place: &usize| &made[place % made.len()];
    let bytes = |buffer: &TrackedBuf| -> Vec<Tracked<u8, L>> {
        (0..buffer.len()).filter_map(|at| buffer.get(at)).collect()
    };
    let mut result = TrackedBuf::new();
    match step {
        Step::Source(bytes) => return TrackedBuf::source(id, 3, bytes.clone()),
        Step::Untracked(bytes) => return bytes.clone().into(),
        Step::Slice(a, from, to) => {
            let range = *from.min(to)..*from.max(to);
            return of(a).slice(range).unwrap_or_default();
        }
        Step::Concat(a, b) => return TrackedBuf::concat([of(a), of(b)]),
        Step::Map(a) => return of(a).clone().map::<L>(|byte| byte ^ 1),
        Step::Zip(a, b) => return of(a).zip_with::<L>(of(b), u8::wrapping_add),
        Step::Sum(a) => {
            let zero = Tracked::<u8, L>::new(0);
            result.push(bytes(of(a)).into_iter().fold(zero, |sum, byte| sum ^ byte));
        }
        Step::Parse(a, b) => {
            // A text of digits from the bytes, parsed and written again after the other buffer.
            let digits = of(a).clone().map::<L>(|byte| b'0' + byte % 10);
            let digits = digits.slice(0..digits.len().min(9)).unwrap_or_default();
            result.extend(of(b));
            if let Ok(number) = digits.parse::<u64, L>() {
                result.push_text(&(number + 1));
            }
        }
        Step::Index(a, b) => {
            for index in bytes(of(a)) {
                let index = index.map(|byte| usize::from(byte) % 8);
                if let Some(byte) = of(b).get_at(index) {
                    result.push(byte);
                }
            }
        }
        Step::Select(a, b, c) => {
            for (at, condition) in bytes(of(a)).into_iter().enumerate() {
                if let (Some(b), Some(c)) = (of(b).get(at), of(c).get(at)) {
                    let is_odd = condition.map(|byte| byte % 2 == 1);
                    result.push(is_odd.select(b, c));
                }
            }
        }
    }
    result
}

/// Runs a step on naive buffers, from the definition of the linkages.
fn naive<L: Linkage>(step: &Step, id: u64, made: &[Naive]) -> Naive {
    let of = |place: &usize| &made[place % made.len()];
    let mut result = Naive::default();
    match step {
        Step::Source(bytes) => {
            let each = bytes.iter().zip(3..);
            each.for_each(|(byte, at)| result.push(*byte, [(id, at)].into()));
        }
        Step::Untracked(bytes) => bytes.iter().for_each(|byte| result.push(*byte, Set::new())),
        Step::Slice(a, from, to) => {
            let (from, to) = (*from.min(to), *from.max(to));
            if to <= of(a).bytes.len() {
                let part = of(a).pairs().skip(from).take(to - from);
                part.for_each(|(byte, set)| result.push(byte, set));
            }
        }
        Step::Concat(a, b) => {
            let both = of(a).pairs().chain(of(b).pairs());
            both.for_each(|(byte, set)| result.push(byte, set));
        }
        Step::Map(a) => {
            for (byte, set) in of(a).pairs() {
                result.push(byte ^ 1, if_set(L::DATA, set));
            }
        }
        Step::Zip(a, b) => {
            for ((a, left), (b, right)) in of(a).pairs().zip(of(b).pairs()) {
                result.push(a.wrapping_add(b), if_set(L::DATA, &left | &right));
            }
        }
        Step::Sum(a) => {
            let sum = of(a).bytes.iter().fold(0, |sum, byte| sum ^ byte);
            result.push(sum, if_set(L::DATA, of(a).all()));
        }
        Step::Parse(a, b) => {
            let digits: String = of(a)
                .bytes
                .iter()
                .take(9)
                .map(|byte| char::from(b'0' + byte % 10))
                .collect();
            result = of(b).clone();
            if let Ok(number) = digits.parse::<u64>() {
                let set: Set = of(a).sets.iter().take(9).flatten().copied().collect();
                for byte in (number + 1).to_string().bytes() {
                    result.push(byte, if_set(L::DATA, set.clone()));
                }
            }
        }
        Step::Index(a, b) => {
            for (index, set) in of(a).pairs() {
                if let Some((byte, own)) = of(b).pairs().nth(usize::from(index) % 8) {
                    result.push(byte, &own | &if_set(L::INDEX, set));
                }
            }
        }
        Step::Select(a, b, c) => {
            let values = of(b).pairs().zip(of(c).pairs());
            for ((condition, set), (b, c)) in of(a).pairs().zip(values) {
                let (byte, own) = if condition % 2 == 1 { b } else { c };
                result.push(byte, &own | &if_set(L::INDEX, set));
            }
        }
    }
    result
}

fn origins(log: &impl ReadLog, label: Label) -> Set {
    let inputs = inputs_of(log, label).ranges().flatten().collect::<Vec<_>>();
    let origin = |input: u32| {
        let source = log.source_of(input).expect("a source");
        (source.id, source.offset + u64::from(input - source.first))
    };
    inputs.into_iter().map(origin).collect()
}

/// Returns the recorded inputs of each byte of each output, read from a file of the log.
fn of_outputs(log: &MergeLog) -> BTreeSet<(Origin, Set)> {
    let writer = LogWriter::new(Vec::new()).expect("a file in memory");
    let bytes = writer.finish(log).expect("a file in memory");
    let file = LogFile::parse(&bytes).expect("a whole file");
    let mut found = BTreeSet::new();
    let mut labels = Vec::new();
    for output in file.outputs() {
        for at in 0..output.count {
            let label = output.labels.at(at as usize);
            labels.push(label);
            found.insert(((output.id, output.offset + at), origins(&file, label)));
        }
    }
    sweep(&file, &labels, |label, inputs| {
        assert_eq!(*inputs, inputs_of(&file, label));
    });
    found
}

fn check<L: Linkage>(steps: &[Step], reduction: Reduction) -> Result<(), TestCaseError> {
    let mut recording = Recording::new(Limits {
        reduction,
        ..Limits::default()
    });
    let (mut made, mut reference) = (vec![TrackedBuf::new()], vec![Naive::default()]);
    for (id, step) in steps.iter().enumerate() {
        // A doubled buffer may not grow without bound.
        let next = naive::<L>(step, id as u64, &reference);
        if next.bytes.len() > 60 {
            continue;
        }
        let buffer = recording.run(|| tracked::<L>(step, id as u64, &made));
        prop_assert_eq!(buffer.as_bytes(), &next.bytes[..], "{:?}", step);
        made.push(buffer);
        reference.push(next);
    }
    recording.run(|| {
        for (id, buffer) in made.iter().enumerate() {
            buffer.record_output(id as u64, 0);
        }
    });
    let merged = recording.run(|| {
        made.iter()
            .map(|of| of.merged(0..of.len()))
            .collect::<Vec<_>>()
    });
    let log = recording.finish();
    let mut expected = BTreeSet::new();
    for (id, (buffer, naive)) in made.iter().zip(&reference).enumerate() {
        for (at, set) in naive.sets.iter().enumerate() {
            prop_assert_eq!(
                &origins(&log, buffer.label(at)),
                set,
                "byte {} of {}",
                at,
                id
            );
            if !set.is_empty() {
                expected.insert(((id as u64, at as u64), set.clone()));
            }
        }
        prop_assert_eq!(origins(&log, merged[id]), naive.all());
        prop_assert_eq!(buffer.label(naive.sets.len()), Label::NULL);
    }
    prop_assert_eq!(of_outputs(&log), expected);
    prop_assert!(log.losses().is_none());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn labels_of_bytes_agree_with_naive_sets(steps in steps(), absorbs in 0..8_u8) {
        for reduction in [Reduction::Repeated, Reduction::Contained { steps: absorbs }] {
            check::<CopyLinkage>(&steps, reduction)?;
            check::<DataLinkage>(&steps, reduction)?;
            check::<IndexLinkage>(&steps, reduction)?;
        }
    }
}
