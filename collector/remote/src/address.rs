//! Parses the URL of an object store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use stroboscope_store::publishing::PublishFailure;
use url::Url;

/// Maximum duration of one request. Each request of an upload carries at most one part.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum retries of a failed request within the client. After them, publishing retries the round,
/// and a mirror fails.
const RETRIES: usize = 2;
const RETRY_TIME_MAX: Duration = Duration::from_secs(10);

/// Errors of publishing to an object store and of reading from it.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The URL cannot be used.
    #[error("{url}: {what}; an object store is s3://bucket/prefix or file:///directory")]
    Url { url: String, what: String },
    /// The object store failed.
    #[error("{url}: {what}")]
    Object {
        url: String,
        what: String,
        #[source]
        source: Box<object_store::Error>,
    },
    /// An object in the store is damaged, of another version, or not written by Stroboscope.
    #[error("{url}: {object} {what}")]
    Damaged {
        url: String,
        object: String,
        what: String,
    },
    /// No collector's manifest at the URL lists a file.
    #[error(
        "{0}: no collector has published anything there yet; `stroboscope collect --publish {0}` does"
    )]
    Empty(String),
    /// Another collector publishes under the same name.
    #[error(
        "{url}: another collector publishes under this one's name, {id}: one of two data directories is a copy \
         or an older state of the other. This collector publishes nothing more and keeps all data in its data \
         directory; to publish both, stop it and delete {file}: it then publishes all data of this directory \
         under a new name, including data that both copies contain"
    )]
    Fenced {
        url: String,
        id: String,
        file: String,
    },
    /// A local file or directory cannot be used, or the operating system failed.
    #[error("cannot use {path}: {source}")]
    Local {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl RemoteError {
    /// Returns the conversion of errors of the local file or directory at `path`.
    pub(crate) fn at(path: &std::path::Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Local {
            path: path.to_owned(),
            source,
        }
    }

    /// Returns the failure class for the metrics.
    #[must_use]
    pub fn cause(&self) -> PublishFailure {
        match self {
            Self::Url { .. } | Self::Damaged { .. } => PublishFailure::Other,
            Self::Empty(_) => PublishFailure::Missing,
            Self::Fenced { .. } => PublishFailure::Fenced,
            Self::Local { .. } => PublishFailure::Local,
            Self::Object { source, .. } => match &**source {
                object_store::Error::NotFound { .. } => PublishFailure::Missing,
                object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. } => PublishFailure::Denied,
                object_store::Error::Generic { .. } => PublishFailure::Unavailable,
                _ => PublishFailure::Other,
            },
        }
    }
}

/// Object store and a key prefix in it.
#[derive(Clone, Debug)]
pub struct Remote {
    pub(crate) url: String,
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Directory of a `file://` store, whose manifests are replaced under a lock; `None` for other
    /// stores.
    pub(crate) directory: Option<PathBuf>,
}

/// Reports whether a `--data` argument is a URL, which contains `://`, rather than a directory.
#[must_use]
pub fn is_remote(data: &std::path::Path) -> bool {
    data.to_str().is_some_and(|text| text.contains("://"))
}

impl Remote {
    /// Opens `s3://bucket/prefix` or `file:///directory`. The `AWS_…` environment variables set
    /// credentials, region and endpoint of S3. This sends no request to S3, but creates a local
    /// directory that is missing.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid, if the environment's settings cannot be used, or if
    /// the local directory cannot be created.
    pub fn open(text: &str) -> Result<Self, RemoteError> {
        let wrong = |shown: &str, what: &str| RemoteError::Url {
            url: shown.to_owned(),
            what: what.to_owned(),
        };
        // The error does not show the URL: it may contain a password, which must not reach a log.
        let url = Url::parse(text).map_err(|error| wrong("the URL", &error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            let what = "credentials do not belong there: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead";
            return Err(wrong("the URL", what));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("the URL", "it must have no ?query and no #fragment"));
        }
        let text = text.trim_end_matches('/');
        match url.scheme() {
            "s3" => Self::s3(text, &url),
            "file" => {
                let relative = |()| wrong(text, "the path must be absolute: file:///directory");
                let directory = url.to_file_path().map_err(relative)?;
                let local = RemoteError::at(&directory);
                std::fs::create_dir_all(&directory).map_err(&local)?;
                let directory = directory.canonicalize().map_err(&local)?;
                let objects = LocalFileSystem::new_with_prefix(&directory)
                    .map_err(|error| failed(text, error))?;
                Ok(Self {
                    url: text.to_owned(),
                    objects: Arc::new(objects),
                    directory: Some(directory),
                })
            }
            other => Err(wrong(text, &format!("{other}:// is not known"))),
        }
    }

    /// Opens the objects of a simulation.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn simulated(url: &str, objects: Arc<dyn ObjectStore>) -> Self {
        Self {
            url: url.to_owned(),
            objects,
            directory: None,
        }
    }

    fn s3(text: &str, url: &Url) -> Result<Self, RemoteError> {
        let wrong = |what: &str| RemoteError::Url {
            url: text.to_owned(),
            what: what.to_owned(),
        };
        let bucket = url.host_str().filter(|bucket| !bucket.is_empty());
        let bucket = bucket.ok_or_else(|| wrong("the name of the bucket is missing"))?;
        let prefix = Path::from_url_path(url.path()).map_err(|error| wrong(&error.to_string()))?;
        let set =
            |name: &str| std::env::var(name).is_ok_and(|value| value == "true" || value == "1");
        let client = ClientOptions::new()
            .with_timeout(REQUEST_TIME_MAX)
            .with_connect_timeout(CONNECT_TIME_MAX)
            .with_allow_http(set("AWS_ALLOW_HTTP"));
        let retry = RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRY_TIME_MAX,
            ..RetryConfig::default()
        };
        let store = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_client_options(client)
            .with_retry(retry)
            .build()
            .map_err(|error| failed(text, error))?;
        Ok(Self {
            url: text.to_owned(),
            objects: Arc::new(PrefixStore::new(store, prefix)),
            directory: None,
        })
    }

    /// Returns the URL as it was given, without slashes at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn failed(&self, error: object_store::Error) -> RemoteError {
        failed(&self.url, error)
    }
}

/// Returns a one-line error: advice if there is any, and then the error itself, which may be long.
fn failed(url: &str, error: object_store::Error) -> RemoteError {
    use object_store::Error as Cause;
    let said = error.to_string();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let advice = match &error {
        Cause::NotFound { .. } => "is there such a bucket? ",
        Cause::PermissionDenied { .. } | Cause::Unauthenticated { .. } => {
            "it refuses these credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION): "
        }
        Cause::Generic { .. } if said.contains("169.254.169.254") => {
            "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: "
        }
        Cause::Generic { .. } => {
            "it cannot be used (AWS_ENDPOINT_URL, AWS_REGION and AWS_ALLOW_HTTP set its address): "
        }
        _ => "",
    };
    RemoteError::Object {
        url: url.to_owned(),
        what: format!("{advice}{said}"),
        source: Box::new(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_cannot_be_used_say_why_and_no_secret() {
        for (url, why) in [
            ("gs://bucket/x", "gs:// is not known"),
            ("s3:///x", "bucket"),
            ("s3://me:hunter2@bucket/x", "AWS_SECRET_ACCESS_KEY"),
            ("s3://bucket/x?token=hunter2", "no ?query"),
            ("http://[hunter2", "the URL"),
        ] {
            let error = Remote::open(url).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
