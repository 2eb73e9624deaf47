//! Batches from the wire: valid ones become rows, invalid ones are rejected with a reason, and none
//! causes a panic.

use proptest::prelude::*;
use prost::Message as _;
use stroboscope_fixtures::batches::{EPOCH_NS, batch, span_id, trace_id};
use stroboscope_proto::v1::{Batch, Events, Loss, Spans, Window};
use stroboscope_store::decode::{CheckedBatch, Refusal};
use stroboscope_store::limits::Limits;
use stroboscope_store::record::Rows;

fn small_limits() -> Limits {
    Limits {
        string_bytes_max: 100,
        attributes_per_record_max: 6,
        records_per_batch_max: 50,
        attribute_bytes_per_batch_max: 1_000,
        notes_per_batch_max: 4,
        ..Limits::default()
    }
}

fn rows(batch: Batch) -> Rows {
    let mut rows = Rows::default();
    CheckedBatch::check(batch, &Limits::default())
        .unwrap()
        .append_to(EPOCH_NS, &mut rows);
    rows
}

#[test]
fn statements_name_their_spans() {
    let mut batch = batch(9, 2, 4);
    let first = batch.strings.len() as u32;
    batch
        .strings
        .extend(["db.query.text", "SELECT 'a'", "query"].map(str::to_owned));
    let spans = batch.spans.as_mut().unwrap();
    spans.name_string[0] = first + 2;
    let attributes = spans.attributes.as_mut().unwrap();
    *attributes.key_string.last_mut().unwrap() = first;
    attributes.string_values = vec![first + 1];
    let rows = rows(batch);
    let names = rows.spans.iter().map(|span| rows.strings.text(span.name));
    assert_eq!(names.take(2).collect::<Vec<_>>(), ["SELECT ?", "put"]);
    let attributes = rows.spans[0].attributes.as_deref().unwrap();
    let expected = r#","db.query.text":"SELECT 'a'","otel.span_name":"query"}"#;
    assert!(attributes.ends_with(expected), "{attributes}");
}

#[test]
fn a_good_batch_becomes_rows() {
    let rows = rows(batch(9, 2, 4));
    assert_eq!(
        (rows.spans.len(), rows.events.len(), rows.batches.len()),
        (4, 2, 1)
    );
    let span = &rows.spans[3];
    assert_eq!(
        (span.trace_id, span.span_id, span.process),
        (trace_id(2, 3), span_id(2, 3), 9)
    );
    assert_eq!(span.start_ns, (EPOCH_NS + 2_000_000 + 4_000) as i64);
    assert_eq!(span.end_ns - span.start_ns, 503);
    assert_eq!(
        (
            rows.strings.text(span.name),
            rows.strings.text(span.service)
        ),
        ("put", "web")
    );
    assert_eq!(
        rows.spans[0].attributes.as_deref(),
        Some(
            r#"{"get":-3,"put":18446744073709551615,"key":0.5,"value":true,"höhe \"quoted\"":"höhe \"quoted\""}"#
        )
    );
    assert_eq!(rows.spans[1].attributes, None);
    let event = &rows.events[1];
    assert_eq!(
        (event.span_id, event.seq, rows.strings.text(event.name)),
        (span_id(2, 2), 1, "key")
    );
    let row = &rows.batches[0];
    assert_eq!(
        (row.sequence, row.spans, row.events, row.burst_config),
        (2, 4, 2, 28)
    );
    assert_eq!(
        row.losses
            .iter()
            .map(|&(cause, n)| (rows.strings.text(cause), n))
            .collect::<Vec<_>>(),
        [("ring_full", 2)]
    );
    assert_eq!(row.windows[0].close_ns - row.windows[0].open_ns, 4_000_000);
}

#[test]
fn an_empty_batch_is_fine() {
    let empty = Batch {
        process: batch(1, 0, 0).process,
        ..Batch::default()
    };
    assert_eq!(rows(empty).spans.len(), 0);
}

