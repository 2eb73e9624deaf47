//! Arguments that several verbs take.

use crate::output::say;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use regex::Regex;
use stroboscope_analysis::connection::NO_REQUESTS;
use stroboscope_burst::{BurstConfig, Parsed};

use crate::Failure;
use crate::reading_memory::parse_reading_limit;
use crate::suggest::DATA_DEFAULT;
use crate::time::in_order;
pub use crate::time::{parse_duration, parse_instant, parse_moment, parse_range};
use stroboscope_query::{CategoryChoice, CategoryRule, Selection, TimeRange};
use stroboscope_remote::address::{Remote, is_remote};
use stroboscope_remote::mirror::{Mirror, default_cache};
use stroboscope_search::{Formula, parse};
use stroboscope_store::data_dir::DataDir;
use tokio::runtime::Handle;

/// Where the data is.
#[derive(Clone, Debug, Args)]
pub struct DataArguments {
    /// The data folder; verbs that only read also take what was published to an object store: s3://BUCKET/PREFIX
    /// (credentials, region and endpoint as AWS_… variables) or file:///FOLDER
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

impl DataArguments {
    /// The folder, for who writes to it.
    pub fn local(&self) -> Result<&Path, Failure> {
        if is_remote(&self.data) {
            return Err(Failure::new(format!(
                "--data {} is an object store, which this verb does not write to: give a local folder (and `collect` \
                 publishes what is in one by --publish)",
                self.data.display()
            )));
        }
        Ok(&self.data)
    }

    /// Returns these, or the newest store of a demo, if that is all that the default directory holds.
    #[must_use]
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

    /// Returns the directory to read from: itself, or a mirror of what is published, for as long as that is kept.
    pub fn to_read(&self, runtime: &Handle) -> Result<Readable, Failure> {
        match self.data.to_str().filter(|_| is_remote(&self.data)) {
            None => Ok(Readable::Folder(self.data.clone())),
            Some(url) => {
                let remote = Remote::open(url).map_err(Failure::of)?;
                let mirror = runtime.block_on(Mirror::of(&remote, &default_cache()));
                let mirror = mirror.map_err(Failure::of)?;
                for error in mirror.left_out() {
                    say!("what this collector published is left out: {error}");
                }
                Ok(Readable::Mirror(mirror))
            }
        }
    }
}

/// Returns the newest `demo-SECONDS` in the default directory, if that is no store itself.
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

/// What is read.
#[derive(Debug)]
pub enum Readable {
    Folder(PathBuf),
    Mirror(Mirror),
}

impl Readable {
    pub fn folder(&self) -> &Path {
        match self {
            Self::Folder(folder) => folder,
            Self::Mirror(mirror) => mirror.folder(),
        }
    }
}

/// What is read, and whether the answer is for people.
#[derive(Clone, Debug, Args)]
pub struct SelectionArguments {
    /// Where to read from
    #[command(flatten)]
    pub data: DataArguments,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Only requests that began then or later: a time such as 2026-11-21, 2026-11-21T10:00 or 2026-11-21T10:00:00+01:00
    /// (UTC where no offset is given), or how long ago, such as 10min, 1d or 2w; files of records that began more than an
    /// hour before it, or after --until, are not read
    #[arg(long, value_name = "WHEN", value_parser = parse_instant, allow_hyphen_values = true)]
    pub since: Option<i64>,
    /// Only requests that began before that time, which is written like --since and lies after it
    #[arg(long, value_name = "WHEN", value_parser = parse_instant, allow_hyphen_values = true)]
    pub until: Option<i64>,
    /// Only requests of this root operation (service:name, as the table by root operation lists them)
    #[arg(long, value_name = "OPERATION")]
    pub root: Option<String>,
    /// Take each span of this operation (service:name) for a request, wherever it is, and leave out what it is inside of; `none`: take no children of long-lived spans,
    /// such as those of connections and of workers' loops, for requests [default: those of `store set-requests`]
    #[arg(id = "request", long = "request", value_name = "OPERATION", value_parser = parse_operation)]
    pub requests: Vec<String>,
    /// Only requests of which this formula holds, as `search` takes it: '{ service = "store" && duration > 5ms }'
    #[arg(long = "where", value_name = "FORMULA", value_parser = parse_formula)]
    pub filter: Option<(String, Formula)>,
    /// Also use traces of which a part is known to be missing
    #[arg(long)]
    pub include_incomplete: bool,
    /// Memory for the traces that are read and the model of them: a trace that takes more than half of it is left out and counted,
    /// and a model that takes more is refused [default: 60 % of the control group's limit, or of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_reading_limit)]
    pub memory_limit: Option<u64>,
}

/// Parses an operation of requests.
pub fn parse_operation(text: &str) -> Result<String, String> {
    if text == NO_REQUESTS || text.contains(':') {
        return Ok(text.to_owned());
    }
    Err(format!(
        "expected service:name, as tables list operations, or `{NO_REQUESTS}`"
    ))
}

/// Reads a formula; what is wrong is said with a mark below the place.
pub fn parse_formula(text: &str) -> Result<(String, Formula), String> {
    match parse(text) {
        Ok(formula) => Ok((text.to_owned(), formula)),
        Err(error) => {
            let marked = error.marked(text).replace('\n', "\n  ");
            Err(format!("{error}\n  {marked}"))
        }
    }
}

/// What every verb takes that infers.
#[derive(Clone, Debug, Args)]
pub struct ReadingArguments {
    #[command(flatten)]
    pub from: SelectionArguments,
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

/// Where else a result goes, and how it is shown.
#[derive(Clone, Debug, Args)]
pub struct ShowArguments {
    /// Also write the result as a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write the result's tables, all their rows, each to a Parquet file in this folder
    #[arg(long, value_name = "FOLDER")]
    pub parquet: Option<PathBuf>,
    /// Call segments by their full path, and not by as much of it as is unique
    #[arg(long)]
    pub full_names: bool,
}

/// How segments are put into categories.
#[derive(Clone, Debug, Args)]
pub struct CategoryArguments {
    /// Take the value of this attribute for the category of an operation's segments, instead of server, network or
    /// client by the kind of span. An operation without it is of the category of the one it runs inside. `service`,
    /// `host`, `operation` and `kind` are known of every span; `recorded:service` is an attribute that is called so
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

/// What counts as the server's time.
#[derive(Clone, Debug, Args)]
pub struct ServerArguments {
    #[command(flatten)]
    pub categories: CategoryArguments,
    /// The category whose time is the server's
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
    /// Of what is selected; nothing special is inferred of it.
    pub fn of(from: SelectionArguments) -> Self {
        Self {
            from,
            tolerance: 0.0,
            exclude: None,
            trailing_elements: false,
            trust_clocks: false,
        }
    }

