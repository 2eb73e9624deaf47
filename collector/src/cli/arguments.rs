//! What the command line takes. Help texts are here; what the verbs do is in their own files.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};
use regex::Regex;
use stroboscope::burst::BurstConfig;

#[cfg(feature = "demo")]
use super::demo;
use super::{
    anomalies, burst, clocks, collect, critical_path, import, infer, kernel, model, predict, report, slack,
    sql, timeline, what_if,
};
use crate::hint::DATA_DEFAULT;
use crate::query::{CategoryChoice, CategoryRule, Selection, TimeRange};

/// Shows what causes what in a distributed service.
///
/// Services record in short bursts, `collect` gathers what they recorded, and the other verbs say which segments of a
/// request come before which, which of them its latency is made of, and how much slack the others have.
#[derive(Debug, Parser)]
#[command(
    name = "stroboscope",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    /// The verb.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a newsfeed of five processes under load, record it in bursts, and explain it
    #[cfg(feature = "demo")]
    Demo(demo::Demo),
    /// Take what services record, until interrupted
    Collect(collect::Collect),
    /// Import event logs, spans of Jaeger, Zipkin and OpenTelemetry, and kernel events of perf and strace
    Import(import::Import),
    // No text of their own below: it would hide the long help that the verbs' own files give.
    Infer(infer::Infer),
    Model(model::ModelVerb),
    CriticalPath(critical_path::CriticalPath),
    Slack(slack::Slack),
    Anomalies(anomalies::AnomaliesVerb),
    WhatIf(what_if::WhatIfVerb),
    Kernel(kernel::KernelVerb),
    Timeline(timeline::TimelineVerb),
    Predict(predict::PredictVerb),
    Report(report::ReportVerb),
    Clocks(clocks::Clocks),
    /// Explain a burst-config, or plan one
    Burst(burst::Burst),
    /// Ask the store in SQL
    Sql(sql::Sql),
}

/// Where the data is.
#[derive(Clone, Debug, Args)]
pub(super) struct DataArguments {
    /// The data folder
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// What every reading verb takes.
#[derive(Clone, Debug, Args)]
pub(super) struct ReadingArguments {
    /// Where to read from
    #[command(flatten)]
    pub data: DataArguments,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Only requests that began then or later: a time such as 2026-11-21T10:00:00Z, or how long ago, such as 10min;
    /// files of records that began more than an hour before it, or after --until, are not read
    #[arg(long, value_name = "WHEN", value_parser = parse_instant, allow_hyphen_values = true)]
    pub since: Option<i64>,
    /// Only requests that began before that time
    #[arg(long, value_name = "WHEN", value_parser = parse_instant, allow_hyphen_values = true)]
    pub until: Option<i64>,
    /// Also use traces of which a part is known to be missing
    #[arg(long)]
    pub include_incomplete: bool,
    /// Part of the traces that may contradict a relation that is still believed (0 to 1)
    #[arg(long, value_name = "PART", default_value_t = 0.0, value_parser = parse_part)]
    pub tolerance: f64,
    /// Leave out segments that match, such as those of debugging code: a regular expression over
    /// `task [start … end]`, as the verbs print segments
    #[arg(long, value_name = "REGEX")]
    pub exclude: Option<Regex>,
    /// In event logs, take the last token of an event's name for the data element it is about, if it is an id or a
    /// number and the event has no attribute `element`: `sent-17` is `sent-*` about 17
    #[arg(long)]
    pub trailing_elements: bool,
    /// Take timestamps as recorded, also where round trips prove that the hosts' clocks differ
    #[arg(long)]
    pub trust_clocks: bool,
}

/// How segments are put into categories.
#[derive(Clone, Debug, Args)]
pub(super) struct CategoryArguments {
    /// Take the value of this attribute for the category of an operation's segments, instead of server, network or
    /// client by the kind of span. An operation without it is of the category of the one it runs inside
    #[arg(long, value_name = "ATTRIBUTE")]
    pub category_by: Option<String>,
}

impl CategoryArguments {
    pub(super) fn rule(&self) -> CategoryRule {
        self.category_by.clone().map_or_else(CategoryRule::default, CategoryRule::Attribute)
    }
}

/// What counts as the server's time.
#[derive(Clone, Debug, Args)]
pub(super) struct ServerArguments {
    #[command(flatten)]
    pub categories: CategoryArguments,
    /// The category whose time is the server's
    #[arg(long, value_name = "CATEGORY", default_value = "server")]
    pub server: String,
}

impl ServerArguments {
    pub(super) fn rule(&self) -> CategoryChoice {
        CategoryChoice { rule: self.categories.rule(), name: self.server.clone() }
    }
}

impl ReadingArguments {
    pub(super) fn selection(&self) -> Selection {
        Selection {
            include_incomplete: self.include_incomplete,
            trust_clocks: self.trust_clocks,
            range: TimeRange { since_ns: self.since, until_ns: self.until },
        }
    }
}

/// An instant in ns since the Unix epoch, written by RFC 3339 or as a time before now.
pub(super) fn parse_instant(text: &str) -> Result<i64, String> {
    let wrong = || "a time such as 2026-11-21T10:00:00Z, or how long ago, such as 10min".to_owned();
    if let Ok(ago) = parse_duration(text) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        return i64::try_from(since_epoch.saturating_sub(ago).as_nanos()).map_err(|_| wrong());
    }
    let at = chrono::DateTime::parse_from_rfc3339(text).map_err(|_| wrong())?;
    at.timestamp_nanos_opt().ok_or_else(|| "a time from 1677 to 2262".to_owned())
}

