//! Copies requests to a second pipeline, in addition to the service that responds.
//!
//! Source: Chow, "Scaling causality analysis for production systems" (dissertation, 2016), §4.3.2
//! (DQBarge). DQBarge learns tradeoff models from production requests that it executes a second
//! time. The second execution answers no user and changes nothing permanent.

mod body;
mod copied_body;
mod copy;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use http::Request;
use http_body::Body;
use tower::{Layer, Service};

use crate::baggage::{Baggage, DUPLICATE, Entry, Scope, Value};
use crate::propagation;
pub use body::OriginalBody;
pub use copied_body::CopiedBody;
use copy::CopyState;
pub use copy::DuplicateAnswer;

/// Fraction of requests to copy, adjustable at run time. Clones share the value.
#[derive(Clone, Debug, Default)]
pub struct DuplicateRate(Arc<AtomicU64>);

impl DuplicateRate {
    /// Sets the fraction, clamped to 0 to 1; NaN means 0.
    pub fn set(&self, share: f64) {
        let share = if share.is_nan() {
            0.0
        } else {
            share.clamp(0.0, 1.0)
        };
        self.0.store(share.to_bits(), Relaxed);
    }

    /// Returns the fraction, 0 to 1.
    #[must_use]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

/// Statistics of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DuplicateStats {
    /// Number of copies sent.
    pub sent: u64,
    /// Number of copies answered, with any status.
    pub answered: u64,
    /// Number of copies without an answer, because the pipeline or the answer's body failed, the
    /// pipeline panicked, or the runtime ended.
    pub failed: u64,
    /// Number of requests not copied because too many copies were under way.
    pub skipped_in_flight: u64,
    /// Number of requests not copied because the body was too long, failed, or was not read to its
    /// end.
    pub skipped_body: u64,
    /// Number of requests not copied because there was no tokio runtime to send them from.
    pub skipped_no_runtime: u64,
    /// Number of requests not copied because they were copies themselves.
    pub skipped_is_duplicate: u64,
    /// Number of requests not copied because the copy's baggage had no room for the mark of a copy,
    /// or [`explore`](DuplicateLayer::explore) replaced the mark.
    pub skipped_unmarked: u64,
    /// Number of panics in callbacks.
    pub panicked: u64,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    copies: AtomicU64,
    in_flight: AtomicUsize,
    sent: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
    skipped_in_flight: AtomicU64,
    skipped_body: AtomicU64,
    skipped_no_runtime: AtomicU64,
    skipped_is_duplicate: AtomicU64,
    skipped_unmarked: AtomicU64,
    panicked: AtomicU64,
}

type Explore = dyn Fn(u64) -> Vec<(String, Value)> + Send + Sync;
type OnAnswer = dyn Fn(DuplicateAnswer) + Send + Sync;

/// Layer that sends copies of a fraction of the requests to a pipeline: another service for
/// `Request<CopiedBody>` that is [`Clone`], such as a channel of tonic whose requests are converted
/// by `map_request`. A copy has the URI of its original.
///
/// Copies carry [`DUPLICATE`] in their baggage, so that all components on their way can recognise
/// them ([`baggage::is_duplicate`](crate::baggage::is_duplicate)), except those with [public
/// callers](crate::Builder::public_callers). Components must not write a copy's results to data
/// that production reads. Copies answer no user, are not copied again by components that recognise
/// them, and have their own trace. The original does not wait for its copy. While the service reads
/// the original's body, the layer stores the body, up to a maximum length. It sends the copy after
/// the end of the body.
///
/// ```no_run
/// # use stroboscope::tower::CopiedBody;
/// # fn layers<P>(pipeline: P) {
/// use stroboscope::tower::DuplicateLayer;
/// let copies = DuplicateLayer::new(pipeline)
///     .explore(|number| vec![("explore.ranker.candidates".to_owned(), [0.0, 0.25, 0.5, 0.75][number as usize % 4].into())]);
/// copies.rate().set(0.01);
/// # }
/// ```
#[derive(Clone)]
pub struct DuplicateLayer<P> {
    pipeline: P,
    shared: Arc<DuplicateState>,
    settings: Settings,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    body_bytes_max: usize,
    in_flight_max: usize,
}

#[derive(Default)]
struct DuplicateState {
    rate: DuplicateRate,
    counters: Counters,
    explore: Option<Box<Explore>>,
    on_answer: Option<Box<OnAnswer>>,
}

