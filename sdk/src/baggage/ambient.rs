//! Baggage of the request that this thread works for.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::{
    Baggage, DUPLICATE, Entry, IMPORTANCE_DEFAULT, Load, Scope, SlackPrediction, Tradeoff, Value,
    limits,
};

/// Data that travels with a request in addition to its ids.
#[derive(Debug, Default)]
pub(crate) struct RequestContext {
    /// W3C `tracestate`, without empty members and duplicates.
    pub(crate) tracestate: Option<String>,
    /// Baggage shared by all work of this process for one arrival of the request.
    request: Arc<Mutex<Baggage>>,
    component: Option<Arc<Component>>,
}

/// Active component, possibly nested inside another.
#[derive(Debug)]
struct Component {
    entries: Mutex<Baggage>,
    outer: Option<Arc<Component>>,
}

fn lock(baggage: &Mutex<Baggage>) -> MutexGuard<'_, Baggage> {
    // A poisoned lock is safe to use: no change of the list leaves it half-done.
    baggage.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets an entry, and drops the least important entries over the limits. Returns `false` if the
/// entry is invalid or is itself dropped.
fn set_within_limits(baggage: &mut Baggage, entry: Entry) -> bool {
    let (scope, key) = (entry.scope, entry.key.clone());
    let set = baggage.set(entry);
    limits::fit(baggage);
    let is_it = |known: &Entry| known.scope == scope && known.key == key;
    set && baggage.entries.iter().any(is_it)
}

impl RequestContext {
    pub(crate) fn new(tracestate: Option<String>, baggage: Baggage) -> Self {
        Self {
            tracestate,
            request: Arc::new(Mutex::new(baggage)),
            component: None,
        }
    }

    fn inside_component(&self) -> Self {
        let component = Component {
            entries: Mutex::default(),
            outer: self.component.clone(),
        };
        Self {
            tracestate: self.tracestate.clone(),
            request: Arc::clone(&self.request),
            component: Some(Arc::new(component)),
        }
    }

    fn components(&self) -> impl Iterator<Item = &Component> {
        std::iter::successors(self.component.as_deref(), |component| {
            component.outer.as_deref()
        })
    }

    fn set(&self, entry: Entry) -> bool {
        let place = match (entry.scope, &self.component) {
            (Scope::Component, Some(component)) => &component.entries,
            // Outside of explicit components, this process's whole part of the request is one
            // component.
            _ => &self.request,
        };
        set_within_limits(&mut lock(place), entry)
    }

    fn get(&self, key: &str) -> Option<Value> {
        self.components()
            .find_map(|component| lock(&component.entries).get(key).cloned())
            .or_else(|| lock(&self.request).get(key).cloned())
    }

    /// Returns the baggage for a call made now. [`Baggage::to_header`] omits members beyond the
    /// limits.
    pub(crate) fn snapshot(&self) -> Baggage {
        let mut all = lock(&self.request).clone();
        let components: Vec<&Component> = self.components().collect();
        // Starts with the outermost component, so that inner ones win.
        for component in components.into_iter().rev() {
            for entry in &lock(&component.entries).entries {
                all.set(entry.clone());
            }
        }
        all
    }

    /// Returns the `baggage` header of a call made now, within the limits, or `None` if the baggage
    /// is empty.
    pub(crate) fn header(&self) -> Option<String> {
        // Fast path: every call needs this header, but most requests carry no baggage.
        if self.component.is_none() && lock(&self.request).is_empty() {
            return None;
        }
        self.snapshot().to_header()
    }
}

thread_local! {
    static CARRIED: RefCell<Option<Arc<RequestContext>>> = const { RefCell::new(None) };
}

pub(crate) fn carried() -> Option<Arc<RequestContext>> {
    // Fails only while the thread's locals are being destroyed.
    CARRIED
        .try_with(|carried| carried.borrow().clone())
        .unwrap_or(None)
}

pub(crate) fn replace_carried(new: Option<Arc<RequestContext>>) -> Option<Arc<RequestContext>> {
    CARRIED
        .try_with(|carried| carried.replace(new))
        .unwrap_or(None)
}

/// Installs a request's carried data for a scope; restores the previous data when dropped.
#[derive(Debug)]
pub(crate) struct CarriedScope {
    previous: Option<Arc<RequestContext>>,
    /// Not `Send`: it must be dropped on the thread that created it.
    _thread: std::marker::PhantomData<*const ()>,
}

impl CarriedScope {
    pub(crate) fn enter(carried: Option<Arc<RequestContext>>) -> Self {
        Self {
            previous: replace_carried(carried),
            _thread: std::marker::PhantomData,
        }
    }
}

impl Drop for CarriedScope {
    fn drop(&mut self) {
        replace_carried(self.previous.take());
    }
}

/// Sets a value of the request that this thread has entered. Returns `false` if there is none (see
/// [`enter_request`]), or if the key or value is invalid (see [`Baggage::set`]). Also returns
/// `false` if the value does not fit next to others that are at least as important.
pub fn set(scope: Scope, key: &str, value: impl Into<Value>) -> bool {
    set_with_importance(scope, key, value, IMPORTANCE_DEFAULT)
}

/// Sets a value like [`set`], with an importance from 0 to 9. If not all values fit into a header,
/// the least important ones are dropped first.
pub fn set_with_importance(
    scope: Scope,
    key: &str,
    value: impl Into<Value>,
    importance: u8,
) -> bool {
    carried().is_some_and(|carried| {
        carried.set(Entry::new(scope, key, value).with_importance(importance))
    })
}

