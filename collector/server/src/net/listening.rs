//! A port: a listening socket and its connections.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tonic::transport::server::TcpConnectInfo;

use super::admission::Way;
use super::connection::{Answer, Visitor, Visits, until_true};
use super::ports::Ports;
use super::rejections::{PortName, RejectionCause};
use super::tls::is_about_client;
use crate::pool::{Lack, Peer, Pool, Share};

/// Pause before accepting again after an error that concerns more than one client, such as when the
/// system has no sockets left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running port.
#[derive(Debug)]
pub(crate) struct Listener {
    unix: Option<PathBuf>,
    stop: watch::Sender<bool>,
    accepting: JoinSet<()>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
    #[cfg(feature = "simulation")]
    Simulated(SimulatedListener),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "simulation")]
    Simulated(SimulatedStream),
}

/// A connection of a simulated network.
#[cfg(feature = "simulation")]
pub trait SimulatedConnection: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

#[cfg(feature = "simulation")]
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> SimulatedConnection for T {}

#[cfg(feature = "simulation")]
pub type SimulatedStream = Box<dyn SimulatedConnection>;
/// Receiver of simulated connections, with the addresses of their peers.
#[cfg(feature = "simulation")]
pub type SimulatedListener = tokio::sync::mpsc::Receiver<(SimulatedStream, SocketAddr)>;

/// A port that is about to open.
#[derive(Debug)]
pub(crate) struct ListenerSetup {
    pub(crate) doors: Arc<Ports>,
    pub(crate) name: PortName,
    pub(crate) router: Router,
    /// Builds the responses to rejected requests.
    pub(crate) answer: Answer,
}

impl ListenerSetup {
    /// Listens and serves; port 0 picks a free port. The returned address has the actual port.
    pub(crate) async fn tcp(self, address: SocketAddr) -> io::Result<(Listener, SocketAddr)> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let is_loopback = address.ip().to_canonical().is_loopback();
        let listening = self.start(Socket::Tcp(listener), is_loopback, None);
        Ok((listening, address))
    }

    /// Listens on a unix socket.
    pub(crate) async fn unix(self, path: &Path) -> io::Result<Listener> {
        let listener = bind_unix(path).await?;
        Ok(self.start(Socket::Unix(listener), true, Some(path.to_owned())))
    }

    /// Accepts the connections of a simulated network.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(self, listener: SimulatedListener) -> Listener {
        self.start(Socket::Simulated(listener), false, None)
    }

    fn start(self, socket: Socket, is_loopback: bool, unix: Option<PathBuf>) -> Listener {
        let (stop, stopped) = watch::channel(false);
        let visits = Visits {
            requests: Pool::new(self.doors.requests_max()),
            doors: self.doors,
            way: Way {
                door: self.name,
                is_loopback,
            },
            router: self.router,
            answer: self.answer,
        };
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(socket, visits, stopped));
        Listener {
            unix,
            stop,
            accepting,
        }
    }
}

impl Listener {
    /// Answers requests in flight for up to `patience`, then closes all connections. Returns true
    /// if all connections ended in that time.
    pub(crate) async fn stop(mut self, patience: Duration) -> bool {
        self.stop.send_replace(true);
        let ended = tokio::time::timeout(patience, self.accepting.join_next());
        let is_in_order = ended.await.is_ok();
        if let Some(path) = &self.unix {
            // The file may have been removed already.
            let _ = std::fs::remove_file(path);
        }
        is_in_order
    }
}

/// Accepts connections until the port closes, and then waits for their end.
async fn accept(mut socket: Socket, visits: Visits, stopped: watch::Receiver<bool>) {
    let connections = Pool::new(visits.doors.settings.connections_max);
    let mut visiting = JoinSet::new();
    let mut shut = pin!(until_true(stopped.clone()));
    loop {
        tokio::select! {
            () = &mut shut => break,
            Some(_) = visiting.join_next(), if !visiting.is_empty() => {}
            accepted = socket.accept() => match accepted {
                Ok((stream, visitor)) => match connections.lend(visitor.peer, 1) {
                    Ok(share) => {
                        let (visits, stopped) = (visits.clone(), stopped.clone());
                        visiting.spawn(visit(visits, stream, visitor, stopped, share));
                    }
                    Err(Lack::Pool) => visits.refuse(RejectionCause::Connections, &visitor),
                    Err(Lack::Peer) => visits.refuse(RejectionCause::PeerConnections, &visitor),
                },
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    visits.doors.refused.count(visits.way.door, RejectionCause::Accept, &error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(socket);
    while visiting.join_next().await.is_some() {}
}

/// Reports whether an error of `accept` concerns only one client, which is gone, or is an
/// interruption. The next `accept` may then follow at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

async fn visit(
    visits: Visits,
    stream: Stream,
    visitor: Visitor,
    stopped: watch::Receiver<bool>,
    _share: Share,
) {
    let stream = match stream {
        Stream::Unix(stream) => return visits.serve(stream, visitor, stopped).await,
        #[cfg(feature = "simulation")]
        Stream::Simulated(stream) => return visits.serve(stream, visitor, stopped).await,
        Stream::Tcp(stream) => stream,
    };
    // Many responses are small. Without TCP_NODELAY, they may wait 40 ms for the acknowledgement of
    // the previous packet. A failure only costs speed.
    let _ = stream.set_nodelay(true);
    let Some(config) = visits.tls() else {
        return visits.serve(stream, visitor, stopped).await;
    };
    let shaken = TlsAcceptor::from(config).accept(stream);
    match tokio::time::timeout(visits.doors.settings.request_timeout, shaken).await {
        Ok(Ok(stream)) => visits.serve(stream, visitor, stopped).await,
        Ok(Err(error)) if is_about_client(&error) => {
            visits.refuse(RejectionCause::ClientCertificate, &visitor);
        }
        Ok(Err(_)) => visits.refuse(RejectionCause::TlsHandshake, &visitor),
        Err(_) => visits.refuse(RejectionCause::TlsTimeout, &visitor),
    }
}

impl Visits {
    /// Returns the TLS configuration for a connection that begins now; `None` if TLS is disabled.
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        let secrets = self.doors.secrets();
        secrets.tls.as_ref().map(|configs| match self.way.door {
            PortName::Grpc | PortName::Unix | PortName::Worker => configs.http2.clone(),
            PortName::OtlpHttp | PortName::Pages => configs.http.clone(),
        })
    }
}

impl Socket {
    async fn accept(&mut self) -> io::Result<(Stream, Visitor)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                let tcp = TcpConnectInfo {
                    local_addr: stream.local_addr().ok(),
                    remote_addr: Some(address),
                };
                let peer = Peer::of(Some(address.ip()));
                let tcp = Some(tcp);
                Ok((Stream::Tcp(stream), Visitor { peer, tcp }))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = Peer::of(None);
                Ok((Stream::Unix(stream), Visitor { peer, tcp: None }))
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(listener) => {
                let Some((stream, address)) = listener.recv().await else {
                    return std::future::pending().await;
                };
                let peer = Peer::of(Some(address.ip()));
                Ok((Stream::Simulated(stream), Visitor { peer, tcp: None }))
            }
        }
    }
}

/// Binds a unix socket. Replaces the socket file that a dead process left behind. Returns an error
/// if a process listens on it, or if the file is not a socket.
async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(in_use) if in_use.kind() == io::ErrorKind::AddrInUse => {
            // Linux also refuses connections to a file that is not a socket.
            if !std::fs::metadata(path)?.file_type().is_socket() {
                let why = "the file exists and is not a socket";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
            match UnixStream::connect(path).await {
                Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {}
                _ => return Err(in_use),
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}
