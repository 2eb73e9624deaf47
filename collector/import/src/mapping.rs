//! Mapping files, which describe the events or spans in logs of other schemas.
//!
//! A mapping is a TOML file. `import --map FILE` parses each record of a log by it. Records are
//! lines that are JSON objects, unless `pattern`, `csv` or `records` is given.
//!
//! | key | value |
//! |---|---|
//! | `pattern` | a regular expression whose named groups are the fields of a line |
//! | `csv` | lines are CSV, with this delimiter: `","`; the first record names the columns |
//! | `records` | the path of a list of records, or of one record, in documents of JSON: `"$.data.spans"`; `"$"`: the document itself |
//! | `trace`, `task`, `event` | texts with fields in braces: `"{service}/{thread}"` |
//! | `host` | text with fields, like `trace`; optional |
//! | `time` | text with fields, like `trace`, that is a time |
//! | `time_unit` | `"s"`, `"ms"`, `"us"` or `"ns"`; without it and `time_format`, units are recognised as described in [`time`](super::time) |
//! | `time_format` | format of a time, in strftime's `%` letters; UTC where it has no offset |
//! | `attributes` | a list of fields, or `"*"`: all fields that no other key names |
//! | `absent` | texts that mean an absent value, such as `["-"]` |
//! | `ignore` | a regular expression; records that it matches (in CSV: in a column) are skipped |
//! | `lines_without_trace` | `"report"` (as bad lines, the default) or `"ignore"` |
//! | `[span]` | a record is a span: `id`, `parent`, `name`, `service`, `kind`, and two of `start`, `end`, `duration` with its `duration_unit`; excludes `time`, `event`, `task` and `[interval]` |
//! | `[interval]` | a line describes a beginning and an end: `duration`, `duration_unit`, and `time_is`, `"start"` or `"end"` |
//!
//! A field of a JSON object is its name, or a path: `{request.id}`, `{ids.0}`, `{$.ids[0]}`; a
//! whole name with dots in it takes precedence over a path. `{a|b}` is the first of the two that is
//! present; `{{` and `}}` stand for braces. A line that describes an interval makes two events:
//! `EVENT begin` and `EVENT end`.

mod csv;
mod fields;
mod line;
mod parts;
mod span;
mod template;

use std::path::{Path, PathBuf};

use regex::Regex;
use serde::Deserialize;
use toml::Spanned;
use twox_hash::XxHash3_128;

use super::layout::Layout;
use super::time::{TimePattern, TimeRule, TimeUnit, Times};
use csv::Csv;
use parts::{EventInterval, KeptAttributes, MappingParts, RecordRule, What};
use span::{SpanParts, SpanTable};
use template::{Template, plain_path};

pub(super) use csv::CsvLine;
pub(super) use line::{MappedLine, RawRecord, Scratch};

/// Reason for rejecting a mapping file.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// The file cannot be read.
    #[error("cannot read the mapping {path}: {source}")]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A part of the file is invalid or missing.
    #[error("{path}:{line}: {what}")]
    Wrong {
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The defect, usually with a remedy.
        what: String,
    },
}

/// A mapping, ready to parse records.
#[derive(Clone, Debug)]
pub struct FieldMapping {
    parts: MappingParts,
    /// Fields that the mapping names; `None` if its `attributes` are `"*"`.
    named_fields: Option<Vec<String>>,
    time_rule: TimeRule,
    hash: u128,
}

impl FieldMapping {
    /// Reads a mapping file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if a part is invalid or missing. The error has the line
    /// of an invalid part, or of the section that lacks a part (1 outside sections).
    pub fn read(path: &Path) -> Result<Self, MappingError> {
        let unreadable = |source| MappingError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::of(&text).map_err(|wrong| {
            let before = &text.as_bytes()[..wrong.at.min(text.len())];
            MappingError::Wrong {
                path: path.to_owned(),
                line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
                what: wrong.what,
            }
        })
    }

    fn of(text: &str) -> Result<Self, Wrong> {
        let file: File = toml::from_str(text).map_err(|error| Wrong {
            at: error.span().map_or(0, |span| span.start),
            what: error.message().trim_end().replace('\n', "; "),
        })?;
        let time_rule = file.time_rule()?;
        let (parts, hash) = (file.parts()?, XxHash3_128::oneshot(text.as_bytes()));
        Ok(Self {
            named_fields: parts.named_fields(),
            parts,
            time_rule,
            hash,
        })
    }

    /// Returns a hash that identifies the mapping. Imports of one log with different mappings need
    /// different identifiers, because their rows may differ.
    pub(super) fn hash(&self) -> u128 {
        self.hash
    }

    /// Returns a CSV reader if the mapping is for CSV.
    pub(super) fn csv(&self) -> Option<Csv> {
        match self.parts.records {
            RecordRule::Csv(delimiter) => Some(Csv::new(delimiter)),
            _ => None,
        }
    }

