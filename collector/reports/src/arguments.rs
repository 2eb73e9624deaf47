//! Arguments shared by several subcommands.

use crate::output::say;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Command};
use regex::Regex;
use stroboscope_analysis::connection::NO_REQUESTS;
use stroboscope_analysis::label::DEFAULT_MAX_LABELS;
use stroboscope_burst::{BurstConfig, ParsedConfig};

use crate::Failure;
use crate::memory_limit::parse_reading_limit;
use crate::suggest::DATA_DEFAULT;
use crate::time::in_order;
pub use crate::time::{parse_duration, parse_instant, parse_moment, parse_range};
use stroboscope_query::{CategoryChoice, CategoryRule, Selection, TimeRange};
use stroboscope_remote::address::{Remote, is_remote};
use stroboscope_remote::mirror::{Mirror, default_cache};
use stroboscope_search::{Formula, parse};
use stroboscope_store::data_dir::DataDir;
use tokio::runtime::Handle;

/// Argument for the location of the data.
#[derive(Clone, Debug, Args)]
pub struct DataArguments {
    /// Data directory. Subcommands that only read also accept a store that was published to an
    /// object store: s3://BUCKET/PREFIX (credentials, region and endpoint from the AWS_… variables)
    /// or file:///DIRECTORY
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

impl DataArguments {
    /// Returns the data directory for writing; rejects object-store URLs.
    pub fn local(&self) -> Result<&Path, Failure> {
        if is_remote(&self.data) {
            return Err(Failure::new(format!(
                "--data {} is an object store, which this subcommand does not write to: give a local directory \
                 (`collect --publish` publishes its contents)",
                self.data.display()
            )));
        }
        Ok(&self.data)
    }

    /// Returns these arguments. If they name the default directory, and it is no store but contains
    /// demos, returns the newest demo instead, and prints its path.
    pub fn or_newest_demo(self) -> Self {
        let Some(data) = newest_demo(&self.data) else {
            return self;
        };
        say!(
            "the newest demo is shown, {}; --data names another",
            data.display()
        );
        Self { data }
    }

