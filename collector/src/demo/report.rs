//! Report of the demo, as text.

use std::fmt;
use std::path::PathBuf;

use stroboscope_kernel_model::export::operations_table;

use super::findings::Findings;
use stroboscope_query::{Bottleneck, bottleneck_text, circumstances};
use stroboscope_render::humanise::duration;
use stroboscope_reports::suggest::command_on;

/// Maximum number of rows of each table.
const ROWS: usize = 8;

/// Results of one run of the demo.
#[derive(Debug)]
pub struct Report {
    /// Report of the load generator, as text.
    pub load: String,
    /// Number of requests sent.
    pub requests: u64,
    /// Number of requests that failed.
    pub failed: u64,
    /// Burst-config in its readable form.
    pub burst_config: String,
    /// Faults that were injected into the newsfeed.
    pub faults: Vec<String>,
    /// Results of the analysis.
    pub findings: Findings,
    /// Directory of the recording.
    pub data: PathBuf,
}

/// Share of an operation in the critical path.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name of the operation, as `service:name`.
    pub operation: String,
    /// Time on critical paths as a share of the time of all complete traces, 0 to 1: the
    /// operation's own time, and the unrecorded time before it.
    pub share_of_time: f64,
    /// Mean over complete traces of this share of each trace's time, 0 to 1.
    pub mean_share: f64,
    /// Mean time on the critical path per complete trace, ns.
    pub mean_ns: u64,
}

impl Report {
    /// Returns the operations by their share of the critical path, largest first.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        let paths = &self.findings.paths;
        let traces = paths.traces();
        let mut parts: Vec<Part> = paths
            .by_operation(&self.findings.labels)
            .into_iter()
            .map(|operation| {
                let sum_ns = operation.critical_duration_ns + operation.critical_wait_ns;
                Part {
                    share_of_time: paths.share_of_time(sum_ns),
                    mean_share: (operation.duration_shares + operation.wait_shares).mean(traces),
                    mean_ns: traces.mean(sum_ns as f64) as u64,
                    operation: operation.operation,
                }
            })
            .collect();
        parts.sort_by(|a, b| {
            b.share_of_time
                .total_cmp(&a.share_of_time)
                .then_with(|| a.operation.cmp(&b.operation))
        });
        parts
    }

    /// Returns the operation that requests wait for most; if it differs between the main root
    /// operations, that of the one with the most time. Returns `None` if there is none.
    #[must_use]
    pub fn bottleneck(&self) -> Option<&Bottleneck> {
        self.findings.bottlenecks.first()
    }

    /// Lists circumstances that make the figures misleading: busy processors of this machine, and
    /// failed requests.
    #[must_use]
    pub fn circumstances(&self) -> Vec<String> {
        let processors = std::thread::available_parallelism().ok().map(usize::from);
        circumstances(
            &self.findings.processor_use,
            processors,
            self.failed,
            self.requests,
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "A newsfeed of {} processes under load{}",
            self.findings.recorded.processes,
            with_faults(&self.faults)
        )?;
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
        self.write_kernel(f)?;
        self.write_conclusion(f)
    }
}

impl Report {
    fn write_recorded(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Findings {
            recorded,
            complete,
            fragments,
            incomplete,
            reasons,
            ..
        } = &self.findings;
        let overlap = recorded.window_overlap.map_or_else(String::new, |overlap| {
            format!(
                "; the processes' windows overlap by {:.2} %",
                overlap * 100.0
            )
        });
        writeln!(
            f,
            "  recorded   {} bursts by {}{overlap}",
            recorded.bursts, self.burst_config
        )?;
        write!(
            f,
            "  collected  {complete} complete traces of {} requests",
            self.requests
        )?;
        write!(
            f,
            ", {fragments} fragments of requests older than their burst"
        )?;
        if *incomplete > 0 {
            let reasons: Vec<String> = reasons
                .iter()
                .map(|(reason, count)| format!("{count} {reason}"))
                .collect();
            write!(
                f,
                ", {incomplete} otherwise incomplete ({})",
                reasons.join(", ")
            )?;
        }
        match self.findings.paths.without_length().rounded() {
            0 => writeln!(f)?,
            count => writeln!(f, "; {count} of the complete took no time and are left out")?,
        }
        write!(
            f,
            "             {} records, {} lost",
            recorded.records,
            recorded.lost_records()
        )?;
        for ((service, cause), records) in &recorded.lost {
            write!(f, "; {service}: {records} {cause}")?;
        }
        writeln!(f, ", {} batches missing", recorded.missing_batches)?;
        let unsynchronised: Vec<&str> = self
            .findings
            .kernel_clocks
            .unsynchronised()
            .map(|host| &**host)
            .collect();
        if !unsynchronised.is_empty() {
            let hosts = unsynchronised.join(", ");
            // Processes of one host share its clock, so a wrong clock does not matter on one host.
            let here = if self.findings.kernel_clocks.hosts() == 1 {
                "; all processes here share it"
            } else {
                ""
            };
            writeln!(
                f,
                "  clocks     according to its kernel, nothing synchronises that of {hosts}{here}"
            )?;
        }
        writeln!(
            f,
            "  inferred   {} segments, {} happens-before and {} mutual-exclusion relations",
            self.findings.labels.len(),
            self.findings.happens_before,
            self.findings.mutual_exclusions
        )
    }

