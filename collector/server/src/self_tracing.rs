//! Traces that the collector records of itself with our SDK: the path of a batch, an OTLP request,
//! a flush, a round of maintenance, and most requests to the HTTP port for pages.
//!
//! A collector ships its traces under the service [`SERVICE`]. No collector traces the intake of
//! this service's batches, as each trace would cause another one. A flush is traced if its segment
//! contains OTLP requests or news (see `Ledger::is_news`) of other services from this run. A round
//! of store maintenance is traced if such a flush ended after the previous round began.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use stroboscope::{Guard, InitError, Span};
use stroboscope_proto::v1::Batch;

/// True while the collector's own traces are recorded. The SDK may be active without them, in a
/// process that embeds a collector.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Service name of a collector in its traces.
pub const SERVICE: &str = "stroboscope-collector";

/// Guard of the recording of own traces. Dropping it ends the recording, and blocks for some time
/// to ship the remaining traces.
#[derive(Debug)]
pub struct SelfTracing {
    _guard: Guard,
}

impl SelfTracing {
    /// Starts recording own traces and shipping them to `address`. The SDK's environment variables
    /// set everything else except the service.
    ///
    /// # Errors
    /// Returns an error if a variable or the address is invalid, or if the SDK cannot start.
    pub fn start(address: &str) -> Result<Self, InitError> {
        let builder = stroboscope::builder().env()?;
        let guard = builder.service(SERVICE).collector(address).init()?;
        IS_ON.store(guard.is_active(), Relaxed);
        Ok(Self { _guard: guard })
    }
}

impl Drop for SelfTracing {
    fn drop(&mut self) {
        IS_ON.store(false, Relaxed);
    }
}

/// Returns the URL at which a collector that listens on `listening` without TLS reaches itself.
#[must_use]
pub fn own_address(listening: SocketAddr) -> String {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, listening.port()))
}

/// Reports whether own traces are recorded.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Reports whether the processing of a batch is traced: own traces are recorded, and the batch
/// comes from another service.
pub(crate) fn is_traced(batch: &Batch) -> bool {
    let of_service = |service: &str| {
        batch
            .process
            .as_ref()
            .is_some_and(|process| process.service == service)
    };
    is_on() && !of_service(SERVICE)
}

/// Begins a span if `is_traced`, and returns `Span::NONE` otherwise.
pub(crate) fn span_if(is_traced: bool, begin: impl FnOnce() -> Span) -> Span {
    if is_traced { begin() } else { Span::NONE }
}
