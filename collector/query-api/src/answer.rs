//! That what reads the disk does not stop others, and why a request failed.

use std::sync::Arc;

use stroboscope_store::tables::StoreError;
use tokio::sync::Semaphore;

use crate::parameters::BadParameter;
use crate::store::Traces;

/// Requests that read the store at the same time; others wait for their turn.
const READING_MAX: usize = 4;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The request makes no sense.
    #[error("{0}")]
    Bad(String),
    /// What was asked for is not there.
    #[error("{0}")]
    NotFound(String),
    /// The store cannot be read.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// Whoever made the answer did not end.
    #[error("the answer could not be made")]
    Interrupted,
}

impl From<BadParameter> for Refusal {
    fn from(bad: BadParameter) -> Self {
        Self::Bad(bad.0)
    }
}

impl Refusal {
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Bad(_) => 400,
            Self::NotFound(_) => 404,
            Self::Store(_) | Self::Interrupted => 500,
        }
    }
}

/// What routes share.
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

    /// Makes an answer where it may take its time.
    pub(crate) async fn answer<T: Send + 'static>(
        &self,
        make: impl FnOnce(&Traces) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let permit = self.reading.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Refusal::Interrupted)?;
        let traces = self.traces.clone();
        let made = tokio::task::spawn_blocking(move || {
            let made = make(&traces);
            drop(permit);
            made
        });
        made.await.unwrap_or(Err(Refusal::Interrupted))
    }
}
