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
    /// Not an event of the kernel.
    #[error("{0}")]
    KernelEvent(String),
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
    /// A record of a document that is too long.
    #[error("the record is longer than {limit} bytes")]
    RecordTooLong {
        /// The limit.
        limit: usize,
    },
    /// A time outside 63 bits of ns.
    #[error("{field} is {value} {unit}: times must be below 2^63 ns since the Unix epoch")]
    TimeOutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// Its unit.
        unit: &'static str,
    },
    /// A span without any time.
    #[error("the span has no time: neither {0}")]
    NoTime(&'static str),
    /// A span of negative length.
    #[error("the span ends {by_ns} ns before it starts")]
    EndsBeforeStart {
        /// By so much.
        by_ns: u64,
    },
    /// Not a message of protobuf, or none of the right type.
    #[error("{reason}; what is left of the file cannot be read")]
    Protobuf {
        /// What is wrong.
        reason: String,
    },
    /// Packed data that cannot be unpacked.
    #[error("the packed data is damaged: {0}; what came before is kept")]
    Packed(String),
    /// A line that a mapping does not fit.
    #[error("{0}")]
    Unmapped(String),
    /// An id that is none.
    #[error("{field} is `{id}`: expected {digits} hex digits that are not all 0")]
    Id {
        /// The field.
        field: &'static str,
        /// What it holds.
        id: String,
        /// Digits expected.
        digits: usize,
    },
}
