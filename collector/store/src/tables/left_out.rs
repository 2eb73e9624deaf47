//! Counts of records and traces that a reading left out.

/// Numbers of records, traces and attributes that a reading left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeftOut {
    /// Number of records outside any request.
    pub outside_requests: u64,
    /// Number of records left out because their trace has more than
    /// [`RECORDS_PER_TRACE_MAX`](crate::limits::RECORDS_PER_TRACE_MAX) records.
    pub over_trace_limit: u64,
    /// Number of events whose span is not among the spans that were read of the trace.
    pub span_missing: u64,
    /// Number of events of a request that have neither a span nor a task.
    pub no_span_no_task: u64,
    /// Number of copies of spans without a process, and of events inside these spans.
    #[serde(default)]
    pub copies: u64,
    /// Number of records that may have an attribute to read, but whose attributes are not a JSON
    /// object.
    pub unreadable_attributes: u64,
    /// Number of traces that did not fit into the memory that the caller allowed.
    pub large_traces: u64,
}

impl LeftOut {
    /// Adds the numbers of another reading.
    pub fn merge(&mut self, other: Self) {
        self.outside_requests += other.outside_requests;
        self.over_trace_limit += other.over_trace_limit;
        self.span_missing += other.span_missing;
        self.no_span_no_task += other.no_span_no_task;
        self.copies += other.copies;
        self.unreadable_attributes += other.unreadable_attributes;
        self.large_traces += other.large_traces;
    }
}
