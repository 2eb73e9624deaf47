//! The live model: inference over the collector's traces while it runs.
//!
//! The live model uses the same analysis as the batch query and SQL. After the start, it receives
//! the rows of each segment once they are durable in the store, and assembles them into traces:
//!
//! - *Quiet.* A trace counts as fully arrived once none of its records has come for the quiet time,
//!   by the collector's clock. The model then judges whether the trace is complete, and observes
//!   it. Until then the records may come in any order.
//! - *Late.* Records of a trace that was already observed are counted and left out. Observed traces
//!   are remembered for about five to ten minutes (less if more than half a million traces close in
//!   that time). Records that come even later form a trace of their own, usually an incomplete one.
//! - *Bounded.* If open traces hold too many records (by default more than [`RECORDS_OPEN_MAX`]),
//!   the one that has been quiet longest is observed early, and counted. If the model's thread
//!   cannot keep up, arriving records are skipped, and counted.
//! - *Complete.* The model judges whether a trace is complete by its knowledge at that time: the
//!   losses reported so far, and which operations run inside others.
//! - *As recorded.* Clocks are not corrected, as the proof that they differ may come after the
//!   traces concerned. They are compared, and [`Snapshot::clocks_differ`] reports a difference. The
//!   resolution of timestamps follows from those seen so far.
//! - *Window.* The model covers a sliding window of time (`--live-window`), so that requests from
//!   before a deploy do not refute anything for ever.
//!
//! Totals since the collector started, for metrics, count all observed requests with a root span,
//! and all spans and calls between services. The time on critical paths is that of all complete
//! requests, or an estimate if they are too many.
//!
//! The latest complete requests are kept as segments, at most [`RECENT_TRACES_MAX`]. Their critical
//! paths are computed on demand. Failed requests and spans of the last minutes are counted over all
//! requests.
//!
//! The model starts and ends with the collector. `infer` reads the store. If its result differs
//! from the live model, `infer` is right. They may differ, for example, if clocks differ, records
//! are late or skipped, traces are observed early, the completeness of a trace shows only later, or
//! the store has data from before the window.

mod assembly;
mod calls;
mod feed;
mod histogram;
mod observer;
mod outcomes;
mod paths;
mod recent;
mod totals;
mod window;

pub use assembly::RECORDS_OPEN_MAX;
pub use calls::{Edge, EdgeTotals, SpanOperation};
pub use feed::{Feed, LiveModel, start};
pub use histogram::{Exemplar, LATENCY_BOUNDS_NS, LatencyBucket, LatencyHistogram};
pub use observer::{Live, LiveCounts, Snapshot, Totals};
pub use outcomes::{Outcomes, RECENT, RecentOutcomes};
pub use paths::{PathOperation, SlackTotals};
pub use recent::{ProcessWindows, RECENT_SEGMENTS_MAX, RECENT_TRACES_MAX, RecentRequests};
pub use totals::{OperationTotals, ServiceOperation};
