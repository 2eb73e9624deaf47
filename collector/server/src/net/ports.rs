//! State that all ports of a collector, or of another server, share. Reloads the files of
//! certificates and tokens when they change.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_blocking};

use super::attempts::Attempts;
use super::cors::CorsOrigin;
use super::rejections::RejectionCounters;
use super::tls::{BadTls, TlsConfigs, TlsFiles, TlsTexts};
use super::tokens::{BadTokens, Tokens};
use crate::pool::Pool;

/// Interval between checks of the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum size of each file, in bytes; a larger file is an error.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum open requests of a port, per allowed connection. A process with our SDK has two: its
/// ship stream and its control stream.
const REQUESTS_PER_CONNECTION: usize = 4;

/// Access control and limits of the ports.
#[derive(Clone, Debug)]
pub struct NetSettings {
    /// TLS files of all TCP ports; `None` disables TLS.
    pub tls: Option<TlsFiles>,
    /// File of tokens; with `None`, requests need no token.
    pub tokens: Option<PathBuf>,
    /// Host names under which requests may reach this collector, in addition to `localhost` and IP
    /// addresses.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may send OTLP over HTTP, in addition to the port's own.
    pub cors_origins: Vec<CorsOrigin>,
    /// Maximum connections of each port.
    pub connections_max: usize,
    /// Maximum time for a TLS handshake, for the head of a request (over HTTP/2, only of the
    /// first), and for its body (or one message of a stream).
    pub request_timeout: Duration,
    /// Maximum bytes of requests that are arriving or being checked.
    pub reading_bytes_max: usize,
}

impl Default for NetSettings {
    fn default() -> Self {
        Self {
            tls: None,
            tokens: None,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            connections_max: 1_024,
            request_timeout: Duration::from_secs(30),
            reading_bytes_max: 256 << 20,
        }
    }
}

/// Error in reading the files of certificates or tokens.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    #[error("cannot read {path}: {source}")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path}: {problem}")]
    Tokens { path: PathBuf, problem: BadTokens },
    #[error("TLS: {0}")]
    Tls(#[from] BadTls),
}

/// Parsed certificates and tokens.
#[derive(Default)]
pub(super) struct Secrets {
    pub(super) tls: Option<TlsConfigs>,
    pub(super) tokens: Option<Tokens>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

/// State that all ports of a server share.
#[derive(Debug)]
pub struct Ports {
    pub(super) settings: NetSettings,
    pub(super) refused: RejectionCounters,
    /// Pool of bytes of requests that are arriving or being checked.
    pub(super) reading: Pool,
    pub(super) attempts: Attempts,
    secrets: RwLock<Arc<Secrets>>,
    /// Notifies when the secrets are replaced.
    replaced: watch::Sender<()>,
    /// Number of successful reloads, and number of failed ones.
    pub(crate) reloads: [AtomicU64; 2],
    watcher: Option<AbortHandle>,
}

impl Ports {
    /// Reads the files of certificates and tokens. If there are any, watches them for changes in a
    /// task of the current runtime.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is invalid.
    ///
    /// # Panics
    /// Panics if there are files, and the caller runs in no runtime of tokio.
    pub fn open(settings: NetSettings) -> Result<Arc<Self>, DoorError> {
        let (secrets, digest) = Contents::read(&settings)?.understood(&settings)?;
        if let Some(tokens) = &secrets.tokens {
            let missing = tokens.missing_roles();
            if !missing.is_empty() {
                let missing = missing.join(" and ");
                tracing::warn!(
                    role = missing,
                    "no token has this role: its operations are unavailable"
                );
            }
        }
        let is_watching = settings.tls.is_some() || settings.tokens.is_some();
        Ok(Arc::new_cyclic(|doors| Self {
            reading: Pool::new(settings.reading_bytes_max),
            refused: RejectionCounters::default(),
            attempts: Attempts::default(),
            secrets: RwLock::new(Arc::new(secrets)),
            replaced: watch::Sender::new(()),
            reloads: Default::default(),
            watcher: is_watching.then(|| {
                let watching = look(doors.clone(), settings.clone(), digest);
                tokio::spawn(watching).abort_handle()
            }),
            settings,
        }))
    }

    pub(super) fn secrets(&self) -> Arc<Secrets> {
        let secrets = self.secrets.read().unwrap_or_else(PoisonError::into_inner);
        secrets.clone()
    }

