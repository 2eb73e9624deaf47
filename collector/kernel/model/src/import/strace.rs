//! Imports the output of `strace -f -ttt`, preferably with `-T`.

use std::io::BufRead;

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event};
use stroboscope_analysis::kernel::marker::MARK;

use super::{ImportedEvents, Line, seconds_to_ns};

/// Reads the text of `strace -f -ttt`. Without `-T` the ends of most calls are unknown. A line of
/// more than `line_bytes_max` bytes is a problem.
pub fn strace(
    text: impl BufRead,
    architecture: Architecture,
    line_bytes_max: usize,
) -> ImportedEvents {
    let parse = |line: &str| parse(line, architecture);
    let mut imported = ImportedEvents::read(text, architecture, line_bytes_max, parse);
    imported.is_wall_time = true;
    imported
}

fn parse(line: &str, architecture: Architecture) -> Result<Line, &'static str> {
    let (tid, rest) = thread(line);
    let (time, what) = rest.split_once(' ').ok_or("there is no time")?;
    let ts_ns =
        seconds_to_ns(time).ok_or("the time is no number of seconds: run strace with -ttt")?;
    let event = |ts_ns, body| Event {
        ts_ns,
        cpu: 0,
        tid,
        body,
    };
    let what = what.trim_start();
    if what.starts_with("+++") {
        return Ok(Line::Events(vec![event(
            ts_ns,
            Body::TaskExit { process: 0 },
        )]));
    }
    if what.starts_with("---") {
        return Ok(Line::Skipped);
    }
    if let Some(resumed) = what.strip_prefix("<... ") {
        let (name, rest) = resumed
            .split_once(" resumed>")
            .ok_or("a resumed call without its name")?;
        let call = architecture
            .call_number(name)
            .ok_or("a system call of unknown name")?;
        let Some((result, _)) = result(rest) else {
            return Ok(Line::Skipped);
        };
        return Ok(Line::Events(vec![event(
            ts_ns,
            Body::Exit { call, result },
        )]));
    }
    let (name, rest) = what.split_once('(').ok_or("there is no system call")?;
    let call = architecture
        .call_number(name)
        .ok_or("a system call of unknown name")?;
    if let Some(args) = marker(name, rest)? {
        let getpid = architecture.call_number("getpid").unwrap_or_default();
        let enter = Body::Enter { call: getpid, args };
        return Ok(Line::Events(vec![
            event(ts_ns, enter),
            event(
                ts_ns,
                Body::Exit {
                    call: getpid,
                    result: 0,
                },
            ),
        ]));
    }
    let mut events = vec![event(
        ts_ns,
        Body::Enter {
            call,
            args: arguments(rest),
        },
    )];
    // An unfinished call's end comes in a line of its own.
    if let Some((result, took_ns)) = result(rest)
        && let Some(took_ns) = took_ns
    {
        events.push(event(
            ts_ns.saturating_add(took_ns),
            Body::Exit { call, result },
        ));
    }
    Ok(Line::Events(events))
}

/// Splits off the thread's number, written `[pid 12] ` on a terminal and `12 ` in a file. Returns 1
/// if the line has no number, as in a program with one thread.
fn thread(line: &str) -> (u32, &str) {
    let line = line.trim_start();
    if let Some((tid, rest)) = line
        .strip_prefix("[pid")
        .and_then(|rest| rest.split_once(']'))
    {
        return (tid.trim().parse().unwrap_or(1), rest.trim_start());
    }
    match line.split_once(' ') {
        Some((first, rest)) if !first.contains('.') => first
            .parse()
            .map_or((1, line), |tid| (tid, rest.trim_start())),
        _ => (1, line),
    }
}

