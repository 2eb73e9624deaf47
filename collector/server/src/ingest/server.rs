//! The gRPC server on its sockets.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use stroboscope_proto::v1::collector_server::CollectorServer;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;

use super::control::BurstControl;
use super::service::Service;
use super::stranger::{self, Strangers};
use crate::intake::Intake;
use crate::otlp::{Door, TraceService};
use stroboscope_store::limits::Limits;

/// How long streams may take to end when the collector stops.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Concurrent streams of one connection.
const STREAMS_PER_CONNECTION_MAX: u32 = 256;

/// Where to listen.
#[derive(Clone, Debug)]
pub struct ListenAddresses {
    /// TCP; port 0 takes a free one.
    pub grpc: SocketAddr,
    /// A unix socket besides.
    pub unix: Option<PathBuf>,
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The TCP address.
    #[error(
        "cannot listen on {address}: {source}; is another collector running? --listen takes another address"
    )]
    Tcp {
        address: SocketAddr,
        source: std::io::Error,
    },
    /// The unix socket.
    #[error("cannot listen on {path}: {source}")]
    Unix {
        /// The socket's path.
        path: PathBuf,
        source: std::io::Error,
    },
}

/// A running server. Dropping it aborts all connections; [`Server::stop`] ends them in order.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    unix: Option<PathBuf>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<Result<(), tonic::transport::Error>>,
}

impl Server {
    /// Listens and serves.
    ///
    /// # Errors
    /// When a socket cannot be had.
    pub async fn start(
        intake: Intake,
        control: BurstControl,
        limits: Limits,
        otlp: Door,
        listen: &ListenAddresses,
    ) -> Result<Self, IngestError> {
        let tcp_error = |source| IngestError::Tcp {
            address: listen.grpc,
            source,
        };
        let listener = TcpListener::bind(listen.grpc).await.map_err(tcp_error)?;
        let address = listener.local_addr().map_err(tcp_error)?;
        let (stop, stopped) = watch::channel(false);
        let message_bytes_max = limits.message_bytes_max;
        let strangers = Strangers::new(intake.counters().clone());
        let service = Service {
            intake,
            control,
            limits,
            stop: stopped.clone(),
        };
        let service = CollectorServer::new(service)
            .accept_compressed(CompressionEncoding::Zstd)
            .max_decoding_message_size(message_bytes_max);
        let strangers = axum::Router::new()
            .fallback(stranger::answer)
            .with_state(strangers);
        let routes = Routes::from(strangers)
            .add_service(service)
            .add_service(TraceService::new(otlp));
        let mut tasks = JoinSet::new();
        if let Some(path) = &listen.unix {
            let incoming = UnixListenerStream::new(bind_unix(path).await?);
            let served = server().add_routes(routes.clone());
            tasks.spawn(served.serve_with_incoming_shutdown(incoming, until_true(stopped.clone())));
        }
        // Answers are small: without this each waits for the acknowledgement of the packet before it, up to 40 ms. The
        // server's own option is for listeners that it binds itself.
        let incoming = TcpListenerStream::new(listener).inspect(|stream| {
            if let Ok(stream) = stream {
                // What is slower works all the same.
                let _ = stream.set_nodelay(true);
            }
        });
        tasks.spawn(
            server()
                .add_routes(routes)
                .serve_with_incoming_shutdown(incoming, until_true(stopped)),
        );
        Ok(Self {
            address,
            unix: listen.unix.clone(),
            stop,
            tasks,
        })
    }

    /// The TCP address, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes nothing new, answers what is in flight, and ends all connections.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let ended = tokio::time::timeout(STOP_PATIENCE, async {
            while self.tasks.join_next().await.is_some() {}
        });
        if ended.await.is_err() {
            tracing::warn!("some connections did not end within {STOP_PATIENCE:?} and were cut");
        }
        if let Some(path) = &self.unix {
            // Someone may have cleaned up already.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn server() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
}

/// Resolves when the flag is set.
pub(super) async fn until_true(mut flag: watch::Receiver<bool>) {
    // That the sender is gone means the same.
    let _ = flag.wait_for(|flag| *flag).await;
}

/// Binds a unix socket; one that a dead process left behind is replaced, one that answers is not.
async fn bind_unix(path: &Path) -> Result<UnixListener, IngestError> {
    let error = |source| IngestError::Unix {
        path: path.to_owned(),
        source,
    };
    match UnixListener::bind(path) {
        Err(in_use) if in_use.kind() == std::io::ErrorKind::AddrInUse => {
            match UnixStream::connect(path).await {
                Err(refused) if refused.kind() == std::io::ErrorKind::ConnectionRefused => {}
                _ => return Err(error(in_use)),
            }
            std::fs::remove_file(path).map_err(error)?;
            UnixListener::bind(path).map_err(error)
        }
        bound => bound.map_err(error),
    }
}
