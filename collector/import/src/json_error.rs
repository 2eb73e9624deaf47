//! What serde_json says, with positions as people count them.

use super::BadLine;

/// The reason, and in how manieth line of the text it is, from 0.
pub(super) fn reason_of(error: &serde_json::Error) -> (u64, BadLine) {
    (
        error.line().saturating_sub(1) as u64,
        BadLine::Json(without_line_number(error)),
    )
}

/// The parser counts lines from the text's own begin; the caller knows the real number.
pub(super) fn without_line_number(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&position) {
        Some(reason) if error.column() > 0 => format!("{reason} (column {})", error.column()),
        Some(reason) => reason.to_owned(),
        None => text,
    }
}
