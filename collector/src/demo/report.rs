//! The demo's report, for people.

use std::fmt;
use std::path::PathBuf;

use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::label::Labels;

use super::overlap::Overlap;

/// Rows of each table.
const ROWS: usize = 8;

/// What one run of the demo found.
#[derive(Debug)]
pub struct Report {
    /// The load generator's own report, as it prints it.
    pub load: String,
    /// Requests sent.
    pub requests: u64,
    /// The burst-config, as people say it.
    pub burst_config: String,
    /// Processes that shipped something.
    pub processes: usize,
    /// How well their windows agree.
    pub overlap: Option<Overlap>,
    /// Traces collected,
    pub traces: u64,
    /// those recorded completely,
    pub complete: u64,
    /// and why the others are not, by cause.
    pub incomplete: Vec<(String, u64)>,
    /// Spans stored.
    pub spans: u64,
    /// Records lost, by cause.
    pub losses: Vec<(String, u64)>,
    /// Happens-before relations of the model.
    pub happens_before: usize,
    /// Mutual exclusions of the model.
    pub mutual_exclusions: usize,
    /// Critical paths of the complete traces.
    pub paths: PathAggregate,
    /// The segments' names.
    pub labels: Labels,
    /// The faults the newsfeed was given.
    pub faults: Vec<String>,
    /// Where the data is.
    pub data: PathBuf,
}

/// An operation's part in the critical path.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// `service:name`.
    pub operation: String,
    /// Mean share of a request's critical path, 0 to 1: its own time, without what nobody logged before it.
    pub share: f64,
    /// Mean time on the critical path per request, ns.
    pub mean_ns: u64,
}

impl Report {
    /// The operations by their share of the critical path, largest first.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        let traces = self.paths.traces();
        let mut parts: Vec<Part> = self
            .paths
            .by_operation(&self.labels)
            .into_iter()
            .map(|operation| Part {
                share: operation.duration_shares.mean(traces),
                mean_ns: (operation.critical_duration_ns / u128::from(traces.max(1))) as u64,
                operation: operation.operation,
            })
            .collect();
        parts.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.operation.cmp(&b.operation)));
        parts
    }

    /// The operation that most of a request's time goes to.
    #[must_use]
    pub fn bottleneck(&self) -> Option<Part> {
        self.parts().into_iter().next()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A newsfeed of {} processes under load{}", self.processes, with_faults(&self.faults))?;
        writeln!(f)?;
        for line in self.load.lines() {
            writeln!(f, "  {line}")?;
        }
        writeln!(f)?;
        self.write_recorded(f)?;
        writeln!(f)?;
        self.write_critical_path(f)?;
        writeln!(f)?;
        self.write_slack(f)?;
        writeln!(f)?;
        self.write_conclusion(f)
    }
}

impl Report {
    fn write_recorded(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.overlap {
            Some(overlap) => writeln!(
                f,
                "  recorded   {} bursts by {}, the same in all processes: windows overlap by {:.2} %",
                overlap.bursts,
                self.burst_config,
                overlap.share * 100.0
            )?,
            None => writeln!(f, "  recorded   no burst ({})", self.burst_config)?,
        }
        write!(f, "  collected  {} traces of {} requests, ", self.traces, self.requests)?;
        write!(f, "{} complete{}", self.complete, causes(" (incomplete: ", &self.incomplete, ")"))?;
        let lost: u64 = self.losses.iter().map(|(_, records)| records).sum();
        writeln!(f, "; {} spans, {lost} lost{}", self.spans, causes(" (", &self.losses, ")"))?;
        writeln!(
            f,
            "  model      {} segments, {} happens-before and {} mutual-exclusion relations",
            self.labels.len(),
            self.happens_before,
            self.mutual_exclusions
        )
    }

    fn write_critical_path(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "What requests wait for: the critical path by operation")?;
        writeln!(f, "  {:>5}  {:>10}  operation", "share", "mean")?;
        for part in self.parts().into_iter().take(ROWS) {
            writeln!(
                f,
                "  {:>4.0} %  {:>10}  {}",
                part.share * 100.0,
                crate::units::duration(part.mean_ns),
                part.operation
            )?;
        }
        Ok(())
    }

    fn write_slack(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut slack: Vec<_> = self
            .paths
            .segments()
            // Slack of what is hardly ever critical: where nothing is to be gained.
            .filter(|(_, statistics)| statistics.critical_traces * 4 < statistics.traces)
            .filter_map(|(id, statistics)| Some((self.labels.get(id)?, statistics)))
            .collect();
        slack.sort_by_key(|(_, statistics)| std::cmp::Reverse(statistics.duration.sum_ns()));
        writeln!(f, "What they seldom wait for: the slack of long segments off the critical path")?;
        writeln!(f, "  {:>10}  {:>10}  segment", "p50 time", "p50 slack")?;
        for (label, statistics) in slack.into_iter().take(ROWS) {
            let (time, slack) = (statistics.duration.percentiles(), statistics.slack.percentiles());
            writeln!(
                f,
                "  {:>10}  {:>10}  {} [{} … {}]",
                crate::units::duration(time.p50_ns),
                crate::units::duration(slack.p50_ns),
                label.operation(),
                label.start,
                label.end
            )?;
        }
        Ok(())
    }

    fn write_conclusion(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bottleneck() {
            Some(part) => writeln!(
                f,
                "Bottleneck: {} is {:.0} % of the average request's critical path ({} per request).",
                part.operation,
                part.share * 100.0,
                crate::units::duration(part.mean_ns)
            )?,
            None => writeln!(f, "Bottleneck: unknown, because no complete trace was collected.")?,
        }
        let data = self.data.display();
        writeln!(f)?;
        writeln!(f, "Look further:")?;
        writeln!(f, "  stroboscope critical-path --data {data}    each segment's part in the critical path")?;
        writeln!(f, "  stroboscope slack --data {data}            how much slower each could be unnoticed")?;
        writeln!(f, "  stroboscope model --data {data}            what happens before what")
    }
}

fn with_faults(faults: &[String]) -> String {
    if faults.is_empty() { String::new() } else { format!(", with {}", faults.join(", ")) }
}

fn causes(before: &str, causes: &[(String, u64)], after: &str) -> String {
    if causes.is_empty() {
        return String::new();
    }
    let list: Vec<String> = causes.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
    format!("{before}{}{after}", list.join(", "))
}