/// Returns the result after the last ` = `, and the duration of the call in ns if present. Returns
/// `None` if there is no number, because the call is unfinished or does not return.
fn result(rest: &str) -> Option<(i64, Option<u64>)> {
    let (_, text) = rest.rsplit_once(" = ")?;
    let took = text
        .rsplit_once('<')
        .and_then(|(_, took)| seconds_to_ns(took.trim_end().strip_suffix('>')?));
    let word = text.split_whitespace().next()?;
    let result = match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?.cast_signed(),
        // `?`: the call does not return.
        None => word.parse().ok()?,
    };
    // Converts two errors to the kernel's numbers, which distinguish a futex call that waited from
    // one that did not.
    let result = match text.split_whitespace().nth(1) {
        Some("EAGAIN") if result == -1 => -11,
        Some("ETIMEDOUT") if result == -1 => -110,
        _ => result,
    };
    Some((result, took))
}

/// Returns the arguments that are numbers or known operations of futexes; 0 for others.
fn arguments(text: &str) -> [u64; 6] {
    let mut args = [0; 6];
    for (arg, text) in args.iter_mut().zip(text.split(", ")) {
        let word = text
            .trim_end_matches(')')
            .split([')', ' '])
            .next()
            .unwrap_or_default();
        *arg = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap_or(0),
            None => word
                .parse::<i64>()
                .map_or_else(|_| futex_operation(word), i64::cast_unsigned),
        };
    }
    args
}

/// Returns the number of an operation such as `FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME`.
/// Adds `FUTEX_PRIVATE_FLAG` (128) for `_PRIVATE`, but no other flag. Any other word is 0, like
/// `FUTEX_WAIT`.
fn futex_operation(word: &str) -> u64 {
    let word = word.split('|').next().unwrap_or_default();
    let (word, private) = word
        .strip_suffix("_PRIVATE")
        .filter(|word| word.starts_with("FUTEX_"))
        .map_or((word, 0), |word| (word, 128));
    let operation = match word {
        "FUTEX_WAKE" => 1,
        "FUTEX_FD" => 2,
        "FUTEX_REQUEUE" => 3,
        "FUTEX_CMP_REQUEUE" => 4,
        "FUTEX_WAKE_OP" => 5,
        "FUTEX_LOCK_PI" => 6,
        "FUTEX_UNLOCK_PI" => 7,
        "FUTEX_TRYLOCK_PI" => 8,
        "FUTEX_WAIT_BITSET" => 9,
        "FUTEX_WAKE_BITSET" => 10,
        "FUTEX_WAIT_REQUEUE_PI" => 11,
        "FUTEX_CMP_REQUEUE_PI" => 12,
        "FUTEX_LOCK_PI2" => 13,
        _ => 0,
    };
    operation | private
}