    /// Returns the directory to read from: the data directory itself, or a mirror of the published
    /// store, which the result holds.
    pub fn to_read(&self, runtime: &Handle) -> Result<Readable, Failure> {
        let Some(url) = self.data.to_str().filter(|_| is_remote(&self.data)) else {
            return Ok(Readable::Directory(self.data.clone()));
        };
        let remote = Remote::open(url).map_err(Failure::of)?;
        let mirror = runtime.block_on(Mirror::of(&remote, &default_cache()));
        let mirror = mirror.map_err(Failure::of)?;
        for error in mirror.left_out() {
            say!("data published by this collector is left out: {error}");
        }
        Ok(Readable::Mirror(mirror))
    }
}

/// Returns the entry `demo-SECONDS` with the largest number; `None` if there is none, or if `data`
/// is not the default directory or is a store itself.
fn newest_demo(data: &Path) -> Option<PathBuf> {
    if data != Path::new(DATA_DEFAULT) || DataDir::existing(data).is_ok() {
        return None;
    }
    let entries = std::fs::read_dir(data).ok()?.flatten();
    let demos = entries.filter_map(|entry| {
        let name = entry.file_name();
        let seconds: u64 = name.to_str()?.strip_prefix("demo-")?.parse().ok()?;
        Some((seconds, entry.path()))
    });
    demos.max().map(|(_, path)| path)
}

/// Directory from which a store is read: a data directory, or a mirror of a published store.
#[derive(Debug)]
pub enum Readable {
    Directory(PathBuf),
    Mirror(Mirror),
}

impl Readable {
    pub fn directory(&self) -> &Path {
        match self {
            Self::Directory(directory) => directory,
            Self::Mirror(mirror) => mirror.directory(),
        }
    }
}

/// Arguments for the data, the requests to use, the format of the output and the memory.
#[derive(Clone, Debug, Args)]
pub struct SelectionArguments {
    /// Location of the data
    #[command(flatten)]
    pub data: DataArguments,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Only requests that began then or later: a time such as 2026-11-21, 2026-11-21T10:00 or
    /// 2026-11-21T10:00:00+01:00 (UTC unless an offset is given), or an age such as 10min, 1d or
    /// 2w. Files are not read if all their records began more than an hour before it, or more than
    /// an hour after --until
    #[arg(long, value_name = "WHEN", value_parser = parse_instant, allow_hyphen_values = true)]
    pub since: Option<i64>,
    /// Only requests that began before that time, in the format of --since; must be later than
    /// --since
    #[arg(long, value_name = "WHEN", value_parser = parse_instant, allow_hyphen_values = true)]
    pub until: Option<i64>,
    /// Only requests of this root operation (service:name, as in the table by root operation)
    #[arg(long, value_name = "OPERATION")]
    pub root: Option<String>,
    /// Count the outermost spans of this operation (service:name) as requests, and ignore the spans
    /// around them; repeatable. `none`: do not count children of long-lived spans, such as those of
    /// connections and of workers' loops, as requests [default: those of `store set-requests`]
    #[arg(id = "request", long = "request", value_name = "OPERATION", value_parser = parse_operation)]
    pub requests: Vec<String>,
    /// Only requests that satisfy this formula, in the language of `search`: '{ service = "store"
    /// && duration > 5ms }'
    #[arg(long = "where", value_name = "FORMULA", value_parser = parse_formula)]
    pub filter: Option<(String, Formula)>,
    /// Also use traces with known missing parts
    #[arg(long)]
    pub include_incomplete: bool,
    /// Memory for traces and the model inferred from them. A trace that takes more than half of
    /// this memory is left out and counted. A model for which there is too little is rejected
    /// [default: 60 % of the control group's limit or the machine's memory; at least 256 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_reading_limit)]
    pub memory_limit: Option<u64>,
}

/// Parses the operation of a request, or `none`.
pub fn parse_operation(text: &str) -> Result<String, String> {
    if text == NO_REQUESTS || text.contains(':') {
        return Ok(text.to_owned());
    }
    Err(format!(
        "expected service:name, as tables list operations, or `{NO_REQUESTS}`"
    ))
}

/// Parses a formula. An error shows its position in the text, with a hint if the text looks like
/// `KEY=VALUE`.
pub fn parse_formula(text: &str) -> Result<(String, Formula), String> {
    match parse(text) {
        Ok(formula) => Ok((text.to_owned(), formula)),
        Err(error) => {
            let marked = error.marked(text).replace('\n', "\n  ");
            // Users may write `tenant=t2`, which the periods of `compare` accept.
            let meant = text.split_once('=').map(|(key, value)| {
                let [key, value] = [key, value].map(|part| part.trim().trim_matches('"'));
                format!("{{ .{key} = \"{value}\" }}")
            });
            let meant = meant.filter(|meant| parse(meant).is_ok());
            let hint = meant.map_or_else(String::new, |meant| {
                format!("\n  A formula for an attribute: {meant}")
            });
            Err(format!("{error}\n  {marked}{hint}"))
        }
    }
}

/// Parses the maximum number of a model's segments, from 1 to a million.
pub fn parse_max_segments(text: &str) -> Result<usize, String> {
    let count = text.parse().ok();
    count
        .filter(|count| (1..=1_000_000).contains(count))
        .ok_or_else(|| "expected a number from 1 to 1000000".to_owned())
}

/// Returns arguments that name a data directory, and are the defaults otherwise.
pub(crate) fn arguments_on<A: Args>(data: &Path) -> Result<A, Failure> {
    let command = A::augment_args(Command::new("defaults"));
    let words = ["defaults".as_ref(), "--data".as_ref(), data.as_os_str()];
    let matches = command.try_get_matches_from(words).map_err(Failure::of)?;
    A::from_arg_matches(&matches).map_err(Failure::of)
}

/// Arguments that select requests and define the model inferred from them.
#[derive(Clone, Debug, Args)]
pub struct ReadingArguments {
    #[command(flatten)]
    pub from: SelectionArguments,
    /// Share of the traces with both parts of a relation that may contradict it before it is
    /// dropped (0 to 1)
    #[arg(long, value_name = "PART", default_value_t = 0.0, value_parser = parse_part)]
    pub tolerance: f64,
    /// Leave out segments whose full name, `task [start … end]` with the whole path of the task,
    /// matches this regular expression; for example those of debugging code
    #[arg(long, value_name = "REGEX")]
    pub exclude: Option<Regex>,
    /// In event logs, use the last token of an event's name as its data element. Applies if the
    /// token is an id or a number, and the event has no attribute `element`. For example, `sent-17`
    /// becomes `sent-*` about 17
    #[arg(long)]
    pub trailing_elements: bool,
    /// Maximum number of segments that the model distinguishes. Later ones are left out and counted
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_MAX_LABELS, value_parser = parse_max_segments)]
    pub max_segments: usize,
    /// Use timestamps as recorded, even if round trips prove that the hosts' clocks differ
    #[arg(long)]
    pub trust_clocks: bool,
}

