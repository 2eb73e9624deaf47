//! Tracing in coordinated bursts: annotate a service, and see what causes what.
//!
//! All processes that share a *burst-config* record during the same short windows of wall-clock time. Between windows
//! an annotation is one flag check. What the windows bring in is shipped to a collector (the `stroboscope` binary),
//! which infers which segments of a request cause which, the critical path, and the slack of everything else.
//!
//! # Ten lines
//!
//! ```no_run
//! #[stroboscope::trace]
//! async fn page(user: u64) -> String {
//!     let _span = stroboscope::span!("render", user).entered();
//!     stroboscope::event!("cache_miss", key = user);
//!     format!("hello {user}")
//! }
//!
//! fn main() -> Result<(), stroboscope::InitError> {
//!     let _tracing = stroboscope::init("web")?; // reads STROBOSCOPE_BURST_CONFIG and others; ships until dropped
//!     // … run the service …
//!     Ok(())
//! }
//! ```
//!
//! # What is recorded, and when
//!
//! - Inside a window: everything. A span that is cut by the window's edge says so.
//! - Beyond windows: requests that were sampled at their ingress, by [`SampleMode`]. The decision is made once and
//!   travels with the request, as W3C `traceparent`'s sampled flag.
//!
//! # Context
//!
//! | where the work goes on | how the context follows |
//! |---|---|
//! | a function, sync or async | `#[stroboscope::trace]`, or `span!("name").entered()` in sync code |
//! | a future | `future.in_span(span!("name"))` ([`FutureExt`]) |
//! | a spawned task (`tokio::spawn`, `JoinSet`) | `tokio::spawn(future.in_current_span())` |
//! | another thread, `spawn_blocking`, `rayon::spawn` | [`in_current_context`]`(move \|\| work())` |
//! | a channel | [`capture`]`()` beside the item; there `context.scope(\|\| work(item))`, or `work(item).in_context(context)` |
//! | rayon's iterators, whatever runs many times | `let context = `[`capture`]`();` and `context.scope(\|\| work(item))` |
//! | spans of OpenTelemetry, inside ours and outside | [`SpanContext::attach_to_opentelemetry`], [`propagation::follow_opentelemetry`] |
//! | another process | [`tower::ServerLayer`] and [`tower::ClientLayer`], or [`propagation::extract`] and [`propagation::inject`] |
//!
//! A span in a future is the current one whenever the future is polled, on whichever thread of a work-stealing runtime.
//! The polls themselves are recorded only for those who ask: as markers, while a kernel recorder listens ([`marker`]).
//!
//! The header `stroboscope-force: 1` has one request recorded to its end, where the service accepts it
//! ([`Builder::accept_force`]).
//!
//! # What travels with a request
//!
//! Typed values in three scopes, load metrics, predictions of slack, tradeoffs made, and the provenance of data items:
//! see [`baggage`].
//!
//! # What it promises
//!
//! The service's threads never wait, and never panic because of the SDK. Each thread writes to a ring of its own, which
//! grows with what it records, to 1 MiB at most: threads allocate a ring when they first record and when it grows, and
//! nothing for a record. Where thousands of threads have taken the memory for rings, others share some; when all are full,
//! records are dropped. Memory is bounded, see [`Builder`]. Every discard is counted by cause: [`stats`], and in every batch
//! the collector gets.
//!
//! # Environment
//!
//! | variable | says | builder |
//! |---|---|---|
//! | `STROBOSCOPE_BURST_CONFIG` | when to record: `4ms/32ms`, `0b11100`, `0x1c`, `28`, `always`, `off` | [`Builder::burst_config`] |
//! | `STROBOSCOPE_SAMPLE` | which requests to record beyond windows: `follow`, `burst`, or a ratio | [`Builder::sample`] |
//! | `STROBOSCOPE_FORCE` | `accept` requests that ask to be recorded, or `refuse` them (the default) | [`Builder::accept_force`] |
//! | `STROBOSCOPE_COLLECTOR` | where to ship to: `http://host:port`, `https://host:port`, `unix:/path` | [`Builder::collector`] |
//! | `STROBOSCOPE_TOKEN` | a bearer token for the collector | [`Builder::token`] |
//! | `STROBOSCOPE_CA` | a file of certificates an `https` collector is checked against | [`Builder::certificate_authority`] |
//! | `STROBOSCOPE_TRACING` | what of `tracing` to record, like `RUST_LOG`: `info` (the default), `info,shop::cart=debug,h2=trace`, `off` | [`Builder::tracing`] |
//! | `STROBOSCOPE_REQUESTS` | spans of `tracing` that are requests wherever they begin: `get::apply,set::apply` | [`Builder::requests`] |
//! | `STROBOSCOPE_SERVICE`, `STROBOSCOPE_HOST` | names to be known by | [`Builder::service`], [`Builder::host`] |
//!
//! A name that starts with `STROBOSCOPE_` and is none of these is said to be unknown, with the nearest one, on standard error
//! when recording starts; it stops nothing. Those that start with `STROBOSCOPE_TEST_` are nobody's business.
//!
//! `https` needs the feature `tls`, which is off by default: most services ship to a sidecar on their own machine.
//!
//! # Beginning and end
//!
//! | the process | what happens |
//! |---|---|
//! | calls [`init`] twice, or a library does | the first call records; later guards do nothing ([`Guard::is_active`]) |
//! | never calls it | every annotation is a flag check |
//! | ends `main`, or a panic unwinds it | dropping the [`Guard`] ships what is there within [`Builder::shutdown_deadline`] |
//! | is ended by SIGTERM | the same, with [`Builder::flush_on_sigterm`]; or call [`flush()`] in a handler of its own |
//! | forks | the child records nothing until it calls [`init`] itself; it is a process of its own then. Fork while no thread begins or ends: Rust's library holds a lock then, without which a child starts no threads |
//!
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(test)]
extern crate self as stroboscope; // the tests' collector speaks of the crate by its name

