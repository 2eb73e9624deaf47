//! Settings that the collector sends to the fleet. Processes that join get the burst-config at
//! once. A change names one future instant at which all processes switch. Each process applies a
//! tradeoff policy on receipt.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use stroboscope_burst::BurstConfig;
use stroboscope_proto::v1::directive::Kind;
use stroboscope_proto::v1::{Directive, Probe, Route, SetBurstConfig, TradeoffPolicy};
use tokio::sync::watch;
use tokio::time::Interval;

use super::agents::{AgentLink, Agents, PROBE_EVERY};

/// Lead time of a change, without the allowance for the delay of agents. Control streams usually
/// deliver a change in time.
const LEAD: Duration = Duration::from_secs(1);
/// Maximum lead time. An agent that takes longer misses the instant, and its processes switch late.
const LEAD_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
struct Setting {
    config: BurstConfig,
    at_ns: u64,
}

/// Maximum number of collectors on a route. Each hop adds a delay, and fleets have one or two hops.
const ROUTE_MAX: usize = 16;

/// Control of the fleet's burst-config and tradeoff policy. Clones share it.
#[derive(Clone, Debug)]
pub struct BurstControl {
    setting: watch::Sender<Option<Setting>>,
    tradeoffs: watch::Sender<Option<TradeoffPolicy>>,
    /// Ids of the collectors through which forwarded data passes, starting with this one.
    route: watch::Sender<Vec<u64>>,
    agents: Agents,
    /// Addresses of the collectors that an agent follows; empty in a collector with a store.
    upstream: Arc<str>,
}

impl BurstControl {
    /// Creates a control that sends `config` to joining processes. With `None`, each process keeps
    /// its own until one is set.
    #[must_use]
    pub fn new(config: Option<BurstConfig>) -> Self {
        let setting = config.map(|config| Setting { config, at_ns: 0 });
        // The keys of a `RandomState` are random.
        let id = RandomState::new().build_hasher().finish();
        Self {
            setting: watch::Sender::new(setting),
            tradeoffs: watch::Sender::new(None),
            route: watch::Sender::new(vec![id]),
            agents: Agents::default(),
            upstream: "".into(),
        }
    }

    /// Creates the control of an agent, which relays the directives of the collectors at
    /// `upstream`.
    #[must_use]
    pub fn of_agent(upstream: &str) -> Self {
        Self {
            upstream: upstream.into(),
            ..Self::new(None)
        }
    }

    /// Returns the addresses of the collectors that an agent follows; `None` in a collector with a
    /// store.
    #[must_use]
    pub fn upstream(&self) -> Option<&str> {
        (!self.upstream.is_empty()).then_some(&*self.upstream)
    }

    /// Returns the agents that are connected now.
    #[must_use]
    pub fn agents(&self) -> &Agents {
        &self.agents
    }

    /// Applies a directive from the collector that this agent forwards to. Processes and agents
    /// that are connected here then get the burst-config if it changed, and any policy; agents also
    /// get the route if it changed.
    pub(crate) fn relay(&self, directive: Kind) {
        match directive {
            Kind::SetBurstConfig(SetBurstConfig {
                burst_config,
                at_ns,
            }) => {
                let config = BurstConfig::from_bits(burst_config);
                // A gateway repeats its config to each new connection. A process that got it twice
                // would close its current window and open it again.
                self.setting.send_if_modified(|setting| {
                    let is_new = setting.is_none_or(|known| known.config != config);
                    if is_new {
                        *setting = Some(Setting { config, at_ns });
                    }
                    is_new
                });
            }
            Kind::SetTradeoffs(policy) => self.set_tradeoffs(policy),
            // The uplink answers it.
            Kind::Probe(_) => {}
            Kind::SetRoute(Route { collectors }) => {
                self.route.send_if_modified(|route| {
                    let id = route[0];
                    // In a loop, the ids would repeat for ever.
                    let length = collectors.iter().position(|&collector| collector == id);
                    let length = length.map_or(collectors.len(), |at| at + 1).min(ROUTE_MAX);
                    let fresh: Vec<u64> =
                        [id].iter().chain(&collectors[..length]).copied().collect();
                    let is_new = *route != fresh;
                    *route = fresh;
                    is_new
                });
            }
        }
    }

    /// Returns the reason why this collector must not forward, as text for people: the data would
    /// come back to it or pass more than [`ROUTE_MAX`] collectors. `None` if it may forward.
    pub(crate) fn loop_reason(&self) -> Option<String> {
        let route = self.route.borrow();
        if route[1..].contains(&route[0]) {
            return Some(format!(
                "collectors forward in a loop: what this one sends to {} comes back after {} hops; one of them must store it",
                self.upstream,
                route.len() - 1
            ));
        }
        (route.len() > ROUTE_MAX).then(|| {
            format!(
                "what this collector sends to {} passes more than {ROUTE_MAX} collectors",
                self.upstream
            )
        })
    }