    /// Returns a receiver that is notified of later replacements of the secrets.
    pub(super) fn replaced(&self) -> watch::Receiver<()> {
        self.replaced.subscribe()
    }

    /// Returns the counters of rejections.
    #[must_use]
    pub fn refused(&self) -> &RejectionCounters {
        &self.refused
    }

    /// Returns the bytes reserved for requests that are arriving or being checked.
    #[must_use]
    pub fn reading_bytes(&self) -> usize {
        self.reading.lent()
    }

    pub(super) fn requests_max(&self) -> usize {
        self.settings.connections_max * REQUESTS_PER_CONNECTION
    }

    fn replace(&self, read: Result<Secrets, DoorError>) {
        match read {
            Ok(secrets) => {
                let mut current = self.secrets.write().unwrap_or_else(PoisonError::into_inner);
                *current = Arc::new(secrets);
                drop(current);
                self.replaced.send_replace(());
                self.reloads[0].fetch_add(1, Relaxed);
                tracing::info!("reloaded certificates and tokens");
            }
            Err(error) => {
                self.reloads[1].fetch_add(1, Relaxed);
                tracing::error!(
                    %error,
                    "certificates or tokens have changed, and cannot be used; the previous ones stay in force"
                );
            }
        }
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        if let Some(watcher) = &self.watcher {
            watcher.abort();
        }
    }
}

/// Reloads the files when their contents change. Modification times may have a resolution of a
/// second, and mounted files may be symbolic links that get replaced.
async fn look(doors: std::sync::Weak<Ports>, settings: NetSettings, mut last: u64) {
    let settings = Arc::new(settings);
    let mut interval = tokio::time::interval(LOOK_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let files = settings.clone();
        let looking = spawn_blocking(move || {
            let contents = Contents::read(&files);
            let digest = contents.as_ref().map_or(0, Contents::digest);
            let is_news = digest != last;
            let secrets = is_news.then(|| {
                let understood = contents.and_then(|contents| contents.understood(&files));
                understood.map(|(secrets, _)| secrets)
            });
            (digest, secrets)
        });
        let Ok((digest, secrets)) = looking.await else {
            return;
        };
        // The first check may finish before the ports exist. When they are dropped, they abort this
        // task.
        let Some(doors) = doors.upgrade() else {
            continue;
        };
        last = digest;
        if let Some(secrets) = secrets {
            doors.replace(secrets);
        }
    }
}

/// Contents of the files of certificates and tokens.
struct Contents {
    /// Texts of the certificate and its key.
    tls: Option<(Vec<u8>, Vec<u8>)>,
    client_ca: Option<Vec<u8>>,
    tokens: Option<Vec<u8>>,
}

impl Contents {
    fn read(settings: &NetSettings) -> Result<Self, DoorError> {
        let tls = settings.tls.as_ref();
        let pair = |tls: &TlsFiles| -> Result<_, DoorError> {
            Ok((read(&tls.certificate)?, read(&tls.key)?))
        };
        let client_ca = tls.and_then(|tls| tls.client_ca.as_deref());
        Ok(Self {
            tls: tls.map(pair).transpose()?,
            client_ca: client_ca.map(read).transpose()?,
            tokens: settings.tokens.as_deref().map(read).transpose()?,
        })
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.tls, &self.client_ca, &self.tokens).hash(&mut hasher);
        // Zero stands for unreadable files.
        hasher.finish().max(1)
    }

    fn understood(&self, settings: &NetSettings) -> Result<(Secrets, u64), DoorError> {
        let tls = self.tls.as_ref().map(|(certificate, key)| TlsTexts {
            certificate,
            key,
            client_ca: self.client_ca.as_deref(),
        });
        let tls = tls.as_ref().map(TlsConfigs::of).transpose()?;
        let tokens = match (&self.tokens, &settings.tokens) {
            (Some(tokens), Some(path)) => {
                let bad = |problem| DoorError::Tokens {
                    path: path.clone(),
                    problem,
                };
                Some(Tokens::parse(&String::from_utf8_lossy(tokens)).map_err(bad)?)
            }
            _ => None,
        };
        Ok((Secrets { tls, tokens }, self.digest()))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, DoorError> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path);
    let read = opened.and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    let read = read.and_then(|read| match read as u64 > FILE_BYTES_MAX {
        true => Err(std::io::Error::other("it is larger than 1 MiB")),
        false => Ok(bytes),
    });
    read.map_err(|source| DoorError::File {
        path: path.to_owned(),
        source,
    })
}
