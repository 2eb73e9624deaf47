//! A row yields the same record from a file, on arrival, and from the columns of an engine.

use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_fixtures::batches::{EPOCH_NS, batch};
use stroboscope_store::record::{EventRow, LoadRow};
use stroboscope_store::tables::{
    AttributeKeys, AttributeValues, EventAttacher, LeftOut, RecordDecoder, TraceReader, add_span,
    event_read, parse_attributes, read_batches, span_record,
};

use crate::tables::{Fixture, rows, write};

fn stored(fixture: &Fixture, table: &str) -> RecordBatch {
    let file = std::fs::File::open(fixture.path(table, "seg-0000000000")).unwrap();
    let mut batches = ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build()
        .unwrap();
    batches.next().unwrap().unwrap()
}

#[test]
fn a_row_becomes_one_record_by_every_way() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let mut said = rows([batch(1, 0, 3)]);
    let task = said.strings.intern("task");
    let trace_id = said.spans[0].trace_id;
    said.spans.retain(|row| row.trace_id == trace_id);
    said.spans[0].attributes = Some(r#"{"element":"a","user":7}"#.into());
    said.events.retain(|row| row.trace_id == trace_id);
    said.events.push(EventRow {
        trace_id,
        trace_name: None,
        span_id: 0,
        time_ns: EPOCH_NS as i64 + 5,
        seq: 3,
        host: task,
        service: task,
        task: Some(task),
        name: task,
        attributes: Some(r#"{"element":"b"}"#.into()),
    });
    said.spans.sort_by_key(|row| row.start_ns);
    said.events.sort_by_key(|row| (row.time_ns, row.seq));
    write(&store, "seg-0000000000", said.clone());
    let keys = AttributeKeys::all();

    let expected = TraceReader::open_with(&store, &keys)
        .unwrap()
        .next()
        .unwrap();
    assert!(expected.spans.len() > 1 && expected.events.len() == 1 && expected.elements.len() == 2);
    let attach = |mut trace: TraceRecords, mut events| {
        EventAttacher::default().attach(&mut trace, &mut events, &mut LeftOut::default());
        trace
    };
    let empty = || TraceRecords {
        id: expected.id,
        ..TraceRecords::default()
    };

    let texts: Vec<Arc<str>> = said.strings.iter().map(Into::into).collect();
    let values = |json: &Option<Box<str>>| {
        let read = |json: &str| parse_attributes(json, &keys, |text| text.into()).unwrap();
        json.as_deref().map_or_else(AttributeValues::new, read)
    };
    let mut arrived = empty();
    for row in &said.spans {
        add_span(
            &mut arrived,
            span_record(row, &texts),
            values(&row.attributes),
            &keys,
        );
    }
    let events = said
        .events
        .iter()
        .map(|row| event_read(row, &texts, values(&row.attributes)))
        .collect::<Vec<_>>();
    assert_eq!(attach(arrived, events), expected);

    let mut decoder = RecordDecoder::new(keys.clone());
    // Decodes twice, because nothing of the first time may remain.
    for _ in 0..2 {
        let (mut decoded, mut events) = (empty(), Vec::new());
        decoder
            .add_spans(&stored(&fixture, "spans"), &mut decoded)
            .unwrap();
        decoder
            .add_events(&stored(&fixture, "events"), &mut events)
            .unwrap();
        assert_eq!(attach(decoded, events), expected);
    }
    let error = decoder
        .add_spans(&stored(&fixture, "events"), &mut empty())
        .unwrap_err();
    assert_eq!(error, "it has no column parent_id");
}

/// The usage of a process is read as it was sent, including gaps and batches without usage.
#[test]
fn loads_come_out_as_they_went_in() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let sent = |sequence| batch(1, sequence, 1).loads;
    for sequence in 0..6 {
        write(
            &store,
            &format!("seg-{sequence:010}"),
            rows([batch(1, sequence, 1)]),
        );
    }
    let read: Vec<_> = read_batches(&store).unwrap().collect();
    assert_eq!(read.len(), 6);
    let mut loads = 0;
    for row in read {
        let of_row: Vec<LoadRow> = sent(row.sequence)
            .iter()
            .map(|load| LoadRow {
                from_ns: load.from_ns as i64,
                to_ns: load.to_ns as i64,
                cpu_ns: load.cpu_ns.map(|ns| ns as i64),
                memory_bytes: load.memory_bytes,
                requests: load.requests,
            })
            .collect();
        loads += of_row.len();
        assert_eq!(row.loads, of_row, "batch {}", row.sequence);
    }
    assert_eq!(loads, 6);
}
