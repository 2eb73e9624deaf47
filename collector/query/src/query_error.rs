//! Errors of queries.

use stroboscope_store::data_dir::DataDirError;
use stroboscope_store::query_memory::QueryLack;
use stroboscope_store::tables::{Damage, StoreError};

/// Reason why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error(transparent)]
    Data(#[from] DataDirError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The data directory holds no traces.
    #[error("the data directory {data} holds no traces yet")]
    Empty {
        data: String,
        /// Bytes in the log if the directory cannot be locked, mostly because a collector is
        /// running; otherwise 0.
        unflushed_bytes: u64,
    },
    /// The requested trace does not exist, or is not selected.
    #[error("there is no trace {trace} in {data}")]
    NoSuchTrace { trace: String, data: String },
    /// The store has no kernel recording.
    #[error(
        "the data directory {0} holds no events of the kernel; record them together with the services: `stroboscope \
         kernel record`, or `stroboscope collect --kernel`"
    )]
    NoKernel(String),
    /// The store has no provenance logs of the selection.
    #[error(
        "the data directory {data} holds no provenance logs of this selection{}; services ship them with the SDK's \
         feature `provenance` (module `tracked`)",
        match unflushed_bytes {
            0 => String::new(),
            bytes => format!(" ({bytes} bytes wait in the log of a running collector)"),
        }
    )]
    NoProvenance { data: String, unflushed_bytes: u64 },
    /// A query of provenance lacks memory.
    #[error("{what}: {lack}{}", match lack {
        QueryLack::Query(..) => "; --trace reads the logs of one request",
        QueryLack::All => "",
    })]
    Provenance {
        /// Part of the query that lacked memory.
        what: &'static str,
        lack: QueryLack,
    },
    /// The query lacks memory.
    #[error("{what}: {lack}{}", advice(*lack))]
    Memory {
        /// Part of the query that lacked memory.
        what: &'static str,
        lack: QueryLack,
    },
    /// One trace needs more memory than is available for it.
    #[error("trace {trace} has {spans} spans: {lack}")]
    LargeTrace {
        trace: String,
        spans: u64,
        lack: QueryLack,
    },
    /// The kernel's events exceed the memory limit of a search.
    #[error(
        "the kernel's events of all requests take more than {held_mib} MiB, the limit of a search; narrow its time \
         with --since and --until"
    )]
    MuchOfKernel { held_mib: u64 },
    /// Nothing was recorded in a burst at the requested time or later.
    #[error("no burst at {at_ns} (ns since the Unix epoch) or later is in {data}")]
    NoBurst { at_ns: i64, data: String },
    /// The model has none of the requested segments.
    #[error("none of the {segments} segments is the one asked for")]
    NoSuchSegment {
        data: String,
        /// Number of segments in the model.
        segments: usize,
    },
    /// No selected request has the requested root operation.
    #[error("no request{filter} has the root operation {root}{nearest}; {known}")]
    NoSuchRoot {
        root: String,
        /// Condition in the form ` that satisfies --where '{ … }'`; empty without a filter.
        filter: String,
        /// Suggestion in the form ` (is it NAME?)`; empty if no name is similar.
        nearest: String,
        /// Root operations of other requests, at most 20, in the form `there are: NAME, NAME`; with
        /// a filter, after `without --where, `.
        known: String,
    },
    /// No category has the requested name.
    #[error("no segment is of the category {category}; there are: {known}")]
    NoSuchCategory { category: String, known: String },
    /// No selected request has the requested attribute.
    #[error("no request has the attribute {attribute}{nearest}; there are: {known}")]
    NoSuchAttribute {
        attribute: String,
        /// Suggestion in the form ` (is it NAME?)`; empty if no name is similar.
        nearest: String,
        known: String,
    },
    /// No selected request has the requested value of an attribute.
    #[error(
        "no request has {value} as {attribute}: its root span must have it, or all of its spans that have this \
         attribute"
    )]
    NoSuchValue { attribute: String, value: String },
    /// One side of an experiment has no requests.
    #[error("no request has {value} as {attribute}, so one side is empty; there are: {known}")]
    NoSide {
        attribute: String,
        value: String,
        known: String,
    },
    /// The attribute that identifies the units of an experiment occurs only in requests of neither
    /// side.
    #[error(
        "no request of the control or the test has the attribute {0}, only other requests have it; name another \
         attribute by --unit, or omit it"
    )]
    NoUnit(String),
    /// No process measured its usage in the requested time.
    #[error(
        "no process in {0} reported its usage: those with this version's SDK do, about once a second, while they \
         record"
    )]
    NoLoads(String),
    /// No process of the service measured its usage, or none is to be pooled.
    #[error("no process of the service {service} was measured; there are: {known}")]
    NoSuchService { service: String, known: String },
    /// Several services or none were measured, and the user chose none to pool.
    #[error("processes of several services were measured, choose a service: {known}")]
    WhichService { known: String },
    /// There are more measurements of usage than are kept in memory.
    #[error(
        "processes measured their usage more than {max} times; narrow the time with --since and --until"
    )]
    TooManySamples { max: usize },
    /// No selected request has a root span, so no duration is known.
    #[error(
        "no request in {0} was recorded whole, so nothing is known of their lengths; record with longer bursts, or with \
         STROBOSCOPE_SAMPLE=follow"
    )]
    NoneWhole(String),
    /// The comparison found no change of this kind and rank.
    #[error("there is no {kind} {asked}: {}", match found { 0 => format!("compare finds no {kind} between these periods, by more than chance, so there is nothing to explain; longer periods show smaller changes"), 1 => "compare finds one".to_owned(), many => format!("compare finds {many}") })]
    NoSuchChange {
        /// `cause` or `mutation`.
        kind: &'static str,
        asked: usize,
        /// Number of changes found.
        found: usize,
    },
    /// There are too few requests for an explanation.
    #[error(transparent)]
    Explain(#[from] stroboscope_analysis::explain::ExplainError),
    /// No segment belongs to the component whose slack was requested.
    #[error("there is no service and no operation {0}")]
    NoComponent(String),
    /// No burst that processes with the SDK recorded opened in the requested time.
    #[error(
        "nothing in {0} was recorded in bursts, as services with the SDK do; search its requests, without --bursts"
    )]
    NoBursts(String),
    /// There are too many bursts between the requests that samplers recorded.
    #[error(
        "from the first to the last request, there are {0} bursts, which is too many; choose a shorter time by --since and \
         --until, also if the clock of a request was wrong"
    )]
    ManyBursts(u64),
    /// No selected request has any attributes.
    #[error(
        "no request has attributes; give some to its spans, such as its user: span!(\"page\", user)"
    )]
    NoAttributes,
    /// No trace in the requested time range was read and accepted by the filter.
    #[error(
        "no request in {0} began in the requested time, by --since and --until or as a period of --before or --after, or --where rejects all"
    )]
    NoneInRange(String),
    /// There are traces, but none is complete.
    #[error(
        "none of the {traces} traces is complete ({causes}); --include-incomplete uses them all the same"
    )]
    NoneComplete {
        /// Number of selected traces.
        traces: u64,
        /// Causes of incompleteness, with their counts.
        causes: String,
    },
    /// The query found no usable data, and files could not be read in full.
    #[error("{error}; {damage}{}", match more { 0 => String::new(), 1 => "; another file is damaged".to_owned(), more => format!("; {more} other files are damaged") })]
    Damaged {
        /// Error apart from the damage.
        error: Box<QueryError>,
        damage: Damage,
        /// Number of other damaged files.
        more: usize,
    },
}

fn advice(lack: QueryLack) -> &'static str {
    match lack {
        QueryLack::Query(..) => "; ask for fewer of them, by --since and --until or by --root",
        QueryLack::All => "",
    }
}

impl QueryError {
    /// Returns the lack of memory that caused the error; `None` for other errors.
    #[must_use]
    pub fn lack(&self) -> Option<QueryLack> {
        match self {
            Self::Memory { lack, .. }
            | Self::Provenance { lack, .. }
            | Self::LargeTrace { lack, .. } => Some(*lack),
            _ => None,
        }
    }

    /// Adds the damaged files, if there are any, to an error about data that were not found.
    #[must_use]
    pub fn with_damage(self, damage: &[Damage]) -> Self {
        match damage.split_first() {
            None => self,
            Some((first, others)) => Self::Damaged {
                error: Box::new(self),
                damage: first.clone(),
                more: others.len(),
            },
        }
    }

    /// Returns the error for a lack of memory for requests or for results about them.
    pub(super) fn lack_of_requests(lack: QueryLack) -> Self {
        Self::Memory {
            what: "reading these requests and what is found in them",
            lack,
        }
    }
}
