//! OTLP requests with spans, as received from the network or read from the log.

use serde::Deserialize;
use serde_json::value::RawValue;
use stroboscope_otlp::message::ResourceSpans;
use stroboscope_otlp::{BadSpan, ForeignSpan, TakeSpans, wire, without_line_number};
use stroboscope_otlp::{
    HasTexts, PlainSpan, TakePlain, is_plain, plain_records, plain_spans_of, spans_of,
    spans_of_json, with_valid_texts,
};

use super::foreign::rows_of_span;
use crate::limits::Limits;
use crate::record::{EventRow, Rows, SpanRow};

/// Number of the protobuf field `ExportTraceServiceRequest.resource_spans`.
const RESOURCE_SPANS: u32 = 1;

/// Result of reading an OTLP request. Some or all of its records may be rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpTaken {
    /// Number of accepted records: spans and their events, or log records.
    pub records: u64,
    /// Number of rejected spans or log records.
    pub rejected: u64,
    /// Number of rejected log records that belong to no trace. `rejected` includes them.
    pub without_trace: u64,
    /// Number of texts with invalid UTF-8 that was replaced.
    pub replaced_texts: u64,
    /// Problem of the first rejected span or log record; `None` if none was rejected.
    pub reason: Option<BadSpan>,
}

/// Error for bytes that are not a request of OTLP, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a request of OTLP: {0}")]
pub struct NotOtlp(pub(super) String);

/// Checks an OTLP request in protobuf like [`otlp_protobuf`], without returning rows. Uses a fast
/// path if the request has only spans of the common form.
///
/// # Errors
/// Returns an error if the bytes are not a request of OTLP.
pub fn check_otlp_protobuf(bytes: &[u8], limits: &Limits) -> Result<OtlpTaken, NotOtlp> {
    match plain_records(bytes, limits.of_span()) {
        Some(records) => Ok(OtlpTaken {
            records,
            ..OtlpTaken::default()
        }),
        None => otlp_protobuf(bytes, limits, &mut Rows::default()),
    }
}

/// Converts the spans of an OTLP request in protobuf to rows. Rejects and counts invalid spans.
///
/// # Errors
/// Returns an error if the bytes are not a request of OTLP. Some rows may have been added by then.
pub fn otlp_protobuf(bytes: &[u8], limits: &Limits, rows: &mut Rows) -> Result<OtlpTaken, NotOtlp> {
    read_protobuf(bytes, limits, rows, true)
}

/// Converts the spans of a request like [`otlp_protobuf`], but without the fast path. This is the
/// reference implementation for tests and benchmarks.
///
/// # Errors
/// Returns an error if the bytes are not a request of OTLP.
#[doc(hidden)]
pub fn otlp_protobuf_slowly(
    bytes: &[u8],
    limits: &Limits,
    rows: &mut Rows,
) -> Result<OtlpTaken, NotOtlp> {
    read_protobuf(bytes, limits, rows, false)
}

fn read_protobuf(
    bytes: &[u8],
    limits: &Limits,
    rows: &mut Rows,
    by_bytes: bool,
) -> Result<OtlpTaken, NotOtlp> {
    let mut taker = Taker::new(limits, rows);
    for (number, field) in (1..).zip(wire::fields(bytes)) {
        let field = field.map_err(|()| NotOtlp("the protobuf is damaged or cut".to_owned()))?;
        // Other fields come from later versions and are no error.
        if field.number != RESOURCE_SPANS {
            continue;
        }
        let Some(payload) = field.payload else {
            return Err(NotOtlp("resource_spans is a number".to_owned()));
        };
        let by_bytes = by_bytes && is_plain(payload, limits.of_span());
        if by_bytes && plain_spans_of(number, payload, &mut taker).is_some() {
            continue;
        }
        let of_resource: ResourceSpans = decoded(payload, &mut taker.found)?;
        spans_of(number, &of_resource, &mut taker);
    }
    Ok(taker.found)
}