/// Returns a value of the request that this thread works for; `None` if there is no request or no
/// such value. Values of inner components take precedence over those of outer ones and of the
/// request.
#[must_use]
pub fn get(key: &str) -> Option<Value> {
    carried()?.get(key)
}

/// Removes a value from the innermost component and from the request. Returns `false` if neither
/// has it.
pub fn remove(key: &str) -> bool {
    carried().is_some_and(|carried| {
        let component = carried
            .component
            .as_ref()
            .is_some_and(|c| lock(&c.entries).remove(key));
        let request = lock(&carried.request).remove(key);
        component || request
    })
}

/// Returns the baggage for a call made now. [`Baggage::to_header`] omits members beyond the limits.
#[must_use]
pub fn snapshot() -> Baggage {
    carried()
        .map(|carried| carried.snapshot())
        .unwrap_or_default()
}

/// Adds a tradeoff to the list in the request's baggage. Returns `false` if the thread has entered
/// no request, or if the tradeoff is too long or does not fit.
pub fn note(tradeoff: &Tradeoff) -> bool {
    carried().is_some_and(|carried| {
        let mut baggage = lock(&carried.request);
        let numbers = baggage.entries.iter().filter_map(|entry| {
            Tradeoff::from_entry(entry).and(entry.key.rsplit('.').next()?.parse::<usize>().ok())
        });
        let number = numbers.max().map_or(0, |last| last.saturating_add(1));
        set_within_limits(&mut baggage, tradeoff.entry(number))
    })
}

/// Returns the tradeoffs in the request's baggage, oldest first: those of its callers and of this
/// process, without those of its callees.
#[must_use]
pub fn tradeoffs() -> Vec<Tradeoff> {
    snapshot()
        .entries
        .iter()
        .filter_map(Tradeoff::from_entry)
        .collect()
}

/// Reports whether this thread works for a copied request (see `tower::DuplicateLayer`). A copy
/// must not change data that others read, and no user waits for it.
#[must_use]
pub fn is_duplicate() -> bool {
    get(DUPLICATE) == Some(Value::Bool(true))
}

/// Attaches a slack prediction to the request. Returns `false` if the thread has entered no
/// request, or if the prediction is too long or does not fit.
pub fn predict_slack(prediction: &SlackPrediction) -> bool {
    set(Scope::Request, SlackPrediction::KEY, prediction.format())
}

/// Returns the request's slack prediction, or `None` if the request carries none or a malformed
/// one.
#[must_use]
pub fn slack() -> Option<SlackPrediction> {
    SlackPrediction::of(&get(SlackPrediction::KEY)?)
}

/// Attaches load metrics as `load.<component>.requests_per_second`, `.cpu_cores` and
/// `.memory_bytes`. Use the request scope for system-wide metrics, and the component scope for a
/// component's own. Returns `false` if a metric could not be set.
pub fn carry_load(scope: Scope, component: &str, load: Load) -> bool {
    let key = |metric: &str| format!("load.{component}.{metric}");
    set(scope, &key("requests_per_second"), load.requests_per_second)
        & set(scope, &key("cpu_cores"), load.cpu_cores)
        & set(scope, &key("memory_bytes"), load.memory_bytes)
}

/// Guard returned by [`enter_request`].
#[derive(Debug)]
#[must_use = "the request ends when this is dropped"]
pub struct RequestScope {
    _carried: CarriedScope,
}

/// Makes this thread work for a request with this baggage until the result is dropped.
pub fn enter_request(baggage: Baggage) -> RequestScope {
    RequestScope {
        _carried: CarriedScope::enter(Some(Arc::new(RequestContext::new(None, baggage)))),
    }
}

/// Guard returned by [`enter_component`].
#[derive(Debug)]
#[must_use = "the component ends when this is dropped"]
pub struct ComponentScope {
    _carried: CarriedScope,
}

/// Makes this thread execute a component of its request until the result is dropped. Values of
/// component scope that are set meanwhile are visible to the component and its calls, and are
/// discarded when the component ends.
pub fn enter_component() -> ComponentScope {
    let inside = carried().map(|carried| Arc::new(carried.inside_component()));
    ComponentScope {
        _carried: CarriedScope::enter(inside),
    }
}

/// Extension trait that runs futures as components, or as requests with baggage.
pub trait ComponentExt: Future + Sized {
    /// Runs this future as one component of the current request; see [`enter_component`].
    fn in_component(self) -> InComponent<Self> {
        InComponent {
            future: self,
            carried: carried().map(|carried| Arc::new(carried.inside_component())),
        }
    }

    /// Runs this future as a request with this baggage; see [`enter_request`].
    fn with_baggage(self, baggage: Baggage) -> WithBaggage<Self> {
        InComponent {
            future: self,
            carried: Some(Arc::new(RequestContext::new(None, baggage))),
        }
    }
}

impl<F: Future> ComponentExt for F {}

/// Future returned by [`ComponentExt::with_baggage`].
pub type WithBaggage<F> = InComponent<F>;

pin_project_lite::pin_project! {
    /// Future returned by [`ComponentExt::in_component`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct InComponent<F> {
        #[pin]
        future: F,
        carried: Option<Arc<RequestContext>>,
    }
}

impl<F: Future> Future for InComponent<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let _scope = this
            .carried
            .as_ref()
            .map(|carried| CarriedScope::enter(Some(Arc::clone(carried))));
        this.future.poll(cx)
    }
}
