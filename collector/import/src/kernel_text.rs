//! Kernel events as text: `perf script` and `strace`.

use std::io::{self, BufRead};

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::Window;
use stroboscope_kernel_model::import::{ImportedEvents, perf_script, strace};
use stroboscope_kernel_model::{ClockLog, ClockSample};

use super::BadLine;
use super::format::Format;
use stroboscope_store::limits::IMPORT_LINE_BYTES_MAX;
use stroboscope_store::tables::KernelChunk;

/// Smallest number that counts as wall time, in ns since the Unix epoch: an instant in 2001. As an
/// uptime, it would be 31 years.
const WALL_TIME_FROM_NS: u64 = 1_000_000_000_000_000_000;

/// Reads a whole text. Calls `bad` for defective lines, and sets `at` to the last line read. Events
/// do not name their host, so the chunk's host is `imported`. Returns `None` if the text has no
/// events. If the text breaks off, returns the events before that point, and the error.
pub(super) fn read(
    format: Format,
    text: impl BufRead,
    recording: u128,
    at: &mut u64,
    bad: &mut dyn FnMut(u64, &BadLine),
) -> (Option<KernelChunk>, io::Result<()>) {
    let native = Architecture::native();
    let mut read = if format == Format::Strace {
        strace(text, native, IMPORT_LINE_BYTES_MAX)
    } else {
        perf_script(text, native, IMPORT_LINE_BYTES_MAX)
    };
    *at = read.lines;
    let end = read.failure.take().map_or(Ok(()), Err);
    for problem in &read.problems {
        bad(problem.line, &BadLine::KernelEvent(problem.what.clone()));
    }
    let named = read.problems.len() as u64;
    for _ in 0..read.problem_count.saturating_sub(named) {
        let what = "more lines before it are not events of the kernel".to_owned();
        bad(read.lines, &BadLine::KernelEvent(what));
    }
    (chunk(read, recording), end)
}

fn chunk(read: ImportedEvents, recording: u128) -> Option<KernelChunk> {
    let ImportedEvents {
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
    // `perf script` does not name its clock, but large numbers can only be wall time.
    let is_wall_time = is_wall_time || open_ns >= WALL_TIME_FROM_NS;
    if !is_wall_time {
        tracing::warn!(
            "the times are not wall time, so the events cannot be shown with spans; record with `perf record -k \
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
    use super::super::format::recognise_kernel_text;
    use super::*;

    #[test]
    fn texts_are_recognised() {
        let check = |text: &str, expected| {
            assert_eq!(recognise_kernel_text(text.as_bytes()), expected, "{text}");
        };
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
        let mut at = 0;
        let (read, end) = read(
            Format::Strace,
            text.as_bytes(),
            7,
            &mut at,
            &mut |line, _| {
                bad.push(line);
            },
        );
        let read = read.unwrap();
        assert!(end.is_ok() && at == 3);
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
