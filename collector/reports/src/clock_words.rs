//! Describes hosts' clocks in words and as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::clock::{Alignment, Verdict};

use stroboscope_render::humanise::{counted, duration};

/// Maximum number of hosts, of groups of hosts, and of contradictory pairs to list.
const NAMES_SHOWN: usize = 8;

/// Returns the name of a host as shown to users.
pub(crate) fn name(host: &str) -> &str {
    if host.is_empty() { "(no name)" } else { host }
}

/// Lists the names of up to [`NAMES_SHOWN`] hosts, and the number of the others.
pub(crate) fn names<'a>(hosts: impl IntoIterator<Item = &'a Arc<str>>) -> String {
    let all: Vec<&str> = hosts.into_iter().map(|host| name(host)).collect();
    let shown = all[..all.len().min(NAMES_SHOWN)].join(", ");
    match all.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Formats a difference of times, in ns, with its sign.
pub(crate) fn signed(ns: i128) -> String {
    let sign = match ns {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", duration(ns.unsigned_abs() as f64))
}

/// Formats a unit of timestamps, such as `ms`.
pub(crate) fn unit(unit_ns: u64) -> String {
    match unit_ns {
        1 => "ns".to_owned(),
        1_000 => "µs".to_owned(),
        1_000_000 => "ms".to_owned(),
        1_000_000_000 => "s".to_owned(),
        other => duration(other as f64),
    }
}

/// Returns the warnings of a report about the order of timestamps.
pub(crate) fn warnings(alignment: &Alignment) -> Vec<String> {
    let mut lines = Vec::new();
    let islands = alignment.islands();
    if islands.len() > 1 {
        let sets: Vec<String> = islands.iter().take(NAMES_SHOWN).map(names).collect();
        let more = match islands.len().saturating_sub(NAMES_SHOWN) {
            0 => String::new(),
            more => format!(" | and {more} more"),
        };
        lines.push(format!(
            "nothing ties the clocks of these hosts together, so orders between them are unknown: {}{more}",
            sets.join(" | ")
        ));
    }
    for (a, b) in alignment.contradictory().take(NAMES_SHOWN) {
        lines.push(format!(
            "the round trips between {} and {} agree with no offset of their clocks: they are ignored",
            name(a),
            name(b)
        ));
    }
    if alignment.disbelieved_lines() > 0 {
        let except = match alignment.contradictory().next() {
            Some(_) => ", except between hosts whose round trips are ignored",
            None => "",
        };
        lines.push(format!(
            "lines are not in the order of control in {}: timestamps are believed as \
             recorded{except}",
            counted(alignment.disbelieved_lines(), "task")
        ));
    }
    lines
}

/// Lists the hosts that have timestamps in a unit coarser than nanoseconds, one line for each unit.
pub(crate) fn resolutions(alignment: &Alignment) -> Vec<String> {
    let mut hosts_of: BTreeMap<u64, (Vec<&Arc<str>>, u64)> = BTreeMap::new();
    for host in alignment.islands().iter().flatten() {
        let resolution = alignment.resolution(host);
        if resolution.tick_ns > 0 {
            let (hosts, timestamps) = hosts_of.entry(resolution.unit_ns).or_default();
            hosts.push(host);
            *timestamps += resolution.timestamps;
        }
    }
    let line = |(unit_ns, (hosts, timestamps)): (u64, (Vec<&Arc<str>>, u64))| {
        format!(
            "timestamps in whole {} (of {timestamps}), so that orders within that are unknown: {}",
            unit(unit_ns),
            names(hosts)
        )
    };
    hosts_of.into_iter().map(line).collect()
}

/// Reliability of the order of timestamps.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Timestamps {
    /// Number of groups of hosts with related clocks; orders between groups are unknown.
    islands: usize,
    hosts: Vec<HostTimestamps>,
    contradictory_pairs: Vec<(String, String)>,
    /// Number of tasks in event logs that support the timestamps against the order of lines, for
    /// pairs of hosts whose lines are not believed; a task counts once for each such pair.
    disbelieved_tasks: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct HostTimestamps {
    host: String,
    /// Number of the group to which the host belongs.
    island: usize,
    /// Coarsest unit in ns in which at least 5 % of the host's timestamps were recorded.
    resolution_ns: u64,
    tick_ns: u64,
    timestamps: u64,
    /// True if the kernel reports that its clock is synchronised; null without a report.
    synchronised: Option<bool>,
    max_error_ns: Option<u64>,
}

impl Timestamps {
    pub(crate) fn of(alignment: &Alignment) -> Self {
        let of_host = |(island, host): (usize, &Arc<str>)| {
            let resolution = alignment.resolution(host);
            let kernel = alignment.kernel_clock(host);
            HostTimestamps {
                host: host.to_string(),
                island,
                resolution_ns: resolution.unit_ns,
                tick_ns: resolution.tick_ns,
                timestamps: resolution.timestamps,
                synchronised: kernel.map(|said| said.synchronised),
                max_error_ns: kernel.map(|said| said.max_error_ns),
            }
        };
        let islands = alignment.islands().iter().enumerate();
        let hosts =
            islands.flat_map(|(island, hosts)| hosts.iter().map(move |host| (island, host)));
        Self {
            islands: alignment.islands().len(),
            hosts: hosts.map(of_host).collect(),
            contradictory_pairs: alignment
                .contradictory()
                .map(|(one, other)| (one.to_string(), other.to_string()))
                .collect(),
            disbelieved_tasks: alignment.disbelieved_lines(),
        }
    }
}

/// Returns a verdict in one word.
pub(crate) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agree => "agree",
        Verdict::Differ => "differ",
        Verdict::Contradictory => "contradictory",
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::clock::ClockEvidence;
    use stroboscope_analysis::record::{EventRecord, TraceRecords};

    use super::*;

    /// Returns the warnings about a task of these lines, each with a host and a time.
    fn warned(lines: &[(&str, i64)]) -> String {
        let event = |(&(host, ts_ns), seq): (&(&str, i64), u32)| EventRecord {
            host: host.into(),
            ts_ns,
            seq,
            event: "line".into(),
            task: "task".into(),
        };
        let records = TraceRecords {
            events: lines.iter().zip(0..).map(event).collect(),
            ..TraceRecords::default()
        };
        let mut evidence = ClockEvidence::new();
        evidence.observe(&records);
        warnings(&evidence.align(None)).join("\n")
    }

    #[test]
    fn timestamps_that_are_not_believed_are_excepted() {
        let returns = warned(&[("a", 20), ("a", 10), ("b", 30), ("a", 40)]);
        assert!(
            returns.ends_with(": timestamps are believed as recorded"),
            "{returns}"
        );
        let never = warned(&[("a", 20), ("a", 10), ("b", 30)]);
        assert!(
            never.ends_with(", except between hosts whose round trips are ignored"),
            "{never}"
        );
    }
}
