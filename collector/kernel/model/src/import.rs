//! Imports the text output of other tools, for machines on which no recorder may be loaded.
//!
//! | tool | command line | imported |
//! |---|---|---|
//! | `perf script` | `perf record -a -e 'raw_syscalls:*,sched:sched_switch,sched:sched_waking,task:*'`, then `perf script --ns -F comm,pid,tid,cpu,time,event,trace` | system calls, scheduling, wake-ups, new threads and names |
//! | `strace` | `strace -f -ttt -T` | system calls, ends of threads; no scheduling, no wake-ups |
//!
//! `strace` does not show arguments of `getpid`. So in its output, a marker is a failing `write`
//! whose text contains the marker's numbers: `write(-1, "STROBE 1 c0ffee 0 0 0 0", 23)`. They are
//! kind, trace, span, thread, object and extra, in hexadecimal.

mod perf_script;
mod strace;

use std::io::{self, BufRead, Read as _};

use stroboscope_analysis::kernel::attribute;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Event, Window};
use stroboscope_analysis::kernel::timeline::Timeline;

pub use perf_script::perf_script;
pub use strace::strace;

/// Problem in a line of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line number, from 1.
    pub line: u64,
    /// Description of the problem.
    pub what: String,
}

/// Maximum number of problems kept in full; all are counted.
const PROBLEMS_MAX: usize = 100;

/// Events read from text. A line that cannot be read is counted and left out.
#[derive(Debug, Default)]
pub struct ImportedEvents {
    /// Events in the order of their lines.
    pub events: Vec<Event>,
    /// Number of lines read.
    pub lines: u64,
    /// Number of valid lines without a usable event, such as blank lines, comments and events of
    /// other kinds.
    pub skipped: u64,
    /// Number of lines that could not be read.
    pub problem_count: u64,
    /// First 100 problems.
    pub problems: Vec<Problem>,
    /// True if there are context switches; otherwise it is unknown which threads were on a
    /// processor.
    pub has_scheduling: bool,
    /// True if the times are known to be wall time (ns since the Unix epoch). `perf script` does
    /// not name its clock.
    pub is_wall_time: bool,
    /// Architecture whose numbers the system calls have.
    pub architecture: Architecture,
    /// Error that ended the reading early, within the line after [`lines`](Self::lines).
    pub failure: Option<io::Error>,
}

/// Content of a parsed line.
enum Line {
    Events(Vec<Event>),
    Skipped,
}

impl ImportedEvents {
    fn read(
        mut text: impl BufRead,
        architecture: Architecture,
        line_bytes_max: usize,
        mut parse: impl FnMut(&str) -> Result<Line, &'static str>,
    ) -> Self {
        let mut imported = Self {
            architecture,
            ..Self::default()
        };
        let mut bytes = Vec::new();
        loop {
            let is_whole = match next_line(&mut text, line_bytes_max, &mut bytes) {
                Ok(Some(is_whole)) => is_whole,
                Ok(None) => return imported,
                Err(failure) => {
                    imported.failure = Some(failure);
                    return imported;
                }
            };
            imported.lines += 1;
            if !is_whole {
                imported.problem(&format!("the line is longer than {line_bytes_max} bytes"));
                continue;
            }
            // `strace` shows bytes of programs, which need not be UTF-8.
            let line = String::from_utf8_lossy(&bytes);
            if line.trim().is_empty() || line.starts_with('#') {
                imported.skipped += 1;
                continue;
            }
            match parse(&line) {
                Ok(Line::Events(events)) => imported.events.extend(events),
                Ok(Line::Skipped) => imported.skipped += 1,
                Err(what) => imported.problem(what),
            }
        }
    }

    /// Counts a problem of the last line read. Keeps only the first [`PROBLEMS_MAX`] problems.
    fn problem(&mut self, what: &str) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem {
                line: self.lines,
                what: what.to_owned(),
            });
        }
    }

    /// Finds the owners of all system calls and intervals, in one window from the first event to
    /// the last.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        let first_ns = self.events.iter().map(|event| event.ts_ns).min();
        let last_ns = self.events.iter().map(|event| event.ts_ns).max();
        let (Some(open_ns), Some(last_ns)) = (first_ns, last_ns) else {
            return Timeline::default();
        };
        let window = Window {
            open_ns,
            close_ns: last_ns.saturating_add(1),
        };
        let mut timeline = attribute(&self.events, &[window], self.architecture);
        if !self.has_scheduling {
            timeline.on_cpu.clear();
            timeline.off_cpu.clear();
            timeline.implied_switches = 0;
        }
        timeline
    }
}

/// Reads the next line into `line`, without the line feed. Returns `None` at the end of the text,
/// and `Some(false)` for a line of more than `bytes_max` bytes, whose rest it skips.
fn next_line(
    text: &mut impl BufRead,
    bytes_max: usize,
    line: &mut Vec<u8>,
) -> io::Result<Option<bool>> {
    line.clear();
    let with_line_feed = bytes_max as u64 + 1;
    let mut start = text.by_ref().take(with_line_feed);
    if start.read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > bytes_max {
        text.skip_until(b'\n')?;
        return Ok(Some(false));
    }
    Ok(Some(true))
}

/// Parses seconds such as `8060.858832305` into ns, and ignores text after nine decimals. Returns
/// `None` for other text, and if the result exceeds 64 bits.
fn seconds_to_ns(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.get(..fraction.len().min(9))?;
    let fraction_ns = if digits.is_empty() {
        0
    } else {
        digits.parse::<u64>().ok()? * 10_u64.pow(9 - digits.len() as u32)
    };
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction_ns)
}
