//! The `clocks` subcommand.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::clock::{Alignment, KernelClock};

use crate::Failure;
use crate::arguments::{ReadingArguments, SelectionArguments, ShowArguments};
use crate::clock_words::{Timestamps, name, names, resolutions, unit, warnings};
use crate::results::clock_pairs::{ClockPair, show_pairs};
use crate::study::NamedStudy;
use crate::verb::{ReadingVerb, Report};
use stroboscope_query::{ClockReport, HostReport, KernelClocks, Notes, clocks};
use stroboscope_render::humanise::{counted, duration};
use stroboscope_render::rows;
use stroboscope_render::show::{Doc, Row, TableSpec};

/// Show how the clocks of the hosts are related
///
/// A request from one host to another and its response form a round trip. Its time on the first
/// host's clock, minus the time on the second host's clock, is the round-trip time on the network
/// (RTT). The offset between the two clocks is known to within half of the RTT. For each pair of
/// hosts, the command keeps the round trips of lowest RTT over time, to follow drift. Clocks that
/// agree with most round trips are used as recorded. Clocks are corrected if nearly all round trips
/// agree with one offset, or one drift, that is not zero. Orders are unknown between hosts that
/// neither round trips nor synchronised kernel clocks connect; the output names such hosts. It also
/// shows the unit of each host's timestamps, because orders within a unit are unknown, too.
#[derive(Debug, Args)]
pub struct Clocks {
    #[command(flatten)]
    from: SelectionArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Reference host; by default the one with the most round trips
    #[arg(long, value_name = "HOST")]
    reference: Option<String>,
}

impl ReadingVerb for Clocks {
    type Report = ClocksReport;
    const TABLES: &'static [TableSpec] = &[ClockPair::TABLE, Host::TABLE, KernelSays::TABLE];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (ReadingArguments::of(self.from.clone()), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<ClocksReport, Failure> {
        let found = clocks(study.source(), study.selection(), self.reference.as_deref());
        let found = found.map_err(Failure::of)?;
        if let Some(reference) = &self.reference
            && !found.hosts.iter().any(|host| *host.host == **reference)
        {
            let known = found.hosts.iter().map(|host| &*host.host);
            let known: Vec<&str> = known.take(20).collect();
            return Err(Failure::unknown(format!(
                "no host is called {reference}; there are: {}",
                known.join(", ")
            )));
        }
        Ok(ClocksReport::of(found, study.source().kernel_clocks()))
    }
}

/// Relations between the clocks of all hosts.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ClocksReport {
    #[serde(flatten)]
    notes: Notes,
    reference: Option<String>,
    differ: bool,
    hosts: Vec<Host>,
    unaligned: Vec<String>,
    pairs: Vec<ClockPair>,
    round_trips: u64,
    impossible_round_trips: u64,
    contradicting_round_trips: u64,
    over_host_limit: u64,
    timestamps: Timestamps,
    #[serde(skip)]
    kernels: Vec<KernelSays>,
    #[serde(skip)]
    alignment: Alignment,
}

/// One host, compared with the reference host.
#[derive(Debug, Serialize, JsonSchema)]
struct Host {
    host: String,
    last_ns: i64,
    island: usize,
    ahead_ns: Option<i64>,
    error_ns: Option<u64>,
    kernel: Option<OwnWord>,
    #[serde(skip)]
    unit: String,
}

/// Clock of a host, as reported by its kernel.
#[derive(Debug, Serialize, JsonSchema)]
struct OwnWord {
    synchronised: bool,
    max_error_ns: u64,
    estimated_error_ns: u64,
}

/// Clock state that a host's kernel reported, with the worst of each value if there are several
/// reports; `None` without a report.
#[derive(Debug)]
struct KernelSays {
    host: String,
    said: Option<KernelClock>,
}

impl ClocksReport {
    fn of(found: ClockReport, kernels: &KernelClocks) -> Self {
        let alignment = found.alignment;
        let says = |(host, said): (&str, Option<KernelClock>)| KernelSays {
            host: host.to_owned(),
            said,
        };
        Self {
            notes: found.notes,
            reference: alignment.reference().map(str::to_owned),
            differ: alignment.is_needed(),
            hosts: found
                .hosts
                .iter()
                .map(|host| Host::of(host, &alignment))
                .collect(),
            unaligned: alignment
                .unaligned()
                .iter()
                .map(|host| host.to_string())
                .collect(),
            pairs: alignment.pairs().iter().map(ClockPair::of).collect(),
            round_trips: found.round_trips,
            impossible_round_trips: found.impossible,
            contradicting_round_trips: found.contradictions,
            over_host_limit: found.refused,
            timestamps: Timestamps::of(&alignment),
            kernels: kernels.iter().map(says).collect(),
            alignment,
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.hosts.len(), self.round_trips, self.differ) {
            (0 | 1, ..) => "one host: nothing to compare",
            (_, 0, _) if self.alignment.islands().len() > 1 => {
                "no round trips: nothing is known about the clocks"
            }
            (_, 0, _) => "no round trips, and nothing that contradicts the clocks as recorded",
            (_, _, true) => {
                "clocks differ: other subcommands correct timestamps, and respect the bounds"
            }
            (_, _, false) => {
                "no round trips prove that clocks differ: other subcommands use timestamps as recorded"
            }
        }
    }
}

/// Maximum of the error that Linux reports for its clock, in ns (`NTP_PHASE_LIMIT`). The reported
/// error grows until the clock is set.
const BOUND_MAX_NS: u64 = 16_000_000_000;

