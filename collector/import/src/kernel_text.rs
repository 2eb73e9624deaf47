//! Kernel events as text: `perf script` and `strace`.

use std::io::{self, BufRead};

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::Window;
use stroboscope_kernel_model::import::{Imported, perf_script, strace};
use stroboscope_kernel_model::{ClockLog, ClockSample};

use super::BadLine;
use super::format::Format;
use stroboscope_store::tables::KernelChunk;

/// Times from here on, in ns, can only be wall time: it is the year 2001, and no machine runs for 31 years.
const WALL_TIME_FROM_NS: u64 = 1_000_000_000_000_000_000;

/// Does a text begin like that of a tool? Lines in front that say nothing are passed over.
pub(super) fn recognise(head: &[u8]) -> Option<Format> {
    let text = String::from_utf8_lossy(head);
    let line = text
        .lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with('#'))?;
    let is_event = |group: &&str| line.contains(&format!(": {group}:"));
    if line.contains("] ") && ["raw_syscalls", "sched", "task"].iter().any(is_event) {
        return Some(Format::PerfScript);
    }
    let is_time = |word: &str| {
        let parts = word.split_once('.');
        parts.is_some_and(|(s, us)| {
            s.len() >= 10
                && [s, us]
                    .iter()
                    .all(|n| n.bytes().all(|b| b.is_ascii_digit()))
        })
    };
    // A thread's number comes first, if any, and as many spaces more as it has fewer digits than others.
    let mut words = line.trim_start_matches("[pid ").split_whitespace().take(2);
    let time = words.find(|word| is_time(word))?;
    let call = line.split_once(time)?.1.trim_start();
    (call.contains('(') || call.starts_with(['+', '-', '<'])).then_some(Format::Strace)
}

/// Reads a whole text. What is wrong with lines goes to `bad`; the text says nothing of its host, so `host` does.
///
/// # Errors
/// When it cannot be read.
pub(super) fn read(
    format: Format,
    text: impl BufRead,
    recording: u128,
    bad: &mut dyn FnMut(u64, &BadLine),
) -> io::Result<Option<KernelChunk>> {
    let native = Architecture::native();
    let read = if format == Format::Strace {
        strace(text, native)?
    } else {
        perf_script(text, native)?
    };
    for problem in &read.problems {
        bad(problem.line, &BadLine::KernelEvent(problem.what.clone()));
    }
    let unnamed = read
        .problem_count
        .saturating_sub(read.problems.len() as u64);
    for _ in 0..unnamed {
        bad(
            read.lines,
            &BadLine::KernelEvent("more lines before it are no events of the kernel".to_owned()),
        );
    }
    Ok(chunk(read, recording))
}

fn chunk(read: Imported, recording: u128) -> Option<KernelChunk> {
    let Imported {
        mut events,
        architecture,
        is_wall_time,
        ..
    } = read;
    events.sort_by_key(|event| event.ts_ns);
    let (open_ns, last_ns) = (events.first()?.ts_ns, events.last()?.ts_ns);
    let window = Window {
        open_ns,
        close_ns: last_ns.saturating_add(1),
    };
    // Where the clock is not said to be that of the wall, only its own reader knows what it was.
    let is_wall_time = is_wall_time || open_ns >= WALL_TIME_FROM_NS;
    if !is_wall_time {
        tracing::warn!(
            "the times are not wall time, so the events are of no use beside spans; record with `perf record -k \
             CLOCK_REALTIME`"
        );
    }
    let mut clocks = ClockLog::default();
    clocks.push(ClockSample {
        at_ns: open_ns,
        wall_offset_ns: 0,
        tai_offset_ns: 0,
        boot_offset_ns: 0,
        uncertainty_ns: 0,
    });
    let wall = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    Some(KernelChunk {
        recording,
        host: "imported".to_owned(),
        architecture,
        covers_ns: (wall(open_ns), wall(window.close_ns)),
        events,
        windows: vec![window],
        clocks,
        ..KernelChunk::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_recognised() {
        let check =
            |text: &str, expected| assert_eq!(recognise(text.as_bytes()), expected, "{text}");
        let perf = "# captured on x\n a.out 12/12 [001] 8060.858832305: raw_syscalls:sys_enter: NR 39 (1, 2)\n";
        check(perf, Some(Format::PerfScript));
        check(
            "12 1767322800.123456 write(1, \"x\", 1) = 1 <0.000012>\n",
            Some(Format::Strace),
        );
        check(
            "1767322800.123456 execve(\"/bin/ls\", [\"ls\"], 0x7 /* 1 var */) = 0\n",
            Some(Format::Strace),
        );
        check(
            "[pid 12] 1767322800.123456 +++ exited with 0 +++\n",
            Some(Format::Strace),
        );
        check(
            "685   1767322800.123456 brk(NULL)       = 0x55c16a4ed000 <0.000004>\n",
            Some(Format::Strace),
        );
        check(
            "[pid   685] 1767322800.123456 getppid() = 1\n",
            Some(Format::Strace),
        );
        check("{\"trace\":\"a\",\"ts_ns\":1767322800.123456}\n", None);
        check("", None);
    }

    #[test]
    fn events_become_a_chunk_of_one_window() {
        let text = "12 1767322800.000000 write(-1, \"STROBE 1 c0ffee 0 0 0 0\", 23) = -1 EBADF <0.000001>\n\
                    12 1767322800.000010 write(1, \"hello\\n\", 6) = 6 <0.000002>\nnot a line\n";
        let mut bad = Vec::new();
        let read = read(Format::Strace, text.as_bytes(), 7, &mut |line, _| {
            bad.push(line);
        })
        .unwrap()
        .unwrap();
        assert_eq!(
            (bad, read.events.len(), read.windows.len()),
            (vec![3], 4, 1)
        );
        assert_eq!(
            read.covers_ns,
            (1_767_322_800_000_000_000, 1_767_322_800_000_012_001)
        );
    }
}
