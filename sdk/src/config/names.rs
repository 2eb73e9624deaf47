//! Names of the environment variables.

use crate::marker::ENV_KERNEL_RECORDER;

/// `STROBOSCOPE_BURST_CONFIG`: burst-config that defines when to record.
pub const ENV_BURST_CONFIG: &str = "STROBOSCOPE_BURST_CONFIG";
/// `STROBOSCOPE_COLLECTOR`: address of the collector: `http://host:port`, `https://host:port` or
/// `unix:/path`.
pub const ENV_COLLECTOR: &str = "STROBOSCOPE_COLLECTOR";
/// `STROBOSCOPE_TOKEN`: bearer token for the collector.
pub const ENV_TOKEN: &str = "STROBOSCOPE_TOKEN";
/// `STROBOSCOPE_CA`: file of certificates (PEM) that verify an `https` collector.
pub const ENV_CA: &str = "STROBOSCOPE_CA";
/// `STROBOSCOPE_SAMPLE`: sample mode, which selects requests to record outside of windows.
pub const ENV_SAMPLE: &str = "STROBOSCOPE_SAMPLE";
/// `STROBOSCOPE_CALLERS`: `public` or `trusted`, see
/// [`Builder::public_callers`](crate::Builder::public_callers).
pub const ENV_CALLERS: &str = "STROBOSCOPE_CALLERS";
/// `STROBOSCOPE_FORCE`: `accept` or `refuse`, see
/// [`Builder::accept_force`](crate::Builder::accept_force).
pub const ENV_FORCE: &str = "STROBOSCOPE_FORCE";
/// `STROBOSCOPE_PROPAGATE`: adds a `traceparent` of the SDK to all calls (`always`), or leaves it
/// out of most calls of unrecorded requests that arrived without one (`recorded`), see
/// [`Builder::propagate_always`](crate::Builder::propagate_always).
pub const ENV_PROPAGATE: &str = "STROBOSCOPE_PROPAGATE";
/// `STROBOSCOPE_PROVENANCE`: share of recorded requests whose bytes are tracked, or `on` or `off`.
/// Used with the feature `provenance`.
pub const ENV_PROVENANCE: &str = "STROBOSCOPE_PROVENANCE";
/// `STROBOSCOPE_TRACING`: filter for spans and events of `tracing`, like `RUST_LOG`.
pub const ENV_TRACING: &str = "STROBOSCOPE_TRACING";
/// `STROBOSCOPE_REQUESTS`: names of `tracing` spans that are always requests, separated by commas.
pub const ENV_REQUESTS: &str = "STROBOSCOPE_REQUESTS";
/// `STROBOSCOPE_SERVICE`: name of the service.
pub const ENV_SERVICE: &str = "STROBOSCOPE_SERVICE";
/// `STROBOSCOPE_HOST`: name of the host, if it differs from the system's.
pub const ENV_HOST: &str = "STROBOSCOPE_HOST";

/// The `STROBOSCOPE_…` variables of the SDK.
pub(crate) const KNOWN: [&str; 14] = [
    ENV_BURST_CONFIG,
    ENV_CA,
    ENV_COLLECTOR,
    ENV_CALLERS,
    ENV_FORCE,
    ENV_HOST,
    ENV_KERNEL_RECORDER,
    ENV_PROPAGATE,
    ENV_PROVENANCE,
    ENV_REQUESTS,
    ENV_SAMPLE,
    ENV_SERVICE,
    ENV_TOKEN,
    ENV_TRACING,
];
