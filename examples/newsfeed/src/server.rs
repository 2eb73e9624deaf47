//! Listens, serves and stops, for all roles that serve requests.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use stroboscope::tower::{ServerLayer, SlackOrderLayer};
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::transport::server::{Server, TcpIncoming};

use crate::copies::Copies;
use crate::stop::Stop;

/// Prefix of the line that a serving role prints on its standard output once it accepts
/// connections; its address follows.
pub(crate) const LISTENING: &str = "listening ";

/// Time that open connections have to end after a stop.
const DRAIN: Duration = Duration::from_secs(1);

/// Reasons for which a role cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; choose another address with --listen (port 0 takes a free one)"
    )]
    Listen {
        /// Requested address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The address cannot be announced on standard output.
    #[error("cannot report on standard output that {address} is ready: {source}")]
    Announce {
        /// Address that accepts connections.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The server failed while it served.
    #[error("the server on {address} failed: {source}")]
    Failed {
        /// Address that the server served.
        address: SocketAddr,
        /// Error of the server.
        source: tonic::transport::Error,
    },
}

/// Listens on `address`, prints `listening ADDRESS`, and serves `routes` until `stop`.
///
/// # Errors
/// See [`ServeError`].
pub(crate) async fn serve(
    address: SocketAddr,
    routes: Routes,
    stop: &Stop,
) -> Result<(), ServeError> {
    serve_behind(address, routes, Before::Nothing, stop).await
}

/// Layer between the connection and the routes.
pub(crate) enum Before {
    /// No layer.
    Nothing,
    /// Layer that limits concurrent requests and queues the rest by deadline, which follows from
    /// their slack.
    Order(SlackOrderLayer),
    /// Layer that sends copies of some requests to a second web server.
    Copies(Copies),
}

/// Serves like [`serve`], with a layer in front of the routes.
///
/// # Errors
/// See [`ServeError`].
pub(crate) async fn serve_behind(
    address: SocketAddr,
    routes: Routes,
    before: Before,
    stop: &Stop,
) -> Result<(), ServeError> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| ServeError::Listen { address, source })?;
    let address = listener
        .local_addr()
        .map_err(|source| ServeError::Listen { address, source })?;
    announce(address).map_err(|source| ServeError::Announce { address, source })?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().layer(ServerLayer::new());
    // Each layer makes another type of service, so that roles without a layer do not pay for one.
    let serving: Pin<Box<dyn Future<Output = _> + Send + '_>> = match before {
        Before::Nothing => {
            let router = { server }.add_routes(routes);
            Box::pin(router.serve_with_incoming_shutdown(incoming, stop.wait()))
        }
        Before::Order(order) => {
            let router = server.layer(order).add_routes(routes);
            Box::pin(router.serve_with_incoming_shutdown(incoming, stop.wait()))
        }
        Before::Copies(copies) => {
            let router = server.layer(copies).add_routes(routes);
            Box::pin(router.serve_with_incoming_shutdown(incoming, stop.wait()))
        }
    };
    tokio::select! {
        result = serving => result.map_err(|source| ServeError::Failed { address, source }),
        // A peer that keeps its connection open cannot keep this process alive.
        () = async { stop.wait().await; tokio::time::sleep(DRAIN).await } => Ok(()),
    }
}

fn announce(address: SocketAddr) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{LISTENING}{address}")?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = taken.local_addr().expect("its address");
        let error = serve(address, Routes::default(), &Stop::manual())
            .await
            .expect_err("in use")
            .to_string();
        assert!(
            error.contains(&format!("cannot listen on {address}")),
            "{error}"
        );
        assert!(
            error.contains("in use") && error.contains("--listen"),
            "{error}"
        );
    }
}
