//! Remarks on a query, next to its result.

use std::fmt;

use crate::output::say;
use stroboscope_analysis::completeness::explanation;
use stroboscope_analysis::diagnostic::Diagnostic;

use crate::Status;
use stroboscope_analysis::connection::NO_REQUESTS;
use stroboscope_query::Notes;
use stroboscope_render::humanise::{are, counted};

/// Remark if no request was read, so that users do not mistake an empty result for an answer.
pub(crate) const NOTHING_READ: &str =
    "No request in the store matches the requested time and root operation.";

const DAMAGE_SHOWN: usize = 20;

/// Prints the remarks on a query on standard error. Returns `Partly` if files were damaged.
pub fn tell(notes: &Notes) -> Status {
    let remarks = remarks(notes);
    remarks.iter().for_each(|remark| say!("{remark}"));
    if notes.damage.is_empty() {
        Status::Done
    } else {
        Status::Partly
    }
}

/// A remark on a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// Data that was left out, or a circumstance that affects the figures.
    Note(String),
    /// Detail of the last note before it.
    Detail(String),
    /// Data that could not be read.
    Error(String),
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Note(text) => write!(f, "note: {text}"),
            Self::Detail(text) => write!(f, "      {text}"),
            Self::Error(text) => write!(f, "error: {text}"),
        }
    }
}

/// Returns the remarks on data that was left out, on damaged files, and on circumstances that
/// affect the figures.
pub fn remarks(notes: &Notes) -> Vec<Remark> {
    let mut remarks = Vec::new();
    macro_rules! note {
        ($($said:tt)*) => { remarks.push(Remark::Note(format!($($said)*))) };
    }
    macro_rules! detail {
        ($($said:tt)*) => { remarks.push(Remark::Detail(format!($($said)*))) };
    }
    macro_rules! error {
        ($($said:tt)*) => { remarks.push(Remark::Error(format!($($said)*))) };
    }
    if !notes.incomplete.is_empty() {
        note!(
            "{} of {} {} incomplete ({})",
            notes.traces - notes.complete_traces,
            counted(notes.traces, "trace"),
            are(notes.traces - notes.complete_traces),
            notes.incomplete_text()
        );
        let incomplete = notes.traces - notes.complete_traces;
        if notes.fragments == incomplete {
            // All incomplete traces are fragments.
            detail!("all of them: {}", explanation("no_root"));
        } else {
            for cause in notes.incomplete.keys() {
                match explanation(cause) {
                    "" => {}
                    meaning => detail!("{cause}: {meaning}"),
                }
            }
        }
    }
    for (connection, count) in &notes.connections {
        note!(
            "each child of {connection} counts as a request, because its spans ({count} here) outlast many children, as those of \
             connections do; with --request {NO_REQUESTS} these spans count as requests"
        );
    }
    if notes.unflushed_bytes > 0 {
        note!(
            "not in this result: {} that the running collector has taken and will put into the store within \
             its --flush-interval (10 s by default)",
            counted(notes.unflushed_bytes, "byte")
        );
    }
    if !notes.unsynchronised.is_empty() {
        note!(
            "according to their kernels, nothing synchronises the clocks of these hosts: {}; records with equal \
             times may not be simultaneous, and bursts may miss each other: run an NTP or PTP client there",
            notes.unsynchronised.join(", ")
        );
    }
    for said in notes.sampling.sentences() {
        note!("{said}");
    }
    for (cause, count) in &notes.diagnostics {
        match Diagnostic::explanation(cause) {
            "" => note!("{} in the traces used: {cause}", counted(*count, "time")),
            meaning => note!(
                "{} in the traces used: {cause} ({meaning})",
                counted(*count, "time")
            ),
        }
    }
    if notes.excluded_segments > 0 {
        note!(
            "left out by --exclude: {} in the traces used",
            counted(notes.excluded_segments, "segment")
        );
    }
    let left = notes.left_out;
    if left.large_traces > 0 {
        note!(
            "not in this result: {} too large for the memory available to readers (--memory-limit, or --query-memory \
             of a collector)",
            counted(left.large_traces, "trace")
        );
    }
    let counts = [
        (
            left.over_trace_limit,
            "record",
            "beyond the largest trace allowed",
        ),
        (left.span_missing, "event", "whose span is not in the store"),
        (left.no_span_no_task, "event", "of no span and no task"),
        (
            left.copies,
            "record",
            "equal to an earlier span or event, as after a retried request",
        ),
    ];
    for (count, one, what) in counts.into_iter().filter(|of| of.0 > 0) {
        note!("left out: {} {what}", counted(count, one));
    }
    if left.unreadable_attributes > 0 {
        note!(
            "left out: attributes of {}, which are not a JSON object",
            counted(left.unreadable_attributes, "record")
        );
    }
    for damage in notes.damage.iter().take(DAMAGE_SHOWN) {
        error!("{damage}");
    }
    if notes.damage.len() > DAMAGE_SHOWN {
        error!(
            "{} more damaged",
            counted((notes.damage.len() - DAMAGE_SHOWN) as u64, "file")
        );
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_store::tables::LeftOut;

    #[test]
    fn notes_count_one_record_in_the_singular() {
        for (copies, records) in [(1, "1 record"), (2, "2 records")] {
            let left_out = LeftOut {
                copies,
                ..LeftOut::default()
            };
            let notes = Notes {
                left_out,
                ..Notes::default()
            };
            let expected = format!(
                "left out: {records} equal to an earlier span or event, as after a retried request"
            );
            assert_eq!(remarks(&notes), [Remark::Note(expected)]);
        }
    }
}
