//! Policy in force, by which points decide, with statistics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::{SystemTime, UNIX_EPOCH};

use rustc_hash::FxHashMap;
use stroboscope_tradeoff::{PointPolicy, Policy, PolicyError, Scorer};

use crate::baggage::SlackPrediction;

/// True once a policy was installed. Until then, points need not look for one.
pub(super) static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Counter that each change of policy increments; a change makes points measure at their next
/// request.
pub(super) static CHANGES: AtomicU64 = AtomicU64::new(1);
static IN_FORCE: RwLock<Option<Arc<InForce>>> = RwLock::new(None);

static MADE: AtomicU64 = AtomicU64::new(0);
static EXPLORED: AtomicU64 = AtomicU64::new(0);
static REACTED: AtomicU64 = AtomicU64::new(0);
static UNMET: AtomicU64 = AtomicU64::new(0);
static STALE: AtomicU64 = AtomicU64::new(0);
static FORETOLD: AtomicU64 = AtomicU64::new(0);
static UNFORETOLD: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static PANICKED: AtomicU64 = AtomicU64::new(0);
static PROBLEM: Mutex<String> = Mutex::new(String::new());

/// Statistics of tradeoffs in this process, and of the policies it received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TradeoffStats {
    /// Version of the policy in force; `None` without a policy, and while one is being replaced.
    pub policy: Option<u64>,
    /// Number of tradeoffs made proactively.
    pub made: u64,
    /// Number of decisions that explored a tradeoff rate from the request's baggage.
    pub explored: u64,
    /// Number of tradeoffs forced by a timeout or an error.
    pub reacted: u64,
    /// Number of measurements of a point's load (usually every 100 ms), summed over points, at
    /// which no tradeoff was predicted to reach the goal.
    pub unmet: u64,
    /// Number of measurements of a point's load (usually every 100 ms), summed over points, at
    /// which the models were too old to be used, plus requests whose slack prediction failed for
    /// this reason.
    pub stale: u64,
    /// Number of requests whose slack was predicted.
    pub foretold: u64,
    /// Number of requests whose key is missing in the slack model.
    pub unforetold: u64,
    /// Number of rejected policies, and of other messages of the collector that were malformed.
    pub refused: u64,
    /// Number of panics in callbacks ([`on_capacity`](super::on_capacity)).
    pub panicked: u64,
    /// Description of the last problem with a policy or such a message; empty if there was none.
    pub problem: String,
}

/// Policy prepared for lookups.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) policy: Policy,
    /// Scorer of each point of the policy.
    scorers: Vec<Scorer>,
    places: FxHashMap<String, usize>,
}

impl InForce {
    pub(super) fn point(&self, name: &str) -> Option<(&PointPolicy, &Scorer)> {
        let place = *self.places.get(name)?;
        Some((self.policy.points.get(place)?, self.scorers.get(place)?))
    }

    /// Reports whether the models are too old, and counts it if they are.
    pub(super) fn is_stale(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let is_stale = now.is_ok_and(|now| self.policy.is_stale(now.as_nanos() as u64));
        if is_stale {
            STALE.fetch_add(1, Relaxed);
        }
        is_stale
    }
}

/// Installs a policy in place of the previous one; it takes effect at each point's next request.
///
/// # Errors
/// Fails if the policy is invalid; the previous one then stays in force.
pub fn install(policy: Policy) -> Result<(), PolicyError> {
    policy
        .check()
        .inspect_err(|malformed| refused(malformed.to_string()))?;
    let scorers = policy
        .points
        .iter()
        .map(|point| Scorer::new(&point.quality))
        .collect();
    let places = policy
        .points
        .iter()
        .enumerate()
        .map(|(place, point)| (point.point.clone(), place))
        .collect();
    put(Some(Arc::new(InForce {
        policy,
        scorers,
        places,
    })));
    Ok(())
}

/// Removes the policy, so that requests that do not explore get full fidelity at all points.
pub fn uninstall() {
    put(None);
}

