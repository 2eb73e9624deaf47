//! One line of an event log.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use stroboscope_otlp::{check_text, whole_number};

use super::BadLine;
use super::time::Times;
use stroboscope_otlp::typed;
use stroboscope_otlp::without_line_number;
use stroboscope_store::limits::Limits;

/// One event of a log, with owned texts.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// The trace's id, as written.
    pub trace: String,
    /// Host on which the event happened.
    pub host: String,
    /// Time of the event by the host's clock, ns since the Unix epoch.
    pub time_ns: i64,
    /// Name of the event.
    pub event: String,
    /// Task, a distributed thread of control, in which the event happened.
    pub task: String,
    /// Attributes, from the field `attrs`; `None` if the line has no such field or it is null.
    pub attrs: Option<Map<String, Value>>,
}

/// Fields of a line as deserialized from JSON, before they are checked.
#[derive(Deserialize)]
struct RawLine<'a> {
    trace: String,
    host: String,
    /// Time, in ns since the Unix epoch unless a unit was given.
    #[serde(borrow)]
    ts_ns: Option<&'a RawValue>,
    /// Time as a number whose unit is inferred unless given, or as a date and time of RFC 3339.
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    event: String,
    task: String,
    #[serde(default)]
    attrs: Option<Map<String, Value>>,
}

/// One event, with borrowed texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEvent<'a> {
    /// The trace's id, as a text.
    pub trace: &'a str,
    /// Host on which the event happened; empty if unknown.
    pub host: &'a str,
    /// Time, in ns since the Unix epoch.
    pub time_ns: i64,
    /// Name of the event.
    pub event: &'a str,
    /// Task, a distributed thread of control, in which the event happened.
    pub task: &'a str,
    /// Attributes as one JSON object; `None` if there are none.
    pub attributes: Option<&'a str>,
}

impl LogLine {
    /// Borrows the event, with its attributes written to `json`.
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

/// Parses and checks one line without its line end. Other lines do not affect the result.
///
/// # Errors
/// Returns the line's defect.
pub fn parse(line: &[u8], limits: &Limits) -> Result<LogLine, BadLine> {
    parse_in_order((1, line), &mut Times::default(), limits, &mut |_| {})
}

/// Parses and checks line `number` of a source. `times` has the unit of the times before this line.
/// Calls `ignored` with unknown keys.
///
/// # Errors
/// Returns the line's defect.
pub(super) fn parse_in_order(
    (number, line): (u64, &[u8]),
    times: &mut Times,
    limits: &Limits,
    ignored: &mut dyn FnMut(&str),
) -> Result<LogLine, BadLine> {
    let text = std::str::from_utf8(line)?;
    let wrong = |error: serde_json::Error| BadLine::Json(without_line_number(&error));
    let written: RawLine<'_> = typed::parse(text, "event", ignored).map_err(wrong)?;
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
                None => serde_json::from_str(ns.get()).map_err(wrong)?,
            };
            times.ns(ns, number)?
        }
        (None, Some(ts)) => {
            let text = serde_json::from_str::<String>(ts);
            times.text(text.as_deref().unwrap_or(ts), number)?
        }
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
/// Returns the text's defect.
pub(super) fn check(field: &'static str, text: &str, limits: &Limits) -> Result<(), BadLine> {
    Ok(check_text(field, text, limits.string_bytes_max)?)
}

/// Checks the number of an event's attributes.
///
/// # Errors
/// Fails if there are too many.
pub(super) fn check_count(count: usize, limits: &Limits) -> Result<(), BadLine> {
    let most = limits.attributes_per_record_max;
    Ok(stroboscope_otlp::check_count(count, most)?)
}
