//! `clocks`

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::clock::{KernelClock, PairReport};
use tokio::runtime::Runtime;

use super::arguments::DataArguments;
use super::clock_words::{name, names, resolutions, signed, timestamps_json, unit, verdict, warnings};
use super::output::{Table, print, print_json};
use super::{Failure, Status, notes};
use crate::figures::duration;
use crate::query::{ClockReport, HostReport, KernelClocks, Selection, Source, clocks};

/// Say how the clocks of the hosts are related
///
/// Where a request goes from one host to another and comes back, the time between on the first host's clock minus that
/// on the other's is the round trip's time on the network (RTT), and the offset between the two clocks is known to
/// half of that. For each pair of hosts the round trips of lowest RTT are kept over time, so that drift is
/// followed. Clocks that agree with nearly all round trips are believed as recorded; they are corrected where nearly all
/// round trips agree with one offset, or one drift, that is not zero. Between hosts that nothing ties together orders are unknown,
/// and such hosts are named. So is what timestamps are whole multiples of, since an order within that is unknown too.
#[derive(Debug, Args)]
pub(super) struct Clocks {
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
            print(&(to_text(&report) + &kernel_text(source.kernel_clocks())))?;
        }
        Ok(notes::tell(&report.notes))
    }
}

fn to_json(report: &ClockReport) -> Value {
    let pair = |pair: &PairReport| {
        json!({
            "client": &*pair.client,
            "server": &*pair.server,
            "verdict": verdict(pair.verdict),
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
            "island": host.island,
            "ahead_ns": host.ahead_ns.and_then(|(ahead_ns, _)| i64::try_from(ahead_ns).ok()),
            "error_ns": host.ahead_ns.map(|(_, error_ns)| error_ns),
            "kernel": report.alignment.kernel_clock(&host.host).map(kernel_json),
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
    keys.insert("timestamps".into(), timestamps_json(alignment));
    keys.into()
}

fn kernel_json(said: KernelClock) -> Value {
    json!({
        "synchronised": said.synchronised,
        "max_error_ns": said.max_error_ns,
        "estimated_error_ns": said.estimated_error_ns,
    })
}

/// What the hosts' kernels said, if any said something.
fn kernel_text(clocks: &KernelClocks) -> String {
    let mut table = Table::new(&["kept right", "off by at most", "presumably", "host"]);
    let mut is_known = false;
    for (host, said) in clocks.iter() {
        is_known |= said.is_some();
        let row = match said {
            Some(said) => [
                if said.synchronised { "yes" } else { "no" }.to_owned(),
                duration(said.max_error_ns as f64),
                duration(said.estimated_error_ns as f64),
            ],
            None => ["unknown".to_owned(), String::new(), String::new()],
        };
        table.row(row.into_iter().chain([host.to_owned()]).collect());
    }
    if is_known {
        format!("\n\nWhat the hosts' kernels say of their clocks\n{}", table.render())
    } else {
        String::new()
    }
}

fn to_text(report: &ClockReport) -> String {
    let ns = |ns: u64| duration(ns as f64);
    let alignment = &report.alignment;
    let reference = name(alignment.reference().unwrap_or_default());
    let mut pairs = Table::new(&[
        "ahead by",
        "±",
        "lowest RTT",
        "drift (ppm)",
        "round trips",
        "times set",
        "verdict",
        "client → server",
    ]);
    for pair in alignment.pairs() {
        pairs.row(vec![
            signed(pair.offset_ns),
            ns(pair.error_ns),
            ns(pair.rtt_ns),
            format!("{:+.1}", pair.drift_ppm),
            pair.round_trips.to_string(),
            pair.steps.to_string(),
            verdict(pair.verdict).to_owned(),
            format!("{} → {}", name(&pair.client), name(&pair.server)),
        ]);
    }
    let mut hosts = Table::new(&["ahead by", "±", "in whole", "kernel says", "host"]);
    for host in &report.hosts {
        let (ahead, error) = match host.ahead_ns {
            Some((ahead_ns, error_ns)) => (signed(ahead_ns), ns(error_ns)),
            None => ("unknown".to_owned(), String::new()),
        };
        let kernel = match alignment.kernel_clock(&host.host) {
            Some(said) if said.synchronised => format!("± {}", ns(said.max_error_ns)),
            Some(_) => "not synchronised".to_owned(),
            None => String::new(),
        };
        let unit = unit(alignment.resolution(&host.host).unit_ns);
        hosts.row(vec![ahead, error, unit, kernel, name(&host.host).to_owned()]);
    }
    let verdict = match (report.hosts.len(), report.round_trips, alignment.is_needed()) {
        (0 | 1, ..) => "one host: nothing to compare",
        (_, 0, _) if alignment.islands().len() > 1 => "no round trips: nothing is known about the clocks",
        (_, 0, _) => "no round trips, and nothing that contradicts the clocks as recorded",
        (_, _, true) => "clocks differ: other verbs correct timestamps, and respect the bounds",
        (_, _, false) => "no round trips prove that clocks differ: other verbs take timestamps as they are",
    };
    let mut text = format!("{} hosts, {} round trips; {verdict}\n", report.hosts.len(), report.round_trips);
    for line in warnings(alignment).into_iter().chain(resolutions(alignment)) {
        text += &format!("{line}\n");
    }
    if !alignment.pairs().is_empty() {
        text += &format!("\nBy how much the server's clock is ahead of its client's\n{}\n", pairs.render());
    }
    if report.hosts.len() > 1 {
        text += &format!(
            "\nBy how much each clock was ahead of that of {reference}, when the host was last heard of\n{}\n",
            hosts.render()
        );
    }
    let unaligned = alignment.unaligned();
    if report.hosts.len() > 1 && !unaligned.is_empty() {
        let names = names(unaligned);
        text += &format!(
            "\nnot aligned, for want of round trips that agree (orders between these and others are unknown): {names}\n"
        );
    }
    for (count, what) in [
        (report.impossible, "round trips are impossible: the server's part is longer than the whole"),
        (
            report.contradictions,
            "round trips contradict the clocks beyond all bounds: one was set, or an answer is none",
        ),
        (report.refused, "times a host or a pair of hosts was beyond the limit and left alone"),
    ] {
        if count > 0 {
            text += &format!("{count} {what}\n");
        }
    }
    text.trim_end().to_owned()
}
