//! Runs blocking reads off the async runtime, and defines the errors of requests.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use stroboscope_store::query_memory::{QueryLack, QueryShare};
use stroboscope_store::tables::StoreError;
use tokio::sync::Semaphore;

use crate::parameters::BadParameter;
use crate::store::{ReadError, Traces};

/// Maximum number of requests that read the store concurrently through one [`Door`]; others wait.
const READING_MAX: usize = 4;

/// Value of `Retry-After`, in seconds, if other queries hold the memory.
const RETRY_AFTER_S: u64 = 5;
/// `Content-Type` header of JSON responses that are written in pieces.
pub(crate) const JSON: (HeaderName, &str) = (header::CONTENT_TYPE, "application/json");

/// Reason why a request has no result, which determines the HTTP status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The request is invalid.
    #[error("{0}")]
    Bad(String),
    /// The requested item does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The request needs more memory than one query may use.
    #[error("{0}")]
    TooLarge(String),
    /// The memory of queries is exhausted now; a retry may succeed.
    #[error("{0}")]
    Busy(String),
    /// The store cannot be read, or temporary files cannot be written.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The response could not be built: its task panicked or was cancelled, or its serialization
    /// failed.
    #[error("the response could not be generated")]
    Interrupted,
}

impl From<BadParameter> for Refusal {
    fn from(bad: BadParameter) -> Self {
        Self::Bad(bad.0)
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error),
            ReadError::TooLarge(too_large) => Self::lack(
                too_large.lack,
                &format!("a trace of {} spans", too_large.spans),
            ),
        }
    }
}

impl Refusal {
    /// Creates an error for a lack of memory. Its text begins with a name of the data that needs
    /// the memory.
    pub(crate) fn lack(lack: QueryLack, what: &str) -> Self {
        match lack {
            QueryLack::Query(..) => Self::TooLarge(format!(
                "{what}: {lack}; ask for fewer traces, or for the first spans of one by max_spans=10000"
            )),
            QueryLack::All => Self::Busy(format!("{what}: {lack}")),
        }
    }

    /// Builds a response with the status of the error, and with `Retry-After` if a retry may help.
    pub(crate) fn response(&self, words: impl IntoResponse) -> Response {
        let status = StatusCode::from_u16(self.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, words).into_response();
        if matches!(self, Self::Busy(_)) {
            let after = HeaderValue::from(RETRY_AFTER_S);
            response.headers_mut().insert(header::RETRY_AFTER, after);
        }
        response
    }

    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Bad(_) => 400,
            Self::NotFound(_) => 404,
            Self::TooLarge(_) => 413,
            Self::Busy(_) => 503,
            Self::Store(_) | Self::Interrupted => 500,
        }
    }
}

/// Access to the traces for all routes of one router, with the limit on concurrent reads.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    traces: Traces,
    reading: Arc<Semaphore>,
}

impl Door {
    pub(crate) fn of(traces: &Traces) -> Self {
        Self {
            traces: traces.clone(),
            reading: Arc::new(Semaphore::new(READING_MAX)),
        }
    }

    /// Builds an answer on a blocking thread, with the memory of one query.
    pub(crate) async fn answer<T: Send + 'static>(
        &self,
        make: impl FnOnce(&Traces, QueryShare) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let permit = self.reading.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Refusal::Interrupted)?;
        let traces = self.traces.clone();
        let made = tokio::task::spawn_blocking(move || {
            let made = make(&traces, traces.memory.share());
            drop(permit);
            made
        });
        made.await.unwrap_or(Err(Refusal::Interrupted))
    }
}
