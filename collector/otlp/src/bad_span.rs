//! Defects of one span or log record.

/// Reason for leaving out a span or a log record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSpan {
    /// Not JSON, or JSON of the wrong shape.
    #[error("{0}")]
    Json(String),
    /// A required field is empty.
    #[error("{field} is empty")]
    Empty { field: &'static str },
    /// A log record that belongs to no request.
    #[error("it has no trace id")]
    NoTrace,
    /// A text with a NUL character.
    #[error("{field} contains a NUL character")]
    Nul { field: &'static str },
    /// A text that is too long.
    #[error("{field} is {bytes} bytes long, the limit is {limit}")]
    TextTooLong {
        field: &'static str,
        bytes: usize,
        limit: usize,
    },
    /// Too many attributes.
    #[error("attrs has {count} members, the limit is {limit}")]
    TooManyAttributes { count: usize, limit: usize },
    /// A time that does not fit into 63 bits of ns.
    #[error("{field} is {value} {unit}: times must be below 2^63 ns since the Unix epoch")]
    TimeOutOfRange {
        field: &'static str,
        /// Value of the field.
        value: u64,
        /// Unit of the value.
        unit: &'static str,
    },
    /// A span of negative length.
    #[error("the span ends {by_ns} ns before it starts")]
    EndsBeforeStart {
        /// Difference between start and end, in ns.
        by_ns: u64,
    },
    /// An invalid id.
    #[error("{field} is `{id}`: expected {digits} hex digits that are not all 0")]
    Id {
        field: &'static str,
        id: String,
        /// Number of digits expected.
        digits: usize,
    },
}
