//! Log of omissions: what was left out, when, and by which policy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::tradeoff::{TradeoffInstance, TradeoffObservations};

use stroboscope_query::Notes;
use stroboscope_render::humanise::{counted, percent};
use stroboscope_render::rows;
use stroboscope_render::show::{Axis, Chart, Doc, Figure, Kind, Line};

/// Omissions by interval of time, tradeoff point and kind.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LogSays {
    #[serde(flatten)]
    pub notes: Notes,
    /// Number of decisions to leave something out, without those that explored as instructed.
    requests: u64,
    /// Number of decisions that explored as instructed.
    explored: u64,
    /// Number of tradeoffs whose component was cut by a burst's edge or has no recorded end;
    /// `malformed` counts unusable records.
    cut: u64,
    malformed: u64,
    log: Vec<LogRow>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct LogRow {
    /// Beginning of the interval, ns since the Unix epoch.
    from_ns: i64,
    point: String,
    service: String,
    /// Kind of the omission: `omit`, `default` or `low_fidelity`.
    kind: String,
    /// True if decided in advance, false if forced.
    proactive: bool,
    /// Version of the policy; 0 without a policy, or if the omission was forced.
    policy: u64,
    requests: u64,
    /// Mean share of items that was left out.
    mean_rate: f64,
    /// Mean number of requests per second at the point.
    requests_per_second: f64,
    mean_latency_ns: f64,
    /// At most three classes of the items left out, the largest shares first: `ads 45.0%, pages
    /// 30.0%`.
    left_out: String,
    /// Most frequent cause of forced omissions; empty for those decided in advance.
    cause: String,
}

rows! {
    LogRow as row, "tradeoffs": "The share that a point left out in a stretch of time, by policy.";
    from_ns: DurationNs, "since the first" = row.from_ns;
    point: Text, "point" = &*row.point;
    requests: Count, "requests" = row.requests;
    mean_rate: Share, "left out" = row.mean_rate;
    requests_per_second: Mean, "requests/s" = row.requests_per_second;
    mean_latency_ns: DurationNs, "latency" = row.mean_latency_ns;
    proactive: Flag, "proactive" = row.proactive;
    policy: Count, "policy" = row.policy;
    left_out: Text, "most of it" = &*row.left_out;
    cause: Text, "forced by" = &*row.cause;
    service: Text, "service" = &*row.service;
    kind: Text, "kind" = &*row.kind;
}

/// Approximate maximum number of intervals into which a log is divided. An interval lasts at least
/// a second.
const STRETCHES: i64 = 12;

impl LogSays {
    pub fn of(observed: &TradeoffObservations, notes: Notes) -> Self {
        let all = || {
            observed
                .points
                .iter()
                .flat_map(|(name, point)| point.made.iter().map(move |made| (name, made)))
        };
        let given_up = || all().filter(|(_, made)| !made.is_explored && made.omitted > 0);
        let starts_ns = || given_up().map(|(_, made)| made.start_ns);
        let first_ns = starts_ns().min().unwrap_or_default();
        let last_ns = starts_ns().max().unwrap_or_default();
        let stretch_ns = ((last_ns - first_ns) / STRETCHES).max(1_000_000_000);
        let mut groups: BTreeMap<_, Vec<&TradeoffInstance>> = BTreeMap::new();
        for (name, made) in given_up() {
            let stretch = (made.start_ns - first_ns) / stretch_ns;
            let key = (
                name,
                stretch,
                made.is_proactive,
                made.policy,
                &made.service,
                &made.kind,
            );
            groups.entry(key).or_default().push(made);
        }
        let rows = groups.into_iter().map(
            |((name, stretch, proactive, policy, service, kind), made)| {
                let count = made.len() as f64;
                let mean = |of: fn(&TradeoffInstance) -> f64| {
                    made.iter().map(|made| of(made)).sum::<f64>() / count
                };
                LogRow {
                    from_ns: first_ns + stretch * stretch_ns,
                    point: name.to_string(),
                    service: service.to_string(),
                    kind: kind.to_string(),
                    proactive,
                    policy,
                    requests: made.len() as u64,
                    mean_rate: mean(TradeoffInstance::rate),
                    requests_per_second: mean(|made| made.requests_per_second),
                    mean_latency_ns: mean(|made| made.latency_ns as f64),
                    left_out: left_out(&made),
                    cause: most_frequent(&made),
                }
            },
        );
        Self {
            notes,
            requests: given_up().count() as u64,
            explored: all().filter(|(_, made)| made.is_explored).count() as u64,
            cut: observed.cut,
            malformed: observed.malformed,
            log: rows.collect(),
        }
    }

