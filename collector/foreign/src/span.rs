//! A span as another tracing system wrote it, in our terms.

use serde_json::{Map, Value};
use twox_hash::XxHash3_128;

use super::BadSpan;

/// How much a span may say.
#[derive(Clone, Copy, Debug)]
pub struct SpanLimits {
    /// Longest name, in bytes.
    pub string_bytes_max: usize,
    /// Most attributes of the span, or of one of its events.
    pub attributes_max: usize,
}

/// Takes what is found in a source, and hears of what is not.
pub trait TakeSpans {
    /// A span, or why it is none, of line (or message) `line`.
    fn span(&mut self, line: u64, span: Result<ForeignSpan, BadSpan>);

    /// `count` of something that is right and has no place here.
    fn not_taken(&mut self, line: u64, name: &str, count: u64);
}

/// Attributes by key; of a key that comes twice, the last.
pub type Attributes = Map<String, Value>;

/// Something that happened inside a span.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignEvent {
    /// ns since the Unix epoch.
    pub time_ns: i64,
    /// `event` where the source gives none.
    pub name: String,
    pub attributes: Attributes,
}

/// A span to import. Texts are empty where the source says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForeignSpan {
    /// As the source writes it; 64-bit ids are the same as those padded with zeros on the left.
    pub trace: String,
    pub span_id: u64,
    /// 0: none.
    pub parent_id: u64,
    pub service: String,
    pub name: String,
    pub host: String,
    /// ns since the Unix epoch.
    pub start_ns: i64,
    /// ns since the Unix epoch.
    pub end_ns: i64,
    /// Bits of `SpanFlag`.
    pub flags: u32,
    pub attributes: Attributes,
    pub events: Vec<ForeignEvent>,
}

impl ForeignSpan {
    /// Checks it against the limits.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
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

/// The number of a span: 1 to 16 hex digits as they are; a stable hash (XXH3) of any other text. Nothing or zeros are
/// no span: 0.
pub fn span_number(text: &str) -> u64 {
    let is_hex =
        (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u64::from_str_radix(text, 16) {
        Ok(number) if is_hex => number,
        _ if text.bytes().all(|byte| byte == b'0') => 0,
        _ => hashed(text.as_bytes()),
    }
}

/// A span id made of something; never 0.
pub fn hashed(bytes: &[u8]) -> u64 {
    // The lower half is as good a hash as any.
    (XxHash3_128::oneshot(bytes) as u64).max(1)
}

/// The own id of a span, which it must have.
///
/// # Errors
/// When there is none.
pub fn own_span_id(text: &str) -> Result<u64, BadSpan> {
    match span_number(text) {
        0 => Err(BadSpan::Empty { field: "span id" }),
        id => Ok(id),
    }
}

/// Checks a text that must say something.
///
/// # Errors
/// What is wrong with it.
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
/// When there are too many.
pub fn check_count(count: usize, limit: usize) -> Result<(), BadSpan> {
    if count > limit {
        Err(BadSpan::TooManyAttributes { count, limit })
    } else {
        Ok(())
    }
}
