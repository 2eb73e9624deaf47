//! Causes of loss: their names, and the distinction between lost records and lost values.

use stroboscope_proto::v1::LossCause;

/// Returns the name of a cause of loss: its name in the protocol without the prefix, in lower case,
/// such as `ring_full`. All unknown causes share the name `unknown`, so that no client can create
/// names without limit.
#[must_use]
pub fn loss_cause_name(cause: i32) -> String {
    match LossCause::try_from(cause) {
        Ok(cause) => cause
            .as_str_name()
            .trim_start_matches("LOSS_CAUSE_")
            .to_ascii_lowercase(),
        Err(_) => "unknown".to_owned(),
    }
}

/// Reports whether a cause of loss means lost records. A cut string, an oversize value, dropped
/// baggage, a dropped provenance log and dropped notes of the process lose no record.
#[must_use]
pub fn loses_records(cause_name: &str) -> bool {
    let of_values = [
        "string_cut",
        "oversize",
        "baggage_dropped",
        "provenance_dropped",
        "notes_dropped",
    ];
    !of_values.contains(&cause_name)
}
