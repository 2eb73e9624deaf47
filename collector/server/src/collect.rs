//! A whole collector: intake, gRPC and HTTP, started and stopped in the right order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use stroboscope_burst::BurstConfig;
use tokio::runtime::Handle;

use crate::doors::{DoorError, DoorSettings, Doors};
use crate::http::{HttpError, HttpServer, Pages, ServedSite};
use crate::ingest::{BurstControl, IngestError, ListenAddresses, Server};
use crate::intake::{Intake, Options, Stop};
use crate::otlp::{Door, OtlpHttpError, OtlpHttpServer};
use crate::redact::{KeyError, RedactSettings};
use stroboscope_store::flush::FlushError;
use stroboscope_store::limits::Limits;
use stroboscope_store::publishing::PublishCounters;
use stroboscope_store::tables::Store;

/// What to start.
#[derive(Clone, Debug)]
pub struct CollectorSettings {
    pub data: PathBuf,
    /// Where to take batches.
    pub listen: ListenAddresses,
    /// Where to take OTLP over HTTP; none: nowhere. Over gRPC it is taken where batches are.
    pub otlp_http: Option<SocketAddr>,
    /// Where to serve pages; none: nowhere.
    pub http: Option<SocketAddr>,
    /// Makes the pages of the store that are served there as well.
    pub site: Option<SiteMaker>,
    /// The fleet's burst-config; none: each process keeps its own.
    pub burst_config: Option<BurstConfig>,
    /// Who may come in, and how much at once.
    pub doors: DoorSettings,
    /// What is dropped or hashed before it is written.
    pub redact: RedactSettings,
    /// How the intake runs.
    pub intake: Options,
    /// What batches may hold.
    pub limits: Limits,
    /// What its caller publishes of its store, for the metrics.
    pub publishing: Option<Arc<PublishCounters>>,
}

/// Makes pages, once it is certain who may see them and the data folder is there, and this collector's.
#[derive(Clone)]
pub struct SiteMaker(Arc<dyn Fn() -> Result<ServedSite, String> + Send + Sync>);

impl SiteMaker {
    /// By this function, whose error says why there are none.
    pub fn new(make: impl Fn() -> Result<ServedSite, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl std::fmt::Debug for SiteMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SiteMaker")
    }
}

/// Why a collector cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error(transparent)]
    Data(#[from] FlushError),
    /// Certificates and tokens.
    #[error(transparent)]
    Doors(#[from] DoorError),
    /// The key by which values are hashed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The gRPC sockets.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// The HTTP socket.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The one for OTLP.
    #[error(transparent)]
    OtlpHttp(#[from] OtlpHttpError),
    /// The pages of the store.
    #[error("{0}")]
    Site(String),
    /// The blocking task that opens the data folder did not come back.
    #[error("opening the data folder was interrupted")]
    Interrupted,
}

/// A running collector.
#[derive(Debug)]
pub struct Collector {
    intake: Intake,
    control: BurstControl,
    server: Server,
    otlp_http: Option<OtlpHttpServer>,
    http: Option<HttpServer>,
    /// By what each is for.
    ports: Vec<(&'static str, HttpServer)>,
}

impl Collector {
    /// Opens the data folder, recovers what an earlier run left in the log, and listens.
    ///
    /// # Errors
    /// When the folder is in use or damaged, or an address is taken.
    pub async fn start(settings: CollectorSettings) -> Result<Self, CollectorError> {
        let CollectorSettings {
            data,
            listen,
            otlp_http,
            http,
            site,
            burst_config,
            doors,
            redact,
            intake,
            limits,
            publishing,
        } = settings;
        let doors = Doors::open(doors).await?;
        let runtime = Handle::current();
        let open = move || -> Result<_, CollectorError> {
            let store = Store::local(&data, runtime).map_err(FlushError::from)?;
            let intake = Intake::open(&data, store, &intake)?;
            // Now the folder is there, and nobody else's.
            Ok((intake, redact.open(&data)?))
        };
        let (intake, redaction) = tokio::task::spawn_blocking(open)
            .await
            .map_err(|_| CollectorError::Interrupted)??;
        let site = site.map(|make| (make.0)()).transpose();
        let site = site.map_err(CollectorError::Site)?;
        let control = BurstControl::new(burst_config);
        let door = Door::new(intake.clone(), limits.clone(), redaction.clone());
        let server = Server::start(
            doors.clone(),
            intake.clone(),
            control.clone(),
            limits,
            redaction.clone(),
            door.clone(),
            &listen,
        )
        .await?;
        let grpc_port = server.address().port();
        let otlp_http = match otlp_http {
            Some(address) => {
                let started = OtlpHttpServer::start(doors.clone(), address, door, grpc_port);
                Some(started.await?)
            }
            None => None,
        };
        let mut ports = Vec::new();
        for port in site.iter().flat_map(|site| &site.ports) {
            let started = HttpServer::start_port(port.clone(), doors.clone()).await?;
            ports.push((port.name, started));
        }
        let http = match http {
            Some(address) => {
                let (intake, control) = (intake.clone(), control.clone());
                let pages = Pages {
                    site,
                    intake,
                    control,
                    doors,
                    redaction,
                    grpc_port,
                    publishing,
                };
                Some(HttpServer::start(address, pages).await?)
            }
            None => None,
        };
        Ok(Self {
            intake,
            control,
            server,
            otlp_http,
            http,
            ports,
        })
    }

    /// Where it takes batches.
    #[must_use]
    pub fn grpc_address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Where it takes OTLP over HTTP.
    #[must_use]
    pub fn otlp_http_address(&self) -> Option<SocketAddr> {
        self.otlp_http.as_ref().map(OtlpHttpServer::address)
    }

    /// Where it serves pages.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(HttpServer::address)
    }

    /// What has a port of its own, and where.
    pub fn ports(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        self.ports
            .iter()
            .map(|(name, server)| (*name, server.address()))
    }

    /// Its intake, to look at counters or to flush.
    #[must_use]
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// The fleet's burst-config.
    #[must_use]
    pub fn control(&self) -> &BurstControl {
        &self.control
    }

    /// Takes nothing new, answers what is in flight, and puts everything into the store (or leaves it in the log).
    ///
    /// # Errors
    /// When the last flush failed; then everything acknowledged is still in the log.
    pub async fn stop(self, how: Stop) -> Result<(), String> {
        self.server.stop().await;
        if let Some(otlp) = self.otlp_http {
            otlp.stop().await;
        }
        if let Some(http) = self.http {
            http.stop().await;
        }
        for (_, port) in self.ports {
            port.stop().await;
        }
        self.intake.stop(how).await
    }
}
