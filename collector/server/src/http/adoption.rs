//! Adoption of the fleet's burst-config: the live processes that apply it, and those that do not.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stroboscope_burst::BurstConfig;
use stroboscope_render::humanise::{counted, duration};
use stroboscope_render::rows;
use stroboscope_store::flush::now_ns;
use stroboscope_store::ledger::LedgerEntry;

use super::pages::Pages;

/// Time since a process's latest batch after which it no longer counts as live, in ns. An idle
/// process sends a batch each minute, and an agent forwards it within ten of its flush intervals.
const LIVE_NS: i64 = 150_000_000_000;
/// Maximum number of processes listed; the total is given as well.
const OTHERS_SHOWN: usize = 50;

/// Burst-config of the fleet, and the live processes that apply it. `/api/burst-config` serves it
/// as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Adoption {
    /// Burst-config that was set last, such as `4ms/32ms`; `None` if none is set.
    pub burst_config: Option<String>,
    /// Instant of the latest change, in ns since the Unix epoch; 0 if none is known.
    pub at_ns: u64,
    /// Number of live processes: those that have not ended, and sent a batch in the last 150 s.
    pub live: usize,
    /// Number of live processes that reported that they apply the config.
    pub applied: usize,
    /// Maximum time from the instant of the change until a process applied it, by the process's
    /// clock, in ns. Covers processes that were known before the change. `None` if none of them
    /// applied it at the instant or later.
    pub late_ns: Option<u64>,
    /// Number of live processes by the config that they reported.
    pub configs: BTreeMap<String, usize>,
    /// Live processes that reported another config, or none, up to 50; those heard from most
    /// recently come first. Empty if no config is set.
    pub others: Vec<Other>,
}

/// A live process that does not apply the fleet's burst-config, as far as it has reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Other {
    pub service: String,
    pub host: String,
    /// Process id; 0 if unknown.
    pub pid: u32,
    /// Burst-config that the process reported last; `None` if unknown.
    pub burst_config: Option<String>,
    /// Share of the time in the fleet's bursts that the process records too, 0 to 1; `None` if
    /// unknown.
    pub overlap: Option<f64>,
    /// True if a batch of the process arrived after the instant of the change. An agent may have
    /// received it before.
    pub is_heard_since: bool,
    /// Time since its latest batch, in ns.
    pub quiet_ns: u64,
}

rows! {
    Other as row, "others": "A process that does not apply the fleet's burst-config.";
    service: Text, "service" = &*row.service;
    host: Text, "host" = &*row.host;
    pid: Count, "process" = (row.pid > 0).then_some(u64::from(row.pid));
    burst_config: Text, "burst-config" = row.burst_config.as_deref();
    overlap: Share, "of the fleet's bursts" = row.overlap;
    quiet_ns: DurationNs, "last seen, ago" = row.quiet_ns;
}

/// Reports whether a process sent a batch lately and has not ended.
pub(super) fn is_live(entry: &LedgerEntry, now_ns: i64) -> bool {
    !entry.has_ended && now_ns.saturating_sub(entry.last_seen_ns) < LIVE_NS
}

impl Adoption {
    pub(super) fn of(pages: &Pages) -> Self {
        pages.intake.with_ledger(|ledger| {
            let entries = ledger.entries().map(|(_, entry)| entry);
            Self::of_entries(pages.control.setting(), entries, now_ns())
        })
    }

    /// Compares the processes' reports with the config that was set last and the instant of that
    /// change.
    fn of_entries<'a>(
        setting: Option<(BurstConfig, u64)>,
        entries: impl Iterator<Item = &'a LedgerEntry>,
        now_ns: i64,
    ) -> Self {
        let (config, at_ns) = setting.unzip();
        let at_ns = at_ns.unwrap_or(0);
        let mut adoption = Self {
            burst_config: config.map(|config| config.to_string()),
            at_ns,
            ..Self::default()
        };
        let mut others = Vec::new();
        for entry in entries.filter(|entry| is_live(entry, now_ns)) {
            adoption.live += 1;
            let reported = entry
                .config
                .map(|of| BurstConfig::from_bits(of.burst_config));
            let name = reported.map(|config| config.to_string());
            *adoption
                .configs
                .entry(name.clone().unwrap_or_else(|| "unknown".to_owned()))
                .or_default() += 1;
            let Some(config) = config else {
                continue;
            };
            if reported == Some(config) {
                adoption.applied += 1;
                let since_ns = entry.config.map_or(0, |of| of.since_ns);
                if entry.first_seen_ns.cast_unsigned() < at_ns && since_ns >= at_ns {
                    adoption.late_ns = adoption.late_ns.max(Some(since_ns - at_ns));
                }
                continue;
            }
            others.push(Other {
                service: entry.service.clone(),
                host: entry.host.clone(),
                pid: entry.pid,
                burst_config: name,
                overlap: reported.map(|other| config.overlap(other)),
                is_heard_since: entry.last_seen_ns.cast_unsigned() > at_ns,
                quiet_ns: now_ns
                    .saturating_sub(entry.last_seen_ns)
                    .max(0)
                    .cast_unsigned(),
            });
        }
        others.sort_by(|a, b| {
            let key = |of: &Other| (of.quiet_ns, of.pid);
            key(a).cmp(&key(b)).then_with(|| a.host.cmp(&b.host))
        });
        others.truncate(OTHERS_SHOWN);
        adoption.others = others;
        adoption
    }

    /// Returns the number of live processes that do not apply the config, as far as they have
    /// reported; 0 if none is set.
    #[must_use]
    pub fn others_count(&self) -> usize {
        match self.burst_config {
            Some(_) => self.live - self.applied,
            None => 0,
        }
    }
}