    pub fn show(&self, doc: &mut Doc) {
        doc.heading("Tradeoffs made");
        let explored = match self.explored {
            0 => String::new(),
            explored => format!("; {explored} explored"),
        };
        doc.sentence(match self.requests {
            0 => format!("No request that is recorded gave anything up{explored}."),
            requests => format!(
                "{} gave something up{explored}.",
                counted(requests, "request")
            ),
        });
        if self.cut + self.malformed > 0 {
            doc.sentence(format!(
                "{} at a burst's edge are not counted, and {} cannot be read.",
                counted(self.cut, "tradeoff"),
                self.malformed
            ));
        }
        let first_ns = self.log.iter().map(|row| row.from_ns).min();
        let mut rows = self.log.clone();
        for row in &mut rows {
            row.from_ns -= first_ns.unwrap_or_default();
        }
        doc.figures(over_time(&rows));
        doc.table("Tradeoffs", &rows, usize::MAX);
    }
}

/// Draws the omissions of each point over time: a line for proactive ones, one for forced.
/// Returns `None` if no line has two intervals.
fn over_time(rows: &[LogRow]) -> Option<Figure> {
    // Maps the beginning of an interval to its requests and the sum of their rates.
    type Stretches = BTreeMap<i64, (f64, f64)>;
    let mut by_line: BTreeMap<(&str, bool), Stretches> = BTreeMap::new();
    for row in rows {
        let at = by_line.entry((&row.point, !row.proactive)).or_default();
        let (requests, rates) = at.entry(row.from_ns).or_default();
        *requests += row.requests as f64;
        *rates += row.requests as f64 * row.mean_rate;
    }
    let lines = by_line.into_iter().enumerate();
    let lines = lines.map(|(style, ((point, is_forced), stretches))| Line {
        name: match is_forced {
            true => format!("{point}, forced"),
            false => point.to_owned(),
        },
        style,
        points: stretches
            .into_iter()
            .map(|(from_ns, (requests, rates))| (from_ns as f64, rates / requests))
            .collect(),
    });
    let lines: Vec<Line> = lines.collect();
    let is_line = lines.iter().any(|line| line.points.len() > 1);
    is_line.then(|| {
        let chart = Chart::Lines {
            x: Axis::new("since the first", Kind::DurationNs),
            y: Axis::new("left out", Kind::Share),
            lines,
        };
        Figure::new(
            "Share left out over time, by requests that left something out",
            "the table of tradeoffs",
            chart,
        )
        .on_pages_only()
    })
}

fn left_out(made: &[&TradeoffInstance]) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (class, count) in made.iter().flat_map(|made| &made.omitted_by) {
        *counts.entry(class).or_default() += count;
    }
    let all: u64 = counts.values().sum();
    let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let shares = counts
        .iter()
        .take(3)
        .map(|(class, count)| format!("{class} {}", percent(*count as f64 / all.max(1) as f64)));
    shares.collect::<Vec<_>>().join(", ")
}

fn most_frequent(made: &[&TradeoffInstance]) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for made in made {
        *counts.entry(&made.cause).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map_or(String::new(), |(cause, _)| cause.to_owned())
}
