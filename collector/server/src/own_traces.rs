//! The collector's own traces, by our SDK: what becomes of a batch, a request of OTLP, a flush, a query.
//!
//! They are never about themselves. What a collector ships is of the service [`SERVICE`], and what is of it leaves no trace
//! on its way in, in this collector or in another that it is sent to. A flush is traced when there is something of others in
//! it, and of the store's care the round after such a flush.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use stroboscope::{Guard, InitError, Span};
use stroboscope_proto::v1::Batch;

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
        Ok(Self { _guard: guard })
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

/// Whether a batch is of a collector's own traces.
pub(crate) fn is_own(batch: &Batch) -> bool {
    let process = batch.process.as_ref();
    process.is_some_and(|process| process.service == SERVICE)
}

/// A span, of what is not about our own traces.
pub(crate) fn span_if(is_traced: bool, begin: impl FnOnce() -> Span) -> Span {
    if is_traced { begin() } else { Span::NONE }
}
