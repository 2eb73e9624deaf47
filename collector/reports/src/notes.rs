//! What a query noticed besides its result: as text on standard error, and as keys of the JSON.

use crate::output::say;
use stroboscope_analysis::completeness::explanation;
use stroboscope_analysis::diagnostic::Diagnostic;

use crate::Status;
use stroboscope_present::humanise::{are, counted};
use stroboscope_query::Notes;

/// Most damaged files shown one by one.
const DAMAGE_SHOWN: usize = 20;

/// Says on standard error what was left out, and whether that makes the result partial.
pub fn tell(notes: &Notes) -> Status {
    lines(notes).iter().for_each(|line| say!("{line}"));
    if notes.damage.is_empty() {
        Status::Done
    } else {
        Status::Partly
    }
}

/// What was left out, a line each.
pub fn lines(notes: &Notes) -> Vec<String> {
    let mut lines = Vec::new();
    macro_rules! line {
        ($($said:tt)*) => { lines.push(format!($($said)*)) };
    }
    if !notes.incomplete.is_empty() {
        line!(
            "note: {} of {} {} incomplete ({})",
            notes.traces - notes.complete_traces,
            counted(notes.traces, "trace"),
            are(notes.traces - notes.complete_traces),
            notes.incomplete_text()
        );
        let incomplete = notes.traces - notes.complete_traces;
        if notes.fragments == incomplete {
            // All causes are those of one thing.
            line!("      all of them: {}", explanation("no_root"));
        } else {
            for cause in notes.incomplete.keys() {
                match explanation(cause) {
                    "" => {}
                    meaning => line!("      {cause}: {meaning}"),
                }
            }
        }
    }
    if notes.unflushed_bytes > 0 {
        line!(
            "note: not in this result: {} that the running collector has taken and will put into the store within \
             its --flush-interval (10 s by default)",
            counted(notes.unflushed_bytes, "byte")
        );
    }
    if !notes.unsynchronised.is_empty() {
        line!(
            "note: by their kernels, nothing keeps the clocks of these hosts right: {}; what they recorded at the same time may \
             not have been at the same time, and bursts may miss each other: run an NTP or PTP client there",
            notes.unsynchronised.join(", ")
        );
    }
    for said in notes.sampling.sentences() {
        line!("note: {said}");
    }
    for (cause, count) in &notes.diagnostics {
        match Diagnostic::explanation(cause) {
            "" => line!("note: {count} times in the traces used: {cause}"),
            meaning => line!("note: {count} times in the traces used: {cause} ({meaning})"),
        }
    }
    if notes.excluded_segments > 0 {
        line!(
            "note: left out by --exclude: {} in the traces used",
            counted(notes.excluded_segments, "segment")
        );
    }
    let left = notes.left_out;
    if left.large_traces > 0 {
        line!(
            "note: not in this result: {} too large for the memory that there is to read with (--memory-limit, or \
             --query-memory of a collector)",
            counted(left.large_traces, "trace")
        );
    }
    let counts = [
        (
            left.over_trace_limit,
            "records beyond the largest trace allowed were left out",
        ),
        (
            left.span_missing,
            "events were left out: their span is not in the store",
        ),
        (
            left.no_span_no_task,
            "events were left out: they belong to no span and no task",
        ),
        (
            left.unreadable_attributes,
            "records have attributes that are not a JSON object; they were left out",
        ),
    ];
    for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
        line!("note: {count} {what}");
    }
    for damage in notes.damage.iter().take(DAMAGE_SHOWN) {
        line!("error: {damage}");
    }
    if notes.damage.len() > DAMAGE_SHOWN {
        line!(
            "error: {} damaged beside these",
            counted((notes.damage.len() - DAMAGE_SHOWN) as u64, "file")
        );
    }
    lines
}
