//! Names of the causes of loss.

use stroboscope_proto::v1::LossCause;

/// The name of a cause, as in the protocol without its prefix and in lower case: `ring_full`. All causes
/// newer than this collector are one, `unknown`, so that nobody can make it keep account of four billion.
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

/// Whether records of this cause are missing. A cut string, a field that did not fit and dropped baggage lose values, but
/// the record is there.
#[must_use]
pub fn loses_records(cause_name: &str) -> bool {
    !["string_cut", "oversize", "baggage_dropped"].contains(&cause_name)
}
