//! One line of an event log.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::BadLine;
use crate::limits::Limits;

/// One event as its log has it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LogLine {
    /// The trace's id, as written.
    pub trace: String,
    /// The executing computer.
    pub host: String,
    /// Its local time, ns since the Unix epoch.
    pub ts_ns: u64,
    /// What happened.
    pub event: String,
    /// The distributed thread of control it happened in.
    pub task: String,
    /// Anything else.
    #[serde(default)]
    pub attrs: Option<Map<String, Value>>,
}

/// Parses and checks one line, without its line end.
///
/// # Errors
/// What is wrong with it.
pub fn parse(line: &[u8], limits: &Limits) -> Result<LogLine, BadLine> {
    let text = std::str::from_utf8(line).map_err(|error| BadLine::NotUtf8 { valid: error.valid_up_to() })?;
    let parsed: LogLine =
        serde_json::from_str(text).map_err(|error| BadLine::Json(without_line_number(&error)))?;
    let texts =
        [("trace", &parsed.trace), ("host", &parsed.host), ("event", &parsed.event), ("task", &parsed.task)];
    for (field, text) in texts {
        let (bytes, limit) = (text.len(), limits.string_bytes_max);
        if text.is_empty() && field != "host" {
            return Err(BadLine::Empty { field });
        }
        if text.contains('\0') {
            return Err(BadLine::Nul { field });
        }
        if bytes > limit {
            return Err(BadLine::TextTooLong { field, bytes, limit });
        }
    }
    if i64::try_from(parsed.ts_ns).is_err() {
        return Err(BadLine::Time(parsed.ts_ns));
    }
    let (count, limit) = (parsed.attrs.as_ref().map_or(0, Map::len), limits.attributes_per_record_max);
    if count > limit {
        return Err(BadLine::TooManyAttributes { count, limit });
    }
    Ok(parsed)
}

/// The parser counts lines from the line's own begin; the caller knows the real number.
fn without_line_number(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&position) {
        Some(reason) if error.column() > 0 => format!("{reason} (column {})", error.column()),
        Some(reason) => reason.to_owned(),
        None => text,
    }
}