    fn write_critical_path(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "The critical path by operation (share of the time of all requests; mean time per request)"
        )?;
        writeln!(f, "  {:>5}  {:>10}  operation", "share", "mean")?;
        for part in self.parts().into_iter().take(ROWS) {
            writeln!(
                f,
                "  {:>4.0} %  {:>10}  {}",
                part.share_of_time * 100.0,
                duration(part.mean_ns as f64),
                part.operation
            )?;
        }
        Ok(())
    }

    fn write_slack(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut slack: Vec<_> = self
            .findings
            .paths
            .segments()
            // Show only segments that are critical in less than a quarter of their traces: a
            // critical segment has no slack.
            .filter(|(_, statistics)| statistics.critical_traces.share_of(statistics.traces) < 0.25)
            .filter_map(|(id, statistics)| Some((self.findings.labels.get(id)?, statistics)))
            .collect();
        slack.sort_by_key(|(_, statistics)| std::cmp::Reverse(statistics.duration.sum_ns()));
        writeln!(f, "The slack of long segments off the critical path")?;
        writeln!(f, "  {:>10}  {:>10}  segment", "p50 time", "p50 slack")?;
        for (label, statistics) in slack.into_iter().take(ROWS) {
            let (time, slack) = (
                statistics.duration.percentiles(),
                statistics.slack.percentiles(),
            );
            writeln!(
                f,
                "  {:>10}  {:>10}  {} [{} … {}]",
                duration(time.p50_ns as f64),
                duration(slack.p50_ns as f64),
                label.task.rsplit(" > ").next().unwrap_or_default(),
                label.start,
                label.end
            )?;
        }
        Ok(())
    }

    fn write_kernel(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(kernel) = &self.findings.kernel else {
            return Ok(());
        };
        writeln!(
            f,
            "Work of the kernel for requests, by operation: calls repeated one by one are candidates for batching"
        )?;
        let rows = &kernel.operations[..kernel.operations.len().min(ROWS)];
        for line in operations_table(rows, kernel.architecture).lines() {
            writeln!(f, "  {line}")?;
        }
        writeln!(f)
    }

    fn write_conclusion(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sentence in self.circumstances() {
            writeln!(f, "{sentence}")?;
        }
        for bottleneck in &self.findings.bottlenecks {
            writeln!(f, "Bottleneck: {}.", bottleneck_text(bottleneck))?;
        }
        if self.findings.bottlenecks.is_empty() {
            writeln!(
                f,
                "Bottleneck: unknown, because no complete request took time."
            )?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "Explore further: `{}`, and in the browser",
            command_on("view", &self.data)
        )?;
        writeln!(f, "  Overview  how long requests took, and since when")?;
        writeln!(f, "  Traces    the slowest request, with its critical path")?;
        writeln!(
            f,
            "  What if   how fast requests would be if an operation took half as long"
        )?;
        writeln!(f)?;
        writeln!(f, "The same in the terminal:")?;
        let kernel = self.findings.kernel.as_ref().map(|_| "timeline");
        for subcommand in ["overview", "requests", "slack"].into_iter().chain(kernel) {
            writeln!(f, "  {}", command_on(subcommand, &self.data))?;
        }
        Ok(())
    }
}

fn with_faults(faults: &[String]) -> String {
    if faults.is_empty() {
        String::new()
    } else {
        format!(", with {}", faults.join(", "))
    }
}
