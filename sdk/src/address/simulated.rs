//! Simulated connections that replace the system's.
#![allow(
    missing_docs,
    reason = "no part of the API; the user is a test beside this crate"
)]

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::codegen::Service;

/// Byte stream to a simulated collector.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Future that yields a new connection.
pub type SimulatedConnect = Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send>>;

/// Factory of simulated connections.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn() -> SimulatedConnect + Send + Sync>);

impl Connector {
    pub fn new(connect: impl Fn() -> SimulatedConnect + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Connection>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connecting = (self.0)();
        Box::pin(async move { connecting.await.map(TokioIo::new) })
    }
}
