//! A span as another tracing system wrote it, in our terms.

use serde_json::{Map, Value};
use twox_hash::XxHash3_128;

use super::BadLine;
use super::line::{check, check_count};
use stroboscope_store::limits::Limits;

/// Attributes by key; of a key that comes twice, the last.
pub(super) type Attributes = Map<String, Value>;

/// Something that happened inside a span.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ForeignEvent {
    /// ns since the Unix epoch.
    pub(super) time_ns: i64,
    /// `event` where the source gives none.
    pub(super) name: String,
    pub(super) attributes: Attributes,
}

/// A span to import. Texts are empty where the source says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ForeignSpan {
    /// As the source writes it; 64-bit ids are the same as those padded with zeros on the left.
    pub(super) trace: String,
    pub(super) span_id: u64,
    /// 0: none.
    pub(super) parent_id: u64,
    pub(super) service: String,
    pub(super) name: String,
    pub(super) host: String,
    /// ns since the Unix epoch.
    pub(super) start_ns: i64,
    /// ns since the Unix epoch.
    pub(super) end_ns: i64,
    /// Bits of `SpanFlag`.
    pub(super) flags: u32,
    pub(super) attributes: Attributes,
    pub(super) events: Vec<ForeignEvent>,
}

impl ForeignSpan {
    /// Checks it against the limits.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub(super) fn check(&self, limits: &Limits) -> Result<(), BadLine> {
        check("trace id", &self.trace, limits)?;
        for text in [&self.service, &self.name, &self.host]
            .into_iter()
            .filter(|text| !text.is_empty())
        {
            check("a service's, span's or host's name", text, limits)?;
        }
        for event in &self.events {
            check("an event's name", &event.name, limits)?;
        }
        if self.end_ns < self.start_ns {
            return Err(BadLine::EndsBeforeStart {
                by_ns: self.start_ns.abs_diff(self.end_ns),
            });
        }
        for attributes in self
            .events
            .iter()
            .map(|event| &event.attributes)
            .chain([&self.attributes])
        {
            check_count(attributes.len(), limits)?;
        }
        Ok(())
    }
}

/// The number of a span: 1 to 16 hex digits as they are; a stable hash (XXH3) of any other text. Nothing or zeros are
/// no span: 0.
pub(super) fn span_number(text: &str) -> u64 {
    let is_hex =
        (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u64::from_str_radix(text, 16) {
        Ok(number) if is_hex => number,
        _ if text.bytes().all(|byte| byte == b'0') => 0,
        _ => hashed(text.as_bytes()),
    }
}

/// A span id made of something; never 0.
pub(super) fn hashed(bytes: &[u8]) -> u64 {
    // The lower half is as good a hash as any.
    (XxHash3_128::oneshot(bytes) as u64).max(1)
}

/// The own id of a span, which it must have.
///
/// # Errors
/// When there is none.
pub(super) fn own_span_id(text: &str) -> Result<u64, BadLine> {
    match span_number(text) {
        0 => Err(BadLine::Empty { field: "span id" }),
        id => Ok(id),
    }
}

/// Microseconds since the Unix epoch as ns.
///
/// # Errors
/// When they do not fit.
pub(super) fn from_us(field: &'static str, time_us: u64) -> Result<i64, BadLine> {
    let ns = i64::try_from(time_us)
        .ok()
        .and_then(|us| us.checked_mul(1_000));
    ns.ok_or(BadLine::TimeOutOfRange {
        field,
        value: time_us,
        unit: "us",
    })
}