/// A range `FROM..UNTIL` of two times, of which either may be left out.
pub(super) fn parse_range(text: &str) -> Result<TimeRange, String> {
    let (since, until) = text.split_once("..").ok_or("a range such as 2h..1h")?;
    let side = |text: &str| if text.is_empty() { Ok(None) } else { parse_instant(text).map(Some) };
    Ok(TimeRange { since_ns: side(since)?, until_ns: side(until)? })
}

fn parse_part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("a number from 0 to 1, such as 0.01".to_owned()),
    }
}

/// A burst-config, as people write it.
pub(super) fn parse_config(text: &str) -> Result<BurstConfig, String> {
    BurstConfig::parse(text).map(|parsed| parsed.config).map_err(|error| error.to_string())
}

/// A share such as `5%` or `0.05`.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    match number.trim().parse::<f64>().map(|share| share / scale) {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share above 0, such as 5% or 0.05".to_owned()),
    }
}

/// A duration such as `500us`, `3ms` or `10s`.
pub(super) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale_s = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" | "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err("a number and a unit, such as 500us, 3ms, 10s".to_owned()),
    };
    let number: f64 =
        number.parse().map_err(|_| "a number and a unit, such as 500us, 3ms, 10s".to_owned())?;
    let duration =
        std::time::Duration::try_from_secs_f64(number * scale_s).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be longer than nothing".to_owned()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_in_two_ways() {
        assert_eq!(parse_instant("1970-01-01T00:00:01.5Z"), Ok(1_500_000_000));
        assert_eq!(parse_instant("1970-01-01T01:00:00+01:00"), Ok(0));
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
        let hour_ago_ns = parse_instant("1h").unwrap();
        assert!((now_ns - hour_ago_ns - 3_600_000_000_000).abs() < 60_000_000_000, "{hour_ago_ns}");
        for wrong in ["", "yesterday", "10:00", "17", "3000-01-01T00:00:00Z"] {
            assert!(parse_instant(wrong).is_err(), "{wrong}");
        }
        let range = TimeRange { since_ns: Some(0), until_ns: None };
        assert_eq!(parse_range("1970-01-01T00:00:00Z.."), Ok(range));
        assert!(parse_range("2h").is_err());
    }
}
