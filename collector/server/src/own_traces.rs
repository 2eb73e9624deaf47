//! The collector's own traces, by our SDK: what becomes of a batch, a request of OTLP, a flush, a query.
//!
//! They are never about themselves. What a collector ships is of the service [`SERVICE`], and what is of it leaves no trace
//! on its way in, in this collector or in another that it is sent to. A flush is traced when there is something of others in
//! it, and of the store's care the round after such a flush.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use stroboscope::{Guard, InitError, Span};
use stroboscope_proto::v1::Batch;

/// Whether own traces are recorded: a process may have a collector inside, and the SDK for something else.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// What a collector calls itself in its traces.
pub const SERVICE: &str = "stroboscope-collector";

/// Records while it lives; dropping it ships what is there, and blocks meanwhile.
#[derive(Debug)]
pub struct OwnTraces {
    _guard: Guard,
}

impl OwnTraces {
    /// Ships to `address`; all else is as the SDK's environment variables say.
    ///
    /// # Errors
    /// When one of these, or the address, cannot be used.
    pub fn start(address: &str) -> Result<Self, InitError> {
        let builder = stroboscope::builder().env()?;
        let guard = builder.service(SERVICE).collector(address).init()?;
        IS_ON.store(guard.is_active(), Relaxed);
        Ok(Self { _guard: guard })
    }
}

impl Drop for OwnTraces {
    fn drop(&mut self) {
        IS_ON.store(false, Relaxed);
    }
}

/// The address by which a collector that listens here reaches itself.
#[must_use]
pub fn own_address(listening: SocketAddr) -> String {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, listening.port()))
}

/// Whether there are traces of what is done.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Whether there are traces of what is done for a batch: not for one of a collector's own traces.
pub(crate) fn is_traced(batch: &Batch) -> bool {
    let of_service = |service: &str| {
        batch
            .process
            .as_ref()
            .is_some_and(|process| process.service == service)
    };
    is_on() && !of_service(SERVICE)
}

/// A span, of what is not about our own traces.
pub(crate) fn span_if(is_traced: bool, begin: impl FnOnce() -> Span) -> Span {
    if is_traced { begin() } else { Span::NONE }
}
