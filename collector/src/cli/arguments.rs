//! What the command line takes. Help texts are here; what the verbs do is in their own files.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use regex::Regex;
use stroboscope::burst::BurstConfig;

#[cfg(feature = "demo")]
use super::demo;
use super::{
    anomalies, burst, collect, critical_path, import, infer, kernel, model, slack, sql, timeline, what_if,
};

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
    /// Explain a burst-config, or plan one
    Burst(burst::Burst),
    /// Ask the store in SQL
    Sql(sql::Sql),
}

/// Where the data is.
#[derive(Clone, Debug, Args)]
pub(super) struct DataArguments {
    /// The data folder
    #[arg(long, value_name = "DIR", default_value = "./stroboscope-data")]
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
    /// Take timestamps as recorded, also where round trips prove that the hosts' clocks differ
    #[arg(long)]
    pub trust_clocks: bool,
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
