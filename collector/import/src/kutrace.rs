//! KUtrace's JSON: the activity of each processor, nanosecond by nanosecond, without gaps.
//!
//! A row is `[start s, duration s, processor, thread, rpc, event, argument, result, ipc, name]`. A
//! file is one trace, with the root `machine:recording`. Each RPC is a trace of its own, `… rpc N`
//! or, if the number was used before, `… rpc N (K)`. The root of this trace has the name of the
//! method, belongs to the process that begins the RPC, and lasts from the RPC's first row to the
//! end of its last. Numbers of RPCs are reused: a request after a response begins another RPC. A
//! wait in a queue becomes a span below the root, with the length of the wait. A message between
//! the request and the response becomes a span.
//!
//! System calls, faults, interrupts, execution of the program itself, waits and locks (held or
//! wanted) become spans of the thread, each with the enclosing span as parent. Wakeups, marks,
//! packets and the events of locks become events of the task `PROCESS`, or `PROCESS/2` for the
//! second thread of that name in a trace. The numbers of threads differ between recordings, so they
//! cannot serve as names.
//!
//! KUtrace writes a call in pieces if it is interrupted or switched out. The pieces become one span
//! from the begin of the call to its end, which contains the thread's waits. If a lock holder is
//! switched out inside `futex`, for example, the span of the lock contains the call, and the call
//! contains the wait.
//!
//! Other rows, such as idle processors and samples, are counted, but not stored. Times count from
//! `tracebase`, taken as UTC because the file names no time zone, or else from the Unix epoch.

use std::borrow::Cow;
use std::collections::HashMap;

use chrono::NaiveDateTime;
use serde_json::value::RawValue;

use super::BadLine;
use super::json_error::reason_of;
use super::take::Take;
use super::time::{TimeUnit, duration_ns};
use super::tracks::{Slice, Tracks, WIDE};
use stroboscope_otlp::Attributes;
use stroboscope_otlp::BadSpan;

/// `-wakeup-`: an arc from the waker to the woken thread.
const WAKEUP: i64 = -3;
const RPC_REQUEST: i64 = 0x201;
const RPC_RESPONSE: i64 = 0x202;
const RPC_MARKS: std::ops::RangeInclusive<i64> = RPC_REQUEST..=0x203;
const RPC_RECEIVED: i64 = 0x204;
const RPC_SENT: i64 = 0x205;
const RUNNABLE: i64 = 0x206;
const RESOURCE: i64 = 0x219;
/// An insertion into a queue or, with a negative processor, the wait in it.
const ENQUEUE: i64 = 0x21a;
const DEQUEUE: i64 = 0x21b;
const MWAIT: i64 = 0x208;
const FREQUENCIES: [i64; 2] = [0x209, 0x21c];
const SAMPLES: std::ops::RangeInclusive<i64> = 0x280..=0x281;
const LOCK_HELD: i64 = 0x282;
const LOCK_TRY: i64 = 0x283;
const WAITS: std::ops::RangeInclusive<i64> = 0x300..=0x319;
const CALLS: std::ops::RangeInclusive<i64> = 0x800..=0xfff;
/// The scheduler, which KUtrace numbers like a call.
const SCHEDULER: [i64; 2] = [0x9ff, 0xdff];
/// Execution of the program itself: this number plus the thread's.
const USER: i64 = 0x1_0000;
/// First number of the events that belong to no thread, such as the end of a deep sleep.
const NO_THREAD_FROM: i64 = 0x2_0000;

/// Reads the rows of KUtrace one by one.
#[derive(Debug)]
pub(super) struct Kutrace {
    tracks: Tracks,
    base_ns: i64,
    /// Call that may continue, by track: its event, and its place among the held slices.
    calls: HashMap<usize, (i64, usize)>,
    /// State of each RPC number: the number of earlier RPCs, and whether the current one has a
    /// response; `None` before its first request or response.
    rpcs: HashMap<i64, (u32, Option<bool>)>,
}

struct Row {
    start_ns: i64,
    end_ns: i64,
    cpu: i64,
    thread: i64,
    rpc: i64,
    event: i64,
    argument: i64,
    result: i64,
    name: String,
}

