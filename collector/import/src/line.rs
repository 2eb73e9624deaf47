//! One line of an event log.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use stroboscope_foreign::{check_text, whole_number};

use super::BadLine;
use super::time::Times;
use stroboscope_foreign::typed;
use stroboscope_foreign::without_line_number;
use stroboscope_store::limits::Limits;

/// One event as its log has it.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// The trace's id, as written.
    pub trace: String,
    /// The executing computer.
    pub host: String,
    /// Its local time, ns since the Unix epoch.
    pub time_ns: i64,
    /// What happened.
    pub event: String,
    /// The distributed thread of control it happened in.
    pub task: String,
    /// Anything else.
    pub attrs: Option<Map<String, Value>>,
}

/// A line as it is written.
#[derive(Deserialize)]
struct RawLine<'a> {
    trace: String,
    host: String,
    /// ns since the Unix epoch.
    #[serde(borrow)]
    ts_ns: Option<&'a RawValue>,
    /// A time in a unit that is recognised.
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    event: String,
    task: String,
    #[serde(default)]
    attrs: Option<Map<String, Value>>,
}

/// One event of a log, its texts wherever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEvent<'a> {
    /// As [`LogLine::trace`].
    pub trace: &'a str,
    /// As [`LogLine::host`].
    pub host: &'a str,
    /// ns since the Unix epoch.
    pub time_ns: i64,
    /// As [`LogLine::event`].
    pub event: &'a str,
    /// As [`LogLine::task`].
    pub task: &'a str,
    /// One JSON object; none when empty.
    pub attributes: Option<&'a str>,
}

impl LogLine {
    /// The same, its attributes written to `json`.
    pub fn as_event<'a>(&'a self, json: &'a mut String) -> LogEvent<'a> {
        json.clear();
        if let Some(attrs) = self.attrs.as_ref().filter(|attrs| !attrs.is_empty()) {
            json.push_str(&Value::Object(attrs.clone()).to_string());
        }
        LogEvent {
            trace: &self.trace,
            host: &self.host,
            time_ns: self.time_ns,
            event: &self.event,
            task: &self.task,
            attributes: (!json.is_empty()).then_some(json),
        }
    }
}

/// Parses and checks one line, without its line end, by itself.
///
/// # Errors
/// What is wrong with it.
pub fn parse(line: &[u8], limits: &Limits) -> Result<LogLine, BadLine> {
    parse_in_order((1, line), &mut Times::default(), limits, &mut |_| {})
}

/// Parses and checks line `number` of a source whose times before it are known. `ignored` hears of keys that no event has.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse_in_order(
    (number, line): (u64, &[u8]),
    times: &mut Times,
    limits: &Limits,
    ignored: &mut dyn FnMut(&str),
) -> Result<LogLine, BadLine> {
    let text = std::str::from_utf8(line).map_err(|error| BadLine::NotUtf8 {
        valid: error.valid_up_to(),
    })?;
    let written: RawLine<'_> = typed::parse(text, "event", ignored)
        .map_err(|error| BadLine::Json(without_line_number(&error)))?;
    let RawLine {
        trace,
        host,
        ts_ns,
        ts,
        event,
        task,
        attrs,
    } = written;
    for (field, text) in [
        ("trace", &trace),
        ("host", &host),
        ("event", &event),
        ("task", &task),
    ] {
        check(field, text, limits)?;
    }
    check_count(attrs.as_ref().map_or(0, Map::len), limits)?;
    let time_ns = match (ts_ns, ts.map(RawValue::get)) {
        (Some(ns), None) => {
            let ns = match whole_number(ns.get()) {
                Some(ns) => ns,
                None => serde_json::from_str(ns.get())
                    .map_err(|error| BadLine::Json(without_line_number(&error)))?,
            };
            times.ns(ns, number)?
        }
        (None, Some(ts)) => match serde_json::from_str::<String>(ts) {
            Ok(text) => times.text(&text, number)?,
            Err(_) => times.text(ts, number)?,
        },
        (None, None) => return Err(BadLine::Json("missing field `ts_ns`".to_owned())),
        (Some(_), Some(_)) => return Err(BadLine::Json("both `ts_ns` and `ts`".to_owned())),
    };
    Ok(LogLine {
        trace,
        host,
        time_ns,
        event,
        task,
        attrs,
    })
}

/// Checks one of an event's texts.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(field: &'static str, text: &str, limits: &Limits) -> Result<(), BadLine> {
    Ok(check_text(field, text, limits.string_bytes_max)?)
}

/// Checks the number of an event's attributes.
///
/// # Errors
/// When there are too many.
pub(super) fn check_count(count: usize, limits: &Limits) -> Result<(), BadLine> {
    Ok(stroboscope_foreign::check_count(
        count,
        limits.attributes_per_record_max,
    )?)
}