/// Explains the errors that kernels report: how they are used, and when they matter.
fn what_bounds_mean(kernels: &[KernelSays]) -> String {
    let mut said = "This is how far each clock may be from UTC, according to its host's kernel. It changes no \
                    timestamp: timestamps are corrected by the differences between hosts, which round trips show; \
                    where there are none, the estimates of synchronised clocks bound these differences. Durations on \
                    one host do not depend on it. It matters for comparing times with those of other systems, and \
                    for bursts: hosts open them by their own clocks."
        .to_owned();
    let is_unknown = |host: &KernelSays| {
        let of = host.said.as_ref();
        of.is_some_and(|said| !said.synchronised && said.max_error_ns >= BOUND_MAX_NS)
    };
    if kernels.iter().any(is_unknown) {
        said += &format!(
            " {} is the maximum of Linux, which it reaches when nothing sets a clock: the error is unknown and may \
             be zero. Run an NTP or PTP client there.",
            duration(BOUND_MAX_NS as f64)
        );
    }
    said
}

impl Host {
    fn of(host: &HostReport, alignment: &Alignment) -> Self {
        let own_word = |said: KernelClock| OwnWord {
            synchronised: said.synchronised,
            max_error_ns: said.max_error_ns,
            estimated_error_ns: said.estimated_error_ns,
        };
        Self {
            host: host.host.to_string(),
            last_ns: host.last_ns,
            island: host.island,
            ahead_ns: host
                .ahead_ns
                .and_then(|(ahead_ns, _)| i64::try_from(ahead_ns).ok()),
            error_ns: host.ahead_ns.map(|(_, error_ns)| error_ns),
            kernel: alignment.kernel_clock(&host.host).map(own_word),
            unit: unit(alignment.resolution(&host.host).unit_ns),
        }
    }
}

rows! {
    Host as row, "clock_hosts":
        "A host, and how far its clock was ahead of the reference host's when it was last heard of.";
    {
        let kernel = row.kernel.as_ref().map(|said| match said.synchronised {
            true => format!("± {}", duration(said.max_error_ns as f64)),
            false => "not synchronised".to_owned(),
        });
    }
    host: Text, "host" = name(&row.host);
    ahead_ns: DifferenceNs, "ahead by" = row.ahead_ns.map(|ns| ns as f64);
    error_ns: DurationNs, "±" = row.error_ns.map(|ns| ns as f64);
    unit: Text, "in whole" = &*row.unit;
    kernel: Text, "kernel says" = kernel.as_deref();
    island: Count, "" = row.island as u64;
}

rows! {
    KernelSays as row, "clock_kernels": "A host, and the state of its clock according to its kernel.";
    {
        let kept = match &row.said {
            Some(said) if said.synchronised => "yes",
            Some(_) => "no",
            None => "unknown",
        };
        let ns = |of: fn(&KernelClock) -> u64| row.said.as_ref().map(|said| of(said) as f64);
    }
    host: Text, "host" = name(&row.host);
    synchronised: Text, "synchronised" = kept;
    max_error_ns: DurationNs, "off UTC by at most" = ns(|said| said.max_error_ns);
    estimated_error_ns: DurationNs, "estimated" = ns(|said| said.estimated_error_ns);
}

impl Report for ClocksReport {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let verdict = self.verdict();
        let hosts = counted(self.hosts.len() as u64, "host");
        doc.heading(format!(
            "{hosts}, {}; {verdict}",
            counted(self.round_trips, "round trip")
        ));
        let lines = warnings(&self.alignment)
            .into_iter()
            .chain(resolutions(&self.alignment));
        doc.sentence(lines.collect::<Vec<_>>().join("\n"));
        show_pairs(&self.pairs, doc);
        let several = if self.hosts.len() > 1 { usize::MAX } else { 0 };
        let reference = name(self.reference.as_deref().unwrap_or_default());
        let title =
            format!("Lead of each clock over that of {reference}, when the host was last heard of");
        doc.table(title, &self.hosts, several);
        if several > 0 && !self.unaligned.is_empty() {
            doc.sentence(format!(
                "not aligned, because no round trips agree (orders between these and others are unknown): {}",
                names(self.alignment.unaligned())
            ));
        }
        let counts = [
            (
                self.impossible_round_trips,
                "round trips are impossible: the server's part is longer than the whole",
            ),
            (
                self.contradicting_round_trips,
                "round trips contradict the clocks beyond all bounds: one was set, or an answer is none",
            ),
            (
                self.over_host_limit,
                "times a host or a pair of hosts was beyond the limit and left alone",
            ),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counted = counts.map(|(count, what)| format!("{count} {what}"));
        doc.sentence(counted.collect::<Vec<_>>().join("\n"));
        let is_known = self.kernels.iter().any(|host| host.said.is_some());
        let shown = if is_known { usize::MAX } else { 0 };
        doc.table(
            "State of the clocks according to the hosts' kernels",
            &self.kernels,
            shown,
        );
        if is_known {
            doc.sentence(what_bounds_mean(&self.kernels));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_is_no_bound_is_said_to_be_none() {
        let host = |synchronised: bool, max_error_ns: u64| KernelSays {
            host: "a".to_owned(),
            said: Some(KernelClock {
                synchronised,
                max_error_ns,
                estimated_error_ns: 0,
            }),
        };
        let unknown = "16.0s is the maximum of Linux";
        let bounded = what_bounds_mean(&[host(true, 20_000_000), host(false, 3_000_000_000)]);
        assert!(
            bounded.contains("from UTC") && !bounded.contains(unknown),
            "{bounded}"
        );
        let both = what_bounds_mean(&[host(true, 20_000_000), host(false, BOUND_MAX_NS)]);
        assert!(both.contains(unknown) && both.contains("NTP"), "{both}");
    }
}