impl<P> std::fmt::Debug for DuplicateLayer<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DuplicateLayer")
            .field("rate", &self.shared.rate.get())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl<P> DuplicateLayer<P> {
    /// Creates a layer that copies to this pipeline. It copies nothing until the
    /// [`rate`](Self::rate) is set.
    #[must_use]
    pub fn new(pipeline: P) -> Self {
        Self {
            pipeline,
            shared: Arc::new(DuplicateState::default()),
            settings: Settings {
                body_bytes_max: 64 * 1_024,
                in_flight_max: 16,
            },
        }
    }

    /// Sets the maximum length of a copied body; requests with longer bodies are not copied.
    /// Default 64 KiB.
    #[must_use]
    pub const fn body_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.body_bytes_max = bytes;
        self
    }

    /// Sets the maximum number of copies under way. Default 16.
    #[must_use]
    pub const fn in_flight_max(mut self, copies: usize) -> Self {
        self.settings.in_flight_max = copies;
        self
    }

    /// Sets a function that receives the number of a copy (from 0) and returns entries for the
    /// copy's baggage, with request scope. The entries name tradeoff rates to try, see
    /// [`tradeoff`](crate::tradeoff). Must be called before the layer is cloned or used; otherwise
    /// it has no effect.
    #[must_use]
    pub fn explore(
        mut self,
        explore: impl Fn(u64) -> Vec<(String, Value)> + Send + Sync + 'static,
    ) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.explore = Some(Box::new(explore));
        }
        self
    }

    /// Sets a function that is called with each copy's answer. Must be called before the layer is
    /// cloned or used; otherwise it has no effect.
    #[must_use]
    pub fn on_answer(
        mut self,
        on_answer: impl Fn(DuplicateAnswer) + Send + Sync + 'static,
    ) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.on_answer = Some(Box::new(on_answer));
        }
        self
    }

    /// Returns the handle for the fraction of requests to copy, which can be set at any time.
    #[must_use]
    pub fn rate(&self) -> DuplicateRate {
        self.shared.rate.clone()
    }

    /// Returns statistics of copies.
    #[must_use]
    pub fn stats(&self) -> DuplicateStats {
        let counters = &self.shared.counters;
        DuplicateStats {
            sent: counters.sent.load(Relaxed),
            answered: counters.answered.load(Relaxed),
            failed: counters.failed.load(Relaxed),
            skipped_in_flight: counters.skipped_in_flight.load(Relaxed),
            skipped_body: counters.skipped_body.load(Relaxed),
            skipped_no_runtime: counters.skipped_no_runtime.load(Relaxed),
            skipped_is_duplicate: counters.skipped_is_duplicate.load(Relaxed),
            skipped_unmarked: counters.skipped_unmarked.load(Relaxed),
            panicked: counters.panicked.load(Relaxed),
        }
    }
}

impl DuplicateState {
    /// Reports whether to copy the next request. The choices are spread as evenly as possible
    /// (multiples of the golden ratio).
    fn is_sampled(&self) -> bool {
        let rate = self.rate.get();
        if rate <= 0.0 {
            return false;
        }
        let number = self.counters.requests.fetch_add(1, Relaxed);
        let share = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64 / 2_f64.powi(64);
        share < rate
    }

    /// Returns the baggage of the copy `number`: the original's, the mark [`DUPLICATE`], and the
    /// entries that `explore` returns.
    fn baggage(&self, mut baggage: Baggage, number: u64) -> Baggage {
        baggage.set(Entry::new(Scope::Request, DUPLICATE, true).with_importance(9));
        let Some(explore) = &self.explore else {
            return baggage;
        };
        match catch_unwind(AssertUnwindSafe(|| explore(number))) {
            Ok(entries) => {
                for (key, value) in entries {
                    baggage.set(Entry::new(Scope::Request, key, value).with_importance(9));
                }
            }
            Err(_) => {
                self.counters.panicked.fetch_add(1, Relaxed);
            }
        }
        baggage
    }
}

impl<S, P: Clone> Layer<S> for DuplicateLayer<P> {
    type Service = DuplicateService<S, P>;

    fn layer(&self, inner: S) -> DuplicateService<S, P> {
        DuplicateService {
            inner,
            layer: self.clone(),
        }
    }
}

/// Service created by [`DuplicateLayer`].
#[derive(Clone, Debug)]
pub struct DuplicateService<S, P> {
    inner: S,
    layer: DuplicateLayer<P>,
}

impl<S, P, B, R> Service<Request<B>> for DuplicateService<S, P>
where
    S: Service<Request<OriginalBody<B>>>,
    B: Body,
    B::Data: AsRef<[u8]>,
    P: Service<Request<CopiedBody>, Response = http::Response<R>> + Clone + Send + 'static,
    P::Future: Send,
    R: Body + Send + 'static,
    R::Data: AsRef<[u8]> + Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Original<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = &self.layer.shared;
        let copying = if shared.is_sampled() {
            let baggage = propagation::callers_baggage(request.headers());
            if baggage.get(DUPLICATE) == Some(&Value::Bool(true)) {
                shared.counters.skipped_is_duplicate.fetch_add(1, Relaxed);
                None
            } else {
                let pipeline = self.layer.pipeline.clone();
                CopyState::begin(shared, self.layer.settings, pipeline, &request, baggage)
            }
        } else {
            None
        };
        Original {
            future: self
                .inner
                .call(request.map(|body| OriginalBody::new(body, copying))),
        }
    }
}

pin_project_lite::pin_project! {
    /// Future of the original's response.
    #[derive(Debug)]
    pub struct Original<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Original<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().future.poll(cx)
    }
}
