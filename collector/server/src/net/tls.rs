//! TLS of ports (certificate, key, and authorities of accepted client certificates) and of clients
//! of such ports.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, Error, RootCertStore, ServerConfig, StreamOwned, crypto,
};

/// Paths of the PEM files for TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate and its intermediates.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities of client certificates; with `None`, clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// Contents of the PEM files.
pub(super) struct TlsTexts<'a> {
    pub(super) certificate: &'a [u8],
    pub(super) key: &'a [u8],
    pub(super) client_ca: Option<&'a [u8]>,
}

/// Error in the PEM files. It never contains the key.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BadTls {
    #[error("the file of --tls-cert contains no PEM certificate")]
    NoCertificate,
    #[error("the file of --tls-key contains no unencrypted PEM private key")]
    NoKey,
    #[error("the file of --tls-client-ca contains no PEM certificate")]
    NoClientCa,
    #[error("certificate and key cannot be used: {0}")]
    Unusable(String),
}

/// Reason why a client cannot use TLS.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TlsClientError {
    #[error("the file contains no PEM certificate")]
    NoAuthority,
    #[error("the system has no certificate authorities")]
    NoSystemAuthority,
    #[error(transparent)]
    Tls(#[from] Error),
}

/// TLS of clients of a collector's HTTP port.
#[derive(Clone, Debug)]
pub struct TlsClient(Arc<ClientConfig>);

impl TlsClient {
    /// Creates a client that trusts the authorities in `ca`, as PEM, or else those of the system.
    ///
    /// # Errors
    /// Returns an error if there are no authorities, or if one in `ca` is invalid.
    pub fn new(ca: Option<&[u8]>) -> Result<Self, TlsClientError> {
        let mut roots = RootCertStore::empty();
        match ca {
            Some(pem) => {
                for authority in certificates(pem).ok_or(TlsClientError::NoAuthority)? {
                    roots.add(authority)?;
                }
            }
            None => {
                // Some certificates of a system may be unreadable.
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
                if roots.is_empty() {
                    return Err(TlsClientError::NoSystemAuthority);
                }
            }
        }
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Encrypts a connection to the server `host`, a name or an IP address, whose certificate must
    /// be for it. The handshake happens at the first read or write.
    ///
    /// # Errors
    /// Returns an error if `host` is neither a name nor an IP address.
    pub fn encrypt(
        &self,
        host: &str,
        connection: TcpStream,
    ) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
        let client = ClientConnection::new(self.0.clone(), name).map_err(std::io::Error::other)?;
        Ok(StreamOwned::new(client, connection))
    }
}

/// TLS configurations, one for each set of protocols.
#[derive(Clone, Debug)]
pub(super) struct TlsConfigs {
    /// Configuration that offers HTTP/1.1 and HTTP/2.
    pub(super) http: Arc<ServerConfig>,
    /// Configuration that offers only HTTP/2, for gRPC.
    pub(super) http2: Arc<ServerConfig>,
}

impl TlsConfigs {
    pub(super) fn of(texts: &TlsTexts<'_>) -> Result<Self, BadTls> {
        Ok(Self {
            http: Arc::new(config(texts, &[b"h2", b"http/1.1"])?),
            http2: Arc::new(config(texts, &[b"h2"])?),
        })
    }
}

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty())
}

fn config(texts: &TlsTexts<'_>, protocols: &[&[u8]]) -> Result<ServerConfig, BadTls> {
    let unusable = |error: String| BadTls::Unusable(error);
    let chain = certificates(texts.certificate).ok_or(BadTls::NoCertificate)?;
    let key = PrivateKeyDer::from_pem_slice(texts.key).map_err(|_| BadTls::NoKey)?;
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    let builder = match texts.client_ca {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(pem).ok_or(BadTls::NoClientCa)? {
                let added = roots.add(authority);
                added.map_err(|error| unusable(error.to_string()))?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder
                .with_client_cert_verifier(verifier.map_err(|error| unusable(error.to_string()))?)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| unusable(error.to_string()))?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    // A client that resumes a session does not present its certificate again, which may have
    // expired since.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Reports whether a handshake failed because the client certificate was missing or invalid.
pub(super) fn is_about_client(error: &std::io::Error) -> bool {
    let tls = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<Error>());
    matches!(
        tls,
        Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented)
    )
}
