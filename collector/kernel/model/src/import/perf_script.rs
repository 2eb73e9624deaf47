//! Imports the output of `perf script`.

use std::collections::HashSet;
use std::io::BufRead;

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event, LossCounts, Name};

use super::{ImportedEvents, Line, seconds_to_ns};

/// Reads the text of `perf script`, with or without the process before the thread (`-F pid,tid`). A
/// line of more than `line_bytes_max` bytes is a problem.
pub fn perf_script(
    text: impl BufRead,
    architecture: Architecture,
    line_bytes_max: usize,
) -> ImportedEvents {
    let mut seen = HashSet::new();
    let parse = |line: &str| parse(line, &mut seen);
    let mut imported = ImportedEvents::read(text, architecture, line_bytes_max, parse);
    imported.has_scheduling = imported
        .events
        .iter()
        .any(|event| matches!(event.body, Body::Switch { .. }));
    imported
}

fn parse(line: &str, seen: &mut HashSet<u32>) -> Result<Line, &'static str> {
    let (who, cpu, rest) = split_at_cpu(line).ok_or("there is no processor in brackets")?;
    let (name, ids) = who
        .trim()
        .rsplit_once(' ')
        .ok_or("there is no thread before the processor")?;
    let (process, tid) = match ids.split_once('/') {
        Some((process, tid)) => (process.parse().ok(), tid.parse().ok()),
        None => (Some(0), ids.parse().ok()),
    };
    let (Some(process), Some(tid)) = (process, tid) else {
        return Err("the thread is no number");
    };
    let (time, rest) = rest
        .trim_start()
        .split_once(": ")
        .ok_or("there is no time")?;
    let ts_ns = seconds_to_ns(time.trim()).ok_or("the time is no number of seconds")?;
    if let Some(count) = rest.split("PERF_RECORD_LOST lost ").nth(1) {
        let others = count
            .trim()
            .parse()
            .map_err(|_| "the number of lost events is no number")?;
        let counts = LossCounts {
            others,
            ..LossCounts::default()
        };
        return Ok(Line::Events(vec![Event {
            ts_ns,
            cpu,
            tid: 0,
            body: Body::Lost {
                first_ns: ts_ns,
                counts,
            },
        }]));
    }
    let (event, fields) = rest
        .trim_start()
        .split_once(": ")
        .ok_or("there is no event")?;
    let Some((of, body)) =
        body(event, fields.trim(), tid).ok_or("the event's fields are not as expected")?
    else {
        return Ok(Line::Skipped);
    };
    let mut events = Vec::with_capacity(2);
    if tid != 0 && seen.insert(tid) {
        events.push(Event {
            ts_ns,
            cpu,
            tid,
            body: Body::Named {
                process,
                name: Name::new(name.trim()),
            },
        });
    }
    events.push(Event {
        ts_ns,
        cpu,
        tid: of,
        body,
    });
    Ok(Line::Events(events))
}

/// Splits a line at the processor in brackets: text before, processor, text after. Names may
/// contain brackets themselves.
fn split_at_cpu(line: &str) -> Option<(&str, u16, &str)> {
    line.match_indices(" [").find_map(|(at, _)| {
        let (number, rest) = line[at + 2..].split_once(']')?;
        Some((&line[..at], number.parse().ok()?, rest))
    })
}

