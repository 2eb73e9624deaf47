//! OTLP requests with log records, as received from the network or read from the log.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use stroboscope_otlp::{BadSpan, wire, without_line_number};
use stroboscope_otlp::{ForeignLog, ResourceLogs, logs_of, logs_of_json};

use super::otlp::{NotOtlp, OtlpTaken, decoded};
use crate::limits::Limits;
use crate::record::{EventRow, Rows};

/// Number of the protobuf field `ExportLogsServiceRequest.resource_logs`.
const RESOURCE_LOGS: u32 = 1;

/// Converts the log records of a request in protobuf to rows. Rejects and counts records that are
/// invalid or belong to no trace.
///
/// # Errors
/// Returns an error if the bytes are not a request of OTLP. Some rows may have been added by then.
pub fn otlp_logs_protobuf(
    bytes: &[u8],
    limits: &Limits,
    rows: &mut Rows,
) -> Result<OtlpTaken, NotOtlp> {
    let mut taker = LogTaker::new(limits, rows);
    for field in wire::fields(bytes) {
        let field = field.map_err(|()| NotOtlp("the protobuf is damaged or cut".to_owned()))?;
        // Other fields come from later versions and are no error.
        if field.number != RESOURCE_LOGS {
            continue;
        }
        let Some(payload) = field.payload else {
            return Err(NotOtlp("resource_logs is a number".to_owned()));
        };
        let of_resource: ResourceLogs = decoded(payload, &mut taker.taken)?;
        logs_of(&of_resource, &mut |log| taker.take(log));
    }
    Ok(taker.taken)
}

/// Converts the log records of a request in JSON to rows. Rejects and counts records that are
/// invalid or belong to no trace.
///
/// # Errors
/// Returns an error if the bytes are not a request of OTLP. Some rows may have been added by then.
pub fn otlp_logs_json(
    bytes: &[u8],
    limits: &Limits,
    rows: &mut Rows,
) -> Result<OtlpTaken, NotOtlp> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Request<'a> {
        #[serde(default, borrow, alias = "resource_logs")]
        resource_logs: Option<Vec<&'a RawValue>>,
    }
    let request: Request<'_> =
        serde_json::from_slice(bytes).map_err(|error| NotOtlp(without_line_number(&error)))?;
    let mut taker = LogTaker::new(limits, rows);
    for record in request.resource_logs.iter().flatten() {
        logs_of_json(record.get(), &mut |log| taker.take(log))
            .map_err(|reason| NotOtlp(reason.to_string()))?;
    }
    Ok(taker.taken)
}

struct LogTaker<'a> {
    limits: &'a Limits,
    rows: &'a mut Rows,
    taken: OtlpTaken,
}

impl<'a> LogTaker<'a> {
    fn new(limits: &'a Limits, rows: &'a mut Rows) -> Self {
        Self {
            limits,
            rows,
            taken: OtlpTaken::default(),
        }
    }

    fn take(&mut self, log: Result<ForeignLog, BadSpan>) {
        let checked = log.and_then(|log| log.check(self.limits.of_span()).map(|()| log));
        match checked {
            Ok(log) => {
                let seq = u32::try_from(self.taken.records).unwrap_or(u32::MAX);
                self.push(log, seq);
                self.taken.records += 1;
            }
            Err(reason) => {
                self.taken.rejected += 1;
                self.taken.without_trace += u64::from(reason == BadSpan::NoTrace);
                self.taken.reason.get_or_insert(reason);
            }
        }
    }

    fn push(&mut self, log: ForeignLog, seq: u32) {
        let strings = &mut self.rows.strings;
        // Lines without a span are ordered by time alone, because they may come in several
        // requests.
        let seq = if log.span_id == 0 { 0 } else { seq };
        // A row with a task is an event of an event log, or a log line. A log line inside a span
        // does not cut the span into segments.
        let is_line = log.span_id == 0 || !log.is_event;
        let row = EventRow {
            trace_id: log.trace_id,
            trace_name: None,
            span_id: log.span_id,
            time_ns: log.time_ns,
            seq,
            host: strings.intern(&log.host),
            service: strings.intern(&log.service),
            task: is_line.then(|| strings.intern(&log.task)),
            name: strings.intern(&log.name),
            attributes: (!log.attributes.is_empty())
                .then(|| Value::Object(log.attributes).to_string().into()),
        };
        self.rows.events.push(row);
    }
}
