//! Errors of serde_json, with their positions separated from the message.

use stroboscope_otlp::without_line_number;

use super::BadLine;

/// Returns the line of the error within the text, from 0, and the reason.
pub(super) fn reason_of(error: &serde_json::Error) -> (u64, BadLine) {
    let line = error.line().saturating_sub(1) as u64;
    (line, BadLine::Json(without_line_number(error)))
}
