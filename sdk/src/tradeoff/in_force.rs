//! The policy that points decide by.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustc_hash::FxHashMap;
use stroboscope_tradeoff::{Malformed, PointPolicy, Policy, Scorer};

use crate::baggage::SlackPrediction;

/// Whether points have to look at all: there is a policy, or something is explored.
pub(super) static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Grows when the policy changes: points look again at once.
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

/// What became of tradeoffs in this process, and of the policies it was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TradeoffStats {
    /// The version of the policy in force.
    pub policy: Option<u64>,
    /// Tradeoffs made proactively.
    pub made: u64,
    /// Requests that explored what they were told to.
    pub explored: u64,
    /// Tradeoffs that a timeout or an error forced.
    pub reacted: u64,
    /// Slices of 100 ms, by point, in which no tradeoff was predicted to reach the goal.
    pub unmet: u64,
    /// The same in which the models were too old to be used, and requests whose slack they would have foretold.
    pub stale: u64,
    /// Requests whose slack was foretold.
    pub foretold: u64,
    /// Requests whose key was not known to the model of slack.
    pub unforetold: u64,
    /// Policies that were not taken.
    pub refused: u64,
    /// Panics of callbacks ([`on_capacity`](super::on_capacity)).
    pub panicked: u64,
    /// The last problem with a policy, for people; empty when there was none.
    pub problem: String,
}

/// A policy, ready to be asked.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) policy: Policy,
    /// Of each point of the policy.
    scorers: Vec<Scorer>,
    places: FxHashMap<String, usize>,
}

impl InForce {
    pub(super) fn point(&self, name: &str) -> Option<(&PointPolicy, &Scorer)> {
        let place = *self.places.get(name)?;
        Some((self.policy.points.get(place)?, self.scorers.get(place)?))
    }

    /// Whether the models are too old; counted.
    pub(super) fn is_stale(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let is_stale = now.is_ok_and(|now| self.policy.is_stale(now.as_nanos() as u64));
        if is_stale {
            STALE.fetch_add(1, Relaxed);
        }
        is_stale
    }
}

/// Decide by this policy from now on, in place of what was in force; all points change at once.
///
/// # Errors
/// The policy makes no sense; then what was in force stays.
pub fn install(policy: Policy) -> Result<(), Malformed> {
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

/// Full fidelity from now on.
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

/// The policy in force, unless it is being changed this very moment: nobody waits for it.
pub(super) fn in_force() -> Option<Arc<InForce>> {
    IN_FORCE.try_read().ok()?.clone()
}

/// The slack that each component is foretold to have in a request of this key, a user's id say: what it had in the key's
/// last request, by the model that the collector sent. To be asked where a request enters, and carried from there by
/// [`baggage::predict_slack`](crate::baggage::predict_slack). `None`: there is no such model, it is too old, or the key is
/// new to it; both count in [`stats`].
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

/// Notes a problem for [`stats`].
pub(super) fn said(problem: String) {
    *PROBLEM.lock().unwrap_or_else(PoisonError::into_inner) = problem;
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

/// What became of tradeoffs in this process so far.
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
        problem: PROBLEM
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone(),
    }
}
