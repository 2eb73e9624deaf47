//! The store as it was opened last, and the model of it: both cost much, and pages of single requests share them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stroboscope_query::{InferSettings, Inference, QueryError, Selection, Source, Study};

/// A model of files that are others by now is used for so long,
const AGE_MIN: Duration = Duration::from_secs(60);
/// or for so many times as long as it took to make, so that a collector at work does not infer all the time.
const AGE_PER_MAKING: u32 = 20;

/// What was read last.
#[derive(Debug, Default)]
pub(crate) struct Models {
    source: Mutex<Option<(String, Arc<Source>)>>,
    model: Mutex<Option<Kept>>,
}

#[derive(Clone, Debug)]
struct Kept {
    state: String,
    made: Instant,
    took: Duration,
    model: Model,
}

/// The model that requests' critical paths go by, or why there is none.
pub(crate) type Model = Result<Arc<Inference>, Arc<str>>;

impl Models {
    /// The store of these files, opened by `open` unless it is there.
    pub(crate) fn source(
        &self,
        state: &str,
        open: impl FnOnce() -> Result<Source, QueryError>,
    ) -> Result<Arc<Source>, QueryError> {
        let mut kept = lock(&self.source);
        if let Some((of, source)) = &*kept
            && of == state
        {
            return Ok(source.clone());
        }
        let source = Arc::new(open()?);
        *kept = Some((state.to_owned(), source.clone()));
        Ok(source)
    }

    /// The model of the whole store. Where files came since, one that is not old is good enough for single requests: what
    /// was believed of many is hardly changed by a few. Whoever comes while it is made waits for the same.
    pub(crate) fn model(
        &self,
        state: &str,
        open: impl FnOnce() -> Result<Source, QueryError>,
    ) -> Model {
        let mut kept = lock(&self.model);
        if let Some(known) = &*kept {
            let age_max = AGE_MIN.max(known.took * AGE_PER_MAKING);
            let is_young = known.model.is_ok() && known.made.elapsed() < age_max;
            if known.state == state || is_young {
                return known.model.clone();
            }
        }
        let began = Instant::now();
        let inferred = open().and_then(|source| {
            Study::new(source, Selection::default(), InferSettings::default()).into_inference()
        });
        let model = match inferred {
            Ok(inference) => Ok(Arc::new(inference)),
            Err(error) => Err(Arc::from(error.to_string())),
        };
        *kept = Some(Kept {
            state: state.to_owned(),
            made: Instant::now(),
            took: began.elapsed(),
            model: model.clone(),
        });
        model
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