    /// # Errors
    /// When the range of time ends before it begins.
    pub fn selection(&self) -> Result<Selection, Failure> {
        let SelectionArguments {
            since,
            until,
            include_incomplete,
            ..
        } = self.from;
        let range = in_order(TimeRange {
            since_ns: since,
            until_ns: until,
        })
        .map_err(|reversed| {
            Failure::new(format!(
                "--since must be before --until, and {reversed}; swap them"
            ))
        })?;
        Ok(Selection {
            include_incomplete,
            trust_clocks: self.trust_clocks,
            range,
        })
    }
}

pub fn parse_part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("a number from 0 to 1, such as 0.01".to_owned()),
    }
}

/// A burst-config, as people write it, and whether it had to be rounded: say so with [`config_of`].
pub fn parse_config(text: &str) -> Result<Parsed, String> {
    BurstConfig::parse(text).map_err(|error| error.to_string())
}

/// The config, and on standard error what it was rounded from, in the SDK's own words: burst and period are powers of two.
pub fn config_of(parsed: &Parsed) -> BurstConfig {
    if let Some(text) = &parsed.rounded_from {
        say!(
            "stroboscope: burst-config {text} rounded to {}",
            parsed.config
        );
    }
    parsed.config
}

/// Whole nanoseconds; what is longer than 584 years counts as that.
pub fn to_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A share such as `5%` or `0.05`.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = text
        .strip_suffix('%')
        .map_or((text, 1.0), |number| (number, 100.0));
    match number.trim().parse::<f64>().map(|share| share / scale) {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share above 0, such as 5% or 0.05".to_owned()),
    }
}