fn put(new: Option<Arc<InForce>>) {
    let is_some = new.is_some();
    *IN_FORCE.write().unwrap_or_else(PoisonError::into_inner) = new;
    CHANGES.fetch_add(1, Relaxed);
    if is_some {
        ACTIVE.store(true, Relaxed);
    }
}

/// Prevents changes of the policy until the result is dropped. Returns `None` while the policy is
/// being replaced, so that no thread waits.
pub(super) fn reading() -> Option<RwLockReadGuard<'static, Option<Arc<InForce>>>> {
    match IN_FORCE.try_read() {
        Ok(policy) => Some(policy),
        Err(TryLockError::Poisoned(policy)) => Some(policy.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Returns the policy in force. Returns `None` if there is none, and also while it is being
/// replaced.
pub(super) fn in_force() -> Option<Arc<InForce>> {
    reading()?.clone()
}

/// Guards of the policy in force and of the last problem.
pub(super) type InForceLocks = (
    RwLockWriteGuard<'static, Option<Arc<InForce>>>,
    MutexGuard<'static, String>,
);

/// Prevents threads from reading or replacing the policy, and from storing a problem, until the
/// result is dropped.
pub(super) fn lock() -> InForceLocks {
    (
        IN_FORCE.write().unwrap_or_else(PoisonError::into_inner),
        problem(),
    )
}

fn problem() -> MutexGuard<'static, String> {
    PROBLEM.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Predicts the slack of each component in a request with this key, such as a user's id. The
/// prediction is the slack in the key's last request, from the collector's slack model. Call it
/// where a request enters, and attach the result with
/// [`baggage::predict_slack`](crate::baggage::predict_slack). Returns `None` if there is no such
/// model, if it is too old, or if it lacks the key. [`stats`] counts the last two cases. Also
/// returns `None` while a policy is being replaced.
///
/// Source: Chow et al., "The Mystery Machine" (OSDI 2014), §5.2.
#[must_use]
pub fn foretold_slack(key: &str) -> Option<SlackPrediction> {
    if !ACTIVE.load(Relaxed) {
        return None;
    }
    let in_force = in_force()?;
    let model = in_force.policy.slack.as_ref()?;
    if in_force.is_stale() {
        return None;
    }
    let Some(slack) = model.of(key) else {
        UNFORETOLD.fetch_add(1, Relaxed);
        return None;
    };
    FORETOLD.fetch_add(1, Relaxed);
    let prediction = slack.fold(SlackPrediction::default(), |prediction, (component, ns)| {
        prediction.with(component, ns)
    });
    Some(
        model
            .edges()
            .fold(prediction, |prediction, (before, after)| {
                prediction.with_edge(before, after)
            }),
    )
}

pub(super) fn refused(problem: String) {
    REFUSED.fetch_add(1, Relaxed);
    said(problem);
}

/// Stores a problem for [`stats`].
pub(super) fn said(problem: String) {
    *self::problem() = problem;
}

pub(super) fn count_made() {
    MADE.fetch_add(1, Relaxed);
}

pub(super) fn count_explored() {
    EXPLORED.fetch_add(1, Relaxed);
}

pub(super) fn count_reacted() {
    REACTED.fetch_add(1, Relaxed);
}

pub(super) fn count_unmet() {
    UNMET.fetch_add(1, Relaxed);
}

pub(super) fn count_panicked() {
    PANICKED.fetch_add(1, Relaxed);
}

/// Returns statistics of tradeoffs in this process.
#[must_use]
pub fn stats() -> TradeoffStats {
    TradeoffStats {
        policy: in_force().map(|in_force| in_force.policy.version),
        made: MADE.load(Relaxed),
        explored: EXPLORED.load(Relaxed),
        reacted: REACTED.load(Relaxed),
        unmet: UNMET.load(Relaxed),
        stale: STALE.load(Relaxed),
        foretold: FORETOLD.load(Relaxed),
        unforetold: UNFORETOLD.load(Relaxed),
        refused: REFUSED.load(Relaxed),
        panicked: PANICKED.load(Relaxed),
        problem: problem().clone(),
    }
}
