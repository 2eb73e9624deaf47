//! Parses the collector's address (`http://`, `https://` or `unix:`), and applies the certificate
//! authority and the token.

#[cfg(feature = "simulation")]
pub(crate) mod simulated;

use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::config::{Address, InitError, Token};

/// Validated destination of batches.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    /// Configured address, for log and error messages.
    pub(crate) address: String,
    pub(crate) endpoint: Endpoint,
    /// Address whose certificate authority is in a file, which is read again for each connection.
    with_authority: Option<Address>,
    pub(crate) authorization: Authorization,
    /// True for a Unix socket or a loopback host: on one machine, compression costs the service
    /// more than it saves.
    pub(crate) is_near: bool,
    #[cfg(feature = "simulation")]
    pub(crate) connector: Option<simulated::Connector>,
}

impl Destination {
    /// Connects via the system's network, or via the simulation's.
    pub(crate) async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        #[cfg(feature = "simulation")]
        if let Some(connector) = self.connector.clone() {
            return self.endpoint.connect_with_connector(connector).await;
        }
        self.current_endpoint().connect().await
    }

    /// Returns the endpoint, with the certificates now in the authority's file if there is one, so
    /// that a new authority needs no restart of the service. While the file is unusable, the
    /// endpoint has the certificates read at the start.
    fn current_endpoint(&self) -> Endpoint {
        let current = self.with_authority.as_ref();
        let current = current.and_then(|address| address.with_tls(self.endpoint.clone()).ok());
        current.unwrap_or_else(|| self.endpoint.clone())
    }
}

/// Adds the token, if any, to every call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Authorization(Option<MetadataValue<Ascii>>);

/// Connection whose calls pass through an [`Authorization`].
pub(crate) type AuthorizedChannel = InterceptedService<Channel, Authorization>;

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

impl Address {
    pub(crate) fn resolve(&self) -> Result<Destination, InitError> {
        let authorization = self.authorization()?;
        let wrong = |problem: &str| InitError::Collector {
            address: self.text.clone(),
            problem: problem.to_owned(),
        };
        let endpoint =
            Endpoint::from_shared(self.text.clone()).map_err(|error| wrong(&error.to_string()))?;
        let uri = endpoint.uri();
        let scheme = if self.text.starts_with("unix:") {
            Some("unix")
        } else {
            uri.scheme_str()
        };
        let is_near = scheme == Some("unix") || uri.host().is_some_and(is_loopback);
        let endpoint = match scheme {
            Some("unix") if !crate::sys::HAS_UNIX_SOCKETS => {
                return Err(wrong(
                    "this system has no unix sockets; write http://HOST:PORT",
                ));
            }
            Some("unix")
                if self
                    .text
                    .trim_start_matches("unix:")
                    .trim_matches('/')
                    .is_empty() =>
            {
                return Err(wrong("it has no path"));
            }
            Some("http" | "https") if uri.authority().is_none() => {
                return Err(wrong("it has no host"));
            }
            Some("https") => self.with_tls(endpoint)?,
            Some("http" | "unix") if self.ca.is_none() => endpoint,
            Some("http" | "unix") => {
                let problem = format!("the collector's address {:?} is not https", self.text);
                return Err(self.ca_error(problem));
            }
            Some(other) => return Err(wrong(&format!("the scheme {other:?} is not supported"))),
            None => return Err(wrong("it has no scheme")),
        };
        let endpoint = endpoint
            .connect_timeout(Duration::from_secs(2))
            // The limit leaves room for a gRPC status and its message, which arrive in headers.
            .http2_max_header_list_size(16 << 10)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true);
        Ok(Destination {
            address: self.text.clone(),
            endpoint,
            with_authority: self.ca.is_some().then(|| self.clone()),
            authorization,
            is_near,
            #[cfg(feature = "simulation")]
            connector: None,
        })
    }

    fn authorization(&self) -> Result<Authorization, InitError> {
        let Some(Token(token)) = &self.token else {
            return Ok(Authorization(None));
        };
        // The error never includes the token itself.
        let mut value = MetadataValue::try_from(format!("Bearer {}", token.trim()))
            .ok()
            .filter(|_| token.trim().bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or(InitError::Token)?;
        value.set_sensitive(true);
        Ok(Authorization(Some(value)))
    }

    fn ca_error(&self, problem: String) -> InitError {
        InitError::Ca {
            path: self.ca.clone().unwrap_or_default(),
            problem,
        }
    }

    #[cfg(feature = "tls")]
    fn with_tls(&self, endpoint: Endpoint) -> Result<Endpoint, InitError> {
        use tonic::transport::{Certificate, ClientTlsConfig};
        let tls = match &self.ca {
            None => ClientTlsConfig::new().with_native_roots(),
            Some(path) => {
                let pem = std::fs::read(path).map_err(|error| self.ca_error(error.to_string()))?;
                // tonic would accept a file without a certificate, and then trust no collector.
                if !String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----") {
                    return Err(self.ca_error("it holds no certificate in PEM form".to_owned()));
                }
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
            }
        };
        endpoint.tls_config(tls).map_err(|error| match &self.ca {
            Some(_) => self.ca_error(chain(&error)),
            None => InitError::Collector {
                address: self.text.clone(),
                problem: chain(&error),
            },
        })
    }

    #[cfg(not(feature = "tls"))]
    fn with_tls(&self, _: Endpoint) -> Result<Endpoint, InitError> {
        Err(InitError::Collector {
            address: self.text.clone(),
            problem:
                "https needs the feature `tls` of the crate `stroboscope`, which this build lacks"
                    .to_owned(),
        })
    }
}