/// Decodes a message. Replaces and counts texts with invalid UTF-8, so that the rest of the message
/// is not lost.
pub(super) fn decoded<M: HasTexts + prost::Message + Default>(
    bytes: &[u8],
    taken: &mut OtlpTaken,
) -> Result<M, NotOtlp> {
    M::decode(bytes).or_else(|error| {
        let not_otlp = |error: prost::DecodeError| NotOtlp(error.to_string());
        let (valid, replaced) = with_valid_texts::<M>(bytes).ok_or_else(|| not_otlp(error))?;
        taken.replaced_texts += replaced;
        M::decode(&valid[..]).map_err(not_otlp)
    })
}

/// Converts the spans of a request in JSON to rows. Rejects and counts invalid spans.
///
/// # Errors
/// Returns an error if the bytes are not a request of OTLP. Some rows may have been added by then.
pub fn otlp_json(bytes: &[u8], limits: &Limits, rows: &mut Rows) -> Result<OtlpTaken, NotOtlp> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Request<'a> {
        // Accepts the protobuf name of the member as well, because an ignored member would be lost
        // silently. All nested members do the same.
        #[serde(default, borrow, alias = "resource_spans")]
        resource_spans: Option<Vec<&'a RawValue>>,
    }
    let wrong = |error: &serde_json::Error| NotOtlp(without_line_number(error));
    let request: Request<'_> = serde_json::from_slice(bytes).map_err(|error| wrong(&error))?;
    let mut taker = Taker::new(limits, rows);
    for (number, record) in (1..).zip(request.resource_spans.iter().flatten()) {
        spans_of_json(number, record.get(), &mut taker)
            .map_err(|(_, reason)| NotOtlp(reason.to_string()))?;
    }
    Ok(taker.found)
}

struct Taker<'a> {
    limits: &'a Limits,
    rows: &'a mut Rows,
    found: OtlpTaken,
}

impl<'a> Taker<'a> {
    fn new(limits: &'a Limits, rows: &'a mut Rows) -> Self {
        Self {
            limits,
            rows,
            found: OtlpTaken::default(),
        }
    }
}

impl TakePlain for Taker<'_> {
    fn plain(&mut self, span: &PlainSpan<'_>) {
        let Rows {
            strings,
            spans,
            events,
            ..
        } = &mut *self.rows;
        let json = |text: &str| (!text.is_empty()).then(|| text.into());
        let row = SpanRow {
            trace_id: span.trace_id,
            trace_name: None,
            span_id: span.span_id,
            parent_id: span.parent_id,
            service: strings.intern(span.service),
            name: strings.intern(span.name),
            host: strings.intern(span.host),
            process: 0,
            start_ns: span.start_ns,
            end_ns: span.end_ns,
            flags: span.flags,
            attributes: json(span.attributes),
        };
        for (seq, event) in (0..).zip(span.events) {
            events.push(EventRow {
                trace_id: row.trace_id,
                trace_name: None,
                span_id: row.span_id,
                time_ns: event.time_ns,
                seq,
                host: row.host,
                service: row.service,
                task: None,
                name: strings.intern(event.name),
                attributes: json(&event.attributes),
            });
        }
        self.found.records += 1 + span.events.len() as u64;
        spans.push(row);
    }
}

impl TakeSpans for Taker<'_> {
    fn span(&mut self, _line: u64, span: Result<ForeignSpan, BadSpan>) {
        let checked = span.and_then(|span| span.check(self.limits.of_span()).map(|()| span));
        match checked {
            Ok(span) => {
                let (row, events) = rows_of_span(span, &mut self.rows.strings);
                self.found.records += 1 + events.len() as u64;
                self.rows.spans.push(row);
                self.rows.events.extend(events);
            }
            Err(reason) => {
                self.found.rejected += 1;
                self.found.reason.get_or_insert(reason);
            }
        }
    }

    // Ignores items that have no place in the store, such as unknown keys.
    fn not_taken(&mut self, _line: u64, _name: &str, _count: u64) {}
}
