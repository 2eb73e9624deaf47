//! The gRPC server on its sockets.

use std::future::ready;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Request, Response};
use axum::middleware::map_request;
use stroboscope_proto::v1::collector_server::CollectorServer;
use stroboscope_proto::v1::gateway_server::GatewayServer;
use tokio::sync::watch;
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;

use super::control::BurstControl;
use super::service::Service;
use super::ship::FORWARD_BYTES;
use super::unknown_method::{self, Strangers};
use crate::ingest::Intake;
use crate::net::{
    FORWARD, Listener, ListenerSetup, PortName, Ports, Rejection, refusal, unpack_messages,
};
use crate::otlp::{Door, LogsService, TraceService};
use crate::redact::Redaction;
use stroboscope_store::limits::Limits;
use stroboscope_store::wal::PAYLOAD_BYTES_MAX;

/// Maximum time for connections to end when the collector stops; the server then cuts them.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Path prefix of the methods of Stroboscope's own services.
const OURS: &str = "/stroboscope.v1.";

/// Addresses to listen on.
#[derive(Clone, Debug)]
pub struct ListenAddresses {
    /// TCP address; port 0 picks a free port.
    pub grpc: SocketAddr,
    /// Path of an additional unix socket.
    pub unix: Option<PathBuf>,
}

/// Reason why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The server cannot listen on the TCP address.
    #[error(
        "cannot listen on {address}: {source}; is another collector running? --listen takes another address"
    )]
    Tcp {
        address: SocketAddr,
        source: std::io::Error,
    },
    /// The server cannot listen on the unix socket.
    #[error("cannot listen on {path}: {source}; --unix takes another path")]
    Unix {
        /// The socket's path.
        path: PathBuf,
        source: std::io::Error,
    },
}

/// A running server; [`Server::stop`] closes its connections gracefully.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    tcp: Listener,
    unix: Option<Listener>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Listens on the addresses and serves their connections.
    ///
    /// # Errors
    /// Returns an error if it cannot listen on a socket.
    pub async fn start(
        doors: Arc<Ports>,
        intake: Intake,
        control: BurstControl,
        limits: Limits,
        redaction: Option<Arc<Redaction>>,
        otlp: Door,
        listen: &ListenAddresses,
    ) -> Result<Self, IngestError> {
        let (stop, stopped) = watch::channel(false);
        let router = router(intake, control, limits, redaction, otlp, stopped);
        let opening = |name| ListenerSetup {
            doors: doors.clone(),
            name,
            router: router.clone(),
            answer: turned_away,
        };
        let unix = match &listen.unix {
            Some(path) => {
                let error = |source| IngestError::Unix {
                    path: path.clone(),
                    source,
                };
                let opened = opening(PortName::Unix).unix(path).await;
                Some(opened.map_err(error)?)
            }
            None => None,
        };
        let error = |source| IngestError::Tcp {
            address: listen.grpc,
            source,
        };
        let opened = opening(PortName::Grpc).tcp(listen.grpc).await;
        let (tcp, address) = opened.map_err(error)?;
        Ok(Self {
            address,
            tcp,
            unix,
            stop,
        })
    }

    /// Serves the connections of a simulated network until the server is dropped.
    #[cfg(feature = "simulation")]
    pub async fn simulated(
        intake: Intake,
        control: BurstControl,
        listener: crate::net::SimulatedListener,
    ) -> Result<Self, crate::net::DoorError> {
        let (stop, stopped) = watch::channel(false);
        let limits = Limits::default();
        let otlp = Door::new(intake.clone(), limits.clone(), None);
        let opening = ListenerSetup {
            doors: Ports::open(crate::net::NetSettings::default())?,
            name: PortName::Grpc,
            router: router(intake, control, limits, None, otlp, stopped),
            answer: turned_away,
        };
        Ok(Self {
            address: SocketAddr::from(([0, 0, 0, 0], 0)),
            tcp: opening.simulated(listener),
            unix: None,
            stop,
        })
    }

    /// Returns the TCP address, with the actual port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Rejects new streams, answers the messages in flight, and ends all streams. Cuts connections
    /// that do not end within 5 seconds.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        let unix = async {
            match self.unix {
                Some(unix) => unix.stop(STOP_PATIENCE).await,
                None => true,
            }
        };
        let (tcp, unix) = tokio::join!(self.tcp.stop(STOP_PATIENCE), unix);
        if !(tcp && unix) {
            tracing::warn!(patience = ?STOP_PATIENCE, "some connections did not end in time and were cut");
        }
    }
}

/// Builds the router with all methods of the port.
fn router(
    intake: Intake,
    control: BurstControl,
    limits: Limits,
    redaction: Option<Arc<Redaction>>,
    otlp: Door,
    stop: watch::Receiver<bool>,
) -> Router {
    let (message_bytes_max, otlp_bytes_max) =
        (limits.message_bytes_max, limits.otlp_request_bytes_max);
    // The port accepts all messages that an agent can have logged. Messages above this collector's
    // own limits are rejected one by one: if one broke the stream, the agent would send it again
    // for ever.
    let forward_bytes_max = PAYLOAD_BYTES_MAX + FORWARD_BYTES;
    let strangers = Strangers::new(intake.counters().clone());
    let service = Service {
        intake,
        control,
        limits,
        redaction,
        otlp: otlp.clone(),
        stop,
    };
    let gateway = GatewayServer::new(service.clone())
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(forward_bytes_max);
    let service = CollectorServer::new(service)
        // Messages arrive here decompressed, but this is how callers learn the supported encodings.
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(message_bytes_max);
    let strangers = axum::Router::new()
        .fallback(unknown_method::answer)
        .with_state(strangers);
    Routes::from(strangers)
        .add_service(service)
        .add_service(gateway)
        .add_service(TraceService::new(otlp.clone()))
        .add_service(LogsService::new(otlp))
        .prepare()
        .into_axum_router()
        .layer(map_request(move |request: Request<Body>| {
            let limit = match request.uri().path() {
                FORWARD => forward_bytes_max,
                path if path.starts_with(OURS) => message_bytes_max,
                _ => otlp_bytes_max,
            };
            ready(unpack_messages(request, limit))
        }))
}

fn turned_away(_: &Parts, denied: &Rejection) -> Response<Body> {
    refusal(denied.status())
}
