//! Converts a checked batch to rows.

use std::fmt::Write as _;

use stroboscope_otlp::{Query, SPAN_NAME};

use super::CheckedBatch;
use super::attributes::push_json_text;
use super::checked::{counts, event_attributes, span_attributes};
use super::loss::loss_cause_name;
use crate::record::{
    BatchRow, EventRow, KernelClockRow, LoadRow, ProvenanceRow, Rows, SpanRow, StringId, WindowRow,
};

/// Maximum length of a piece of a provenance log, in bytes. It is small, because readers decode
/// many rows together.
const PROVENANCE_PIECE_BYTES: usize = 32 << 10;

impl CheckedBatch {
    /// Appends the batch, its spans, its events and its provenance logs to `rows`. `received_ns` is
    /// the time of arrival by the collector's clock, in ns since the Unix epoch.
    pub fn append_to(&self, received_ns: u64, rows: &mut Rows) {
        let strings = self.batch.strings.iter();
        let names: Vec<StringId> = strings.map(|text| rows.strings.intern(text)).collect();
        let row = self.batch_row(received_ns, rows);
        let (service, host) = (row.service, row.host);
        rows.batches.push(row);
        self.append_spans(&names, service, host, rows);
        self.append_events(&names, service, host, rows);
        self.append_provenance(service, host, rows);
    }

    fn batch_row(&self, received_ns: u64, rows: &mut Rows) -> BatchRow {
        let batch = &self.batch;
        let process = batch.process.clone().unwrap_or_default();
        let (spans, events) = counts(batch);
        let window = |window: &stroboscope_proto::v1::Window| WindowRow {
            open_ns: time(window.open_ns),
            close_ns: time(window.close_ns),
            burst_config: window.burst_config,
        };
        let loss = |loss: &stroboscope_proto::v1::Loss| {
            let cause = rows.strings.intern(&loss_cause_name(loss.cause));
            (cause, loss.records)
        };
        let step = |step: &stroboscope_proto::v1::ClockStep| (time(step.at_ns), step.step_ns);
        let load = |load: &stroboscope_proto::v1::Load| LoadRow {
            from_ns: time(load.from_ns),
            to_ns: time(load.to_ns),
            cpu_ns: load.cpu_ns.map(time),
            memory_bytes: load.memory_bytes,
            requests: load.requests,
        };
        BatchRow {
            losses: batch.losses.iter().map(loss).collect(),
            process: self.incarnation,
            sequence: batch.sequence,
            service: rows.strings.intern(&process.service),
            host: rows.strings.intern(&process.host),
            pid: process.pid,
            started_ns: time(process.started_ns),
            sdk_version: rows.strings.intern(&process.sdk_version),
            from_ns: time(batch.from_ns),
            to_ns: time(batch.to_ns),
            received_ns: time(received_ns),
            burst_config: batch.burst_config,
            spans: u32::try_from(spans).unwrap_or(u32::MAX),
            events: u32::try_from(events).unwrap_or(u32::MAX),
            windows: batch.windows.iter().map(window).collect(),
            clock_steps: batch.clock_steps.iter().map(step).collect(),
            kernel_clock: batch.kernel_clock.map(|said| KernelClockRow {
                synchronised: said.synchronised,
                max_error_ns: time(said.max_error_ns),
                estimated_error_ns: time(said.estimated_error_ns),
            }),
            loads: batch.loads.iter().map(load).collect(),
        }
    }

    fn append_provenance(&self, service: StringId, host: StringId, rows: &mut Rows) {
        for (number, log) in (0..).zip(&self.batch.provenance) {
            let trace_id = <[u8; 16]>::try_from(&log.trace_id[..]);
            let pieces = log.log.chunks(PROVENANCE_PIECE_BYTES);
            let count = pieces.len() as u32;
            rows.provenance
                .extend((0..).zip(pieces).map(|(piece, bytes)| ProvenanceRow {
                    trace_id: trace_id.map_or(0, u128::from_be_bytes),
                    time_ns: time(log.time_ns),
                    piece,
                    pieces: count,
                    span_id: log.span_id,
                    process: self.incarnation,
                    sequence: self.batch.sequence,
                    number,
                    service,
                    host,
                    bytes: bytes.to_vec(),
                }));
        }
    }

    fn append_spans(&self, names: &[StringId], service: StringId, host: StringId, rows: &mut Rows) {
        let Some(spans) = &self.batch.spans else {
            return;
        };
        let columns = span_attributes(spans, &self.batch.strings);
        let mut attributes = columns.reader();
        let mut start_ns = time(spans.base_ns);
        let (trace_ids, _) = spans.trace_ids.as_chunks::<16>();
        for (i, trace_id) in trace_ids.iter().enumerate() {
            // The check has ensured that columns have equal lengths and that times fit.
            start_ns = start_ns.saturating_add(spans.start_ns[i]);
            let mut query = Query::default();
            let mut json = attributes.next_json(|key, text| query.see(key, text));
            let index = spans.name_string[i] as usize;
            let better = json.as_mut().and_then(|json| {
                let better = query.name(&self.batch.strings[index])?;
                keep_name(&self.batch.strings[index], json);
                Some(rows.strings.intern(&better))
            });
            rows.spans.push(SpanRow {
                trace_id: u128::from_be_bytes(*trace_id),
                trace_name: None,
                span_id: spans.span_ids[i],
                parent_id: spans.parent_ids[i],
                service,
                name: better.unwrap_or(names[index]),
                host,
                process: self.incarnation,
                start_ns,
                end_ns: start_ns.saturating_add(time(spans.duration_ns[i])),
                flags: spans.flags[i],
                attributes: json.map(|json| (**json).into()),
            });
        }
    }

    fn append_events(
        &self,
        names: &[StringId],
        service: StringId,
        host: StringId,
        rows: &mut Rows,
    ) {
        let Some(events) = &self.batch.events else {
            return;
        };
        let columns = event_attributes(events, &self.batch.strings);
        let mut attributes = columns.reader();
        let mut time_ns = time(events.base_ns);
        let (trace_ids, _) = events.trace_ids.as_chunks::<16>();
        for (i, trace_id) in trace_ids.iter().enumerate() {
            time_ns = time_ns.saturating_add(events.time_ns[i]);
            rows.events.push(EventRow {
                trace_id: u128::from_be_bytes(*trace_id),
                trace_name: None,
                span_id: events.span_ids[i],
                time_ns,
                seq: u32::try_from(i).unwrap_or(u32::MAX),
                host,
                service,
                task: None,
                name: names[events.name_string[i] as usize],
                attributes: attributes.next_json(|_, _| {}).map(|json| (**json).into()),
            });
        }
    }
}

/// Adds the original name of a span to its attributes, an object in JSON.
fn keep_name(name: &str, json: &mut String) {
    json.pop();
    let _ = write!(json, ",\"{SPAN_NAME}\":");
    push_json_text(json, name);
    json.push('}');
}

/// Converts a time or duration in ns. A value above `i64::MAX` becomes `i64::MAX`, but checked
/// values are never above it.
fn time(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}
