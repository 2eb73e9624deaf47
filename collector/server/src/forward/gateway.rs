//! Addresses of gateways, the collectors that an agent forwards to, with authority and token.

use std::path::PathBuf;
use std::time::Duration;

use stroboscope_proto::v1::collector_client::CollectorClient;
use stroboscope_proto::v1::gateway_client::GatewayClient;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

/// Maximum time for connecting, including name resolution and the TLS handshake. The limit also
/// applies to further waits for a gateway, such as for an open stream.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Maximum size of a directive, in bytes. The largest directives are tradeoff policies.
const DIRECTIVE_BYTES_MAX: usize = 4 << 20;

/// Settings of an agent, or of another program that follows a collector's burst-config.
#[derive(Clone, Debug)]
pub struct ForwardSettings {
    /// Addresses in the form `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`. The agent
    /// uses one at a time.
    pub gateways: Vec<String>,
    /// PEM file of the authority that signed the certificates of `https` gateways; with `None`, the
    /// agent trusts the system's authorities. The agent reads the file again for each connection.
    pub ca: Option<PathBuf>,
    /// Command-line flag that sets the gateways, for error messages. The flags of the other
    /// settings begin with it.
    pub flag: &'static str,
    /// File of the token for the gateways; with `None`, the agent sends no token. The agent reads
    /// the file again for each connection.
    pub token: Option<PathBuf>,
}

/// Reason why an agent cannot use its settings.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GatewayError {
    #[error(
        "{flag} {address:?}: {problem}; write http://HOST:PORT, https://HOST:PORT or unix:/PATH"
    )]
    Address {
        flag: &'static str,
        address: String,
        problem: String,
    },
    #[error("{flag}-ca {path}: {problem}")]
    Ca {
        flag: &'static str,
        path: PathBuf,
        problem: String,
    },
    #[error("{flag}-token-file {path}: {problem}")]
    Token {
        flag: &'static str,
        path: PathBuf,
        problem: String,
    },
    #[error("{flag}-ca needs an https address")]
    CaWithoutTls { flag: &'static str },
}

/// A gateway that an agent may forward to.
#[derive(Clone, Debug)]
pub struct Gateway {
    pub(super) address: String,
    endpoint: Endpoint,
    flag: &'static str,
    /// File of the authority, if the address is `https`.
    ca: Option<PathBuf>,
    token: Option<PathBuf>,
    /// True for a unix socket or loopback address: compression then costs more than it saves.
    is_near: bool,
    #[cfg(feature = "simulation")]
    connector: Option<stroboscope::simulation::Connector>,
}

/// Connection to a gateway. It sends the token, if any, with each call.
#[derive(Clone, Debug)]
pub(super) struct Client {
    channel: InterceptedService<Channel, Authorization>,
    is_near: bool,
}

impl Client {
    /// Returns the client of the service that sends directives.
    pub(super) fn control(&self) -> CollectorClient<InterceptedService<Channel, Authorization>> {
        CollectorClient::new(self.channel.clone()).max_decoding_message_size(DIRECTIVE_BYTES_MAX)
    }