#[test]
fn numbers_that_json_lacks_become_text() {
    let mut odd = batch(1, 0, 1);
    odd.spans
        .as_mut()
        .unwrap()
        .attributes
        .as_mut()
        .unwrap()
        .double_values[0] = f64::NAN;
    let rows = rows(odd);
    let json: serde_json::Value =
        serde_json::from_str(rows.spans[0].attributes.as_ref().unwrap()).unwrap();
    assert_eq!(json["key"], "NaN");
}

fn spans(batch: &mut Batch) -> &mut Spans {
    batch.spans.as_mut().unwrap()
}

fn events(batch: &mut Batch) -> &mut Events {
    batch.events.as_mut().unwrap()
}

/// Breaks a good batch and expects the refusal's cause and a part of its message.
fn check(cause: &str, message: &str, spoil: impl FnOnce(&mut Batch)) {
    let mut batch = batch(1, 1, 4);
    spoil(&mut batch);
    let refusal = CheckedBatch::check(batch, &small_limits()).expect_err(cause);
    assert_eq!(refusal.cause(), cause, "{refusal}");
    assert!(refusal.to_string().contains(message), "{refusal}");
}

#[test]
fn bad_batches_are_refused_by_name() {
    check("no_process", "no process", |b| b.process = None);
    check("incarnation", "3 bytes", |b| {
        b.process.as_mut().unwrap().incarnation = vec![1, 2, 3];
    });
    check("incarnation", "zero", |b| {
        b.process.as_mut().unwrap().incarnation = vec![0; 16];
    });
    check("first_string", "string 0", |b| b.strings[0] = "x".into());
    check("string_too_long", "101 bytes", |b| {
        b.strings[1] = "x".repeat(101);
    });
    check("string_too_long", "limit of 100", |b| {
        b.process.as_mut().unwrap().host = "x".repeat(101);
    });
    check(
        "column_length",
        "spans.trace_ids (bytes) has 63 elements, expected 64",
        |b| {
            spans(b).trace_ids.pop();
        },
    );
    check("column_length", "spans.parent_ids", |b| {
        spans(b).parent_ids.push(1);
    });
    check("column_length", "spans.name_string", |b| {
        spans(b).name_string.clear();
    });
    check("column_length", "spans.start_ns", |b| {
        spans(b).start_ns.push(1);
    });
    check("column_length", "spans.duration_ns", |b| {
        spans(b).duration_ns.push(1);
    });
    check("column_length", "spans.flags", |b| spans(b).flags.clear());
    check("column_length", "spans.attribute_count", |b| {
        spans(b).attribute_count.push(0);
    });
    check("column_length", "attributes.key_string", |b| {
        spans(b).attribute_count[1] = 1;
    });
    check("column_length", "attributes.kind", |b| {
        spans(b).attributes.as_mut().unwrap().kind.pop();
    });
    check("column_length", "attributes.key_string has 0", |b| {
        spans(b).attributes = None;
    });
    check("column_length", "attributes.int_values", |b| {
        spans(b).attributes.as_mut().unwrap().int_values.clear();
    });
    check("column_length", "attributes.string_values", |b| {
        spans(b).attributes.as_mut().unwrap().string_values.push(1);
    });
    check("column_length", "events.time_ns", |b| {
        events(b).time_ns.clear();
    });
    check("column_length", "events.trace_ids", |b| {
        events(b).trace_ids.clear();
    });
    check("column_length", "events.name_string", |b| {
        events(b).name_string.clear();
    });
    check(
        "string_index",
        "spans.name_string[2] names string 6, but there are 6",
        |b| {
            spans(b).name_string[2] = 6;
        },
    );
    check("string_index", "attributes.string_values[0]", |b| {
        spans(b).attributes.as_mut().unwrap().string_values[0] = 99;
    });
    check("string_index", "events.name_string", |b| {
        events(b).name_string[0] = u32::MAX;
    });
    check("time", "spans.start_ns[0]", |b| spans(b).base_ns = u64::MAX);
    check("time", "spans.start_ns[1]", |b| {
        spans(b).start_ns[1] = i64::MIN;
    });
    check("time", "spans.start_ns[3]", |b| {
        spans(b).start_ns[3] = i64::MAX;
    });
    check("time", "spans.duration_ns[0]", |b| {
        spans(b).duration_ns[0] = u64::MAX;
    });
    check("time", "spans.duration_ns[2]", |b| {
        spans(b).duration_ns[2] = i64::MAX as u64;
    });
    check("time", "events.time_ns[0]", |b| {
        events(b).time_ns[0] = -(EPOCH_NS as i64) * 2;
    });
    check("time", "clock_steps", |b| b.clock_steps[0].at_ns = u64::MAX);
    check("time", "from_ns, to_ns", |b| b.to_ns = u64::MAX);
    check("time", "kernel_clock", |b| {
        b.kernel_clock.as_mut().unwrap().max_error_ns = u64::MAX;
    });
    check("time", "kernel_clock", |b| {
        b.kernel_clock.as_mut().unwrap().estimated_error_ns = u64::MAX;
    });
    check("interval", "the batch ends", |b| b.to_ns = b.from_ns - 1);
    check("interval", "a window ends", |b| b.windows[0].close_ns = 0);
    check("attribute_kind", "kind 77", |b| {
        spans(b).attributes.as_mut().unwrap().kind[0] = 77;
    });
    check("too_many_attributes", "7 attributes", |b| {
        spans(b).attribute_count[0] = 7;
    });
    check("too_many_notes", "5 windows", |b| {
        b.windows = vec![Window::default(); 5];
    });
    check("implausible", "sequence is 18446744073709551615", |b| {
        b.sequence = u64::MAX;
    });
    check(
        "implausible",
        "losses.records is 18446744073709551615",
        |b| {
            b.losses[0].records = u64::MAX;
        },
    );
    check("too_many_notes", "5 losses", |b| {
        b.losses = vec![Loss::default(); 5];
    });
    check("too_many_records", "60 records", |b| *b = batch(1, 1, 40));
}

