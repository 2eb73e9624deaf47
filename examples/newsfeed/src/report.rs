//! Report of a run of the load generator.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::link::LinkKind;

/// Report of a run. Latency is measured from the *scheduled* start of each request, so that a slow
/// service cannot hide behind requests that were sent late.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Requested mean rate, in requests per second.
    pub rate_per_s: f64,
    /// Time during which requests started, in nanoseconds.
    pub duration_ns: u64,
    /// Number of requests whose scheduled time has come.
    pub sent: u64,
    /// Number of pages that loaded completely.
    pub ok: u64,
    /// Number of pages that did not load completely; `sent == ok + failed`.
    pub failed: u64,
    /// Number of failed requests by cause.
    pub failures: BTreeMap<String, u64>,
    /// Latency of the pages loaded.
    pub latency: Latency,
    /// Delay with which the generator itself started requests. If it is large, the machine was too
    /// busy, and the other figures are unreliable.
    pub start_delay: Latency,
    /// Reports by link, fastest first; links without requests are left out.
    pub links: Vec<LinkReport>,
}

/// The part of a [`LoadReport`] for the requests over one kind of link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Kind of the link.
    pub link: LinkKind,
    /// Number of requests whose scheduled time has come.
    pub sent: u64,
    /// Number of pages that loaded completely.
    pub ok: u64,
    /// Number of pages that did not load completely.
    pub failed: u64,
    /// Latency of the pages loaded.
    pub latency: Latency,
}

/// A distribution of durations, accurate to three digits. All values are zero if nothing was
/// measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Minimum duration.
    pub min_ns: u64,
    /// Arithmetic mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Maximum duration.
    pub max_ns: u64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            mean_ns: histogram.mean() as u64,
            min_ns: histogram.min(),
            p50_ns: histogram.value_at_quantile(0.50),
            p95_ns: histogram.value_at_quantile(0.95),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        }
    }
}

/// Counters of a run in progress.
#[derive(Debug)]
pub(crate) struct Tally {
    links: BTreeMap<LinkKind, LinkTally>,
    failures: BTreeMap<String, u64>,
    all: Histogram<u64>,
    start_delay: Histogram<u64>,
}

#[derive(Debug)]
struct LinkTally {
    sent: u64,
    failed: u64,
    latency: Histogram<u64>,
}

fn histogram() -> Histogram<u64> {
    // One microsecond to ten minutes; longer counts as ten minutes.
    Histogram::new_with_bounds(1_000, 600_000_000_000, 3)
        .expect("bounds and digits are within hdrhistogram's limits")
}

