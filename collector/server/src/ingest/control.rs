//! The burst-config of the fleet: joining processes get it at once, changes reach all at the same future instant.

use std::time::Duration;

use stroboscope_burst::BurstConfig;
use stroboscope_proto::v1::{Directive, SetBurstConfig, directive::Kind};
use tokio::sync::watch;

/// How far in the future a change takes effect: long enough for every control stream to deliver it before.
const LEAD: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Setting {
    config: BurstConfig,
    at_ns: u64,
}

/// The fleet's burst-config. Clones are the same one.
#[derive(Clone, Debug)]
pub struct BurstControl {
    setting: watch::Sender<Option<Setting>>,
}

impl BurstControl {
    /// With a config that joining processes get, or none: then each keeps its own until one is set.
    #[must_use]
    pub fn new(config: Option<BurstConfig>) -> Self {
        let setting = config.map(|config| Setting { config, at_ns: 0 });
        Self {
            setting: watch::Sender::new(setting),
        }
    }

    /// The config set last; none if none ever was.
    #[must_use]
    pub fn current(&self) -> Option<BurstConfig> {
        self.setting.borrow().map(|setting| setting.config)
    }

    /// Has all processes switch one second from now. Returns that instant, in ns since the Unix epoch.
    #[must_use]
    pub fn set(&self, config: BurstConfig) -> u64 {
        let at_ns = now_ns() + u64::try_from(LEAD.as_nanos()).unwrap_or(0);
        self.setting.send_replace(Some(Setting { config, at_ns }));
        at_ns
    }

    /// What a process is told: first the current config, if any, then each change. A change that is overtaken by the
    /// next one before it was sent is left out.
    pub(super) fn directives(&self) -> Directives {
        let mut changes = self.setting.subscribe();
        changes.mark_changed();
        Directives { changes }
    }
}

pub(super) struct Directives {
    changes: watch::Receiver<Option<Setting>>,
}

impl Directives {
    /// The next directive; none when the control is gone.
    pub(super) async fn next(&mut self) -> Option<Directive> {
        loop {
            self.changes.changed().await.ok()?;
            let setting = *self.changes.borrow_and_update();
            if let Some(Setting { config, at_ns }) = setting {
                // An instant that has passed means: at once.
                let at_ns = if at_ns > now_ns() { at_ns } else { 0 };
                let change = SetBurstConfig {
                    burst_config: config.bits(),
                    at_ns,
                };
                return Some(Directive {
                    kind: Some(Kind::SetBurstConfig(change)),
                });
            }
        }
    }
}

/// The wall clock, ns since the Unix epoch.
pub(super) fn now_ns() -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
