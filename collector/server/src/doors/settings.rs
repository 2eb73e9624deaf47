//! What all doors of a collector share, and the files that are read again when they change.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_blocking};

use super::attempts::Attempts;
use super::refused::Refused;
use super::tls::{BadTls, TlsConfigs, TlsFiles, TlsTexts};
use super::tokens::{BadTokens, Tokens};
use crate::pool::Pool;

/// How often the files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Largest of these files, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Requests that may be open at a door, for each connection that may be. A process of ours has two.
const REQUESTS_PER_CONNECTION: usize = 4;

/// Who may come in, and how much at once.
#[derive(Clone, Debug)]
pub struct DoorSettings {
    /// Of all TCP doors; none: they speak without.
    pub tls: Option<TlsFiles>,
    /// The file of tokens; none: nobody is asked for one.
    pub tokens: Option<PathBuf>,
    /// Names of this collector, besides `localhost` and addresses.
    pub allowed_hosts: Vec<String>,
    /// Most connections of each door.
    pub connections_max: usize,
    /// How long a handshake, the head of a request, and its body (or a message of a stream) may take, each.
    pub request_timeout: Duration,
    /// Most bytes of requests that are still arriving, or being checked.
    pub reading_bytes_max: usize,
}

impl Default for DoorSettings {
    fn default() -> Self {
        Self {
            tls: None,
            tokens: None,
            allowed_hosts: Vec::new(),
            connections_max: 1_024,
            request_timeout: Duration::from_secs(30),
            reading_bytes_max: 256 << 20,
        }
    }
}

/// What the doors cannot be opened without.
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

/// What is in the files.
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

/// What all doors of a collector share.
#[derive(Debug)]
pub struct Doors {
    pub(super) settings: DoorSettings,
    pub(super) refused: Refused,
    /// Bytes of requests that are still arriving, or being checked.
    pub(super) reading: Pool,
    pub(super) attempts: Attempts,
    secrets: RwLock<Arc<Secrets>>,
    /// Told when they are others.
    replaced: watch::Sender<()>,
    /// Files read again, with success and without.
    pub(crate) reloads: [AtomicU64; 2],
    watcher: Option<AbortHandle>,
}

impl Doors {
    /// Reads the files, and looks from then on whether they change.
    ///
    /// # Errors
    /// When one cannot be read, or is not what it is to be.
    pub async fn open(settings: DoorSettings) -> Result<Arc<Self>, DoorError> {
        let files = settings.clone();
        let reading = spawn_blocking(move || Contents::read(&files)?.understood(&files));
        // It ends early only where the runtime does.
        let (secrets, digest) = reading.await.unwrap_or_else(|_| Ok(Default::default()))?;
        if let Some(tokens) = &secrets.tokens {
            let missing = tokens.missing_roles();
            if !missing.is_empty() {
                let missing = missing.join(" and ");
                tracing::warn!(
                    role = missing,
                    "no token has this role: nobody can do what it is for"
                );
            }
        }
        let is_watching = settings.tls.is_some() || settings.tokens.is_some();
        Ok(Arc::new_cyclic(|doors| Self {
            reading: Pool::new(settings.reading_bytes_max),
            refused: Refused::default(),
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

    /// Tells when there are other secrets than now.
    pub(super) fn replaced(&self) -> watch::Receiver<()> {
        self.replaced.subscribe()
    }

    /// What was turned away.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Bytes that are arriving, or being checked.
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
                tracing::info!("certificates and tokens were read anew");
            }
            Err(error) => {
                self.reloads[1].fetch_add(1, Relaxed);
                tracing::error!(
                    %error,
                    "certificates or tokens have changed, and cannot be used; those of before are kept"
                );
            }
        }
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        if let Some(watcher) = &self.watcher {
            watcher.abort();
        }
    }
}

/// Reads the files again when they are others. They are compared by what is in them: a second is a long time, and files
/// that are mounted are links to others.
async fn look(doors: std::sync::Weak<Doors>, settings: DoorSettings, mut last: u64) {
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
        // The first look may end before the doors are made; where they are gone, they have ended this task.
        let Some(doors) = doors.upgrade() else {
            continue;
        };
        last = digest;
        if let Some(secrets) = secrets {
            doors.replace(secrets);
        }
    }
}

/// The files' bytes.
struct Contents {
    /// Certificate and key.
    tls: Option<(Vec<u8>, Vec<u8>)>,
    client_ca: Option<Vec<u8>>,
    tokens: Option<Vec<u8>>,
}

impl Contents {
    fn read(settings: &DoorSettings) -> Result<Self, DoorError> {
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
        // Zero is: they cannot be read.
        hasher.finish().max(1)
    }

    fn understood(&self, settings: &DoorSettings) -> Result<(Secrets, u64), DoorError> {
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
    let read = opened.and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|source| DoorError::File {
        path: path.to_owned(),
        source,
    })
}