fn row(record: &str, base_ns: i64) -> Result<Row, BadLine> {
    const FIELDS: &str = "a row of KUtrace has 9 or 10 fields";
    let wrong = |error: serde_json::Error| reason_of(&error).1;
    let fields: Vec<&RawValue> = serde_json::from_str(record).map_err(wrong)?;
    let [start, duration, rest @ .., name] = &fields[..] else {
        return Err(BadLine::Json(FIELDS.to_owned()));
    };
    let numbers = rest.iter().map(|field| serde_json::from_str(field.get()));
    let numbers: Vec<i64> = numbers.collect::<Result<_, _>>().map_err(wrong)?;
    let [cpu, thread, rpc, event, argument, result, ..] = numbers[..] else {
        return Err(BadLine::Json(format!("{FIELDS}, not {}", fields.len())));
    };
    let name: Cow<'_, str> = serde_json::from_str(name.get()).map_err(wrong)?;
    let from_ns = duration_ns(start.get(), TimeUnit::S)?;
    let start_ns = base_ns.checked_add(from_ns);
    let end_ns = start_ns.zip(Some(duration_ns(duration.get(), TimeUnit::S)?));
    let end_ns = end_ns.and_then(|(start_ns, duration_ns)| start_ns.checked_add(duration_ns));
    let too_late = || BadSpan::TimeOutOfRange {
        field: "a row",
        value: from_ns.unsigned_abs(),
        unit: "ns",
    };
    let (start_ns, end_ns) = (start_ns.ok_or_else(too_late)?, end_ns.ok_or_else(too_late)?);
    Ok(Row {
        start_ns,
        end_ns,
        cpu,
        thread,
        rpc,
        event,
        argument,
        result,
        name: name.into_owned(),
    })
}

impl Row {
    /// Returns true for the last row of a file, which has a time beyond all others, but no event
    /// and no name.
    fn is_end(&self) -> bool {
        self.event == 0 && self.name.is_empty()
    }

    /// Returns the name under which rows of this kind are counted; `None` if the kind is stored.
    fn not_taken(&self) -> Option<&str> {
        match self.event {
            RUNNABLE => Some("runnable (known from -wakeup-)"),
            ENQUEUE | DEQUEUE if !self.is_queued() => {
                Some("enqueue and dequeue (known from the wait in the queue)")
            }
            event if RPC_MARKS.contains(&event) && self.rpc() <= 0 => Some("changes to no RPC"),
            event if event < WAKEUP || event == -1 || event == -2 => {
                Some("annotations of the picture")
            }
            event if SAMPLES.contains(&event) => Some("samples of the program counter"),
            event if FREQUENCIES.contains(&event) || event == MWAIT || event >= NO_THREAD_FROM => {
                Some(&self.name)
            }
            USER => Some(&self.name),
            _ => None,
        }
    }

    fn is_interval(&self) -> bool {
        matches!(
            self.event,
            LOCK_HELD | LOCK_TRY | RESOURCE | ENQUEUE | RPC_RECEIVED | RPC_SENT | 0x400..
        ) || WAITS.contains(&self.event)
    }

    /// Reports whether the row is the wait of an RPC in a queue, at no processor.
    fn is_queued(&self) -> bool {
        self.event == ENQUEUE && self.cpu < 0
    }

    /// Returns the name of the track if the row belongs to an RPC and to no thread. The thread
    /// number in such a row has no meaning.
    fn around_rpc(&self) -> Option<&'static str> {
        match self.event {
            ENQUEUE => Some("queue"),
            RPC_RECEIVED | RPC_SENT => Some("network"),
            _ => None,
        }
    }

    /// Returns the RPC of the row; 0 or less if there is none.
    fn rpc(&self) -> i64 {
        match RPC_MARKS.contains(&self.event) {
            true => self.argument & 0xffff,
            false => self.rpc,
        }
    }

    /// Returns the name without its thread, RPC or argument as a number at its end. Such a number
    /// has no meaning in another recording.
    fn plain_name(&self) -> &str {
        let mut numbers = [self.thread, self.rpc(), self.argument].into_iter();
        let plain = numbers.find_map(|number| self.name.strip_suffix(&format!(".{number}")));
        plain.unwrap_or(&self.name)
    }

    fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::new();
        if self.cpu >= 0 {
            attributes.insert("cpu".to_owned(), self.cpu.into());
        }
        match self.event {
            WAKEUP => drop(attributes.insert("woken".to_owned(), self.result.into())),
            LOCK_HELD => drop(attributes.insert("lock".to_owned(), "held".into())),
            LOCK_TRY => drop(attributes.insert("lock".to_owned(), "wanted".into())),
            event if CALLS.contains(&event) && !SCHEDULER.contains(&event) => {
                attributes.insert("argument".to_owned(), self.argument.into());
                attributes.insert("result".to_owned(), result_of(self.result).into());
            }
            ENQUEUE => drop(attributes.insert("queue".to_owned(), self.argument.into())),
            _ if self.argument != 0 => {
                attributes.insert("argument".to_owned(), self.argument.into());
            }
            _ => {}
        }
        attributes
    }
}

