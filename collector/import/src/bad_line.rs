//! What can be wrong with one line.

use stroboscope_foreign::BadSpan;

/// Why a line is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// Longer than the limit.
    #[error("the line is longer than {limit} bytes")]
    TooLong { limit: usize },
    /// What a span or an event says cannot be.
    #[error(transparent)]
    Span(#[from] BadSpan),
    /// Not UTF-8.
    #[error("invalid UTF-8 after {valid} bytes")]
    NotUtf8 {
        /// Bytes before the invalid one.
        valid: usize,
    },
    /// Not JSON, or not of the right shape.
    #[error("{0}")]
    Json(String),
    /// JSON of no form that is known, between records of known ones.
    #[error("{what}: no form that is known")]
    UnknownForm {
        /// Its keys.
        what: String,
    },
    /// Not an event of the kernel.
    #[error("{0}")]
    KernelEvent(String),
    /// A time outside 63 bits.
    #[error("ts_ns is {0}: a time is ns since the Unix epoch and must be below 2^63")]
    Time(u64),
    /// A text that is no time.
    #[error("`{text}` is no time: expected {expected}")]
    NoTimeOf {
        /// The text, or its begin.
        text: String,
        /// What is a time.
        expected: String,
    },
    /// A number that may be a time in several units.
    #[error(
        "the time {0} does not say its unit by its size (rules: import --help); say --time-unit"
    )]
    NoUnit(u64),
    /// A time in another unit than those before it.
    #[error("the time {time} looks like {unit}, but the times since line {first} are {first_unit}")]
    MixedTime {
        /// As written.
        time: String,
        /// What it looks like.
        unit: &'static str,
        /// The line that decided.
        first: u64,
        /// Its unit.
        first_unit: &'static str,
    },
    /// A record of a document that is too long.
    #[error("the record is longer than {limit} bytes")]
    RecordTooLong { limit: usize },
    /// A span without any time.
    #[error("the span has no time: neither {0}")]
    NoTime(&'static str),
    /// Not a message of protobuf, or none of the right type.
    #[error("{reason}; what is left of the file cannot be read")]
    Protobuf { reason: String },
    /// Packed data that cannot be unpacked.
    #[error("the packed data is damaged: {0}; what came before is kept")]
    Packed(String),
    /// A line that the pattern of a mapping does not match.
    #[error("the mapping's pattern does not match the line")]
    NoMatch,
    /// No record of CSV.
    #[error("{0}")]
    Csv(String),
    /// A field that a mapping needs as a text.
    #[error("the field `{field}` is an object or a list; a text or a number is needed")]
    NotScalar { field: String },
    /// An interval that reaches beyond the times that can be kept.
    #[error(
        "an interval of {duration} {unit} does not fit between the Unix epoch and 2^63 ns after it"
    )]
    IntervalOutOfRange {
        /// As written.
        duration: String,
        /// Its unit.
        unit: &'static str,
    },
    /// What a mapping makes of a line lacks something.
    #[error("no {what}: the line has no {}", .fields.join(", or no "))]
    Lacks {
        /// A part of an event.
        what: &'static str,
        /// Fields that it is made of.
        fields: Vec<String>,
    },
}
