//! Settings that the collector sends to the fleet. Processes that join get the burst-config at
//! once, and a change takes effect in all of them at the same future instant. Each process applies
//! a tradeoff policy on receipt.

use std::time::Duration;

use stroboscope_burst::BurstConfig;
use stroboscope_proto::v1::{Directive, SetBurstConfig, TradeoffPolicy, directive::Kind};
use tokio::sync::watch;

/// Lead time of a change: long enough for every control stream to deliver it in time.
const LEAD: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Setting {
    config: BurstConfig,
    at_ns: u64,
}

/// Control of the fleet's burst-config and tradeoff policy. Clones share it.
#[derive(Clone, Debug)]
pub struct BurstControl {
    setting: watch::Sender<Option<Setting>>,
    tradeoffs: watch::Sender<Option<TradeoffPolicy>>,
}

impl BurstControl {
    /// Creates a control that sends `config` to joining processes. With `None`, each process keeps
    /// its own until one is set.
    #[must_use]
    pub fn new(config: Option<BurstConfig>) -> Self {
        let setting = config.map(|config| Setting { config, at_ns: 0 });
        Self {
            setting: watch::Sender::new(setting),
            tradeoffs: watch::Sender::new(None),
        }
    }

    /// Returns the burst-config that was set last; `None` if there never was one.
    #[must_use]
    pub fn current(&self) -> Option<BurstConfig> {
        self.setting.borrow().map(|setting| setting.config)
    }

    /// Makes all processes switch to a burst-config one second from now. Returns the instant of the
    /// switch, in ns since the Unix epoch.
    #[must_use]
    pub fn set(&self, config: BurstConfig) -> u64 {
        let at_ns = now_ns() + u64::try_from(LEAD.as_nanos()).unwrap_or(0);
        self.setting.send_replace(Some(Setting { config, at_ns }));
        at_ns
    }

    /// Makes all processes apply this tradeoff policy from now on. A policy without points means
    /// full fidelity.
    pub fn set_tradeoffs(&self, policy: impl Into<TradeoffPolicy>) {
        self.tradeoffs.send_replace(Some(policy.into()));
    }

    /// Returns the directives for one process: first those in force, if any, then each change. A
    /// change that is superseded before it is sent is skipped.
    pub(super) fn directives(&self) -> Directives {
        let mut changes = self.setting.subscribe();
        changes.mark_changed();
        let mut tradeoffs = self.tradeoffs.subscribe();
        tradeoffs.mark_changed();
        Directives { changes, tradeoffs }
    }
}

pub(super) struct Directives {
    changes: watch::Receiver<Option<Setting>>,
    tradeoffs: watch::Receiver<Option<TradeoffPolicy>>,
}

impl Directives {
    /// Returns the next directive; `None` once the control is dropped.
    pub(super) async fn next(&mut self) -> Option<Directive> {
        loop {
            let kind = tokio::select! {
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

fn switched(Setting { config, at_ns }: Setting) -> Kind {
    // A passed instant means immediately.
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
