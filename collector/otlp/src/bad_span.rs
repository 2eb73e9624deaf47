//! Defects of one span, log record or event.

/// Reason for leaving out a span, a log record, or an event of an event log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSpan {
    /// The record is not JSON, or JSON of the wrong shape.
    #[error("{0}")]
    Json(String),
    /// A required field is empty or 0.
    #[error("{field} is empty")]
    Empty { field: &'static str },
    /// The log record belongs to no request.
    #[error("it has no trace id")]
    NoTrace,
    /// A text contains a NUL character.
    #[error("{field} contains a NUL character")]
    Nul { field: &'static str },
    /// A text is longer than the limit, in bytes.
    #[error("{field} is {bytes} bytes long, the limit is {limit}")]
    TextTooLong {
        field: &'static str,
        bytes: usize,
        limit: usize,
    },
    /// The span, an event or the log record has too many attributes.
    #[error("attrs has {count} members, the limit is {limit}")]
    TooManyAttributes { count: usize, limit: usize },
    /// A time or a duration does not fit into 63 bits of ns.
    #[error("{field} is {value} {unit}: times must be below 2^63 ns since the Unix epoch")]
    TimeOutOfRange {
        field: &'static str,
        /// Value of the field.
        value: u64,
        /// Unit of the value.
        unit: &'static str,
    },
    /// The span ends before it starts.
    #[error("the span ends {by_ns} ns before it starts")]
    EndsBeforeStart {
        /// Difference between start and end, in ns.
        by_ns: u64,
    },
    /// An id is missing or invalid.
    #[error("{field} is `{id}`: expected {digits} hex digits that are not all 0")]
    Id {
        field: &'static str,
        id: String,
        /// Number of digits expected.
        digits: usize,
    },
}