    /// Returns the location of the records in JSON documents; `None` if the mapping reads lines.
    pub(super) fn layout(&self) -> Option<Layout> {
        match &self.parts.records {
            RecordRule::Path(path) if path.is_empty() => Some(Layout::Whole),
            RecordRule::Path(path) => Some(Layout::Path(path.clone())),
            _ => None,
        }
    }

    /// Returns a parser of times by the mapping's rule, which `asked` overrides.
    pub(super) fn times(&self, asked: Option<TimeUnit>) -> Times {
        Times::new(asked.map_or_else(|| self.time_rule.clone(), TimeRule::Unit))
    }
}

/// Defect of a mapping file, at the byte `at`.
struct Wrong {
    at: usize,
    what: String,
}

impl Wrong {
    fn at<T>(value: &Spanned<T>, what: impl Into<String>) -> Self {
        Self {
            at: value.span().start,
            what: what.into(),
        }
    }
}

/// Keys of a mapping file as deserialized from TOML, before they are validated.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    pattern: Option<Spanned<String>>,
    csv: Option<Spanned<String>>,
    records: Option<Spanned<String>>,
    trace: Option<Spanned<String>>,
    host: Option<Spanned<String>>,
    time: Option<Spanned<String>>,
    time_unit: Option<Spanned<String>>,
    time_format: Option<Spanned<String>>,
    event: Option<Spanned<String>>,
    task: Option<Spanned<String>>,
    attributes: Option<Spanned<OneOrMore>>,
    #[serde(default)]
    absent: Vec<String>,
    ignore: Option<Spanned<String>>,
    lines_without_trace: Option<Spanned<String>>,
    interval: Option<Spanned<IntervalTable>>,
    span: Option<Spanned<SpanTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IntervalTable {
    duration: Option<Spanned<String>>,
    duration_unit: Option<Spanned<String>>,
    time_is: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a list of fields, or \"*\" for all that no other key uses"
)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

fn unit(value: &Spanned<String>) -> Result<TimeUnit, Wrong> {
    let name = value.get_ref();
    let what = || format!("`{name}` is not a unit; write \"s\", \"ms\", \"us\" or \"ns\"");
    TimeUnit::of_name(name).ok_or_else(|| Wrong::at(value, what()))
}

fn regex(value: &Spanned<String>) -> Result<Regex, Wrong> {
    Regex::new(value.get_ref()).map_err(|error| {
        let reason = error.to_string().replace('\n', " ");
        let what = format!("{reason}; backslashes are kept as they are in '''…'''");
        Wrong::at(value, what)
    })
}

/// Returns true for the first of two words and false for the second. Rejects any other value.
fn is_first(value: &Spanned<String>, [one, other]: [&str; 2]) -> Result<bool, Wrong> {
    match value.get_ref() {
        word if word == one => Ok(true),
        word if word == other => Ok(false),
        word => {
            let what = format!("`{word}` is not known; write \"{one}\" or \"{other}\"");
            Err(Wrong::at(value, what))
        }
    }
}

impl File {
    fn time_rule(&self) -> Result<TimeRule, Wrong> {
        match (&self.time_unit, &self.time_format) {
            (None, None) => Ok(TimeRule::Recognised),
            (Some(name), None) => unit(name).map(TimeRule::Unit),
            (None, Some(format)) => {
                let pattern = TimePattern::new(format.get_ref()).map(TimeRule::Pattern);
                pattern.map_err(|what| Wrong::at(format, what))
            }
            (Some(_), Some(format)) => {
                let what = "`time_unit` and `time_format` exclude each other; write one of them";
                Err(Wrong::at(format, what))
            }
        }
    }

    /// Returns the rule that separates records. If `pattern` is given, the caller replaces it.
    /// Fails if two of `pattern`, `csv` and `records` are given, or if `csv` is a quote or not one
    /// byte.
    fn records(&self) -> Result<RecordRule, Wrong> {
        let asked = [&self.pattern, &self.csv, &self.records];
        if let [_, second, ..] = asked.into_iter().flatten().collect::<Vec<_>>()[..] {
            let what = "`pattern`, `csv` and `records` exclude each other; write one of them";
            return Err(Wrong::at(second, what));
        }
        match (&self.csv, &self.records) {
            (Some(csv), _) => match *csv.get_ref().as_bytes() {
                [delimiter] if delimiter != b'"' => Ok(RecordRule::Csv(delimiter)),
                _ => Err(Wrong::at(
                    csv,
                    "write the separator of the fields: csv = \",\"",
                )),
            },
            (None, Some(path)) => {
                let path = plain_path(path.get_ref());
                let parts = path.split('.').filter(|part| !part.is_empty());
                Ok(RecordRule::Path(parts.map(str::to_owned).collect()))
            }
            (None, None) => Ok(RecordRule::Lines),
        }
    }

