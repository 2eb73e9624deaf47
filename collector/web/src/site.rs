//! The store, who answers, and how much at once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stroboscope_present::page::NavLink;
use stroboscope_query::{QueryError, Request, RequestAsked, RequestRate, Source};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::memory::{QueryMemory, QueryShare};
use stroboscope_store::progress::{Observer, silent};
use stroboscope_store::tables::{Store, StoreTable, list_kernel};
use tokio::runtime::Handle;
use twox_hash::XxHash3_128;

use crate::answers::Answers;
use crate::model::{Known, Model, Models, RequestKey};
use crate::rates::Rates;
use crate::refreshed::Refreshed;
use crate::verbs::Verbs;

/// The files of a store are looked at so often.
const LOOKED_FOR: Duration = Duration::from_secs(1);

/// How a site is.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// The data folder that it reads.
    pub data: PathBuf,
    /// What that is called on its pages.
    pub name: String,
    /// Pages beside its own, that whoever serves it has.
    pub links: Vec<NavLink>,
    /// Memory that pages are made and kept within.
    pub memory: QueryMemory,
    /// Of it, for answers that are kept, bytes.
    pub kept_bytes_max: usize,
    /// Answers made at the same time.
    pub answers_at_once: usize,
    /// The runtime on which requests over time are read before a page asks for them; otherwise the first page waits for them.
    pub reads_ahead: Option<Handle>,
}

/// Answers that are kept take so many bytes at most, and so large a part of the memory.
const KEPT_BYTES_MAX: usize = 64 << 20;
const KEPT_PART: usize = 8;

impl SiteOptions {
    /// The pages of a data folder, and no others.
    #[must_use]
    pub fn of(data: &Path, memory: &QueryMemory) -> Self {
        Self {
            data: data.to_owned(),
            name: data.display().to_string(),
            links: Vec::new(),
            memory: memory.clone(),
            kept_bytes_max: KEPT_BYTES_MAX.min(memory.all_max() / KEPT_PART),
            answers_at_once: 2,
            reads_ahead: None,
        }
    }
}

/// A site. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: SiteOptions,
    navigation: Vec<NavLink>,
    verbs: Arc<dyn Verbs>,
    answers: Answers,
    models: Models,
    state: Mutex<Option<(Instant, String)>>,
    refreshed: Refreshed,
    rates: Rates,
    /// Of the answers that are kept.
    _share: QueryShare,
}

impl Site {
    pub(crate) fn new(
        verbs: Arc<dyn Verbs>,
        options: SiteOptions,
        navigation: Vec<NavLink>,
    ) -> Self {
        let reads_ahead = options.reads_ahead.clone();
        let mut share = options.memory.share();
        // Without room for them, none are kept.
        let kept_bytes_max = match share.take(options.kept_bytes_max) {
            Ok(()) => options.kept_bytes_max,
            Err(_) => 0,
        };
        let answers = Answers::new(options.answers_at_once, kept_bytes_max);
        let site = Self {
            inner: Arc::new(Inner {
                models: Models::within(&options.memory),
                options,
                navigation,
                verbs,
                answers,
                state: Mutex::default(),
                refreshed: Refreshed::default(),
                rates: Rates::default(),
                _share: share,
            }),
        };
        if let Some(runtime) = reads_ahead {
            let (of_site, handle) = (site.clone(), runtime.clone());
            runtime.spawn_blocking(move || drop(of_site.rate(&handle)));
        }
        site
    }

    pub(crate) fn name(&self) -> &str {
        &self.inner.options.name
    }

    pub(crate) fn navigation(&self) -> &[NavLink] {
        &self.inner.navigation
    }

    pub(crate) fn verbs(&self) -> &Arc<dyn Verbs> {
        &self.inner.verbs
    }

    pub(crate) fn answers(&self) -> &Answers {
        &self.inner.answers
    }

    #[cfg(test)]
    pub(crate) fn models(&self) -> &Models {
        &self.inner.models
    }

    /// What is refreshed.
    pub(crate) fn refreshed(&self) -> &Refreshed {
        &self.inner.refreshed
    }

    /// The store, opened, and kept as long as its files are the same. Not for async code.
    pub(crate) fn opened(&self, runtime: &Handle) -> Result<Arc<Source>, QueryError> {
        let open = || self.source(runtime, silent());
        self.inner.models.source(&self.state(runtime), open)
    }

    /// Requests over time; none, where the store cannot be read or has none. Not for async code.
    pub(crate) fn rate(&self, runtime: &Handle) -> Option<Arc<RequestRate>> {
        let open = || self.opened(runtime);
        self.inner.rates.of(&self.state(runtime), open)
    }

    /// Requests over time as of the last reading.
    pub(crate) fn rates(&self) -> &Rates {
        &self.inner.rates
    }

    /// The model that single requests' critical paths go by. Not for async code.
    pub(crate) fn model(&self, runtime: &Handle, observer: Arc<dyn Observer>) -> Model {
        let open = || self.source(runtime, observer);
        self.inner.models.model(&self.state(runtime), open)
    }

    /// What is known of that model by now. Not for async code.
    pub(crate) fn known_model(&self, runtime: &Handle) -> Option<Known> {
        self.inner.models.known(&self.state(runtime))
    }

    /// What is asked of a request, read by `read` unless it is what was looked at last. Not for async code.
    pub(crate) fn request<E>(
        &self,
        runtime: &Handle,
        model: &Model,
        asked: RequestAsked,
        read: impl FnOnce() -> Result<Request, E>,
    ) -> Result<Arc<Request>, E> {
        let key = RequestKey {
            state: self.state(runtime),
            model: model.as_ref().ok().cloned(),
            asked,
        };
        self.inner.models.request(key, read)
    }

    /// Opens the store, for a reading. Not for async code.
    pub(crate) fn source(
        &self,
        runtime: &Handle,
        observer: Arc<dyn Observer>,
    ) -> Result<Source, QueryError> {
        let source = Source::open_cached(&self.inner.options.data, runtime.clone())?;
        Ok(source
            .with_memory(&self.inner.options.memory)
            .with_observer(observer))
    }

    /// Whether a kernel was recorded. Not for async code.
    pub(crate) fn has_kernel(&self, runtime: &Handle) -> bool {
        let store = Store::local(&self.inner.options.data, runtime.clone());
        store.is_ok_and(|store| list_kernel(&store).is_ok_and(|files| !files.is_empty()))
    }

    /// What the store's files and settings are, as a text that changes with them; of a store that cannot be listed, that. Not for async
    /// code. What was asked within a second is of the same files.
    pub(crate) fn state(&self, runtime: &Handle) -> String {
        let mut known = self
            .inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((at, state)) = &*known
            && at.elapsed() < LOOKED_FOR
        {
            return state.clone();
        }
        let state = state_of(&self.inner.options.data, runtime);
        *known = Some((Instant::now(), state.clone()));
        state
    }
}

fn state_of(data: &Path, runtime: &Handle) -> String {
    let Ok(store) = Store::local(data, runtime.clone()) else {
        return "none".to_owned();
    };
    let mut text = String::new();
    for table in [StoreTable::Spans, StoreTable::Events, StoreTable::Batches] {
        for (path, bytes) in store.list(table).unwrap_or_default() {
            text += &format!("{path} {bytes}\n");
        }
    }
    for file in list_kernel(&store).unwrap_or_default() {
        text += &format!("{file:?}\n");
    }
    let requests = DataDir::existing(data).and_then(|data| data.requests());
    text += &format!("{:?}", requests.ok());
    format!("{:032x}", XxHash3_128::oneshot(text.as_bytes()))
}
