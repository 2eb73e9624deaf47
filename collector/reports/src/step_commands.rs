//! Commands that examine a change in time.

use crate::arguments::ReadingArguments;
use crate::suggest::{command_on, quoted};
use crate::time::written_periods;

/// Describes commands that compare the requests of a root operation before and after a step, in the
/// same store and with the same filters. The times are the beginning of the period before the step,
/// the step, and the end, in ns since the Unix epoch.
pub(crate) fn comparing_commands(
    root: &str,
    times_ns: [i64; 3],
    reading: &ReadingArguments,
) -> String {
    let [from, at, until] = written_periods(times_ns);
    let mut options = format!("--before {from}..{at} --after {at}..{until} --root ");
    options += &quoted(root);
    if let Some((formula, _)) = &reading.from.filter {
        options += &format!(" --where {}", quoted(formula));
    }
    for request in &reading.from.requests {
        options += &format!(" --request {}", quoted(request));
    }
    if let Some(exclude) = &reading.exclude {
        options += &format!(" --exclude {}", quoted(exclude.as_str()));
    }
    if reading.from.include_incomplete {
        options += " --include-incomplete";
    }
    if reading.trust_clocks {
        options += " --trust-clocks";
    }
    let compare = command_on(&format!("compare {options}"), &reading.from.data.data);
    format!(
        "`{compare}` compares before and after; `explain` with the same arguments looks for attributes."
    )
}