/// Decodes a call's result: 16 bits with a sign.
fn result_of(written: i64) -> i64 {
    match written {
        0x8000..=0xffff => written - 0x1_0000,
        _ => written,
    }
}

impl Kutrace {
    pub(super) fn new(content: &str) -> Self {
        Self {
            tracks: Tracks::new("kutrace", content).with_tasks_by_order(),
            base_ns: 0,
            calls: HashMap::new(),
            rpcs: HashMap::new(),
        }
    }

    /// Sets the base of all times if the member is a valid `tracebase` in front of the rows.
    /// Returns true in that case.
    pub(super) fn header(&mut self, key: &str, value: &[u8]) -> bool {
        let is_base = key == "tracebase" && self.tracks.told == 0;
        let text = serde_json::from_slice::<Cow<'_, str>>(value).ok();
        let base = text.filter(|_| is_base);
        let base =
            base.and_then(|text| NaiveDateTime::parse_from_str(&text, "%Y-%m-%d_%H:%M:%S").ok());
        self.base_ns = match base.and_then(|base| base.and_utc().timestamp_nanos_opt()) {
            Some(base_ns) if base_ns >= 0 => base_ns,
            _ => return false,
        };
        true
    }

    pub(super) fn take(&mut self, line: u64, record: &str, take: &mut dyn Take) {
        self.tracks.told += 1;
        let row = match row(record, self.base_ns) {
            Ok(row) if row.is_end() => return,
            Ok(row) => row,
            Err(reason) => return take.bad(line, &reason),
        };
        if let Some(name) = row.not_taken() {
            return take.not_taken(line, name, 1);
        }
        let Some(trace) = self.trace_of(&row) else {
            return take.not_taken(line, "messages outside of an RPC's request and response", 1);
        };
        let (process, thread) = self.thread_of(&row, &trace, line);
        let is_rpc_row =
            RPC_MARKS.contains(&row.event) || [RPC_RECEIVED, RPC_SENT].contains(&row.event);
        let root = self.tracks.root(&trace, line);
        if trace.is_empty() {
            "recording".clone_into(&mut root.name);
        } else {
            if root.process.is_empty() && row.thread > 0 && row.around_rpc().is_none() {
                root.process.clone_from(&process);
            }
            if root.name.is_empty() && is_rpc_row {
                row.plain_name().clone_into(&mut root.name);
            }
        }
        if RPC_MARKS.contains(&row.event) {
            return root.hold(row.start_ns, row.end_ns);
        }
        let track = self.tracks.track(&process, &thread);
        let name = match row.event {
            RPC_RECEIVED => "message in",
            RPC_SENT => "message out",
            ENQUEUE if row.name.is_empty() => "queue",
            _ => row.plain_name(),
        };
        let name = name.to_owned();
        if row.event > USER {
            self.tracks.name_process(&process, name.clone());
        } else if row.thread != 0 && row.around_rpc().is_none() {
            self.tracks.name_process_for_now(&process, "thread");
        }
        if !self.goes_on(track, &trace, &row) {
            let slice = Slice {
                line,
                number: self.tracks.told,
                track,
                trace,
                name,
                start_ns: row.start_ns,
                end_ns: row.is_interval().then_some(row.end_ns),
                flags: 0,
                attributes: row.attributes(),
            };
            let place = self.tracks.push(slice, record.len());
            if CALLS.contains(&row.event) && !SCHEDULER.contains(&row.event) {
                self.calls.insert(track, (row.event, place));
            }
        }
        if self.tracks.is_full() {
            take.not_taken(line, "nesting of rows more than 500000 apart", 1);
            self.calls.clear();
            self.tracks.hand_on(take);
        }
        if self.tracks.is_wide() {
            take.not_taken(line, WIDE, 1);
            self.finish(take);
            self.tracks.forget();
        }
    }

