//! What can be wrong with one line.

/// Why a line is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// Longer than the limit.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// Not UTF-8.
    #[error("invalid UTF-8 after {valid} bytes")]
    NotUtf8 {
        /// Bytes before the invalid one.
        valid: usize,
    },
    /// Not JSON, or not of the right shape.
    #[error("{0}")]
    Json(String),
    /// A field that must say something is empty.
    #[error("{field} is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A text with a NUL character.
    #[error("{field} contains a NUL character")]
    Nul {
        /// The field.
        field: &'static str,
    },
    /// A text that is too long.
    #[error("{field} is {bytes} bytes long, the limit is {limit}")]
    TextTooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A time outside 63 bits.
    #[error("ts_ns is {0}: a time is ns since the Unix epoch and must be below 2^63")]
    Time(u64),
    /// Too many attributes.
    #[error("attrs has {count} members, the limit is {limit}")]
    TooManyAttributes {
        /// How many.
        count: usize,
        /// The limit.
        limit: usize,
    },
}
