//! Defects of one line or record of a source.

use std::str::Utf8Error;

use stroboscope_otlp::BadSpan;

/// Defect of a line, of a record, or of the rest of a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// The line is longer than the limit, in bytes.
    #[error("the line is longer than {limit} bytes")]
    TooLong { limit: usize },
    /// The values of a span or an event are invalid.
    #[error(transparent)]
    Span(#[from] BadSpan),
    /// The line, record or field of CSV is not UTF-8.
    #[error("invalid UTF-8 after {valid} bytes")]
    NotUtf8 {
        /// Number of bytes before the first invalid one.
        valid: usize,
    },
    /// The record or its document does not parse or nests lists too deeply, or a field of the
    /// record is missing or invalid.
    #[error("{0}")]
    Json(String),
    /// The record is JSON of no known form, in a source with known forms.
    #[error("{what}: unknown format")]
    UnknownForm {
        /// Description of the record, such as its keys.
        what: String,
    },
    /// The line of `perf script` or `strace` cannot be read as an event.
    #[error("{0}")]
    KernelEvent(String),
    /// The time does not fit into 63 bits.
    #[error("ts_ns is {0}: a time is ns since the Unix epoch and must be below 2^63")]
    Time(u64),
    /// The text does not parse as a time or a duration, or its value is out of range.
    #[error("`{text}` is not a time: expected {expected}")]
    NoTimeOf {
        /// The text. A long one may be cut after 60 characters.
        text: String,
        /// The accepted forms.
        expected: String,
    },
    /// The number is too small to determine the unit of a time.
    #[error(
        "the size of the time {0} does not determine its unit (rules: import --help); give --time-unit"
    )]
    NoUnit(u64),
    /// The time has another unit than the times before it.
    #[error("the time {time} looks like {unit}, but the times since line {first} are {first_unit}")]
    MixedTime {
        /// Whole part of the time.
        time: String,
        /// The unit that its size suggests; `no time` if it suggests none.
        unit: &'static str,
        /// The line that determined the unit.
        first: u64,
        /// The unit determined by that line.
        first_unit: &'static str,
    },
    /// The record or message is longer than the limit, in bytes.
    #[error("the record is longer than {limit} bytes")]
    RecordTooLong { limit: usize },
    /// The span, or the event of a Chrome trace, has no time.
    #[error("the span has no time: neither {0}")]
    NoTime(&'static str),
    /// The bytes are not a protobuf field, or the file ends inside a field or a length prefix. The
    /// rest of the file is skipped.
    #[error("{reason}; the rest of the file cannot be read")]
    Protobuf { reason: String },
    /// The compressed data cannot be decompressed.
    #[error("the packed data is damaged: {0}; the records before it are kept")]
    Packed(String),
    /// The pattern of the mapping does not match the line.
    #[error("the mapping's pattern does not match the line")]
    NoMatch,
    /// The CSV record has another number of fields than the first line, or an open quote; or the
    /// first record, which names the columns, cannot be read.
    #[error("{0}")]
    Csv(String),
    /// The mapping needs the text of a field, but the field is an object or a list.
    #[error("the field `{field}` is an object or a list; a text or a number is needed")]
    NotScalar { field: String },
    /// The interval extends beyond the representable times.
    #[error(
        "an interval of {duration} {unit} does not fit between the Unix epoch and 2^63 ns after it"
    )]
    IntervalOutOfRange {
        /// The duration, as written.
        duration: String,
        /// Unit of the duration.
        unit: &'static str,
    },
    /// A part of an event or span is missing, because the line lacks fields from which the mapping
    /// makes that part.
    #[error("no {what}: the line has no {}", .fields.join(", or no "))]
    Lacks {
        /// The missing part.
        what: &'static str,
        /// The fields from which the mapping makes that part.
        fields: Vec<String>,
    },
}

impl From<Utf8Error> for BadLine {
    fn from(error: Utf8Error) -> Self {
        Self::NotUtf8 {
            valid: error.valid_up_to(),
        }
    }
}
