//! What serde_json says, with positions as people count them.

use stroboscope_foreign::without_line_number;

use super::BadLine;

/// The reason, and in how manieth line of the text it is, from 0.
pub(super) fn reason_of(error: &serde_json::Error) -> (u64, BadLine) {
    (
        error.line().saturating_sub(1) as u64,
        BadLine::Json(without_line_number(error)),
    )
}
