//! Caches the store as it was opened last, its model, and the last request that was read. Each is
//! expensive, and the pages of single requests share them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stroboscope_query::{
    InferSettings, Inference, QueryError, Request, RequestAsked, Selection, Source, Study,
};
use stroboscope_store::query_memory::{QueryLack, QueryMemory, QueryShare};

/// Age up to which a model is used although the store's files have changed. See also
/// [`AGE_PER_MAKING`].
const AGE_MIN: Duration = Duration::from_secs(60);
/// Age up to which a model is used, as a multiple of its computation time, if that is more than
/// [`AGE_MIN`]. So a busy collector does not infer all the time.
const AGE_PER_MAKING: u32 = 20;

/// Time for which a failure to make a model also counts for changed files, so that a page that
/// waits for a model does not reload in a loop.
const FAILED_FOR: Duration = Duration::from_secs(10);

/// Slot for the last request that was read.
type LastRequest = Arc<Mutex<Option<(RequestKey, Arc<Request>)>>>;

/// Cache of the last store, model and request.
#[derive(Debug)]
pub(crate) struct Models {
    source: Mutex<Option<(String, Arc<Source>)>>,
    model: Mutex<Option<CachedModel>>,
    /// Held while a model is computed; other callers wait for its result.
    making: Mutex<()>,
    request: LastRequest,
    /// Requests that are being read, each with a lock held by its reader.
    reading: Mutex<Vec<(RequestKey, Arc<Mutex<()>>)>>,
    memory: QueryMemory,
}

/// Inputs of a cached request.
#[derive(Clone, Debug)]
pub(crate) struct RequestKey {
    /// Text that identifies the state of the store's files, see
    /// [`Site::state`](crate::site::Site::state).
    pub(crate) state: String,
    /// Model for the critical path; `None` if the path is not needed or no model is available.
    pub(crate) model: Option<Arc<Inference>>,
    pub(crate) asked: RequestAsked,
}

impl PartialEq for RequestKey {
    fn eq(&self, other: &Self) -> bool {
        let is_same_model = match (&self.model, &other.model) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        self.asked == other.asked && self.state == other.state && is_same_model
    }
}

#[derive(Debug)]
struct CachedModel {
    state: String,
    made: Instant,
    took: Duration,
    model: Model,
    /// Memory reserved for the model.
    _share: QueryShare,
}

/// Model for the critical paths of requests, or the reason for its absence.
pub(crate) type Model = Result<Arc<Inference>, Arc<str>>;

/// A cached model, and whether it is fresh.
#[derive(Clone, Debug)]
pub(crate) struct ModelLookup {
    pub(crate) model: Model,
    /// True if the model belongs to the current files or is young enough, or if computing a model
    /// failed recently. Pages also use an outdated model until they have a new one.
    pub(crate) is_fresh: bool,
}

impl Models {
    /// Creates a cache that takes its memory from `memory`. If memory runs out, the last request is
    /// evicted.
    pub(crate) fn within(memory: &QueryMemory) -> Self {
        let request = LastRequest::default();
        let kept = request.clone();
        memory.reclaim_by(move || drop(lock(&kept).take()));
        Self {
            source: Mutex::default(),
            model: Mutex::default(),
            making: Mutex::default(),
            request,
            reading: Mutex::default(),
            memory: memory.clone(),
        }
    }

    /// Returns the cached store if its files are still in `state`; otherwise opens it with `open`
    /// and caches it.
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

    /// Returns the request of this key if it is the last one that was read; otherwise calls `read`.
    /// A page asks for its request, and the page's timeline then requests the columns of the same
    /// request. A caller waits only for a reader of the same request.
    pub(crate) fn request<E>(
        &self,
        key: RequestKey,
        read: impl FnOnce() -> Result<Request, E>,
    ) -> Result<Arc<Request>, E> {
        let reading = {
            let mut reading = lock(&self.reading);
            reading.retain(|(_, held)| Arc::strong_count(held) > 1);
            let found = reading.iter().find(|(of, _)| *of == key);
            let found = found.map(|(_, held)| held.clone());
            found.unwrap_or_else(|| {
                let held: Arc<Mutex<()>> = Arc::default();
                reading.push((key.clone(), held.clone()));
                held
            })
        };
        let _reading = lock(&reading);
        let mut kept = lock(&self.request);
        if let Some((of, request)) = &*kept
            && *of == key
        {
            return Ok(request.clone());
        }
        // The former request is evicted before the next is read, so that the cached one does not
        // take memory that the next one needs.
        *kept = None;
        drop(kept);
        let request = Arc::new(read()?);
        *lock(&self.request) = Some((key, request.clone()));
        Ok(request)
    }

    /// Returns the cached model, which may be outdated, without computing one. Returns `None` if no
    /// model is cached, or only an old failure, for files that have changed since or for lack of
    /// memory.
    pub(crate) fn known(&self, state: &str) -> Option<ModelLookup> {
        let kept = lock(&self.model);
        let kept = kept.as_ref()?;
        let has_failed = kept.model.is_err() && kept.made.elapsed() < FAILED_FOR;
        let is_fresh = kept.is_good_for(state) || has_failed;
        // An old failure with other files does not apply to the current ones.
        (is_fresh || kept.model.is_ok()).then(|| ModelLookup {
            model: kept.model.clone(),
            is_fresh,
        })
    }