    /// Returns the burst-config that was set last; `None` if there never was one.
    #[must_use]
    pub fn current(&self) -> Option<BurstConfig> {
        self.setting.borrow().map(|setting| setting.config)
    }

    /// Returns the burst-config that was set last, and the instant of that change, in ns since the
    /// Unix epoch. The instant is 0 if the change applied as soon as this collector knew it.
    pub(crate) fn setting(&self) -> Option<(BurstConfig, u64)> {
        self.setting
            .borrow()
            .map(|setting| (setting.config, setting.at_ns))
    }

    /// Passes the burst-config, if any, and each later one to `apply`, with the instant of the
    /// change, in ns since the Unix epoch (0 for at once). Skips superseded changes.
    pub async fn follow_config(&self, mut apply: impl FnMut(BurstConfig, u64)) {
        let mut changes = self.setting.subscribe();
        changes.mark_changed();
        // The sender is a field of this control.
        while changes.changed().await.is_ok() {
            if let Some(Setting { config, at_ns }) = *changes.borrow_and_update() {
                apply(config, at_ns);
            }
        }
    }

    /// Makes all processes switch to a burst-config at the same future instant: in one second plus
    /// twice the delay of the slowest agent (if any is known), but in at most 30 s. Returns the
    /// instant, in ns since the Unix epoch.
    #[must_use]
    pub fn set(&self, config: BurstConfig) -> u64 {
        let slowest = self.agents.slowest().unwrap_or_default();
        let lead = LEAD.saturating_add(slowest * 2).min(LEAD_MAX);
        let at_ns = now_ns() + u64::try_from(lead.as_nanos()).unwrap_or(0);
        self.setting.send_replace(Some(Setting { config, at_ns }));
        at_ns
    }

    /// Sends this tradeoff policy to all processes, which apply it on receipt if it is valid. A
    /// policy without points means full fidelity.
    pub fn set_tradeoffs(&self, policy: impl Into<TradeoffPolicy>) {
        self.tradeoffs.send_replace(Some(policy.into()));
    }

    /// Returns the directives for a process or agent: first those in force, then each change. A
    /// change that is superseded before it is sent is skipped. An agent gets the route first.
    pub(super) fn directives(&self, is_agent: bool) -> Directives {
        let agent = is_agent.then(|| {
            let mut route = self.route.subscribe();
            route.mark_changed();
            // The first probe comes at once.
            AgentDirectives {
                route,
                link: self.agents.join(),
                probes: tokio::time::interval(PROBE_EVERY),
            }
        });
        let mut changes = self.setting.subscribe();
        changes.mark_changed();
        let mut tradeoffs = self.tradeoffs.subscribe();
        tradeoffs.mark_changed();
        Directives {
            agent,
            changes,
            tradeoffs,
        }
    }
}

pub(super) struct Directives {
    /// Directives that only an agent gets; `None` for a process.
    agent: Option<AgentDirectives>,
    changes: watch::Receiver<Option<Setting>>,
    tradeoffs: watch::Receiver<Option<TradeoffPolicy>>,
}

impl Directives {
    /// Returns the next directive; `None` once the control is dropped.
    pub(super) async fn next(&mut self) -> Option<Directive> {
        loop {
            let kind = tokio::select! {
                biased;
                kind = next_of_agent(&mut self.agent) => Some(kind?),
                changed = self.changes.changed() => {
                    changed.ok()?;
                    let setting = *self.changes.borrow_and_update();
                    setting.map(switched)
                }
                changed = self.tradeoffs.changed() => {
                    changed.ok()?;
                    self.tradeoffs.borrow_and_update().clone().map(Kind::SetTradeoffs)
                }
            };
            if kind.is_some() {
                return Some(Directive { kind });
            }
        }
    }
}

/// Directives for an agent: the route and its changes, and probes of its delay.
struct AgentDirectives {
    route: watch::Receiver<Vec<u64>>,
    link: AgentLink,
    probes: Interval,
}

/// Waits for the next route or probe; for a process, waits for ever. Returns `None` once the
/// control is dropped.
async fn next_of_agent(agent: &mut Option<AgentDirectives>) -> Option<Kind> {
    let Some(AgentDirectives {
        route,
        link,
        probes,
    }) = agent
    else {
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            biased;
            changed = route.changed() => {
                changed.ok()?;
                let collectors = route.borrow_and_update().clone();
                return Some(Kind::SetRoute(Route { collectors }));
            }
            _ = probes.tick() => {
                if let Some(id) = link.probe() {
                    return Some(Kind::Probe(Probe { id }));
                }
            }
        }
    }
}

fn switched(Setting { config, at_ns }: Setting) -> Kind {
    // An instant that has passed is sent as 0, which means immediately.
    let at_ns = if at_ns > now_ns() { at_ns } else { 0 };
    Kind::SetBurstConfig(SetBurstConfig {
        burst_config: config.bits(),
        at_ns,
    })
}

/// Returns the wall-clock time, in ns since the Unix epoch.
pub(super) fn now_ns() -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
