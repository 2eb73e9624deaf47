//! Tradeoff point: a place in the code where data can be given up.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stroboscope_tradeoff::{Chooser, Feature, Goal, Item, PointPolicy, QualityModel, Scorer};

use super::arrivals::Arrivals;
use super::capacity::Advice;
use super::choice::Choice;
use super::explore::{self, Exploration};
use super::identity::PointIdentity;
use super::in_force::{self, ACTIVE, CHANGES, InForce};
use super::record::{self, TradeoffRecord};
use crate::baggage::exploring::is_exploring;
use crate::baggage::{self, Tradeoff, TradeoffKind, note};
use crate::clock::ticks;
use crate::{gate, generation, sys};

/// Minimum interval between measurements of the load, in ns, unless the policy changes.
const SLICE_NS: i64 = 100_000_000;

/// Tradeoff point, declared once in a `static`, which decides for each request.
///
/// Its name is `COMPONENT.WHAT`, consists of characters allowed in header names, and is the same in
/// all processes.
#[derive(Debug)]
pub struct Point {
    identity: PointIdentity,
    /// Tradeoff rate until the next measurement, as the bits of an `f64`; 0 if nothing is given up.
    rate: AtomicU64,
    /// Time of the next measurement of the load, in [`ticks`].
    due: AtomicU64,
    /// Value of [`CHANGES`] when `rate` was last computed.
    changes: AtomicU64,
    arrivals: AtomicU64,
    load: Mutex<Load>,
}

/// Load measurements of a point. The thread that finds a measurement due locks them.
#[derive(Debug)]
struct Load {
    arrivals: Arrivals,
    advice: Advice,
    /// Last measurement, in ticks and on the monotonic clock.
    looked: Option<(u64, i64)>,
}

thread_local! {
    static CHOOSER: RefCell<Chooser> = const { RefCell::new(Chooser::new()) };
}