    /// Returns the model of the whole store. Accepts a cached model that lacks the newest files if
    /// it is young enough, because a few traces hardly change a model of many. Concurrent callers
    /// wait for one computation. If other queries hold the memory, returns an older model if there
    /// is one.
    pub(crate) fn model(
        &self,
        state: &str,
        open: impl FnOnce() -> Result<Source, QueryError>,
    ) -> Model {
        let good = || {
            let kept = lock(&self.model);
            let kept = kept.as_ref().filter(|kept| kept.is_good_for(state));
            kept.map(|kept| kept.model.clone())
        };
        if let Some(model) = good() {
            return model;
        }
        let _making = lock(&self.making);
        // Another caller may have computed the model meanwhile.
        if let Some(model) = good() {
            return model;
        }
        let began = Instant::now();
        let inferred = open().and_then(|source| {
            Study::new(source, Selection::default(), InferSettings::default()).into_inference()
        });
        let mut share = self.memory.share();
        let inferred = inferred.and_then(|inference| {
            inference.hold(&mut share)?;
            Ok(inference)
        });
        // Other queries hold the memory for now. Keep the older model, because the store itself is
        // readable.
        let is_busy = inferred.as_ref().is_err_and(|error| {
            matches!(
                error,
                QueryError::Memory {
                    lack: QueryLack::All,
                    ..
                }
            )
        });
        let model = match inferred {
            Ok(inference) => Ok(Arc::new(inference)),
            Err(error) => Err(Arc::from(error.to_string())),
        };
        let mut kept = lock(&self.model);
        if let (true, Some(before)) = (is_busy, kept.as_mut().filter(|kept| kept.model.is_ok())) {
            before.made = Instant::now();
            return before.model.clone();
        }
        *kept = Some(CachedModel {
            state: if is_busy {
                String::new()
            } else {
                state.to_owned()
            },
            made: Instant::now(),
            took: began.elapsed(),
            model: model.clone(),
            _share: share,
        });
        model
    }
}

#[cfg(test)]
impl Models {
    /// Prevents models from being computed while the guard is held.
    pub(crate) fn hold_making(&self) -> std::sync::MutexGuard<'_, ()> {
        lock(&self.making)
    }
}

impl CachedModel {
    fn is_good_for(&self, state: &str) -> bool {
        let age_max = AGE_MIN.max(self.took * AGE_PER_MAKING);
        let is_young = self.model.is_ok() && self.made.elapsed() < age_max;
        self.state == state || is_young
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use stroboscope_fixtures::workload;
    use stroboscope_query::request;
    use stroboscope_store::record::Rows;
    use stroboscope_store::tables::{PartitionRule, Store, write_rows};

    use super::*;

    #[test]
    fn the_request_looked_at_last_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let rows: Rows = workload::rows(7, 40, 0);
        let received_ns = workload::EPOCH_NS as i64;
        let rule = PartitionRule::received(received_ns, received_ns);
        write_rows(&store, "seg-0", rows, &rule).unwrap();
        let source = Source::open_cached(directory.path(), runtime.handle().clone()).unwrap();
        let models = Models::within(&QueryMemory::unbounded());
        let mut readings = 0;
        let mut ask = |state: &str, number: u64| {
            let id = workload::request(7, number).trace_id;
            let key = RequestKey {
                state: state.to_owned(),
                model: None,
                asked: RequestAsked::whole(id),
            };
            let found = models.request(key, || {
                readings += 1;
                request(&source, None, RequestAsked::whole(id))
                    .unwrap()
                    .ok_or("absent")
            });
            (found.map(|found| found.recorded.id.0 == id), readings)
        };
        assert_eq!(ask("a", 3), (Ok(true), 1));
        assert_eq!(ask("a", 3), (Ok(true), 1));
        // The files or the request differ.
        assert_eq!(ask("b", 3), (Ok(true), 2));
        assert_eq!(ask("b", 4), (Ok(true), 3));
        assert_eq!(ask("b", 4), (Ok(true), 3));
        // A missing request is looked for again, and does not block others.
        assert_eq!(ask("b", 1 << 40), (Err("absent"), 4));
        assert_eq!(ask("b", 1 << 40), (Err("absent"), 5));
        assert_eq!(ask("b", 4), (Ok(true), 6));
    }

    #[test]
    fn an_older_model_is_better_than_none() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let received_ns = workload::EPOCH_NS as i64;
        let rule = PartitionRule::received(received_ns, received_ns);
        write_rows(&store, "seg-0", workload::rows(7, 40, 0), &rule).unwrap();
        let open = || Source::open_cached(directory.path(), runtime.handle().clone());
        let models = Models::within(&QueryMemory::unbounded());
        let known = |state: &str| {
            let known = models.known(state)?;
            Some((known.is_fresh, known.model.is_ok()))
        };
        assert_eq!(known("a"), None);
        let failed = models.model("a", || {
            Source::open_cached("/nowhere/at/all".as_ref(), runtime.handle().clone())
        });
        assert!(failed.is_err());
        // The failure stays cached for these files. For other files, it counts only for a while.
        assert_eq!(known("a"), Some((true, false)));
        assert_eq!(known("b"), Some((true, false)));
        lock(&models.model).as_mut().unwrap().made =
            Instant::now().checked_sub(2 * FAILED_FOR).unwrap();
        assert_eq!(known("a"), Some((true, false)));
        assert_eq!(known("b"), None);
        assert!(models.model("b", open).is_ok());
        // The model is young.
        assert_eq!(known("c"), Some((true, true)));
        let mut kept = lock(&models.model);
        let kept_model = kept.as_mut().unwrap();
        kept_model.took = Duration::ZERO;
        kept_model.made = Instant::now().checked_sub(2 * AGE_MIN).unwrap();
        drop(kept);
        assert_eq!(known("b"), Some((true, true)));
        assert_eq!(known("c"), Some((false, true)));
    }
}
