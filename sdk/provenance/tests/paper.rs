//! Tables 2.1 and 2.2 of the paper, as tests.

use stroboscope_provenance::{
    CopyLinkage, DataLinkage, IndexLinkage, Label, Limits, Linkage, MergeLog, Output, Parents,
    ReadLog, Recording, Reduction, Tracked, TrackedBuf, inputs_of,
};

/// Labels of the variables A to F, Y and Z after the program of both tables, and its log.
#[derive(Debug)]
struct Outcome {
    variables: Vec<(&'static str, Label)>,
    outputs: Vec<Output>,
    log: MergeLog,
}

/// Runs the program of the tables. Each byte that it reads is an input.
fn run<L: Linkage>(reduction: Reduction) -> Outcome {
    let mut recording = Recording::new(Limits {
        reduction,
        ..Limits::default()
    });
    let variables = recording.run(|| {
        let read = |id, byte: u8| {
            TrackedBuf::source(id, 0, vec![byte])
                .get::<L>(0)
                .expect("a byte")
        };
        let a = read(0, 1);
        let b = read(1, 0);
        let c = read(2, 7);
        let d = a + b;
        let e = c + d;
        let f = c;
        let y = [1_u8, 2, 3].map(Tracked::<u8, L>::new);
        let z = d.index(|d| y[usize::from(d)]);
        assert_eq!((*e.get(), *z.get()), (8, 2));
        let mut written = TrackedBuf::new();
        written.push(z);
        written.record_output(0, 0);
        let y = y.iter().fold(Label::NULL, |all, of| {
            stroboscope_provenance::merge(all, of.label())
        });
        [
            ("A", a.label()),
            ("B", b.label()),
            ("C", c.label()),
            ("D", d.label()),
            ("E", e.label()),
            ("F", f.label()),
            ("Y", y),
            ("Z", z.label()),
        ]
    });
    let log = recording.finish();
    Outcome {
        variables: variables.into(),
        outputs: log.outputs().to_vec(),
        log,
    }
}

/// Returns the inputs of each variable and of output 0, as a column of table 2.1.
fn column<L: Linkage>(reduction: Reduction) -> Vec<String> {
    let outcome = run::<L>(reduction);
    let set = |label: Label| {
        let inputs = inputs_of(&outcome.log, label);
        let each = inputs.ranges().flatten();
        let names: Vec<String> = each.map(|input| format!("IN_{input}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    let variables = outcome.variables.iter();
    let mut rows: Vec<String> = variables
        .map(|(name, label)| format!("{name}: {}", set(*label)))
        .collect();
    let written = outcome
        .outputs
        .first()
        .map_or(Label::NULL, |of| of.labels.at(0));
    rows.push(format!("OUT_0: {}", set(written)));
    rows
}

#[test]
fn table_2_1_linkage_function_examples() {
    let table = [
        ("A: {IN_0}", "A: {IN_0}", "A: {IN_0}"),
        ("B: {IN_1}", "B: {IN_1}", "B: {IN_1}"),
        ("C: {IN_2}", "C: {IN_2}", "C: {IN_2}"),
        ("D: {}", "D: {IN_0, IN_1}", "D: {IN_0, IN_1}"),
        ("E: {}", "E: {IN_0, IN_1, IN_2}", "E: {IN_0, IN_1, IN_2}"),
        ("F: {IN_2}", "F: {IN_2}", "F: {IN_2}"),
        ("Y: {}", "Y: {}", "Y: {}"),
        ("Z: {}", "Z: {}", "Z: {IN_0, IN_1}"),
        ("OUT_0: {}", "OUT_0: {}", "OUT_0: {IN_0, IN_1}"),
    ];
    for reduction in [Reduction::Repeated, Reduction::Contained { steps: 6 }] {
        assert_eq!(column::<CopyLinkage>(reduction), table.map(|row| row.0));
        assert_eq!(column::<DataLinkage>(reduction), table.map(|row| row.1));
        assert_eq!(column::<IndexLinkage>(reduction), table.map(|row| row.2));
    }
}

#[test]
fn table_2_2_merge_log_example() {
    let outcome = run::<DataLinkage>(Reduction::Repeated);
    let data: Vec<String> = outcome
        .variables
        .iter()
        .map(|(name, label)| format!("{name}: {label:?}"))
        .collect();
    let expected = [
        "A: IN_0", "B: IN_1", "C: IN_2", "D: M[0]", "E: M[1]", "F: IN_2", "Y: {}", "Z: {}",
    ];
    assert_eq!(data, expected);
    assert_eq!(outcome.outputs, []);
    let log: Vec<String> = (0..outcome.log.nodes())
        .map(|index| {
            format!(
                "M[{index}] = {:?}",
                outcome.log.node(index).expect("a node")
            )
        })
        .collect();
    assert_eq!(log, ["M[0] = {IN_0, IN_1}", "M[1] = {IN_2, M[0]}"]);
}

/// With its reductions, the log has the same nodes, as ranges of successive inputs.
#[test]
fn table_2_2_with_ranges() {
    let outcome = run::<DataLinkage>(Limits::default().reduction);
    let nodes: Vec<Parents> = (0..outcome.log.nodes())
        .filter_map(|index| outcome.log.node(index))
        .map(|node| node.parents())
        .collect();
    assert_eq!(nodes, [Parents::Range(0, 1), Parents::Range(0, 2)]);
    let labels = [3, 4].map(|at| format!("{:?}", outcome.variables[at]));
    assert_eq!(labels, [r#"("D", M[0])"#, r#"("E", M[1])"#]);
}