impl Point {
    const fn new(
        name: &'static str,
        kind: TradeoffKind,
        features: &'static [&'static str],
    ) -> Self {
        Self {
            identity: PointIdentity::new(name, kind, features),
            rate: AtomicU64::new(0),
            due: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            arrivals: AtomicU64::new(0),
            load: Mutex::new(Load {
                arrivals: Arrivals::new(),
                advice: Advice::new(),
                looked: None,
            }),
        }
    }

    /// Declares a point that may leave out items of an aggregate. `features` names the known
    /// properties of each item, its schema: discrete ones are passed as [`Feature::Is`], continuous
    /// ones as [`Feature::Measures`], always in this order. Put the most informative one first.
    #[must_use]
    pub const fn omitting(name: &'static str, features: &'static [&'static str]) -> Self {
        Self::new(name, TradeoffKind::Omit, features)
    }

    /// Declares a point that may use a default in place of a call.
    #[must_use]
    pub const fn defaulting(name: &'static str) -> Self {
        Self::new(name, TradeoffKind::Default, &[])
    }

    /// Declares a point that may use an alternative source of lower fidelity.
    #[must_use]
    pub const fn alternating(name: &'static str) -> Self {
        Self::new(name, TradeoffKind::LowFidelity, &[])
    }

    /// Returns the name, `COMPONENT.WHAT`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.identity.name
    }

    /// Returns the kind of replacement for the full work.
    #[must_use]
    pub const fn kind(&self) -> TradeoffKind {
        self.identity.kind
    }

    /// Returns the names of the items' features.
    #[must_use]
    pub const fn features(&self) -> &'static [&'static str] {
        self.identity.features
    }

    /// Returns the requests that arrive per second, as last measured; 0 until a policy is installed
    /// or a request explores.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        self.identity.requests_per_second()
    }

    /// Decides whether the request makes one call in full or replaces it. Every call is made in
    /// full until a policy is installed or a request explores.
    #[inline]
    pub fn decide(&'static self) -> Choice {
        if !ACTIVE.load(Relaxed) && !is_exploring() {
            return Choice::full(&self.identity, 1, false);
        }
        self.arrive();
        if self.rate.load(Relaxed) == 0 && !is_exploring() {
            return Choice::full(&self.identity, 1, true);
        }
        self.decide_call()
    }

    /// Decides which of `items` items to leave out. `features` returns the values named by the
    /// schema for the item at a position. It is called only if items may be left out.
    #[inline]
    pub fn decide_items<'a, const N: usize>(
        &'static self,
        items: usize,
        features: impl Fn(usize) -> [Feature<'a>; N],
    ) -> Choice {
        if !ACTIVE.load(Relaxed) && !is_exploring() {
            return Choice::full(&self.identity, items, false);
        }
        self.arrive();
        if self.rate.load(Relaxed) == 0 && !is_exploring() {
            return Choice::full(&self.identity, items, true);
        }
        self.choose(items, features)
    }

    /// Records the value of items to the response (its loss of quality if each were missing), as
    /// training data for models. Call it at the end of a pipeline that explores; it has no effect
    /// for other requests. Losses are in the quality function's unit, see
    /// [`quality`](crate::quality). Only complete responses show the value of their items, so a
    /// point that leaves out items records nothing if the request explores a rate above 0.
    pub fn meter<'a, const N: usize>(
        &self,
        items: impl ExactSizeIterator<Item = ([Feature<'a>; N], f64)>,
    ) {
        let Some(exploration) = explore::of_request(self.name()) else {
            return;
        };
        // A call that explores a fraction may still be made in full.
        if exploration.rate == 0.0 || self.kind() != TradeoffKind::Omit {
            record::items(&self.identity, items);
        }
    }

    #[inline]
    fn arrive(&'static self) {
        self.arrivals.fetch_add(1, Relaxed);
        self.identity.begin(generation::current());
        let now = ticks();
        if now >= self.due.load(Relaxed) || self.changes.load(Relaxed) != CHANGES.load(Relaxed) {
            self.look(now);
        }
    }

    /// Measures the load and decides for the time until the next measurement. Only one thread does
    /// so at a time; others use the previous decision.
    #[cold]
    fn look(&'static self, now: u64) {
        // A fork waits for this lock, so in the child no thread of the parent holds `load`.
        let Some(in_force) = in_force::reading() else {
            return;
        };
        let Ok(mut load) = self.load.try_lock() else {
            return;
        };
        let at_ns = sys::monotonic_ns();
        let changes = CHANGES.load(Relaxed);
        let is_new = self.changes.swap(changes, Relaxed) != changes;
        if let Some((last, last_ns)) = load.looked {
            let elapsed_ns = at_ns - last_ns;
            if elapsed_ns < SLICE_NS && !is_new {
                // The length of a tick was overestimated, or is not known yet.
                let per_ns = now.saturating_sub(last) as f64 / elapsed_ns.max(1) as f64;
                let rest = (SLICE_NS - elapsed_ns) as f64 * per_ns;
                self.due.store(now + (rest as u64).max(1_000), Relaxed);
                return;
            }
            if elapsed_ns > 0 {
                let per_ns = now.saturating_sub(last) as f64 / elapsed_ns as f64;
                self.due
                    .store(now + (SLICE_NS as f64 * per_ns) as u64, Relaxed);
            }
        } else {
            // The length of a tick is not known before the second measurement.
            self.due.store(now + 100_000, Relaxed);
        }
        load.looked = Some((now, at_ns));
        let arrived = self.arrivals.load(Relaxed);
        let per_second = load.arrivals.end_slice(at_ns, arrived);
        self.identity
            .requests_per_second
            .store(per_second.to_bits(), Relaxed);
        let rate = in_force.as_ref().map_or(0.0, |in_force| {
            self.rate_at(in_force, per_second, &mut load.advice)
        });
        self.rate.store(rate.to_bits(), Relaxed);
    }

    /// Returns the fraction to give up at a load; 0 if the policy lacks the point, has another
    /// schema for it, or has expired.
    fn rate_at(&'static self, in_force: &InForce, per_second: f64, advice: &mut Advice) -> f64 {
        let Some((policy, _)) = in_force.point(self.name()) else {
            return 0.0;
        };
        let schema = &policy.quality.schema;
        if schema != self.features() {
            in_force::said(format!(
                "the policy in force uses the schema {schema:?} for items of {}, but the service declares {:?}: \
                 nothing is given up; learn a new policy",
                self.name(),
                self.features()
            ));
            return 0.0;
        }
        if in_force.is_stale() {
            in_force::said(format!(
                "the models of policy {} have expired: nothing is given up; learn a new policy",
                in_force.policy.version
            ));
            return 0.0;
        }
        let effective = per_second + self.backlog(policy, per_second);
        let rate = policy.rate(effective);
        if !rate.is_met {
            in_force::count_unmet();
        }
        // A backlog is worked off soon; an additional instance pays only for a lasting load.
        if let Some(decided) = policy.utility(per_second) {
            advice.slice(self.name(), decided);
        }
        rate.rate
    }

    /// Returns the requests under way beyond those that the model explains: 1.5 times the number by
    /// Little's law, plus 2, to allow for chance. They must be worked off within a second, too.
    /// Returns 0 if the load exceeds the measurements at the present rate.
    fn backlog(&self, policy: &PointPolicy, per_second: f64) -> f64 {
        let present = f64::from_bits(self.rate.load(Relaxed));
        let latency_ns = policy.performance.latency_ns(per_second, present);
        if !latency_ns.is_finite() {
            // The number by the model is unknown, so the load alone decides the rate.
            return 0.0;
        }
        let expected = per_second * latency_ns / 1e9;
        let under_way = self.identity.under_way(generation::current()) as f64;
        (under_way - 1.5 * expected - 2.0).max(0.0)
    }

    /// Returns the fraction that the current request gives up, and the exploration that causes it,
    /// if any.
    fn rate_of_request(&self, in_force: Option<&InForce>) -> (f64, Option<Exploration>) {
        if let Some(exploration) = explore::of_request(self.name()) {
            return (exploration.rate, Some(exploration));
        }
        let rate = f64::from_bits(self.rate.load(Relaxed));
        let policy = in_force.and_then(|in_force| in_force.point(self.name()));
        match policy {
            Some((policy, _)) if rate > 0.0 => (self.rate_with_slack(policy, rate), None),
            _ => (0.0, None),
        }
    }

    /// Reduces the fraction if the point's goal is slack, and if the request's baggage predicts
    /// slack for the goal's component.
    fn rate_with_slack(&self, policy: &PointPolicy, rate: f64) -> f64 {
        let Goal::Slack { component, .. } = &policy.goal else {
            return rate;
        };
        match baggage::slack().and_then(|slack| slack.slack_ns(component)) {
            Some(slack_ns) if slack_ns > 0 => {
                let per_second = self.requests_per_second();
                policy
                    .rate_within_slack(per_second, rate, slack_ns as f64)
                    .rate
            }
            _ => rate,
        }
    }

    #[cold]
    fn decide_call(&'static self) -> Choice {
        let in_force = in_force::in_force();
        let (rate, exploration) = self.rate_of_request(in_force.as_deref());
        // Spreads the choices as evenly as possible without random numbers: multiples of the golden
        // ratio.
        let number = self.arrivals.load(Relaxed);
        let share = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64 / 2_f64.powi(64);
        let is_reduced = share < rate;
        let decision = if is_reduced {
            Choice::reduced(&self.identity)
        } else {
            Choice::full(&self.identity, 1, true)
        };
        self.made(&decision, "", in_force.as_deref(), exploration);
        decision
    }

    #[cold]
    fn choose<'a, const N: usize>(
        &'static self,
        items: usize,
        features: impl Fn(usize) -> [Feature<'a>; N],
    ) -> Choice {
        let in_force = in_force::in_force();
        let (rate, exploration) = self.rate_of_request(in_force.as_deref());
        let model = in_force
            .as_deref()
            .and_then(|in_force| in_force.point(self.name()))
            .filter(|(policy, _)| policy.quality.schema == self.features());
        let decision = if rate <= 0.0 || items == 0 {
            Choice::full(&self.identity, items, true)
        } else {
            let is_random = exploration.is_some_and(|exploration| !exploration.is_by_model);
            // A thread that is being torn down has no buffer, so its decision is full fidelity.
            CHOOSER
                .try_with(|chooser| match (model, chooser.try_borrow_mut()) {
                    (Some((policy, scorer)), Ok(mut chooser)) if !is_random => {
                        let places =
                            choose_by_model(&mut chooser, rate, policy, scorer, items, &features);
                        Choice::omitting(&self.identity, items, places)
                    }
                    (_, Ok(mut chooser)) => {
                        let places = choose_at_random(&mut chooser, rate, items);
                        Choice::omitting(&self.identity, items, places)
                    }
                    (_, Err(_)) => Choice::full(&self.identity, items, true),
                })
                .unwrap_or_else(|_| Choice::full(&self.identity, items, true))
        };
        // The omitted classes are counted only for the record.
        let omitted_by = if decision.is_full() || gate::is_idle() {
            String::new()
        } else {
            let omitted = (0..items).filter(|place| !decision.keeps(*place));
            record::counted(omitted.map(&features))
        };
        self.made(&decision, &omitted_by, in_force.as_deref(), exploration);
        decision
    }

    /// Adds the decision to the baggage if it gives up anything. Records it then, and also if the
    /// request explores.
    fn made(
        &self,
        decision: &Choice,
        omitted_by: &str,
        in_force: Option<&InForce>,
        exploration: Option<Exploration>,
    ) {
        if exploration.is_some() {
            in_force::count_explored();
        } else if decision.is_full() {
            return;
        }
        if !decision.is_full() {
            in_force::count_made();
            let (component, what) = self.identity.parts();
            note(&Tradeoff::new(component, what, self.kind()).proactive());
        }
        let made = TradeoffRecord {
            items: decision.items(),
            omitted: decision.omitted(),
            omitted_by,
            policy: in_force.map_or(0, |in_force| in_force.policy.version),
            is_explored: exploration.is_some(),
            is_by_model: exploration.is_none_or(|exploration| exploration.is_by_model),
        };
        record::made(&self.identity, &made);
    }
}