#[cfg(feature = "tracing")]
mod adapter;
mod address;
pub mod baggage;
mod batch;
pub mod burst;
mod callsite;
mod captured;
mod clock;
#[cfg(test)]
mod clock_steps;
mod config;
mod context;
mod drain;
mod followed;
mod fork;
mod gate;
mod generation;
mod guard;
mod header_list;
mod here;
mod id;
mod ingress;
#[cfg(feature = "tracing")]
mod layer;
mod loss;
mod macros;
#[cfg(feature = "marked")]
pub mod marked;
pub mod marker;
pub mod propagation;
#[cfg(feature = "tradeoff")]
pub mod quality;
mod record;
#[cfg(any(feature = "tower", feature = "tracing"))]
mod request;
mod ring;
mod running;
mod sampling;
mod ship;
mod sigterm;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod span;
mod span_context;
mod span_word;
#[cfg(feature = "tracing")]
mod subscriber;
mod sys;
mod thread;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "tracing")]
mod tracing_filter;
#[cfg(feature = "tradeoff")]
pub mod tradeoff;
mod value;
mod variables;

pub use burst::{BurstConfig, BurstConfigError};
pub use captured::{Captured, InContext, capture, in_current_context};
pub use config::{
    Builder, ENV_BURST_CONFIG, ENV_CA, ENV_COLLECTOR, ENV_FORCE, ENV_HOST, ENV_PROPAGATE,
    ENV_REQUESTS, ENV_SAMPLE, ENV_SERVICE, ENV_TOKEN, ENV_TRACING, InitError,
};
pub use context::{SpanContext, current};
pub use gate::windows::Window;
pub use guard::{Guard, Stats, flush, stats};
#[cfg(feature = "tracing")]
pub use layer::{TracingLayer, layer};
pub use loss::LossCause;
pub use sampling::{SampleMode, SampleModeError};
pub use span::{Entered, FutureExt, InSpan, Span, error, record};
pub use stroboscope_macros::trace;
#[cfg(feature = "tracing")]
pub use subscriber::{TracingSubscriber, subscriber};
#[cfg(feature = "tracing")]
pub use tracing_filter::{TracingFilter, TracingFilterError};
pub use value::{DebugValue, DisplayValue, Value, debug, display};

/// What the macros expand to; not part of the API.
#[doc(hidden)]
pub mod __private {
    pub use crate::callsite::Callsite;
    pub use crate::gate::is_idle;
    pub use crate::span::{Frame, InFrame, event, in_span_from_first_poll, note_failure, once};
}

/// Settings to start recording with.
pub fn builder() -> Builder {
    Builder::new()
}

/// Starts recording for the service of this name, by the `STROBOSCOPE_…` environment variables.
///
/// # Errors
/// A variable holds something unusable; the message names it and the accepted forms. The service may go on untraced.
pub fn init(service: &str) -> Result<Guard, InitError> {
    builder().service(service).env()?.init()
}
