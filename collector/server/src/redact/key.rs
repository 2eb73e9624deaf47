//! The key for hashing values.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom as _, SystemRandom};

/// Name of the key's file in the data directory.
const NAME: &str = "redact.key";
/// Minimum length of a key, in bytes; a shorter one could be guessed.
const BYTES_MIN: usize = 16;
const BYTES: usize = 32;
const BYTES_MAX: u64 = 64 << 10;

/// Reason why there is no key for hashing.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot read the key for hashing, {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "the key for hashing, {path}, has {bytes} bytes: it must have {BYTES_MIN} or more random bytes"
    )]
    Short { path: PathBuf, bytes: usize },
    #[error("the key for hashing, {path}, has more than {BYTES_MAX} bytes: 32 random ones suffice")]
    Long { path: PathBuf },
    #[error("cannot make a key for hashing, {path}: {source}")]
    Make { path: PathBuf, source: io::Error },
}

/// Reads the key from `file`. If `file` is `None`, reads the key in the directory `data`, and
/// creates it if it is missing.
pub(crate) fn key(file: Option<&Path>, data: &Path) -> Result<Vec<u8>, KeyError> {
    let path = file.map_or_else(|| data.join(NAME), Path::to_owned);
    let mut key = Vec::new();
    let opened = std::fs::File::open(&path);
    match opened.and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut key)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && file.is_none() => {
            make(&path).map_err(|source| KeyError::Make { path, source })
        }
        Err(source) => Err(KeyError::Read { path, source }),
        Ok(bytes) if bytes < BYTES_MIN => Err(KeyError::Short { path, bytes }),
        Ok(bytes) if bytes as u64 > BYTES_MAX => Err(KeyError::Long { path }),
        Ok(_) => Ok(key),
    }
}

fn make(path: &Path) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut key = vec![0; BYTES];
    let random = SystemRandom::new().fill(&mut key);
    random.map_err(|_| io::Error::other("the system has no random numbers"))?;
    // Writes all or nothing: a partial key would be a different or invalid key at the next start.
    let new = path.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&new)?;
    file.write_all(&key)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    if let Some(directory) = path.parent() {
        std::fs::File::open(directory)?.sync_all()?;
    }
    Ok(key)
}
