//! Tests of `record.rs`.

use super::*;
use crate::value::{Value, debug, display};

static CALLSITE: Callsite = Callsite::new("here", &["a", "b", "c"], "file", 1);

fn head() -> Head {
    Head {
        kind: RecordKind::Begin,
        flags: 0x1234,
        ticks: 7,
        callsite: &CALLSITE,
        trace_id: (1 << 100) + 5,
        span_id: 9,
        parent_id: 8,
    }
}

fn read_one(words: &[u64]) -> Record<'_> {
    let mut lineage = Lineage::UNKNOWN;
    read(words, &mut lineage)
}

fn check(values: &[&dyn Fn(&mut FieldWriter<'_>)], expected: &str) {
    let mut place = [0; RECORD_WORDS_MAX];
    let length = write(&mut place, &mut { Lineage::UNKNOWN }, &head(), |writer| {
        values.iter().for_each(|value| value(writer));
    });
    assert_eq!(length, super::length(&place));
    let record = read_one(&place);
    let Record::Full { head: got, fields } = record else {
        panic!("{record:?}")
    };
    assert_eq!(
        (got.kind, got.flags, got.ticks),
        (RecordKind::Begin, 0x1234, 7)
    );
    assert_eq!(
        (got.trace_id, got.span_id, got.parent_id),
        ((1 << 100) + 5, 9, 8)
    );
    assert!(std::ptr::eq(got.callsite, &raw const CALLSITE));
    let text: Vec<String> = fields
        .map(|(index, value)| format!("{index}={value:?}"))
        .collect();
    assert_eq!(text.join(" "), expected);
}

#[test]
fn every_kind_of_value_comes_back() {
    check(&[], "");
    check(
        &[&|w| (-3i32).write(0, w), &|w| 7usize.write(1, w), &|w| {
            true.write(2, w);
        }],
        "0=Int(-3) 1=Uint(7) 2=Bool(true)",
    );
    check(
        &[&|w| 0.5f32.write(0, w), &|w| "twelve bytes".write(1, w)],
        "0=Double(0.5) 1=Text(\"twelve bytes\")",
    );
    check(
        &[&|w| "".write(0, w), &|w| String::from("ü").write(2, w)],
        "0=Text(\"\") 2=Text(\"ü\")",
    );
    check(
        &[&|w| None::<u8>.write(0, w), &|w| Some(1u8).write(1, w)],
        "1=Uint(1)",
    );
    check(
        &[&|w| display(1.5).write(0, w), &|w| debug("x").write(1, w)],
        "0=Text(\"1.5\") 1=Text(\"\\\"x\\\"\")",
    );
}

#[test]
fn fields_come_back_in_any_order_and_number() {
    check(
        &[&|w| 1u8.write(1, w), &|w| 2u8.write(0, w)],
        "1=Uint(1) 0=Uint(2)",
    );
    check(
        &[&|w| "t".write(0, w), &|w| 2u8.write(1, w)],
        "0=Text(\"t\") 1=Uint(2)",
    );
    check(
        &[&|w| None::<u8>.write(0, w), &|w| 1u8.write(1, w), &|w| {
            2i8.write(2, w);
        }],
        "1=Uint(1) 2=Int(2)",
    );
    let many: Vec<String> = (0..9).map(|i| format!("{i}=Int({})", i - 4)).collect();
    let write_many = |w: &mut FieldWriter<'_>| (0..9).for_each(|i| (i64::from(i) - 4).write(i, w));
    check(&[&write_many], &many.join(" "));
}

/// Step of a thread, which is written as a record and compared with the record read.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Begin(u128, u64, u64),
    End(u64),
    Event(u128, u64),
}
use Step::{Begin, End, Event};

fn write_step(place: &mut Place, lineage: &mut Lineage, number: u64, step: &Step) -> usize {
    let (kind, trace_id, span_id, parent_id) = match *step {
        Begin(trace_id, span_id, parent_id) => (RecordKind::Begin, trace_id, span_id, parent_id),
        Event(trace_id, span_id) => (RecordKind::Event, trace_id, span_id, 0),
        End(span_id) => return write_end(place, lineage, 3, number, span_id),
    };
    let head = Head {
        kind,
        ticks: number,
        trace_id,
        span_id,
        parent_id,
        ..head()
    };
    write(place, lineage, &head, |w| number.write(0, w))
}

fn read_step(record: &Record<'_>, number: u64) -> Step {
    match record {
        Record::Full { head, fields } => {
            assert_eq!((head.ticks, head.flags), (number, 0x1234));
            assert_eq!(
                fields.clone().collect::<Vec<_>>(),
                [(0, FieldValue::Uint(number))]
            );
            match head.kind {
                RecordKind::Begin => Begin(head.trace_id, head.span_id, head.parent_id),
                RecordKind::Event => Event(head.trace_id, head.span_id),
                other => panic!("{other:?}"),
            }
        }
        &Record::End {
            flags,
            ticks,
            span_id,
        } => {
            assert_eq!((flags, ticks), (3, number));
            End(span_id)
        }
        other => panic!("{other:?}"),
    }
}

/// Checks that each record is read as it was written, even if the reader continues from a CONTEXT
/// record at step `stop`. Returns the lengths of the records in words.
fn check_steps(steps: &[Step], stop: usize) -> Vec<usize> {
    let (mut written, mut lengths, mut lineage) = (Vec::new(), Vec::new(), Lineage::UNKNOWN);
    for (number, step) in steps.iter().enumerate() {
        let mut place = [0; RECORD_WORDS_MAX];
        let length = write_step(&mut place, &mut lineage, number as u64, step);
        lengths.push(length);
        written.push(place[..length].to_vec());
    }
    let (mut reader, mut copier) = (Lineage::UNKNOWN, Lineage::UNKNOWN);
    for (number, (record, step)) in written.iter().zip(steps).enumerate() {
        if number == stop {
            let context = copier.as_record();
            reader = Lineage::UNKNOWN;
            assert!(matches!(read(&context, &mut reader), Record::Context));
        }
        copier.follow(record);
        assert_eq!(read_step(&read(record, &mut reader), number as u64), *step);
    }
    lengths
}

#[test]
fn what_is_known_is_not_said_again() {
    const T: u128 = (1 << 100) + 5;
    let nested = [
        Begin(T, 1, 0),
        Event(T, 1),
        Begin(T, 2, 1),
        Event(T, 2),
        Event(T, 2),
        End(2),
        Event(T, 1),
        Begin(T, 3, 1),
        End(3),
        End(1),
    ];
    assert_eq!(check_steps(&nested, 4), [8, 4, 5, 4, 4, 2, 4, 5, 2, 2]);
    // Another trace, an end out of turn, and events of no span.
    let mixed = [
        Begin(T, 1, 0),
        Begin(7, 2, 9),
        End(1),
        Event(7, 2),
        End(2),
        Event(0, 0),
        Event(0, 0),
    ];
    assert_eq!(check_steps(&mixed, 3), [8, 8, 3, 4, 2, 7, 4]);
}

#[test]
fn deep_nesting_is_read_right() {
    let down = (1..=20).map(|span| Begin(7, span, span - 1));
    let up = (1..=20).rev().flat_map(|span| [Event(7, span), End(span)]);
    let steps: Vec<Step> = down.chain(up).collect();
    (0..steps.len()).for_each(|stop| _ = check_steps(&steps, stop));
}

fn any_step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    let trace = || (0..2u128).prop_map(|trace| trace << 70 | trace);
    prop_oneof![
        (trace(), 0..5u64, 0..5u64).prop_map(|(trace, span, parent)| Begin(trace, span, parent)),
        (0..5u64).prop_map(End),
        (trace(), 0..5u64).prop_map(|(trace, span)| Event(trace, span)),
    ]
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(if cfg!(miri) { 8 } else { 256 }))]
    #[test]
    fn any_sequence_is_read_as_written(
        steps in proptest::collection::vec(any_step(), 0..60), stop in 0..60usize
    ) {
        check_steps(&steps, stop);
    }
}

