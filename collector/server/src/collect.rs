//! Starts and stops a complete collector. The intake starts before the gRPC and HTTP servers, and
//! stops after them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use stroboscope_burst::BurstConfig;
use tokio::runtime::Handle;

use crate::forward::{Delivery, ForwardSettings, Gateway, GatewayError, Uplink};
use crate::grpc::{BurstControl, IngestError, ListenAddresses, Server};
use crate::http::{HttpError, HttpServer, Pages, ServedSite};
use crate::ingest::{Intake, Options, Stop};
use crate::net::{DoorError, NetSettings, Ports};
use crate::otlp::{Door, OtlpHttpError, OtlpHttpServer};
use crate::redact::{KeyError, RedactSettings};
use stroboscope_store::flush::FlushError;
use stroboscope_store::limits::Limits;
use stroboscope_store::publishing::PublishCounters;
use stroboscope_store::tables::Store;

/// Settings of a collector.
#[derive(Clone, Debug)]
pub struct CollectorSettings {
    pub data: PathBuf,
    /// Addresses that accept batches.
    pub listen: ListenAddresses,
    /// Address that accepts OTLP over HTTP; `None` disables it. The addresses in `listen` accept
    /// OTLP over gRPC.
    pub otlp_http: Option<SocketAddr>,
    /// Address that serves pages; `None` disables them.
    pub http: Option<SocketAddr>,
    /// Factory for the pages of the store, which the address `http` serves too; with `None`, the
    /// collector serves only its own pages.
    pub site: Option<SiteMaker>,
    /// Collectors to which this one forwards as an agent, and whose directives it relays. With
    /// `None`, the collector keeps a store.
    pub forward: Option<ForwardSettings>,
    /// Burst-config of the fleet; with `None`, each process keeps its own until one is set. An
    /// agent ignores this setting.
    pub burst_config: Option<BurstConfig>,
    /// TLS, access control and limits of the ports.
    pub doors: NetSettings,
    /// Rules for the values to drop, hash or mask before they are written.
    pub redact: RedactSettings,
    /// Options of the intake.
    pub intake: Options,
    /// Limits on the content of batches and OTLP requests.
    pub limits: Limits,
    /// Counters for `/metrics`, if the caller publishes this store to an object store.
    pub publishing: Option<Arc<PublishCounters>>,
}

/// Factory for the pages of the store. The collector calls it after it has loaded certificates and
/// tokens and opened the data directory.
#[derive(Clone)]
pub struct SiteMaker(Arc<dyn Fn() -> Result<ServedSite, String> + Send + Sync>);

impl SiteMaker {
    /// Wraps a function. If it returns an error, as text for people, the collector does not start.
    pub fn new(make: impl Fn() -> Result<ServedSite, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl std::fmt::Debug for SiteMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SiteMaker")
    }
}

/// Reason why a collector cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error(transparent)]
    Data(#[from] FlushError),
    /// A setting of the agent cannot be used.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// A file of certificates or tokens cannot be used.
    #[error(transparent)]
    Ports(#[from] DoorError),
    /// The key for hashing values cannot be used or created.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A gRPC socket cannot be opened.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// An HTTP socket for pages or queries cannot be opened.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The HTTP socket for OTLP cannot be opened.
    #[error(transparent)]
    OtlpHttp(#[from] OtlpHttpError),
    /// The pages of the store cannot be created.
    #[error("{0}")]
    Site(String),
    /// The blocking task that opens the data directory did not return.
    #[error("opening the data directory was interrupted")]
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
    /// Servers of services that have a port of their own, with the names of these services.
    ports: Vec<(&'static str, HttpServer)>,
}

impl Collector {
    /// Opens the data directory, recovers the log of an earlier run, and listens.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be opened, for example because it is in use or
    /// damaged, or if the collector cannot listen on an address. Also fails if a setting of the
    /// agent, a certificate, a token or the hash key cannot be used, or if the pages cannot be
    /// created.
    pub async fn start(settings: CollectorSettings) -> Result<Self, CollectorError> {
        let CollectorSettings {
            data,
            listen,
            otlp_http,
            http,
            site,
            forward,
            burst_config,
            doors,
            redact,
            intake,
            limits,
            publishing,
        } = settings;
        let gateways = forward.as_ref().map(Gateway::all).transpose()?;
        let doors = Ports::open(doors)?;
        let runtime = Handle::current();
        let control = match &forward {
            Some(forward) => BurstControl::of_agent(&forward.gateways.join(", ")),
            None => BurstControl::new(burst_config),
        };
        let delivery = gateways.map(|gateways| {
            let uplink = Uplink::start(gateways, control.clone());
            Delivery::new(uplink, runtime.clone())
        });
        let forwarding = delivery.as_ref().map(Delivery::counters);
        let open = move || -> Result<_, CollectorError> {
            let intake = match delivery {
                Some(delivery) => Intake::open_agent(&data, Box::new(delivery), &intake)?,
                None => {
                    let store = Store::local(&data, runtime).map_err(FlushError::from)?;
                    Intake::open(&data, store, &intake)?
                }
            };
            // By now the directory exists and this process owns it.
            Ok((intake, redact.open(&data)?))
        };
        let (intake, redaction) = tokio::task::spawn_blocking(open)
            .await
            .map_err(|_| CollectorError::Interrupted)??;
        let site = site.map(|make| (make.0)()).transpose();
        let site = site.map_err(CollectorError::Site)?;
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
                    forwarding,
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

    /// Returns the TCP address that accepts batches.
    #[must_use]
    pub fn grpc_address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the address that accepts OTLP over HTTP; `None` if it is disabled.
    #[must_use]
    pub fn otlp_http_address(&self) -> Option<SocketAddr> {
        self.otlp_http.as_ref().map(OtlpHttpServer::address)
    }

    /// Returns the address that serves pages; `None` if they are disabled.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(HttpServer::address)
    }

    /// Returns the name and address of each service with a port of its own.
    pub fn ports(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        self.ports
            .iter()
            .map(|(name, server)| (*name, server.address()))
    }

    /// Returns the intake, for reading its counters or flushing it.
    #[must_use]
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Returns the control of the fleet's burst-config.
    #[must_use]
    pub fn control(&self) -> &BurstControl {
        &self.control
    }

    /// Stops accepting requests and answers those in flight for some seconds. Then it flushes the
    /// log to the store (an agent forwards it), or leaves it for the next start, as `how`
    /// specifies.
    ///
    /// # Errors
    /// Returns an error if the last flush failed or a thread panicked. Acknowledged data that were
    /// not flushed or forwarded are then still in the log.
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
