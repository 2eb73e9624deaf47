//! Tracing in coordinated bursts: annotate a service and find out which work depends on which.
//!
//! All processes that share a *burst-config* record during the same short windows of wall-clock
//! time. Between windows, an annotation costs one flag check, unless a sampled request is recorded
//! then, or requests are sampled by ratio. The SDK ships the records to a collector (the
//! `stroboscope` binary). The collector infers the causal relations between segments of a request,
//! the critical path, and the slack of all other segments.
//!
//! # Quick start
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
//! # Recorded data
//!
//! - Spans and events that begin inside a window are recorded. A flag marks a span that the
//!   window's edge cuts.
//! - Outside of windows, requests are recorded if they were sampled at their ingress, see
//!   [`SampleMode`]. The decision is made once and travels with the request, as the sampled flag of
//!   W3C `traceparent`.
//!
//! # Context
//!
//! | work continues in | how the context is passed |
//! |---|---|
//! | a function, sync or async | `#[stroboscope::trace]`, or `span!("name").entered()` in sync code |
//! | a future | `future.in_span(span!("name"))` ([`FutureExt`]) |
//! | a spawned task (`tokio::spawn`, `JoinSet`) | `tokio::spawn(future.in_current_span())` |
//! | another thread, `spawn_blocking`, `rayon::spawn` | [`in_current_context`]`(\|\| work())` |
//! | a channel | send [`capture`]`()` with the item; at the receiver, `context.scope(\|\| work(item))` or `work(item).in_context(context)` |
//! | rayon's iterators, and anything that runs many times | `let context = `[`capture`]`();` and `context.scope(\|\| work(item))` |
//! | OpenTelemetry spans, inside or outside the SDK's spans | [`SpanContext::attach_to_opentelemetry`], [`propagation::follow_opentelemetry`] |
//! | another process | [`tower::ServerLayer`] and [`tower::ClientLayer`], or [`propagation::extract`] and [`propagation::inject`] |
//!
//! The span of a future is the current span whenever the future is polled, on any thread of a
//! work-stealing runtime. The polls themselves are recorded only as markers for a kernel recorder
//! ([`marker`]).
//!
//! The header `stroboscope-force: 1` makes a service that accepts it ([`Builder::accept_force`])
//! record one request to its end.
//!
//! # Data that travels with a request
//!
//! Typed values in three scopes, load metrics, slack predictions, tradeoffs, and the provenance of
//! data items: see [`baggage`]. The bytes themselves can be tracked, too, with the module
//! `tracked` of the feature `provenance`.
//!
//! # Guarantees
//!
//! Annotations never wait for the drain or the collector, and panic only if a value's own
//! formatting does. Each thread writes to its own ring, which grows with the amount of recording,
//! by default up to 1 MiB. A thread may allocate a ring when it first records and when its ring
//! grows, but not for each record. If thousands of threads have used up the memory for rings,
//! further threads share some rings; when these are full, records are dropped. Memory is bounded,
//! see [`Builder`]. Every discarded record is counted by cause, in [`stats`] and in every batch for
//! the collector.
//!
//! # Environment
//!
//! | variable | meaning | builder |
//! |---|---|---|
//! | `STROBOSCOPE_BURST_CONFIG` | when to record: `4ms/32ms`, `0b11100`, `0x1c`, `28`, `always`, `off` | [`Builder::burst_config`] |
//! | `STROBOSCOPE_SAMPLE` | requests to record outside of windows: `follow`, `burst`, or a ratio | [`Builder::sample`] |
//! | `STROBOSCOPE_CALLERS` | `public` or `trusted` (the default) | [`Builder::public_callers`] |
//! | `STROBOSCOPE_FORCE` | `accept` lets callers have their requests recorded; `refuse` (the default) does not | [`Builder::accept_force`] |
//! | `STROBOSCOPE_PROPAGATE` | `always` adds a `traceparent` to every call; `recorded` (the default) does not for most unrecorded requests that arrived without one | [`Builder::propagate_always`] |
//! | `STROBOSCOPE_PROVENANCE` | recorded requests whose bytes are tracked (feature `provenance`): `on` (the default), `off`, or a share such as `0.01` | `Builder::provenance` |
//! | `STROBOSCOPE_COLLECTOR` | collector's address: `http://host:port`, `https://host:port`, `unix:/path` | [`Builder::collector`] |
//! | `STROBOSCOPE_TOKEN` | bearer token for the collector | [`Builder::token`] |
//! | `STROBOSCOPE_CA` | file of certificates that verify an `https` collector | [`Builder::certificate_authority`] |
//! | `STROBOSCOPE_TRACING` | filter for `tracing`, like `RUST_LOG`: `info` (the default), `info,shop::cart=debug,h2=trace`, `off` | [`Builder::tracing`] |
//! | `STROBOSCOPE_REQUESTS` | `tracing` spans that are requests wherever they begin: `get::apply,set::apply` | [`Builder::requests`] |
//! | `STROBOSCOPE_KERNEL_RECORDER` | file that a listening recorder locks | see [`marker`] |
//! | `STROBOSCOPE_SERVICE`, `STROBOSCOPE_HOST` | names of the service and the host | [`Builder::service`], [`Builder::host`] |
//!
//! If [`init`] or [`Builder::env`] finds another variable that starts with `STROBOSCOPE_`, a
//! warning on standard error names the nearest known variable, or all of them, when recording
//! starts. Variables that start with `STROBOSCOPE_TEST_` or `STROBOSCOPE_COLLECT_` (the
//! collector's), or that Kubernetes sets for a service of this name, are ignored.
//!
//! `https` requires the feature `tls`, which is off by default because most services ship to a
//! sidecar on their own machine.
//!
//! # Start and end
//!
//! | the process | effect |
//! |---|---|
//! | calls [`init`] again while it records | the new guard does nothing ([`Guard::is_active`]) |
//! | never calls [`init`] | every annotation is a flag check |
//! | ends `main`, or a panic unwinds it | dropping the [`Guard`] ships pending records within [`Builder::shutdown_deadline`] |
//! | is ended by SIGTERM | [`Builder::flush_on_sigterm`] ships pending records within the same deadline; or call [`flush()`] where the service handles the signal |
//! | forks | the child records nothing until it calls [`init`] itself; it is then a separate process. Do not fork while a thread begins or ends: Rust's standard library then holds a lock that a child needs to start threads |
//!
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(test)]
extern crate self as stroboscope; // the tests' collector uses the crate by its name

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
mod thread_ref;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "tracing")]
mod tracing_filter;
#[cfg(feature = "provenance")]
pub mod tracked;
#[cfg(feature = "tradeoff")]
pub mod tradeoff;
mod value;
mod variables;