fn choose_by_model<'c, 'a, const N: usize>(
    chooser: &'c mut Chooser,
    rate: f64,
    policy: &PointPolicy,
    scorer: &Scorer,
    items: usize,
    features: &impl Fn(usize) -> [Feature<'a>; N],
) -> &'c [u32] {
    let mut losses = scorer.in_sequence();
    let costs = policy.performance.class_costs.as_ref();
    let by = costs.and_then(|(feature, costs)| {
        let place = place_of_feature(&policy.quality, feature)?;
        Some((place, costs))
    });
    let Some((by, costs)) = by else {
        return chooser.choose_even(rate, (0..items).map(|place| losses.loss(&features(place))));
    };
    let cost_of = |item: &[Feature<'a>; N]| {
        let cost = match item.get(by) {
            Some(Feature::Is(class)) => costs.iter().find(|cost| cost.class == *class),
            _ => None,
        };
        cost.map_or(1.0, |cost| cost.relative_cost)
    };
    let items = (0..items).map(|place| {
        let item = features(place);
        Item {
            loss: losses.loss(&item),
            cost: cost_of(&item),
        }
    });
    chooser.choose(rate, items)
}

fn place_of_feature(model: &QualityModel, feature: &str) -> Option<usize> {
    model.schema.iter().position(|known| known == feature)
}

/// Chooses items at random, as if all items cost the same.
fn choose_at_random(chooser: &mut Chooser, rate: f64, items: usize) -> &[u32] {
    let seed = crate::thread::span_id();
    let random = |place: usize| {
        // SplitMix64, which mixes consecutive positions well.
        let mut z = seed.wrapping_add((place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as f64
    };
    chooser.choose_even(rate, (0..items).map(random))
}
