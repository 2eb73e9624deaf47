//! Errors of serde_json, without their line numbers.

use crate::BadSpan;

/// Returns the error's text with its column, if any, and without the line: the parser counts lines
/// from the beginning of the text, and only the caller knows the actual number.
pub fn without_line_number(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&position) {
        Some(reason) if error.column() > 0 => format!("{reason} (column {})", error.column()),
        Some(reason) => reason.to_owned(),
        None => text,
    }
}

/// Returns the line of the error within the text, from 0, and the reason.
pub(super) fn reason_of(error: &serde_json::Error) -> (u64, BadSpan) {
    (
        error.line().saturating_sub(1) as u64,
        BadSpan::Json(without_line_number(error)),
    )
}
