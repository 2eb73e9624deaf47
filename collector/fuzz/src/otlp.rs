//! Targets that check that all ways to read an OTLP request agree.

use stroboscope_otlp::plain_records;
use stroboscope_store::decode::{
    NotOtlp, OtlpTaken, check_otlp_protobuf, otlp_json, otlp_logs_json, otlp_logs_protobuf,
    otlp_protobuf, otlp_protobuf_slowly,
};
use stroboscope_store::limits::Limits;
use stroboscope_store::record::Rows;

use crate::small::is_json;

/// Returns small limits, so that inputs reach them.
fn limits() -> Limits {
    Limits {
        string_bytes_max: 64,
        attributes_per_record_max: 40,
        ..Limits::default()
    }
}

/// Reads spans in protobuf: from the bytes, and from messages.
pub(crate) fn protobuf(bytes: &[u8]) {
    let limits = limits();
    let (mut fast, mut slow) = (Rows::default(), Rows::default());
    let taken = otlp_protobuf(bytes, &limits, &mut fast);
    assert_eq!(taken, otlp_protobuf_slowly(bytes, &limits, &mut slow));
    assert_eq!(taken, check_otlp_protobuf(bytes, &limits));
    if let Some(records) = plain_records(bytes, limits.of_span()) {
        let taken = taken.as_ref().expect("what is plain is taken");
        assert_eq!((taken.records, taken.rejected), (records, 0));
    }
    if taken.is_ok() {
        assert_eq!(texts(&fast), texts(&slow));
    }
    check(taken.as_ref(), &fast);
}

/// Reads spans in JSON.
pub(crate) fn json(bytes: &[u8]) {
    let mut rows = Rows::default();
    let taken = otlp_json(bytes, &limits(), &mut rows);
    check(taken.as_ref(), &rows);
}

/// Reads log records in protobuf.
pub(crate) fn logs_protobuf(bytes: &[u8]) {
    let mut rows = Rows::default();
    let taken = otlp_logs_protobuf(bytes, &limits(), &mut rows);
    check(taken.as_ref(), &rows);
    assert!(rows.spans.is_empty());
}

/// Reads log records in JSON.
pub(crate) fn logs_json(bytes: &[u8]) {
    let mut rows = Rows::default();
    let taken = otlp_logs_json(bytes, &limits(), &mut rows);
    check(taken.as_ref(), &rows);
    assert!(rows.spans.is_empty());
}

fn check(taken: Result<&OtlpTaken, &NotOtlp>, rows: &Rows) {
    for row in &rows.spans {
        assert!(row.start_ns <= row.end_ns && row.span_id != 0 && row.trace_id != 0);
        is_json(row.attributes.as_deref());
    }
    for row in &rows.events {
        assert!(row.trace_id != 0 && row.time_ns >= 0);
        assert!(!rows.strings.text(row.name).is_empty());
        is_json(row.attributes.as_deref());
    }
    match taken {
        Ok(taken) => {
            let records = (rows.spans.len() + rows.events.len()) as u64;
            assert_eq!(taken.records, records);
            assert_eq!(taken.rejected > 0, taken.reason.is_some());
            assert!(taken.without_trace <= taken.rejected);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Returns rows with their strings in place of numbers.
fn texts(rows: &Rows) -> Vec<String> {
    let text = |id| rows.strings.text(id);
    let spans = rows.spans.iter().map(|row| {
        let names = [row.service, row.name, row.host].map(text);
        let ids = (row.trace_id, row.span_id, row.parent_id);
        format!(
            "{names:?} {ids:?} {} {} {} {:?}",
            row.start_ns, row.end_ns, row.flags, row.attributes
        )
    });
    let events = rows.events.iter().map(|row| {
        let names = [row.service, row.name, row.host].map(text);
        let ids = (row.trace_id, row.span_id, row.seq);
        format!("{names:?} {ids:?} {} {:?}", row.time_ns, row.attributes)
    });
    spans.chain(events).collect()
}