#[test]
fn interned_strings_cannot_blow_up() {
    let mut bomb = batch(1, 1, 30);
    bomb.strings[5] = "x".repeat(90);
    let columns = spans(&mut bomb);
    columns.attribute_count = vec![1; 30];
    let attributes = columns.attributes.as_mut().unwrap();
    *attributes = stroboscope_proto::v1::Attributes {
        key_string: vec![5; 30],
        kind: vec![4; 30],
        string_values: vec![5; 30],
        ..Default::default()
    };
    let refusal = CheckedBatch::check(bomb, &small_limits()).unwrap_err();
    assert!(
        matches!(refusal, Refusal::AttributeBytes { limit: 1_000, .. }),
        "{refusal}"
    );
}

#[test]
fn garbage_bytes_are_named() {
    let refusal = CheckedBatch::from_bytes(&[0xff; 40], &Limits::default()).unwrap_err();
    assert_eq!(refusal.cause(), "undecodable");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Mutated bytes either are rejected with a reason or become rows.
    #[test]
    fn mutated_bytes_never_panic(count in 0usize..6, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in prop::option::of(any::<prop::sample::Index>())) {
        let mut bytes = batch(5, 3, count).encode_to_vec();
        for (at, value) in flips { let at = at.index(bytes.len()); bytes[at] = value; }
        if let Some(cut) = cut { bytes.truncate(cut.index(bytes.len())); }
        match CheckedBatch::from_bytes(&bytes, &Limits::default()) {
            Err(refusal) => prop_assert!(!refusal.cause().is_empty()),
            Ok(checked) => {
                let mut rows = Rows::default();
                checked.append_to(EPOCH_NS, &mut rows);
                prop_assert_eq!(rows.spans.len() + rows.events.len(), checked.records());
                prop_assert!(rows.spans.iter().all(|span| 0 <= span.start_ns && span.start_ns <= span.end_ns));
                for json in rows.spans.iter().filter_map(|span| span.attributes.as_deref()) {
                    prop_assert!(serde_json::from_str::<serde_json::Value>(json).is_ok(), "{}", json);
                }
            }
        }
    }
}
