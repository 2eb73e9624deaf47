//! The part of the SDK's module `tracked` that the newsfeed uses. Nothing is tracked: bytes and
//! values have no labels, as those of requests that the SDK does not record.

use std::future::Future;

pub use stroboscope_provenance::{DataLinkage, IndexLinkage, Linkage, Tracked, TrackedBuf};

use super::baggage::Provenance;

/// Runs the future.
pub async fn run<F: Future>(future: F) -> F::Output {
    future.await
}

/// Runs the code.
pub fn scope<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Returns the bytes.
pub fn source(_: &str, bytes: impl Into<Vec<u8>>) -> TrackedBuf {
    bytes.into().into()
}

/// Returns the bytes.
pub fn receive(_: &Provenance, _: &str, bytes: impl Into<Vec<u8>>) -> TrackedBuf {
    bytes.into().into()
}

/// Returns nothing to send.
pub const fn send(_: &TrackedBuf, _: &str) -> Provenance {
    Provenance(())
}

/// Returns nothing to send.
pub const fn send_with_content(_: &TrackedBuf, _: &str, _: usize) -> Provenance {
    Provenance(())
}