    fn parts(self) -> Result<MappingParts, Wrong> {
        let records = self.records()?;
        if let (Some(interval), Some(_)) = (&self.interval, &self.span) {
            let what = "[span] defines the start and the end itself; leave [interval] out";
            return Err(Wrong::at(interval, what));
        }
        let pattern = self.pattern.as_ref().map(regex).transpose()?;
        let groups: Option<Vec<String>> = pattern.as_ref().map(|pattern| {
            let names = pattern.capture_names().flatten();
            names.map(str::to_owned).collect()
        });
        let is_json =
            groups.is_none() && matches!(records, RecordRule::Lines | RecordRule::Path(_));
        // Names of groups and columns are kept as written; names of JSON fields are paths.
        let field_name = |field: &str| match &groups {
            Some(groups) if !groups.iter().any(|group| group == field) => {
                Err(template::no_group(field, groups))
            }
            _ if is_json => Ok(plain_path(field)),
            _ => Ok(field.to_owned()),
        };
        let template = |key: &str, value: Option<Spanned<String>>, example: &str| {
            let missing = || Wrong {
                at: 0,
                what: format!("`{key}` is missing; write for example {key} = \"{example}\""),
            };
            let value = value.ok_or_else(missing)?;
            Template::new(value.get_ref(), field_name)
                .map_err(|what| Wrong::at(&value, format!("{key}: {what}")))
        };
        let varying = |key: &str, value: Option<Spanned<String>>, example: &str| {
            let at = value.as_ref().map_or(0, |value| value.span().start);
            let template = template(key, value, example)?;
            if template.fields().next().is_none() {
                let what =
                    format!("`{key}` is the same for all lines; name a field in braces: {{field}}");
                return Err(Wrong { at, what });
            }
            Ok(template)
        };
        let interval = self.interval.map(|table| {
            let at = table.span().start;
            let table = table.into_inner();
            let missing = |key: &str, example: &str| Wrong {
                at,
                what: format!(
                    "`{key}` is missing in [interval]; write for example {key} = \"{example}\""
                ),
            };
            let given = |key: &str, value: Option<Spanned<String>>, example: &str| {
                value.ok_or_else(|| missing(key, example))
            };
            let duration_unit = given("duration_unit", table.duration_unit, "s")?;
            let time_is = given("time_is", table.time_is, "end")?;
            let duration = given("duration", table.duration, "{request_time}")?;
            Ok(EventInterval {
                duration: template("duration", Some(duration), "")?,
                unit: unit(&duration_unit)?,
                is_start: is_first(&time_is, ["start", "end"])?,
            })
        });
        let host = self.host.map(|host| template("host", Some(host), ""));
        let host = host.transpose()?;
        let trace = varying("trace", self.trace, "{request_id}")?;
        let what = match self.span {
            Some(table) => {
                let others = [
                    ("time", &self.time),
                    ("event", &self.event),
                    ("task", &self.task),
                ];
                if let Some((key, Some(value))) = others.iter().find(|(_, value)| value.is_some()) {
                    let what = format!("[span] defines a span; leave `{key}` out");
                    return Err(Wrong::at(value, what));
                }
                let at = table.span().start;
                What::Span(SpanParts::new(table.into_inner(), at, &template)?)
            }
            None => What::Event {
                time: varying("time", self.time, "{time}")?,
                event: template("event", self.event, "{message}")?,
                task: template("task", self.task, "{service}/{thread}")?,
                interval: interval.transpose()?,
            },
        };
        let mut parts = MappingParts {
            records,
            trace,
            host,
            what,
            attributes: KeptAttributes::None,
            absent: self.absent,
            ignore: self.ignore.as_ref().map(regex).transpose()?,
            ignores_without_trace: match &self.lines_without_trace {
                Some(word) => is_first(word, ["ignore", "report"])?,
                None => false,
            },
        };
        parts.attributes = match self.attributes {
            None => KeptAttributes::None,
            Some(asked) => match asked.get_ref() {
                OneOrMore::One(star) if star == "*" => KeptAttributes::AllBut(parts.used_fields()),
                OneOrMore::One(other) => {
                    let what = format!("write attributes = [\"{other}\"], or \"*\" for all");
                    return Err(Wrong::at(&asked, what));
                }
                OneOrMore::More(fields) => {
                    let names = fields.iter().map(|field| field_name(field));
                    let names = names.collect::<Result<_, String>>();
                    KeptAttributes::These(names.map_err(|what| Wrong::at(&asked, what))?)
                }
            },
        };
        if let Some(pattern) = pattern {
            parts.records = RecordRule::Pattern(pattern);
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests;
