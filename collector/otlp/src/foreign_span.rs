//! Span of another tracing system, in this project's terms.

use serde_json::{Map, Value};
use twox_hash::XxHash3_128;

use super::BadSpan;

/// Limits of the texts and attributes of a span or log record.
#[derive(Clone, Copy, Debug)]
pub struct SpanLimits {
    /// Maximum length of a trace id or a name, in bytes.
    pub string_bytes_max: usize,
    /// Maximum number of attributes of a span, an event or a log record.
    pub attributes_max: usize,
}

/// Receives the spans of a source, and notices of parts that are not stored.
pub trait TakeSpans {
    /// Receives a span of line (or message) `line`, or the reason for rejecting it.
    fn span(&mut self, line: u64, span: Result<ForeignSpan, BadSpan>);

    /// Receives notice of `count` valid items that have no place in the store.
    fn not_taken(&mut self, line: u64, name: &str, count: u64);
}

/// Attributes of a span, an event or a log record, by key.
pub type Attributes = Map<String, Value>;

/// An event inside a span.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignEvent {
    /// Time, in ns since the Unix epoch.
    pub time_ns: i64,
    /// Name of the event; `event` if the source gives none.
    pub name: String,
    pub attributes: Attributes,
}

/// A span to import. Texts are empty if the source does not give them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForeignSpan {
    /// Trace id as a text; a 64-bit id in hex equals the one padded with zeros on the left.
    pub trace: String,
    pub span_id: u64,
    /// Id of the parent; 0 for none.
    pub parent_id: u64,
    pub service: String,
    pub name: String,
    pub host: String,
    /// Start, in ns since the Unix epoch.
    pub start_ns: i64,
    /// End, in ns since the Unix epoch.
    pub end_ns: i64,
    /// Bits of `SpanFlag`.
    pub flags: u32,
    pub attributes: Attributes,
    pub events: Vec<ForeignEvent>,
}

impl ForeignSpan {
    /// Checks the trace id, the names, the order of start and end, and the numbers of attributes.
    ///
    /// # Errors
    /// Returns the first defect.
    pub fn check(&self, limits: SpanLimits) -> Result<(), BadSpan> {
        let check = |field, text| check_text(field, text, limits.string_bytes_max);
        check("trace id", &self.trace)?;
        for text in [&self.service, &self.name, &self.host]
            .into_iter()
            .filter(|text| !text.is_empty())
        {
            check("a service's, span's or host's name", text)?;
        }
        for event in &self.events {
            check("an event's name", &event.name)?;
        }
        if self.end_ns < self.start_ns {
            return Err(BadSpan::EndsBeforeStart {
                by_ns: self.start_ns.abs_diff(self.end_ns),
            });
        }
        for attributes in self
            .events
            .iter()
            .map(|event| &event.attributes)
            .chain([&self.attributes])
        {
            check_count(attributes.len(), limits.attributes_max)?;
        }
        Ok(())
    }
}

/// Returns the number of a span: 1 to 16 hex digits as they are, or a stable hash (XXH3) of any
/// other text. Returns 0 for an empty text and for zeros, which mean that there is no span.
pub fn span_number(text: &str) -> u64 {
    let is_hex =
        (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u64::from_str_radix(text, 16) {
        Ok(number) if is_hex => number,
        _ if text.bytes().all(|byte| byte == b'0') => 0,
        _ => hashed(text.as_bytes()),
    }
}

/// Derives a span id from bytes; never 0.
pub fn hashed(bytes: &[u8]) -> u64 {
    // Each half of the hash is a good hash.
    (XxHash3_128::oneshot(bytes) as u64).max(1)
}

/// Parses the id of a span like [`span_number`].
///
/// # Errors
/// Returns an error if the text is empty or only zeros.
pub fn own_span_id(text: &str) -> Result<u64, BadSpan> {
    match span_number(text) {
        0 => Err(BadSpan::Empty { field: "span id" }),
        id => Ok(id),
    }
}

/// Checks a text. It may be empty only if `field` is `host`.
///
/// # Errors
/// Returns the text's defect.
pub fn check_text(field: &'static str, text: &str, limit: usize) -> Result<(), BadSpan> {
    let bytes = text.len();
    if text.is_empty() && field != "host" {
        return Err(BadSpan::Empty { field });
    }
    if text.contains('\0') {
        return Err(BadSpan::Nul { field });
    }
    if bytes > limit {
        Err(BadSpan::TextTooLong {
            field,
            bytes,
            limit,
        })
    } else {
        Ok(())
    }
}

/// Checks the number of attributes.
///
/// # Errors
/// Returns an error if there are more than `limit`.
pub fn check_count(count: usize, limit: usize) -> Result<(), BadSpan> {
    if count > limit {
        Err(BadSpan::TooManyAttributes { count, limit })
    } else {
        Ok(())
    }
}
