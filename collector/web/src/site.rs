//! State of the site: the store, its caches, and the limits of concurrency.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stroboscope_query::{QueryError, Request, RequestAsked, RequestRate, Source};
use stroboscope_render::page::NavLink;
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::progress::{Observer, silent};
use stroboscope_store::query_memory::{QueryMemory, QueryShare};
use stroboscope_store::tables::{Store, StoreTable, list_kernel};
use tokio::runtime::Handle;
use twox_hash::XxHash3_128;

use crate::answer_cache::Answers;
use crate::model::{Model, ModelLookup, Models, RequestKey};
use crate::rates::Rates;
use crate::refreshed::RefreshedAnswers;
use crate::verbs::Verbs;

/// Minimum interval between inspections of the store's files for changes.
const LOOKED_FOR: Duration = Duration::from_secs(1);

/// Configuration of a site.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// Data directory that the pages show.
    pub data: PathBuf,
    /// Name of the data directory on the pages.
    pub name: String,
    /// Links to further pages that the server provides.
    pub links: Vec<NavLink>,
    /// Memory for computing and caching pages.
    pub memory: QueryMemory,
    /// Maximum size of the cached answers, in bytes; part of `memory`.
    pub kept_bytes_max: usize,
    /// Maximum number of answers about the whole store that are computed at the same time. An
    /// equal, separate limit applies to answers about single requests.
    pub answers_at_once: usize,
    /// Runtime that reads requests over time before a page needs them; without it, the first page
    /// that shows them begins to read them.
    pub reads_ahead: Option<Handle>,
}

/// Default maximum size of the cached answers, in bytes. `KEPT_PART` is the inverse of their
/// maximum share of the memory.
const KEPT_BYTES_MAX: usize = 64 << 20;
const KEPT_PART: usize = 8;

impl SiteOptions {
    /// Returns the configuration for the pages of a data directory, without any further pages.
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

/// Shared state of a site. Cheap to clone.
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
    refreshed: RefreshedAnswers,
    rates: Rates,
    /// Memory reserved for the cached answers.
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
        // Without memory for the maximum size of the cached answers, none are cached.
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
                refreshed: RefreshedAnswers::default(),
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

    /// Returns the cache of answers that open pages poll.
    pub(crate) fn refreshed(&self) -> &RefreshedAnswers {
        &self.inner.refreshed
    }

    /// Returns the opened store, which is cached until its [`state`](Self::state) changes. Blocks;
    /// not for async code.
    pub(crate) fn opened(&self, runtime: &Handle) -> Result<Arc<Source>, QueryError> {
        let open = || self.source(runtime, silent());
        self.inner.models.source(&self.state(runtime), open)
    }

    /// Returns requests over time; `None` if the store is empty or cannot be read. Blocks; not for
    /// async code.
    pub(crate) fn rate(&self, runtime: &Handle) -> Option<Arc<RequestRate>> {
        let open = || self.opened(runtime);
        self.inner.rates.of(&self.state(runtime), open)
    }

    /// Returns the cache of requests over time.
    pub(crate) fn rates(&self) -> &Rates {
        &self.inner.rates
    }

    /// Returns the model for the critical paths of single requests. Blocks; not for async code.
    pub(crate) fn model(&self, runtime: &Handle, observer: Arc<dyn Observer>) -> Model {
        let open = || self.source(runtime, observer);
        self.inner.models.model(&self.state(runtime), open)
    }

    /// Returns the cached model for the critical paths of single requests; `None` if none is cached
    /// (see [`Models::known`]). Blocks; not for async code.
    pub(crate) fn known_model(&self, runtime: &Handle) -> Option<ModelLookup> {
        self.inner.models.known(&self.state(runtime))
    }

    /// Returns a request. Calls `read` unless the last request read is cached, and has the same
    /// store state, model and `asked`. Blocks; not for async code.
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

    /// Opens the store for a reading. Blocks; not for async code.
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

    /// Reports whether the store has a kernel recording. Blocks; not for async code.
    pub(crate) fn has_kernel(&self, runtime: &Handle) -> bool {
        let store = Store::local(&self.inner.options.data, runtime.clone());
        store.is_ok_and(|store| list_kernel(&store).is_ok_and(|files| !files.is_empty()))
    }

    /// Returns a text that changes with the files of tables and kernel recordings, and with the
    /// declared requests; `none` if the store cannot be opened. The result is cached for a second.
    /// Blocks; not for async code.
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
    for table in StoreTable::OF_SEGMENTS {
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
