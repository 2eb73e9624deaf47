//! Logs of threads that worked for one request, absorbed into one log.

use std::collections::BTreeSet;

use stroboscope_provenance::{
    Label, Labels, Limits, MergeLog, ReadLog, Recording, Reduction, Tracked, TrackedBuf, inputs_of,
};

type Origins = BTreeSet<(u64, u64)>;

fn origins(log: &MergeLog, label: Label) -> Origins {
    let inputs = inputs_of(log, label);
    let each = inputs.ranges().flatten();
    each.filter_map(|input| {
        let source = log.source_of(input)?;
        Some((source.id, source.offset + u64::from(input - source.first)))
    })
    .collect()
}

/// Work of one thread: its log, and labels with the origins that they stand for.
fn work(id: u64, limits: Limits) -> (MergeLog, Vec<(Label, Origins)>) {
    let mut recording = Recording::new(limits);
    let expected = recording.run(|| {
        let buffer = TrackedBuf::source(id, 10 * id, vec![1; 100]);
        let byte = |at| -> Tracked<u8> { buffer.get(at).expect("a byte") };
        let sums = (0..90).map(|at| {
            let sum = byte(at) + byte(at + 9) + byte((at * 7) % 100);
            let offsets = [at, at + 9, (at * 7) % 100].map(|at| (id, 10 * id + at as u64));
            (sum.label(), Origins::from(offsets))
        });
        let mut expected: Vec<_> = sums.collect();
        let all = (0..100).map(|at| (id, 10 * id + at)).collect();
        expected.push((buffer.merged(0..100), all));
        expected.push((byte(5).label(), [(id, 10 * id + 5)].into()));
        expected.push((Label::NULL, Origins::new()));
        buffer.record_output(id, 3);
        expected
    });
    (recording.finish(), expected)
}

fn absorbed(limits: Limits, of_threads: Limits) -> (MergeLog, Vec<(Label, Origins)>) {
    let threads: Vec<_> = (0..4)
        .map(|id| std::thread::spawn(move || work(id, of_threads)))
        .collect();
    let mut log = MergeLog::new(limits);
    log.source(99, 0, 7);
    let mut labels = Vec::new();
    for thread in threads {
        let (other, expected) = thread.join().expect("no panic");
        let translation = log.absorb(&other);
        let translated = expected.into_iter();
        labels.extend(translated.map(|(label, origins)| (translation.label(label), origins)));
        assert_eq!(
            translation.label(Label::from_raw(u32::MAX).expect("a label")),
            Label::ALL
        );
    }
    (log, labels)
}

#[test]
fn logs_of_threads_become_one() {
    let paper = Limits {
        reduction: Reduction::Repeated,
        ..Limits::default()
    };
    for of_threads in [paper, Limits::default()] {
        let (mut log, labels) = absorbed(Limits::default(), of_threads);
        assert_eq!((log.inputs(), log.sources().len()), (407, 5));
        for (label, expected) in &labels {
            assert_eq!(origins(&log, *label), *expected);
        }
        assert_eq!(log.outputs().len(), 4);
        for (id, output) in (0..).zip(log.outputs()) {
            assert_eq!((output.id, output.offset, output.count), (id, 3, 100));
            assert!(matches!(output.labels, Labels::Inputs(_)));
            assert_eq!(
                origins(&log, output.labels.at(8)),
                [(id, 10 * id + 8)].into()
            );
        }
        // Labels of different threads merge.
        let (first, last) = (&labels[0], &labels[labels.len() - 4]);
        let merged = log.merge(first.0, last.0);
        assert_eq!(origins(&log, merged), &first.1 | &last.1);
        assert!(log.losses().is_none());
    }
}

#[test]
fn full_logs_absorb_with_losses() {
    let full = [
        Limits::with_nodes(9),
        Limits {
            inputs: 150,
            ..Limits::default()
        },
        Limits {
            sources: 2,
            ..Limits::default()
        },
    ];
    for limits in full {
        let (log, labels) = absorbed(limits, Limits::default());
        assert!(!log.losses().is_none(), "{limits:?}");
        assert!(log.nodes() <= limits.nodes && log.inputs() <= limits.inputs);
        for (label, expected) in &labels {
            let found = inputs_of(&log, *label);
            // The input that further bytes share has no source.
            let shared = limits.inputs - 1;
            let is_shared = found.contains(shared);
            assert!(
                is_shared || origins(&log, *label).is_superset(expected),
                "{label:?}"
            );
            assert_eq!(found.is_empty(), expected.is_empty());
        }
        assert_eq!(log.outputs().len(), 4);
    }
    // Blocks of a full log of a thread become blocks, or ranges within outputs.
    let (log, labels) = absorbed(Limits::default(), Limits::with_nodes(9));
    for (label, expected) in &labels {
        assert!(origins(&log, *label).is_superset(expected));
        assert!(expected.is_empty() || *label != Label::ALL);
    }
}