fn record(histogram: &mut Histogram<u64>, duration: Duration) {
    histogram.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            links: BTreeMap::new(),
            failures: BTreeMap::new(),
            all: histogram(),
            start_delay: histogram(),
        }
    }

    fn link(&mut self, link: LinkKind) -> &mut LinkTally {
        self.links.entry(link).or_insert_with(|| LinkTally {
            sent: 0,
            failed: 0,
            latency: histogram(),
        })
    }

    /// Counts a request that starts now, `late` after its scheduled start.
    pub(crate) fn sent(&mut self, link: LinkKind, late: Duration) {
        self.link(link).sent += 1;
        record(&mut self.start_delay, late);
    }

    pub(crate) fn ok(&mut self, link: LinkKind, latency: Duration) {
        record(&mut self.link(link).latency, latency);
        record(&mut self.all, latency);
    }

    pub(crate) fn failed(&mut self, link: LinkKind, cause: String) {
        self.link(link).failed += 1;
        *self.failures.entry(cause).or_insert(0) += 1;
    }

    /// Creates the report. Requests without an outcome count as failed, with the cause
    /// `unfinished`.
    pub(crate) fn finish(
        mut self,
        rate_per_s: f64,
        duration: Duration,
        unfinished: &str,
    ) -> LoadReport {
        for tally in self.links.values_mut() {
            let open = tally.sent - tally.latency.len() - tally.failed;
            if open > 0 {
                tally.failed += open;
                *self.failures.entry(unfinished.to_owned()).or_insert(0) += open;
            }
        }
        let links: Vec<LinkReport> = self
            .links
            .iter()
            .map(|(link, tally)| LinkReport {
                link: *link,
                sent: tally.sent,
                ok: tally.latency.len(),
                failed: tally.failed,
                latency: Latency::of(&tally.latency),
            })
            .collect();
        LoadReport {
            rate_per_s,
            duration_ns: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
            sent: links.iter().map(|link| link.sent).sum(),
            ok: links.iter().map(|link| link.ok).sum(),
            failed: links.iter().map(|link| link.failed).sum(),
            failures: self.failures,
            latency: Latency::of(&self.all),
            start_delay: Latency::of(&self.start_delay),
            links,
        }
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.duration_ns as f64 / 1e9;
        writeln!(
            f,
            "{} requests in {seconds:.1} s ({} per s asked for): {} ok, {} failed",
            self.sent, self.rate_per_s, self.ok, self.failed
        )?;
        for (cause, count) in &self.failures {
            writeln!(f, "  failed: {count} × {cause}")?;
        }
        let row =
            |f: &mut fmt::Formatter<'_>, name: &str, sent: u64, ok: u64, latency: &Latency| {
                let ms = |ns: u64| ns as f64 / 1e6;
                writeln!(
                    f,
                    "{name:<8}{sent:>7}{ok:>7}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>9.1}",
                    ms(latency.mean_ns),
                    ms(latency.p50_ns),
                    ms(latency.p95_ns),
                    ms(latency.p99_ns),
                    ms(latency.max_ns)
                )
            };
        writeln!(
            f,
            "link       sent     ok  mean ms   p50 ms   p95 ms   p99 ms   max ms"
        )?;
        for link in &self.links {
            row(f, link.link.name(), link.sent, link.ok, &link.latency)?;
        }
        row(f, "all", self.sent, self.ok, &self.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> LoadReport {
        let mut tally = Tally::new();
        for latency_ms in 1..=100 {
            tally.sent(LinkKind::Fast, Duration::ZERO);
            tally.ok(LinkKind::Fast, Duration::from_millis(latency_ms));
        }
        tally.sent(LinkKind::Slow3g, Duration::from_millis(1));
        tally.failed(LinkKind::Slow3g, "unavailable".to_owned());
        tally.sent(LinkKind::Slow3g, Duration::from_millis(1));
        tally.finish(51.0, Duration::from_secs(2), "interrupted")
    }

    #[test]
    fn every_request_is_accounted_for() {
        let report = example();
        assert_eq!((report.sent, report.ok, report.failed), (102, 100, 2));
        let causes = [("interrupted".to_owned(), 1), ("unavailable".to_owned(), 1)];
        assert_eq!(report.failures, BTreeMap::from(causes));
        let links: Vec<_> = report
            .links
            .iter()
            .map(|link| (link.link, link.sent, link.failed))
            .collect();
        assert_eq!(links, [(LinkKind::Fast, 100, 0), (LinkKind::Slow3g, 2, 2)]);
    }

    #[test]
    fn percentiles_are_those_of_the_pages_loaded() {
        let near = |ns: u64, ms: u64| ns.abs_diff(ms * 1_000_000) < ms * 2_000;
        let latency = example().latency;
        assert!(
            near(latency.p50_ns, 50) && near(latency.p95_ns, 95),
            "{latency:?}"
        );
        assert!(
            near(latency.p99_ns, 99) && near(latency.max_ns, 100),
            "{latency:?}"
        );
        assert_eq!(example().links[1].latency, Latency::default());
    }

    #[test]
    fn reports_survive_json() {
        let json = serde_json::to_string(&example()).expect("written");
        assert_eq!(
            serde_json::from_str::<LoadReport>(&json).expect("read"),
            example()
        );
    }

    #[test]
    fn people_read_a_table() {
        let text = example().to_string();
        let expected = "\
102 requests in 2.0 s (51 per s asked for): 100 ok, 2 failed
  failed: 1 × interrupted
  failed: 1 × unavailable
link       sent     ok  mean ms   p50 ms   p95 ms   p99 ms   max ms
fast        100    100     50.5     50.0     95.0     99.0    100.0
3g            2      0      0.0      0.0      0.0      0.0      0.0
all         102    100     50.5     50.0     95.0     99.0    100.0
";
        assert_eq!(text, expected);
    }
}
