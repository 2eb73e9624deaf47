//! Assertions on traces in `cargo test`.
//!
//! Code that is annotated with the SDK of Stroboscope is recorded while its test runs. The test
//! then asserts on the trace: how often an operation is called, in which order, and whether it is
//! on the critical path.
//!
//! ```
//! # use stroboscope::span;
//! #[stroboscope::trace]
//! fn checkout(user: u64) {
//!     drop(span!("db.query", user));
//!     drop(span!("render"));
//! }
//!
//! // in a function with `#[test]`, `#[tokio::test]` or another one
//! let recording = stroboscope_testkit::start();
//! checkout(42);
//! let traces = recording.traces();
//! let trace = traces.only("checkout");
//! trace.assert_holds(r#"{ name = "db.query" && .user = 42 } before { name = "render" }"#);
//! trace.assert_calls("db.query", ..=1);
//! assert!(trace.critical_path().contains("db.query"));
//! ```
//!
//! Formulas are those of `stroboscope search`: selectors of TraceQL, related in time
//! ([`stroboscope_search`]). Operators about time, such as `always` and `at most`, apply to the
//! whole trace. A failed `assert_…` method shows the trace as a tree.
//!
//! # Traces of a test
//!
//! While a [`Recording`] exists, a span of the test is current on its thread. Work of the test
//! continues this context by the same rules as work of a request in production:
//!
//! | work | belongs to the test |
//! |---|---|
//! | on the test's thread, also in futures that `tokio::test` polls there | yes |
//! | in another thread or its tasks, with `in_current_context` or `in_current_span` | yes |
//! | in a server of the process, called with the headers (`ClientLayer`, `inject`) | yes |
//! | a request that links to the test's traces: `span!(request: …)`, `follows` | yes |
//! | in another thread or its tasks, without the context | no |
//! | in a server that is called without the headers, such as an axum `Router` by `oneshot` | no |
//!
//! A span that begins directly below the test's span is a trace, as it is in production.
//! [`Recording::all_traces`] also returns the traces of other work. It cannot tell apart tests that
//! run concurrently in one process; `cargo nextest` runs each test in a process of its own.
//!
//! # Limits
//!
//! - The causal model of a critical path is inferred from the traces of the test alone. If two
//!   operations never overlap in them, the later one counts as dependent on the earlier one. So run
//!   concurrent code several times before `traces`.
//! - Child processes are not recorded.
//! - Losses are counted for the whole process. A test whose records may be among the lost ones
//!   panics.
//! - A call of [`stroboscope::init`] by the code under test has no effect: the test's recording
//!   goes on. [`start`] panics while a recording that `init` began runs.
//! - Spans of `tracing` are recorded if the test installs the layer or the subscriber of the SDK.

mod archive;
mod critical_path;
mod name;
mod process;
mod recording;
mod traces;
mod tree;

pub use critical_path::CriticalPath;
pub use recording::Recording;
pub use traces::{Trace, Traces};

/// Starts a recording of the calling test, which continues until the result is dropped.
///
/// If no other test records, this starts a collector on a free port of the loopback interface, and
/// the SDK, which then records all the time. Concurrent tests share both; the last one stops them.
/// The SDK's environment variables, except `STROBOSCOPE_KERNEL_RECORDER`, have no effect.
///
/// # Panics
/// Panics if the collector or the SDK cannot start, or if the process already records for another
/// collector.
#[track_caller]
pub fn start() -> Recording {
    match Recording::start() {
        Ok(recording) => recording,
        Err(problem) => panic!("{problem}"),
    }
}
