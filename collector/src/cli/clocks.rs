//! `clocks`

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::clock::PairReport;
use tokio::runtime::Runtime;

use super::arguments::DataArguments;
use super::output::{Table, print, print_json};
use super::{Failure, Status, notes};
use crate::figures::duration;
use crate::query::{ClockReport, HostReport, Selection, Source, clocks};

/// Say how the clocks of the hosts are related
///
/// Where a request goes from one host to another and comes back, the time between on the first host's clock minus that
/// on the other's is the round trip's time on the network (RTT), and the offset between the two clocks is known to
/// half of that. For each pair of hosts the round trips of lowest RTT are kept over time, so that drift is
/// followed. Hosts that no round trip relates to the others are named: their timestamps are taken as they are.
#[derive(Debug, Args)]
pub struct Clocks {
    #[command(flatten)]
    data: DataArguments,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Also use traces of which a part is known to be missing
    #[arg(long)]
    include_incomplete: bool,
    /// Relate the others to this host; by default to the one with the most round trips
    #[arg(long, value_name = "HOST")]
    reference: Option<String>,
}

impl Clocks {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let source = Source::open(&self.data.data, runtime.handle().clone()).map_err(Failure::of)?;
        let selection = Selection { include_incomplete: self.include_incomplete, ..Selection::default() };
        let report = clocks(&source, selection, self.reference.as_deref()).map_err(Failure::of)?;
        if let Some(reference) = &self.reference
            && !report.hosts.iter().any(|host| *host.host == **reference)
        {
            let known: Vec<&str> = report.hosts.iter().map(|host| &*host.host).take(20).collect();
            return Err(Failure(format!("no host is called {reference}; there are: {}", known.join(", "))));
        }
        if self.json {
            print_json(&to_json(&report))?;
        } else {
            print(&to_text(&report))?;
        }
        Ok(notes::tell(&report.notes))
    }
}

fn to_json(report: &ClockReport) -> Value {
    let pair = |pair: &PairReport| {
        json!({
            "client": &*pair.client,
            "server": &*pair.server,
            "round_trips": pair.round_trips,
            "offset_ns": i64::try_from(pair.offset_ns).ok(),
            "error_ns": pair.error_ns,
            "rtt_ns": pair.rtt_ns,
            "drift_ppm": pair.drift_ppm,
            "estimates": pair.estimates,
            "steps": pair.steps,
        })
    };
    let host = |host: &HostReport| {
        json!({
            "host": &*host.host,
            "last_ns": host.last_ns,
            "ahead_ns": host.ahead_ns.and_then(|(ahead_ns, _)| i64::try_from(ahead_ns).ok()),
            "error_ns": host.ahead_ns.map(|(_, error_ns)| error_ns),
        })
    };
    let alignment = &report.alignment;
    let mut keys = notes::keys(&report.notes);
    keys.insert("reference".into(), json!(alignment.reference()));
    keys.insert("differ".into(), alignment.is_needed().into());
    keys.insert("hosts".into(), report.hosts.iter().map(host).collect::<Vec<_>>().into());
    let unaligned: Vec<&str> = alignment.unaligned().iter().map(|host| &**host).collect();
    keys.insert("unaligned".into(), unaligned.into());
    keys.insert("pairs".into(), alignment.pairs().iter().map(pair).collect::<Vec<_>>().into());
    keys.insert("round_trips".into(), report.round_trips.into());
    keys.insert("impossible_round_trips".into(), report.impossible.into());
    keys.insert("contradicting_round_trips".into(), report.contradictions.into());
    keys.insert("over_host_limit".into(), report.refused.into());
    keys.into()
}

fn to_text(report: &ClockReport) -> String {
    let ns = |ns: i128| duration(ns as f64);
    let alignment = &report.alignment;
    let mut pairs = Table::new(&[
        "server ahead by",
        "±",
        "lowest RTT",
        "drift (ppm)",
        "round trips",
        "set",
        "client → server",
    ]);
    for pair in alignment.pairs() {
        pairs.row(vec![
            ns(pair.offset_ns),
            ns(pair.error_ns.into()),
            ns(pair.rtt_ns.into()),
            format!("{:.1}", pair.drift_ppm),
            pair.round_trips.to_string(),
            pair.steps.to_string(),
            format!("{} → {}", pair.client, pair.server),
        ]);
    }
    let mut hosts = Table::new(&["ahead by", "±", "host"]);
    for host in &report.hosts {
        let (ahead, error) = match host.ahead_ns {
            Some((ahead_ns, error_ns)) => (ns(ahead_ns), ns(error_ns.into())),
            None => ("not aligned".to_owned(), String::new()),
        };
        hosts.row(vec![ahead, error, host.host.to_string()]);
    }
    let verdict = match (report.hosts.len(), report.round_trips, alignment.is_needed()) {
        (0 | 1, ..) => "one host: nothing to compare",
        (_, 0, _) => "no round trips: nothing is known about the clocks",
        (_, _, true) => "clocks differ: other verbs correct timestamps, and respect the bounds",
        (_, _, false) => "no round trip proves that clocks differ: other verbs take timestamps as they are",
    };
    let mut text = format!("{} hosts, {} round trips; {verdict}\n", report.hosts.len(), report.round_trips);
    if !alignment.pairs().is_empty() {
        text += &format!("\nPairs of hosts\n{}\n", pairs.render());
        let reference = alignment.reference().unwrap_or_default();
        text += &format!("\nHosts, beside {reference}, when last heard of\n{}\n", hosts.render());
    }
    let unaligned = alignment.unaligned();
    if report.hosts.len() > 1 && !unaligned.is_empty() {
        let names = unaligned.join(", ");
        text += &format!("\nnot aligned, for want of round trips (timestamps stay as recorded): {names}\n");
    }
    for (count, what) in [
        (report.impossible, "round trips are impossible: the server's part is longer than the whole"),
        (report.contradictions, "round trips contradict the alignment: a clock was set in between"),
        (report.refused, "times a host or a pair of hosts was beyond the limit and left alone"),
    ] {
        if count > 0 {
            text += &format!("{count} {what}\n");
        }
    }
    text.trim_end().to_owned()
}