    /// Returns the client of the service that receives data.
    pub(super) fn data(&self) -> GatewayClient<InterceptedService<Channel, Authorization>> {
        let client = GatewayClient::new(self.channel.clone());
        match self.is_near {
            true => client,
            false => client.send_compressed(CompressionEncoding::Zstd),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Authorization(Option<MetadataValue<Ascii>>);

impl Interceptor for Authorization {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

impl Gateway {
    /// Creates a gateway for each address. Checks all settings, including the files of the
    /// authority and the token.
    ///
    /// # Errors
    /// Returns an error for the first setting that cannot be used.
    pub fn all(settings: &ForwardSettings) -> Result<Vec<Self>, GatewayError> {
        let is_tls = |address: &String| address.starts_with("https://");
        if settings.ca.is_some() && !settings.gateways.iter().any(is_tls) {
            return Err(GatewayError::CaWithoutTls {
                flag: settings.flag,
            });
        }
        let gateways = settings.gateways.iter();
        gateways
            .map(|address| Self::of(address, settings))
            .collect()
    }

    fn of(address: &str, settings: &ForwardSettings) -> Result<Self, GatewayError> {
        let wrong = |problem: &str| GatewayError::Address {
            flag: settings.flag,
            address: address.to_owned(),
            problem: problem.to_owned(),
        };
        let endpoint =
            Endpoint::from_shared(address.to_owned()).map_err(|error| wrong(&error.to_string()))?;
        let (is_unix, uri) = (address.starts_with("unix:"), endpoint.uri());
        let is_near = is_unix || uri.host().is_some_and(is_loopback);
        let endpoint = match uri.scheme_str() {
            _ if is_unix => endpoint,
            Some("http" | "https") if uri.port().is_none() => {
                return Err(wrong("it has no port"));
            }
            Some("http") => endpoint,
            Some("https") if settings.ca.is_some() => endpoint,
            Some("https") => endpoint
                .tls_config(ClientTlsConfig::new().with_native_roots())
                .map_err(|error| wrong(&chain(&error)))?,
            Some(other) => return Err(wrong(&format!("the scheme {other:?} is not supported"))),
            None => return Err(wrong("it has no scheme")),
        };
        let gateway = Self {
            address: address.to_owned(),
            endpoint: endpoint
                .connect_timeout(CONNECT_MAX)
                .http2_keep_alive_interval(Duration::from_secs(10))
                .keep_alive_timeout(Duration::from_secs(5))
                .keep_alive_while_idle(true),
            flag: settings.flag,
            ca: settings
                .ca
                .clone()
                .filter(|_| address.starts_with("https:")),
            token: settings.token.clone(),
            is_near,
            #[cfg(feature = "simulation")]
            connector: None,
        };
        gateway.authorization()?;
        gateway.current_endpoint()?;
        Ok(gateway)
    }

    fn authorization(&self) -> Result<Authorization, GatewayError> {
        let Some(path) = &self.token else {
            return Ok(Authorization(None));
        };
        let wrong = |problem: String| GatewayError::Token {
            flag: self.flag,
            path: path.clone(),
            problem,
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let token = text.trim();
        // The error never includes the token itself.
        let mut value = MetadataValue::try_from(format!("Bearer {token}"))
            .ok()
            .filter(|_| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or_else(|| wrong("it must contain one token, without spaces".to_owned()))?;
        value.set_sensitive(true);
        Ok(Authorization(Some(value)))
    }

    /// Creates a gateway that is reached over a simulated network.
    ///
    /// # Errors
    /// Returns an error if the address cannot be used.
    #[cfg(feature = "simulation")]
    pub fn simulated(
        address: &str,
        connector: stroboscope::simulation::Connector,
    ) -> Result<Self, GatewayError> {
        let settings = ForwardSettings {
            gateways: vec![address.to_owned()],
            flag: "--forward",
            ca: None,
            token: None,
        };
        Ok(Self {
            connector: Some(connector),
            ..Self::of(address, &settings)?
        })
    }

    /// Returns the endpoint with the certificates that the authority's file has now.
    fn current_endpoint(&self) -> Result<Endpoint, GatewayError> {
        let Some(path) = &self.ca else {
            return Ok(self.endpoint.clone());
        };
        let wrong = |problem: String| GatewayError::Ca {
            flag: self.flag,
            path: path.clone(),
            problem,
        };
        let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        // tonic would accept a file without a certificate, and then trust no gateway.
        if !String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----") {
            return Err(wrong("it contains no PEM certificate".to_owned()));
        }
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
        let endpoint = self.endpoint.clone().tls_config(tls);
        endpoint.map_err(|error| wrong(chain(&error)))
    }

    async fn channel(&self, endpoint: Endpoint) -> Result<Channel, tonic::transport::Error> {
        #[cfg(feature = "simulation")]
        if let Some(connector) = self.connector.clone() {
            return endpoint.connect_with_connector(connector).await;
        }
        endpoint.connect().await
    }

    /// Connects with the token and the authority that their files hold now. The error is text for
    /// people.
    pub(super) async fn connect(&self) -> Result<Client, String> {
        let authorization = self.authorization().map_err(|error| error.to_string())?;
        let endpoint = self.current_endpoint().map_err(|error| error.to_string())?;
        let connected = tokio::time::timeout(CONNECT_MAX, self.channel(endpoint)).await;
        let channel = connected
            .map_err(|_| format!("waited {} s for it", CONNECT_MAX.as_secs()))
            .and_then(|connected| connected.map_err(|error| chain(&error)))
            .map_err(|problem| format!("no connection to {}: {problem}", self.address))?;
        Ok(Client {
            channel: InterceptedService::new(channel, authorization),
            is_near: self.is_near,
        })
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Joins an error and its causes into one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
