//! Defects of one line or record of a source.

use stroboscope_otlp::BadSpan;

/// Reason for leaving a line out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// Longer than the limit.
    #[error("the line is longer than {limit} bytes")]
    TooLong { limit: usize },
    /// The values of a span or an event are invalid.
    #[error(transparent)]
    Span(#[from] BadSpan),
    /// Not UTF-8.
    #[error("invalid UTF-8 after {valid} bytes")]
    NotUtf8 {
        /// Bytes before the invalid one.
        valid: usize,
    },
    /// Not JSON, or JSON of the wrong shape.
    #[error("{0}")]
    Json(String),
    /// JSON of no known form, between records of known forms.
    #[error("{what}: unknown format")]
    UnknownForm {
        /// Its keys.
        what: String,
    },
    /// Not an event of the kernel.
    #[error("{0}")]
    KernelEvent(String),
    /// A time that does not fit into 63 bits.
    #[error("ts_ns is {0}: a time is ns since the Unix epoch and must be below 2^63")]
    Time(u64),
    /// A text that does not parse as a time.
    #[error("`{text}` is not a time: expected {expected}")]
    NoTimeOf {
        /// The text, or the beginning of it.
        text: String,
        /// The accepted forms of a time.
        expected: String,
    },
    /// A number that may be a time in several units.
    #[error(
        "the size of the time {0} does not determine its unit (rules: import --help); give --time-unit"
    )]
    NoUnit(u64),
    /// A time in a different unit than the times before it.
    #[error("the time {time} looks like {unit}, but the times since line {first} are {first_unit}")]
    MixedTime {
        /// The time, as written.
        time: String,
        /// The unit that its size suggests.
        unit: &'static str,
        /// The line that determined the unit.
        first: u64,
        /// The unit determined by that line.
        first_unit: &'static str,
    },
    /// A record of a document that is longer than the limit.
    #[error("the record is longer than {limit} bytes")]
    RecordTooLong { limit: usize },
    /// A span without any time.
    #[error("the span has no time: neither {0}")]
    NoTime(&'static str),
    /// Not a protobuf message, or a message of a wrong type.
    #[error("{reason}; the rest of the file cannot be read")]
    Protobuf { reason: String },
    /// Compressed data that cannot be decompressed.
    #[error("the packed data is damaged: {0}; the records before it are kept")]
    Packed(String),
    /// A line that the pattern of a mapping does not match.
    #[error("the mapping's pattern does not match the line")]
    NoMatch,
    /// Not a CSV record.
    #[error("{0}")]
    Csv(String),
    /// A field whose text a mapping needs, but which is an object or a list.
    #[error("the field `{field}` is an object or a list; a text or a number is needed")]
    NotScalar { field: String },
    /// An interval that extends beyond the representable times.
    #[error(
        "an interval of {duration} {unit} does not fit between the Unix epoch and 2^63 ns after it"
    )]
    IntervalOutOfRange {
        /// The duration, as written.
        duration: String,
        /// Its unit.
        unit: &'static str,
    },
    /// A part of an event is missing, because the line has none of the fields the mapping makes it
    /// from.
    #[error("no {what}: the line has no {}", .fields.join(", or no "))]
    Lacks {
        /// The missing part of the event.
        what: &'static str,
        /// The fields from which the mapping makes that part.
        fields: Vec<String>,
    },
}
