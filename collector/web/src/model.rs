//! The store as it was opened last, the model of it, and the request that was looked at last: each costs much, and pages of
//! single requests share them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stroboscope_query::{
    InferSettings, Inference, QueryError, Request, RequestAsked, Selection, Source, Study,
};
use stroboscope_store::memory::{QueryLack, QueryMemory, QueryShare};

/// A model of files that are others by now is used for so long,
const AGE_MIN: Duration = Duration::from_secs(60);
/// or for so many times as long as it took to make, so that a collector at work does not infer all the time.
const AGE_PER_MAKING: u32 = 20;

/// Why there is none is not asked again for so long: a page that waits for a model would be shown again and again.
const FAILED_FOR: Duration = Duration::from_secs(10);

/// The request that was read last.
type LastRequest = Arc<Mutex<Option<(RequestKey, Arc<Request>)>>>;

/// What was read last.
#[derive(Debug)]
pub(crate) struct Models {
    source: Mutex<Option<(String, Arc<Source>)>>,
    model: Mutex<Option<Kept>>,
    /// Held by who makes a model: the others wait for the same.
    making: Mutex<()>,
    request: LastRequest,
    /// Requests that are being read, each held by who reads it.
    reading: Mutex<Vec<(RequestKey, Arc<Mutex<()>>)>>,
    memory: QueryMemory,
}

/// What a request's records and its path were made of.
#[derive(Clone, Debug)]
pub(crate) struct RequestKey {
    /// The store's files.
    pub(crate) state: String,
    /// None: its critical path is not asked for.
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
struct Kept {
    state: String,
    made: Instant,
    took: Duration,
    model: Model,
    /// Of the model.
    _share: QueryShare,
}

/// The model that requests' critical paths go by, or why there is none.
pub(crate) type Model = Result<Arc<Inference>, Arc<str>>;

/// What is known of a model.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) model: Model,
    /// Whether it is of these files, or young. Otherwise it is better than none.
    pub(crate) is_fresh: bool,
}

impl Models {
    /// What is kept takes its memory from this, and the request that was looked at last goes when there is none.
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

    /// The request of this key, read by `read` unless it is the one that was looked at last: its page asks for it, and the
    /// timeline on that for its columns. Who asks for what is being read waits for it, and for no other.
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
        // It goes before another one is read: two large ones are not held at a time for it.
        *kept = None;
        drop(kept);
        let request = Arc::new(read()?);
        *lock(&self.request) = Some((key, request.clone()));
        Ok(request)
    }

    /// What is known of the model of the store of these files, without waiting for it to be made.
    pub(crate) fn known(&self, state: &str) -> Option<Known> {
        let kept = lock(&self.model);
        let kept = kept.as_ref()?;
        let has_failed = kept.model.is_err() && kept.made.elapsed() < FAILED_FOR;
        let is_fresh = kept.is_good_for(state) || has_failed;
        // Why there was none of other files a while ago says nothing of these.
        (is_fresh || kept.model.is_ok()).then(|| Known {
            model: kept.model.clone(),
            is_fresh,
        })
    }

    /// The model of the whole store. Where files came since, one that is not old is good enough for single requests: what
    /// was believed of many is hardly changed by a few. Whoever comes while it is made waits for the same.
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
        // Another one made it meanwhile.
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
        // Others hold the memory for a while: that says nothing of the store, and an older model is better than none.
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
        *kept = Some(Kept {
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
    /// As long as this is held, no model is made.
    pub(crate) fn hold_making(&self) -> std::sync::MutexGuard<'_, ()> {
        lock(&self.making)
    }
}

impl Kept {
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
    use stroboscope_query::request;
    use stroboscope_store::record::Rows;
    use stroboscope_store::tables::{PartitionRule, Store, write_rows};
    use stroboscope_testkit::workload;

    use super::*;

    #[test]
    fn the_request_looked_at_last_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = Store::local(folder.path(), runtime.handle().clone()).unwrap();
        let rows: Rows = workload::rows(7, 40, 0);
        let received_ns = workload::EPOCH_NS as i64;
        let rule = PartitionRule::received(received_ns, received_ns);
        write_rows(&store, "seg-0", rows, &rule).unwrap();
        let source = Source::open_cached(folder.path(), runtime.handle().clone()).unwrap();
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
        // Other files, another request.
        assert_eq!(ask("b", 3), (Ok(true), 2));
        assert_eq!(ask("b", 4), (Ok(true), 3));
        assert_eq!(ask("b", 4), (Ok(true), 3));
        // What is not there is looked for again, and does not stand in the way.
        assert_eq!(ask("b", 1 << 40), (Err("absent"), 4));
        assert_eq!(ask("b", 1 << 40), (Err("absent"), 5));
        assert_eq!(ask("b", 4), (Ok(true), 6));
    }

    #[test]
    fn an_older_model_is_better_than_none() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = Store::local(folder.path(), runtime.handle().clone()).unwrap();
        let received_ns = workload::EPOCH_NS as i64;
        let rule = PartitionRule::received(received_ns, received_ns);
        write_rows(&store, "seg-0", workload::rows(7, 40, 0), &rule).unwrap();
        let open = || Source::open_cached(folder.path(), runtime.handle().clone());
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
        // Why there is none is known of these files, and for a while it is enough; then it says nothing of others.
        assert_eq!(known("a"), Some((true, false)));
        assert_eq!(known("b"), Some((true, false)));
        lock(&models.model).as_mut().unwrap().made =
            Instant::now().checked_sub(2 * FAILED_FOR).unwrap();
        assert_eq!(known("a"), Some((true, false)));
        assert_eq!(known("b"), None);
        assert!(models.model("b", open).is_ok());
        // Young.
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