/// Parses the marker `write(-1, "STROBE kind trace span thread object extra", …`. Returns the six
/// arguments of the `getpid` call that it stands for, or `None` for any other call. Fails if strace
/// cut the text, as it does after 32 bytes by default.
fn marker(name: &str, rest: &str) -> Result<Option<[u64; 6]>, &'static str> {
    let text = rest
        .strip_prefix("-1, \"STROBE ")
        .filter(|_| name == "write");
    let Some((words, after)) = text.and_then(|text| text.split_once('"')) else {
        return Ok(None);
    };
    if after.starts_with("...") {
        return Err("strace cut the marker; run strace with -s 96");
    }
    let mut args = [0; 6];
    for (arg, word) in args.iter_mut().zip(words.split(' ')) {
        let Ok(value) = u64::from_str_radix(word, 16) else {
            return Ok(None);
        };
        *arg = value;
    }
    // A kind has 16 bits. Other numbers are no markers.
    let kind = u16::try_from(args[0]).ok();
    Ok(kind.map(|kind| {
        args[0] = MARK | u64::from(kind);
        args
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7 1700000000.000001 write(-1, \"STROBE 1 c0ffee 5 7 0 0\", 24) = -1 EBADF (Bad file descriptor) <0.000002>
7 1700000000.000010 read(3, \"a, (b) = c\", 10) = 10 <0.000005>
7 1700000000.000020 futex(0x7f10, FUTEX_WAIT_PRIVATE, 2, NULL <unfinished ...>
8 1700000000.000025 futex(0x7f10, FUTEX_WAKE_PRIVATE, 1) = 1 <0.000001>
7 1700000000.000030 <... futex resumed>) = 0 <0.000010>
7 1700000000.000031 --- SIGCHLD {si_signo=SIGCHLD} ---
7 1700000000.000040 write(-1, \"STROBE 2 c0ffee 5 7 0 0\", 24) = -1 EBADF (Bad file descriptor) <0.000002>
[pid     7] 1700000000.000050 exit_group(0) = ?
7 1700000000.000060 +++ exited with 0 +++
7 10:11:12 read(3) = 1
7 1700000000.000070 nonsense(3) = 1
7 1700000000.000080 write(-1, \"STROBE 1 4bf92f3577b34da6 5 7 0 \"..., 34) = -1 EBADF (Bad file descriptor) <0.000002>
";

    #[test]
    fn calls_are_owned_and_bad_lines_are_named() {
        let imported = strace(TEXT.as_bytes(), Architecture::X86_64, 1_000);
        assert_eq!(
            (imported.skipped, imported.problem_count),
            (1, 3),
            "{:?}",
            imported.problems
        );
        assert!(imported.problems[0].what.contains("-ttt"));
        assert!(imported.problems[2].what.contains("-s 96"));
        let timeline = imported.timeline();
        let said: Vec<_> = timeline
            .calls
            .iter()
            .map(|call| {
                (
                    call.tid,
                    call.call,
                    call.owner.trace(),
                    call.end_ns.map(|end_ns| end_ns - call.start_ns),
                )
            })
            .collect();
        let own = Some(0xc0ffee);
        assert_eq!(
            said,
            [
                (7, 39, own, Some(0)),
                (7, 0, own, Some(5_000)),
                (7, 202, own, Some(10_000)),
                (8, 202, None, Some(1_000)),
                (7, 39, own, Some(0)),
                (7, 231, None, None),
            ]
        );
        assert_eq!(timeline.calls[2].args.unwrap()[..2], [0x7f10, 128]);
        assert!(timeline.on_cpu.is_empty() && timeline.off_cpu.is_empty());
    }

    #[test]
    fn a_long_line_is_one_problem_and_the_next_one_is_read() {
        let exact = "7 1700000000.000001 getppid() = 1 <0.000002>";
        let text = format!("{exact}\n{exact}.\n{}\n{exact}", "x".repeat(100));
        let imported = strace(text.as_bytes(), Architecture::X86_64, exact.len());
        let problems = imported.problems.iter();
        let problems: Vec<_> = problems
            .map(|problem| (problem.line, &*problem.what))
            .collect();
        let what = "the line is longer than 44 bytes";
        assert_eq!(problems, [(2, what), (3, what)]);
        assert_eq!((imported.lines, imported.events.len()), (4, 4));
    }

    #[test]
    fn only_operations_of_futexes_have_numbers() {
        for (text, expected) in [
            ("0x7f, FUTEX_WAKE_PRIVATE, 1) = 1", [0x7f, 129, 1]),
            (
                "0x7f, FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME, 2, NULL",
                [0x7f, 137, 2],
            ),
            ("0x7f, FUTEX_TRYLOCK_PI_PRIVATE, 0", [0x7f, 136, 0]),
            ("0x7f, FUTEX_WAIT_REQUEUE_PI_PRIVATE, 2", [0x7f, 139, 2]),
            ("0x7f, FUTEX_CMP_REQUEUE_PI, 1", [0x7f, 12, 1]),
            ("0x7f, FUTEX_LOCK_PI2_PRIVATE, 0", [0x7f, 141, 0]),
            ("4096, MAP_PRIVATE, 3) = 0x7f", [4096, 0, 3]),
        ] {
            assert_eq!(arguments(text)[..3], expected, "{text}");
        }
    }

    #[test]
    fn a_marker_has_a_kind_of_16_bits() {
        let kind = |text| marker("write", text).unwrap().map(|args| args[0] ^ MARK);
        assert_eq!(kind("-1, \"STROBE 7e 1 2 3 4 5\", 20) = -1"), Some(0x7e));
        assert_eq!(kind("-1, \"STROBE 10001 1 2 3 4 5\", 23) = -1"), None);
    }
}