impl fmt::Display for Adoption {
    /// Writes how many live processes apply the config, how late the latest one was, and the
    /// configs in force if there are several.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let live = counted(self.live as u64, "live process");
        match (&self.burst_config, self.configs.first_key_value()) {
            (Some(config), _) => write!(f, "{} of {live} apply {config}", self.applied)?,
            (None, Some((config, _))) if self.configs.len() == 1 => {
                write!(f, "no burst-config is set; {live}: {config}")?;
            }
            (None, _) => write!(f, "no burst-config is set; {live}")?,
        }
        if let Some(late_ns) = self.late_ns {
            let late = duration(late_ns as f64);
            write!(f, ", the latest {late} after the instant of the change")?;
        }
        f.write_str(".")?;
        if self.configs.len() > 1 {
            let configs = self.configs.iter();
            let configs: Vec<String> = configs.map(|(name, n)| format!("{name} in {n}")).collect();
            let configs = configs.join(", ");
            write!(f, " Processes record at different times: {configs}.")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_store::ledger::ReportedConfig;

    const NOW_NS: i64 = 1_700_000_000_000_000_000;
    const AT_NS: u64 = NOW_NS.cast_unsigned() - 5_000_000_000;

    /// Returns a process that has been known for an hour, and reported a config that it applied
    /// `after_ns` after the change.
    fn entry(pid: u32, config: BurstConfig, after_ns: u64, quiet_ns: i64) -> LedgerEntry {
        LedgerEntry {
            service: "web".to_owned(),
            pid,
            first_seen_ns: NOW_NS - 3_600_000_000_000,
            last_seen_ns: NOW_NS - quiet_ns,
            config: Some(ReportedConfig {
                burst_config: config.bits(),
                since_ns: AT_NS + after_ns,
                sequence: 1,
            }),
            ..LedgerEntry::default()
        }
    }

    #[test]
    fn live_processes_with_another_config_are_named() {
        let (new, old) = (BurstConfig::DEFAULT, BurstConfig::from_bits(0b11));
        let joined = LedgerEntry {
            first_seen_ns: NOW_NS - 1_000,
            ..entry(3, new, 4_000_000_000, 1_000)
        };
        let ended = LedgerEntry {
            has_ended: true,
            ..entry(4, old, 0, 1_000)
        };
        let unknown = LedgerEntry {
            config: None,
            ..entry(5, old, 0, 6_000_000_000)
        };
        let gone = entry(6, old, 0, LIVE_NS);
        let entries = [
            entry(1, new, 70_000, 1_000),
            entry(2, new, 90_000, 1_000),
            joined,
            ended,
            unknown,
            gone,
            entry(7, old, 0, 1_000),
        ];
        let adoption = Adoption::of_entries(Some((new, AT_NS)), entries.iter(), NOW_NS);
        assert_eq!((adoption.live, adoption.applied), (5, 3));
        assert_eq!(adoption.others_count(), 2);
        assert_eq!(adoption.late_ns, Some(90_000));
        let others = adoption.others.iter();
        let others: Vec<_> = others
            .map(|of| (of.pid, of.is_heard_since, of.overlap))
            .collect();
        // The process records a quarter of the time in the fleet's bursts: the masks have no bit in
        // common.
        assert_eq!(others, [(7, true, Some(0.25)), (5, false, None)]);
        assert_eq!(adoption.configs["unknown"], 1);
        assert_eq!(adoption.configs[&new.to_string()], 3);
        let none = Adoption::of_entries(None, entries.iter(), NOW_NS);
        assert_eq!(
            (none.live, none.others_count(), none.configs.len()),
            (5, 0, 3)
        );
    }
}
