//! The gRPC server of a worker. The caller gives its service.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tonic::service::Routes;

use crate::net::{Listener, ListenerSetup, PortName, Ports, refusal};

/// Maximum time for connections to end when the worker stops; the server then cuts them.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// A running server; [`WorkerServer::stop`] closes its connections.
#[derive(Debug)]
pub struct WorkerServer {
    address: SocketAddr,
    listener: Listener,
}

impl WorkerServer {
    /// Listens on an address, and serves `routes` to clients that may read; port 0 picks a free
    /// port.
    ///
    /// # Errors
    /// Returns an error if it cannot listen on the address.
    pub async fn start(address: SocketAddr, doors: Arc<Ports>, routes: Routes) -> io::Result<Self> {
        let setup = ListenerSetup {
            doors,
            name: PortName::Worker,
            router: routes.prepare().into_axum_router(),
            answer: |_, denied| refusal(denied.status()),
        };
        let (listener, address) = setup.tcp(address).await?;
        Ok(Self { address, listener })
    }

    /// Returns the address, with the actual port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests in flight for up to 2 seconds, then closes the connections. Drivers run
    /// the remaining shards on other workers, if there are any.
    pub async fn stop(self) {
        self.listener.stop(STOP_PATIENCE).await;
    }
}