    /// Returns the trace of a row. Returns `None` for a message before the first request or after a
    /// response: the file does not show to which RPC of that number it belongs.
    fn trace_of(&mut self, row: &Row) -> Option<String> {
        let rpc = row.rpc();
        if rpc <= 0 {
            return Some(String::new());
        }
        let (before, is_answered) = self.rpcs.entry(rpc).or_default();
        match row.event {
            RPC_REQUEST => {
                *before += u32::from(*is_answered == Some(true));
                *is_answered = Some(false);
            }
            RPC_RESPONSE => *is_answered = Some(true),
            RPC_RECEIVED | RPC_SENT if *is_answered != Some(false) => return None,
            _ => {}
        }
        Some(match *before {
            0 => format!("rpc {rpc}"),
            before => format!("rpc {rpc} ({})", before + 1),
        })
    }

    /// Returns the process and the thread of a row. A row of an RPC and no thread belongs to the
    /// RPC's process, or to `machine` if that is unknown. A row of thread 0 belongs to its
    /// processor, in the process `kernel`.
    fn thread_of(&mut self, row: &Row, trace: &str, line: u64) -> (String, String) {
        if let Some(thread) = row.around_rpc() {
            let process = match &*self.tracks.root(trace, line).process {
                "" => "machine",
                process => process,
            };
            return (process.to_owned(), thread.to_owned());
        }
        match row.thread {
            0 => ("kernel".to_owned(), format!("cpu {}", row.cpu)),
            thread => (format!("thread {thread}"), thread.to_string()),
        }
    }

    /// Extends the call held for this track if the row continues it; returns true in that case.
    /// Forgets the call if the row shows that the program itself ran again.
    fn goes_on(&mut self, track: usize, trace: &str, row: &Row) -> bool {
        // The program itself continues only after its call has ended.
        if row.event > USER && row.end_ns > row.start_ns {
            self.calls.remove(&track);
            return false;
        }
        let call = self
            .calls
            .get(&track)
            .filter(|(event, _)| *event == row.event);
        let call = call.and_then(|(_, place)| self.tracks.held(*place));
        let Some(call) = call.filter(|call| call.trace == trace) else {
            return false;
        };
        call.end_ns = call.end_ns.max(Some(row.end_ns));
        call.attributes
            .insert("result".to_owned(), result_of(row.result).into());
        self.tracks.root(trace, 0).hold(row.start_ns, row.end_ns);
        true
    }

    /// Passes on the remaining spans and events, and the root spans of all traces.
    pub(super) fn finish(&mut self, take: &mut dyn Take) {
        self.calls.clear();
        self.tracks.hand_on(take);
        self.tracks.hand_on_roots(take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Heard;

    #[test]
    fn rows_say_what_they_are_of() {
        let (mut kutrace, mut heard) = (Kutrace::new("c0ffee00"), Heard::default());
        for row in [
            "[1.0, 0.5, 0, 7, 0, 65543, 0, 0, 0, \"server.7\"]",
            "[1.5, 0.1, 3, 7, 0, 2250, 4, 65426, 0, \"futex\"]",
            "[1.5, 0.2, -1, 7, 0, 642, 99, 0, 0, \"queue\"]",
            "[1.5, 0.2, -1, 7, 0, 643, 99, 0, 0, \"other\"]",
            "[1.6, 0.0, 3, 7, 0, -3, 1, 8, 0, \"-wakeup-\"]",
            "[1.6, 0.0, 3]",
            "[-1.6, 0.0, 3, 7, 0, 642, 1, 8, 0, \"x\"]",
            "[1.6, 1e10, 3, 7, 0, 642, 1, 8, 0, \"x\"]",
        ] {
            kutrace.take(1, row, &mut heard);
        }
        kutrace.finish(&mut heard);
        let attributes = |name: &str| {
            let span = heard
                .told
                .iter()
                .flatten()
                .find(|span| span.name == name)
                .unwrap();
            serde_json::Value::from(span.attributes.clone()).to_string()
        };
        assert_eq!(
            attributes("futex"),
            r#"{"cpu":3,"argument":4,"result":-110,"thread":"7"}"#
        );
        assert_eq!(attributes("queue"), r#"{"lock":"held","thread":"7"}"#);
        assert_eq!(attributes("other"), r#"{"lock":"wanted","thread":"7"}"#);
        assert_eq!(attributes("server"), r#"{"cpu":0,"thread":"7"}"#);
        assert_eq!(
            heard.events,
            ["kutrace-c0ffee00  1600000000 server -wakeup- {\"cpu\":3,\"woken\":8}"]
        );
        assert_eq!(
            heard.told.iter().filter(|told| told.is_err()).count(),
            3,
            "{:?}",
            heard.told
        );
    }
}
