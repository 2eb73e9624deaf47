//! TLS: certificate, key, and authorities of accepted client certificates.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig, crypto};

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
