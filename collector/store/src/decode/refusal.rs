//! Reasons for refusing a batch permanently.

/// Reason for refusing a batch permanently. A retry is useless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The bytes are not the protobuf of a batch.
    #[error("not a stroboscope.v1.Batch: {0}")]
    Undecodable(String),
    /// The request contains no batch.
    #[error("the request holds no batch")]
    NoBatch,
    /// The batch does not name its process.
    #[error("the batch names no process")]
    NoProcess,
    /// The incarnation is not 16 bytes, or all zero.
    #[error("process.incarnation has {0} bytes, or is zero; it must be 16 random bytes")]
    Incarnation(usize),
    /// A column or an id has the wrong length.
    #[error("column {column} has {got} elements, expected {expected}")]
    ColumnLength {
        /// The column's name in the protocol.
        column: &'static str,
        /// Number of elements that the column has.
        got: usize,
        /// Number of elements that the column should have.
        expected: usize,
    },
    /// A string index points past the list of strings.
    #[error("{column}[{at}] names string {index}, but there are {strings}")]
    StringIndex {
        column: &'static str,
        /// Index of the element in the column.
        at: usize,
        /// Index that is out of range.
        index: u32,
        /// Number of strings in the batch.
        strings: usize,
    },
    /// String 0 is not empty, although the protocol requires that.
    #[error("string 0 must be empty")]
    FirstString,
    /// A time, a duration or the end of a span is negative, or does not fit into 63 bits of ns.
    #[error("{column}[{at}] is out of range: times are ns since the Unix epoch, in 63 bits")]
    Time {
        column: &'static str,
        /// Index of the element in the column.
        at: usize,
    },
    /// An interval ends before it begins.
    #[error("{what} ends before it begins")]
    Interval { what: &'static str },
    /// An attribute's kind is unknown.
    #[error("attribute kind {kind} is unknown; the sender may be newer than this collector")]
    AttributeKind {
        /// Value of the kind in the protocol.
        kind: i32,
    },
    /// A string is too long.
    #[error("a string of {bytes} bytes is longer than the limit of {limit}")]
    StringTooLong { bytes: usize, limit: usize },
    /// A record has too many attributes.
    #[error("a record has {count} attributes, the limit is {limit}")]
    TooManyAttributes { count: usize, limit: usize },
    /// The attributes take too many bytes with their interned strings written out.
    #[error(
        "the batch's attributes take {bytes} bytes or more when written out, the limit is {limit}"
    )]
    AttributeBytes {
        /// Bytes counted so far.
        bytes: usize,
        limit: usize,
    },
    /// The batch has too many spans and events.
    #[error("the batch has {count} records, the limit is {limit}")]
    TooManyRecords { count: usize, limit: usize },
    /// A provenance log is too long.
    #[error("a provenance log of {bytes} bytes is longer than the limit of {limit}")]
    ProvenanceTooLong { bytes: usize, limit: usize },
    /// The batch has too many windows, losses, clock steps, loads or provenance logs.
    #[error("the batch has {count} {what}, the limit is {limit}")]
    TooManyNotes {
        /// Name of the counted items.
        what: &'static str,
        count: usize,
        limit: usize,
    },
    /// A sequence number or a count of losses is higher than the process can have reached since its
    /// start.
    #[error("{what} is {value}, more than the {limit} that a process of its age can reach")]
    Implausible {
        what: &'static str,
        value: u64,
        limit: u64,
    },
    /// The batch is so old that the ledger no longer tracks its number, so it may or may not be
    /// stored.
    #[error("sequence {0} is older than the batches that the collector still tracks")]
    TooOld(u64),
}

impl Refusal {
    /// Returns a short name of the reason, for counters.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Undecodable(_) => "undecodable",
            Self::NoBatch => "no_batch",
            Self::NoProcess => "no_process",
            Self::Incarnation(_) => "incarnation",
            Self::ColumnLength { .. } => "column_length",
            Self::StringIndex { .. } => "string_index",
            Self::FirstString => "first_string",
            Self::Time { .. } => "time",
            Self::Interval { .. } => "interval",
            Self::AttributeKind { .. } => "attribute_kind",
            Self::StringTooLong { .. } => "string_too_long",
            Self::TooManyAttributes { .. } => "too_many_attributes",
            Self::AttributeBytes { .. } => "attribute_bytes",
            Self::TooManyRecords { .. } => "too_many_records",
            Self::ProvenanceTooLong { .. } => "provenance_too_long",
            Self::TooManyNotes { .. } => "too_many_notes",
            Self::Implausible { .. } => "implausible",
            Self::TooOld(_) => "too_old",
        }
    }
}