/// Arguments for additional outputs of a result, and for the names in it.
#[derive(Clone, Debug, Args)]
pub struct ShowArguments {
    /// Also write the result as an HTML page to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write the result's tables with all rows, each to a Parquet file in this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub parquet: Option<PathBuf>,
    /// Show the full paths of segments, instead of the shortest unique part
    #[arg(long)]
    pub full_names: bool,
}

/// Argument for the categories of segments.
#[derive(Clone, Debug, Args)]
pub struct CategoryArguments {
    /// Categorise an operation's segments by the value of this attribute, instead of server,
    /// network or client by the kind of span. An operation without the attribute gets the category
    /// of its enclosing operation. Every span has `service`, `host`, `operation`, `kind` and
    /// `status`; `recorded:service` is a recorded attribute named service
    #[arg(long, value_name = "ATTRIBUTE")]
    pub category_by: Option<String>,
}

impl CategoryArguments {
    pub fn rule(&self) -> CategoryRule {
        self.category_by
            .clone()
            .map_or_else(CategoryRule::default, CategoryRule::Attribute)
    }
}

/// Arguments for the definition of server time.
#[derive(Clone, Debug, Args)]
pub struct ServerArguments {
    #[command(flatten)]
    pub categories: CategoryArguments,
    /// Category that counts as server time
    #[arg(long, value_name = "CATEGORY", default_value = "server")]
    pub server: String,
}

impl ServerArguments {
    pub fn rule(&self) -> CategoryChoice {
        CategoryChoice {
            rule: self.categories.rule(),
            name: self.server.clone(),
        }
    }
}

impl ReadingArguments {
    /// Combines arguments that select requests with the defaults of inference.
    pub fn of(from: SelectionArguments) -> Self {
        Self {
            from,
            tolerance: 0.0,
            exclude: None,
            trailing_elements: false,
            max_segments: DEFAULT_MAX_LABELS,
            trust_clocks: false,
        }
    }

    /// Returns the time range of requests, and how to treat incomplete traces and clocks.
    ///
    /// # Errors
    /// Returns an error if the time range has both ends and does not begin before it ends.
    pub fn selection(&self) -> Result<Selection, Failure> {
        Ok(Selection {
            include_incomplete: self.from.include_incomplete,
            trust_clocks: self.trust_clocks,
            range: range_of(self.from.since, self.from.until)?,
        })
    }
}

/// Returns the range of `--since` and `--until`.
///
/// # Errors
/// Returns an error if the range has both ends and does not begin before it ends.
pub(crate) fn range_of(since_ns: Option<i64>, until_ns: Option<i64>) -> Result<TimeRange, Failure> {
    let range = in_order(TimeRange { since_ns, until_ns });
    range.map_err(|reversed| {
        Failure::asked(format!(
            "--since must be before --until, and {reversed}; swap them"
        ))
    })
}

pub fn parse_part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("a number from 0 to 1, such as 0.01".to_owned()),
    }
}

/// Parses a burst-config, and remembers whether it was rounded; [`config_of`] reports that.
pub fn parse_config(text: &str) -> Result<ParsedConfig, String> {
    BurstConfig::parse(text).map_err(|error| error.to_string())
}

/// Returns the config. If it was rounded, because burst and period are powers of two, prints the
/// SDK's message about that on standard error.
pub fn config_of(parsed: &ParsedConfig) -> BurstConfig {
    if let Some(text) = &parsed.rounded_from {
        say!(
            "stroboscope: burst-config {text} rounded to {}",
            parsed.config
        );
    }
    parsed.config
}

/// Converts a duration to nanoseconds; saturates above 584 years.
pub fn to_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses a share above 0 and up to 1, such as `5%` or `0.05`.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = text
        .strip_suffix('%')
        .map_or((text, 1.0), |number| (number, 100.0));
    match number.trim().parse::<f64>().map(|share| share / scale) {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share above 0 and at most 1, such as 5% or 0.05".to_owned()),
    }
}