pub use burst::{BurstConfig, BurstConfigError};
pub use captured::{CapturedContext, InContext, capture, in_current_context};
pub use config::names::{
    ENV_BURST_CONFIG, ENV_CA, ENV_CALLERS, ENV_COLLECTOR, ENV_FORCE, ENV_HOST, ENV_PROPAGATE,
    ENV_PROVENANCE, ENV_REQUESTS, ENV_SAMPLE, ENV_SERVICE, ENV_TOKEN, ENV_TRACING,
};
pub use config::{Builder, InitError};
pub use context::{SpanContext, current};
pub use gate::window_log::Window;
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

/// Items that the macros expand to, and one for `stroboscope-testkit`; not part of the API.
#[doc(hidden)]
pub mod __private {
    pub use crate::callsite::Callsite;
    pub use crate::gate::is_idle;
    pub use crate::guard::flush_trace;
    pub use crate::span::{Frame, InFrame, event, in_span_from_first_poll, note_failure, once};
}

/// Returns a builder with the default configuration.
pub fn builder() -> Builder {
    Builder::new()
}

/// Starts recording, configured by the `STROBOSCOPE_…` environment variables. `STROBOSCOPE_SERVICE`
/// replaces the service's name.
///
/// # Errors
/// Returns an error if a variable holds an invalid value, or if [`Builder::init`] fails. For an
/// invalid value, the message names the variable. The service may continue untraced.
pub fn init(service: &str) -> Result<Guard, InitError> {
    builder().service(service).env()?.init()
}