/// Returns the thread of the event and the event; `Some(None)` for an event that is not used;
/// `None` if its fields are not as expected.
fn body(event: &str, fields: &str, tid: u32) -> Option<Option<(u32, Body)>> {
    let number =
        |key: &str| -> Option<u32> { after(fields, key)?.split_whitespace().next()?.parse().ok() };
    Some(Some(match event {
        "raw_syscalls:sys_enter" => {
            let (call, args) = fields.strip_prefix("NR ")?.split_once(" (")?;
            let mut words = args
                .trim_end_matches(')')
                .split(", ")
                .map(|word| u64::from_str_radix(word, 16).ok());
            let mut args = [0; 6];
            for arg in &mut args {
                *arg = words.next()??;
            }
            (
                tid,
                Body::Enter {
                    call: call.trim().parse().ok()?,
                    args,
                },
            )
        }
        "raw_syscalls:sys_exit" => {
            let (call, result) = fields.strip_prefix("NR ")?.split_once(" = ")?;
            (
                tid,
                Body::Exit {
                    call: call.trim().parse().ok()?,
                    result: result.trim().parse().ok()?,
                },
            )
        }
        "sched:sched_switch" => {
            let (prev, next) = fields.split_once(" ==> ")?;
            let name = |text: &str, from: &str, to: &str| {
                Some(Name::new(text.strip_prefix(from)?.rsplit_once(to)?.0))
            };
            let body = Body::Switch {
                state: state(after(prev, " prev_state=")?),
                process: 0,
                name: name(prev, "prev_comm=", " prev_pid=")?,
                next: number("next_pid=")?,
                next_process: 0,
                next_name: name(next, "next_comm=", " next_pid=")?,
            };
            (number("prev_pid=")?, body)
        }
        "sched:sched_waking" => (
            tid,
            Body::Waking {
                woken: number(" pid=")?,
                woken_process: 0,
            },
        ),
        "task:task_newtask" => {
            const CLONE_THREAD: u64 = 0x10000;
            let flags = after(fields, "clone_flags=")?.split_whitespace().next()?;
            let flags = u64::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?;
            let child = number("pid=")?;
            let child_process = if flags & CLONE_THREAD == 0 { child } else { 0 };
            let name = Name::new(after(fields, " comm=")?.split(" clone_flags=").next()?);
            (
                tid,
                Body::NewTask {
                    child,
                    child_process,
                    name,
                },
            )
        }
        "task:task_rename" => {
            let name = after(fields, " newcomm=")?
                .split(" oom_score_adj=")
                .next()?;
            (
                number("pid=").unwrap_or(tid),
                Body::Named {
                    process: 0,
                    name: Name::new(name),
                },
            )
        }
        "sched:sched_process_exit" => (number(" pid=")?, Body::TaskExit { process: 0 }),
        _ => return Some(None),
    }))
}

fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.find(key).map(|at| &text[at + key.len()..])
}

/// Returns the kernel's bit for the state of a task, from its letters. Returns 0 for R and R+, the
/// states of a task that could continue to run, and for unknown letters.
fn state(letters: &str) -> u8 {
    match letters.chars().next() {
        Some('S') => 1,
        Some('D') => 2,
        Some('T') => 4,
        Some('t') => 8,
        Some('X') => 16,
        Some('Z') => 32,
        Some('P') => 64,
        Some('I') => 128,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
             mk 12979 [000]  8060.872004: sched:sched_process_exec: filename=./mk pid=12979 old_pid=12979
             mk 12970/12979 [001]  8060.872199001:   raw_syscalls:sys_enter: NR 39 (5354524f42450001, c0ffee, 0, 0, 0, 0)
             mk 12970/12979 [001]  8060.8722:    raw_syscalls:sys_exit: NR 39 = 12979
 tokio [x] y    12970/12979 [001]  8060.8723:   raw_syscalls:sys_enter: NR 1 (1, 7f, 6, 0, 0, 0)
             mk 12970/12979 [001]  8060.8724:       sched:sched_switch: prev_comm=mk prev_pid=12979 prev_prio=120 prev_state=S ==> next_comm=a b next_pid=5 next_prio=120
            a b 5/5 [001]  8060.8725:       sched:sched_waking: comm=mk pid=12979 prio=120 target_cpu=001
            a b 5/5 [001]  8060.8726:       sched:sched_switch: prev_comm=a b prev_pid=5 prev_prio=120 prev_state=R+ ==> next_comm=mk next_pid=12979 next_prio=120
             mk 12970/12979 [001]  8060.8727:    raw_syscalls:sys_exit: NR 1 = 6
this is no event
             mk 12970/12979 [001]  8060.8728:    raw_syscalls:sys_exit: NR one = 6
";

    #[test]
    fn events_are_owned_and_bad_lines_are_named() {
        let imported = perf_script(TEXT.as_bytes(), Architecture::X86_64, 1_000);
        assert_eq!(
            (imported.lines, imported.skipped, imported.problem_count),
            (10, 1, 2)
        );
        assert_eq!(
            imported
                .problems
                .iter()
                .map(|problem| problem.line)
                .collect::<Vec<_>>(),
            [9, 10]
        );
        let timeline = imported.timeline();
        let write = &timeline.calls[1];
        assert_eq!(
            (write.call, write.owner.trace(), write.result),
            (1, Some(0xc0ffee), Some(6))
        );
        assert_eq!(timeline.threads[&12979].process, 12970);
        let off = timeline
            .off_cpu
            .iter()
            .find(|off| off.tid == 12979)
            .unwrap();
        assert_eq!(off.owner.trace(), Some(0xc0ffee));
        assert_eq!(
            (off.end_ns.unwrap() - off.start_ns, off.waker.unwrap().tid),
            (200_000, 5)
        );
        assert_eq!(timeline.calls[0].start_ns, 8_060_872_199_001);
    }
}
