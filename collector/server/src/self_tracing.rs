//! The collector's own traces, by our SDK: the path of a batch, an OTLP request, a flush or a
//! query.
//!
//! They never concern themselves. A collector ships them under the service [`SERVICE`]. Data of
//! this service leaves no trace on its way in, in this collector or in another that receives it. A
//! flush is traced if it contains data of other services. A round of store maintenance is traced
//! after such a flush.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use stroboscope::{Guard, InitError, Span};
use stroboscope_proto::v1::Batch;

/// True if own traces are recorded. A process that embeds a collector may use the SDK for something
/// else.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Service name of a collector in its traces.
pub const SERVICE: &str = "stroboscope-collector";

/// Recording of own traces, as long as it lives. Dropping it ships the rest, and blocks meanwhile.
#[derive(Debug)]
pub struct SelfTracing {
    _guard: Guard,
}

impl SelfTracing {
    /// Starts shipping to `address`. The SDK's environment variables set everything else.
    ///
    /// # Errors
    /// Returns an error if a variable or the address is invalid.
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

/// Returns the address at which a collector that listens on `listening` reaches itself.
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

/// Reports whether the processing of a batch is traced. It is not for a collector's own traces.
pub(crate) fn is_traced(batch: &Batch) -> bool {
    let of_service = |service: &str| {
        batch
            .process
            .as_ref()
            .is_some_and(|process| process.service == service)
    };
    is_on() && !of_service(SERVICE)
}

/// Begins a span if `is_traced`: our own traces get none.
pub(crate) fn span_if(is_traced: bool, begin: impl FnOnce() -> Span) -> Span {
    if is_traced { begin() } else { Span::NONE }
}