/// Reports whether a host is `localhost` or a loopback address.
fn is_loopback(host: &str) -> bool {
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Joins an error and its causes, separated by colons.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_machine_itself_is_near() {
        for host in [
            "localhost",
            "LocalHost",
            "127.0.0.1",
            "127.9.9.9",
            "[::1]",
            "::1",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "collector",
            "10.0.0.1",
            "localhost.example",
            "[2001:db8::1]",
            "0.0.0.0",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    fn check(text: &str, token: Option<&str>, ca: Option<&str>, expected: Result<(), &str>) {
        let address = Address {
            text: text.to_owned(),
            token: token.map(|token| Token(token.to_owned())),
            ca: ca.map(PathBuf::from),
        };
        match (address.resolve(), expected) {
            (Ok(destination), Ok(())) => {
                assert_eq!(destination.address, text);
                assert!(!format!("{destination:?} {address:?}").contains("s3cret"));
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
            (got, _) => panic!("{text}: {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn addresses() {
        check("http://127.0.0.1:4317", None, None, Ok(()));
        check("http://collector", Some("s3cret"), None, Ok(()));
        if crate::sys::HAS_UNIX_SOCKETS {
            check("unix:/run/stroboscope.sock", Some("s3cret"), None, Ok(()));
            check("unix:///run/stroboscope.sock", None, None, Ok(()));
            check("unix:", None, None, Err("it has no path"));
            check("unix:///", None, None, Err("it has no path"));
        } else {
            check(
                "unix:/run/stroboscope.sock",
                None,
                None,
                Err("this system has no unix sockets"),
            );
        }
        check("localhost:4317", None, None, Err("scheme"));
        check("/run/sock", None, None, Err("write http://HOST:PORT"));
        check(
            "http://c",
            Some("two words"),
            None,
            Err("STROBOSCOPE_TOKEN"),
        );
        check(
            "http://c",
            Some("s3cret\u{e9}"),
            None,
            Err("STROBOSCOPE_TOKEN"),
        );
        check(
            "http://c",
            None,
            Some("/ca.pem"),
            Err("STROBOSCOPE_CA: file \"/ca.pem\": the collector's address"),
        );
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn https_says_which_feature_it_needs() {
        check("https://collector:4317", None, None, Err("feature `tls`"));
    }

    #[test]
    #[cfg(feature = "tls")]
    fn certificate_files_are_read_at_once() {
        check("https://collector:4317", None, None, Ok(()));
        check(
            "https://collector:4317",
            None,
            Some("/nowhere/ca.pem"),
            Err("STROBOSCOPE_CA: file \"/nowhere/ca.pem\": No such file"),
        );
        check(
            "https://collector:4317",
            None,
            Some(file!()),
            Err("STROBOSCOPE_CA"),
        );
    }
}