#[test]
fn a_record_whose_field_panics_leaves_no_lineage_behind() {
    let (mut place, mut lineage) = ([0; RECORD_WORDS_MAX], Lineage::UNKNOWN);
    for kind in [RecordKind::Event, RecordKind::Begin] {
        let head = Head { kind, ..head() };
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            write(&mut place, &mut lineage, &head, |_| {
                std::panic::resume_unwind(Box::new(()))
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(lineage, Lineage::UNKNOWN);
    }
}

#[test]
fn long_texts_are_cut_at_a_character_and_counted() {
    let before = LOSSES.get(LossCause::StringCut);
    let long = "ü".repeat(TEXT_BYTES_MAX);
    let mut place = [0; RECORD_WORDS_MAX];
    write(&mut place, &mut { Lineage::UNKNOWN }, &head(), |writer| {
        writer.text(0, &format!("x{long}"));
    });
    let Record::Full { mut fields, .. } = read_one(&place) else {
        panic!()
    };
    let Some((0, FieldValue::Text(text))) = fields.next() else {
        panic!()
    };
    assert_eq!(text.len(), TEXT_BYTES_MAX - 1);
    assert!(LOSSES.get(LossCause::StringCut) > before);
}

#[test]
fn what_does_not_fit_is_left_out_and_counted() {
    let before = LOSSES.get(LossCause::Oversize);
    let mut place = [0; RECORD_WORDS_MAX];
    let text = "x".repeat(1_000);
    let length = write(&mut place, &mut { Lineage::UNKNOWN }, &head(), |writer| {
        (0..10).for_each(|i| writer.text(i, &text));
    });
    assert!(length <= RECORD_WORDS_MAX);
    let Record::Full { fields, .. } = read_one(&place) else {
        panic!()
    };
    assert_eq!(fields.count(), 4);
    assert!(LOSSES.get(LossCause::Oversize) > before);
}
