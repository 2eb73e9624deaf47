//! Requests of OTLP, as they came over the network or lie in the log.

use prost::Message as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use stroboscope_foreign::otlp::message::ResourceSpans;
use stroboscope_foreign::otlp::{spans_of, spans_of_json};
use stroboscope_foreign::{BadSpan, ForeignSpan, TakeSpans, wire, without_line_number};

use super::foreign::rows_of_span;
use crate::limits::Limits;
use crate::record::Rows;

/// `ExportTraceServiceRequest.resource_spans`.
const RESOURCE_SPANS: u32 = 1;

/// A request that can be taken, if only in part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpSpans {
    /// Spans and their events that were taken.
    pub records: u64,
    /// Spans that were not.
    pub rejected: u64,
    /// What is wrong with the first of those.
    pub reason: Option<BadSpan>,
}

/// Nothing of a request can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an ExportTraceServiceRequest of OTLP: {0}")]
pub struct NotOtlp(String);

/// Puts the spans of a request in protobuf into rows.
///
/// # Errors
/// When it is none; then some rows may have been added.
pub fn otlp_protobuf(bytes: &[u8], limits: &Limits, rows: &mut Rows) -> Result<OtlpSpans, NotOtlp> {
    let mut taker = Taker::new(limits, rows);
    for (number, field) in (1..).zip(wire::fields(bytes)) {
        let field = field.map_err(|()| NotOtlp("the protobuf is damaged or cut".to_owned()))?;
        // Other fields are of later versions, and no error.
        if field.number != RESOURCE_SPANS {
            continue;
        }
        let Some(payload) = field.payload else {
            return Err(NotOtlp("resource_spans is a number".to_owned()));
        };
        let of_resource =
            ResourceSpans::decode(payload).map_err(|error| NotOtlp(error.to_string()))?;
        spans_of(number, &of_resource, &mut taker);
    }
    Ok(taker.found)
}

/// Puts the spans of a request in JSON into rows.
///
/// # Errors
/// When it is none; then some rows may have been added.
pub fn otlp_json(bytes: &[u8], limits: &Limits, rows: &mut Rows) -> Result<OtlpSpans, NotOtlp> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Request<'a> {
        #[serde(default, borrow)]
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
    found: OtlpSpans,
}

impl<'a> Taker<'a> {
    fn new(limits: &'a Limits, rows: &'a mut Rows) -> Self {
        Self {
            limits,
            rows,
            found: OtlpSpans::default(),
        }
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

    // Keys that this version does not know are ignored, as the protocol says.
    fn not_taken(&mut self, _line: u64, _name: &str, _count: u64) {}
}
