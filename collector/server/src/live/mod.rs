//! The live model: what the collector's traces say while it runs.
//!
//! It is a third driver of the same analysis, beside the batch query and SQL. What is put into the store (once, and
//! durably) is handed to it as well, and becomes whole traces:
//!
//! - *Quiet.* A trace is taken for whole, judged and observed when nothing of it has arrived for the quiet time, by the
//!   collector's clock. Until then its records may come in any order.
//! - *Late.* Records of a trace that has been observed are counted and left out. Which traces those are is remembered of
//!   the last five to ten minutes (fewer where a million traces close in less); what comes even later is a trace without
//!   a root, and incomplete.
//! - *Bounded.* When open traces hold more than [`RECORDS_OPEN_MAX`] records, the one that has been quiet for longest is
//!   observed early, and counted. When the model's thread cannot keep up, what arrives is skipped, and counted.
//! - Whether a trace is complete is judged by what was known at that time: the losses heard of, and which operations run
//!   inside others.
//! - *As recorded.* Clocks are not corrected, as what proves that they differ may come after the traces that it is about.
//!   They are compared, and [`Snapshot::clocks_differ`] says so. What timestamps are whole multiples of is known of those seen so
//!   far.
//!
//! The latest requests are kept as segments, [`RECENT_TRACES_MAX`] at most, and their critical paths are looked for when
//! somebody asks what they wait for. Failed requests and spans are counted, of all requests of the last minutes.
//!
//! It begins with the collector and ends with it. `infer` reads the store, and is right where the two differ; where nothing
//! is late, skipped or early, and clocks agree, they do not.

mod assembly;
mod feed;
mod observer;
mod outcomes;
mod recent;

pub use assembly::RECORDS_OPEN_MAX;
pub use feed::{Feed, LiveModel, start};
pub use observer::{Live, LiveCounts, Snapshot};
pub use outcomes::{Outcomes, RECENT, RecentOutcomes};
pub use recent::{ProcessWindows, RECENT_SEGMENTS_MAX, RECENT_TRACES_MAX, RecentRequests};
