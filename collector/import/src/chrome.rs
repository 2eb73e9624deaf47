//! Chrome's trace events in JSON, a format that Perfetto and many profilers write, too.
//!
//! A file is one trace. Intervals become spans: events `X`, pairs of `B` and `E` on a thread, and
//! pairs of `b` and `e` or of `S` and `F` by their ids. The service of a span is the process. Its
//! attribute `thread` names the thread; for pairs by ids, it is `async`, followed by the category,
//! the name (only `S` and `F`), the scope and the id, as far as given. Its parent is the interval
//! of the same process and the same value of `thread` that began last of those that enclose it.
//! Instants (`i`, `I`, `R`, `n`, `T`, `p`, and the flows `s`, `t`, `f`) become events of the task
//! `PROCESS/thread`. `args` become attributes. `M` names processes and threads. Other phases, such
//! as counters and samples, are counted, but not stored. Times are in µs.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use stroboscope_proto::v1::SpanFlag;

use super::BadLine;
use super::json_error::reason_of;
use super::take::Take;
use super::time::{TimeUnit, duration_ns};
use super::tracks::{Slice, Tracks, WIDE};
use stroboscope_otlp::Attributes;
use stroboscope_otlp::typed::{UnstoredValue, parse};

/// Maximum number of intervals held that have begun and not ended; further begins are not stored.
const OPEN_MAX: usize = 100_000;

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    ph: Cow<'a, str>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    cat: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    dur: Option<&'a RawValue>,
    #[serde(default)]
    pid: Value,
    #[serde(default)]
    tid: Value,
    #[serde(default)]
    id: Value,
    #[serde(default)]
    id2: Value,
    #[serde(default)]
    scope: Value,
    #[serde(default)]
    args: Value,
    /// The scope of an instant: thread, process or all.
    #[serde(default)]
    s: Value,
    #[serde(default)]
    tts: UnstoredValue,
    #[serde(default)]
    tdur: UnstoredValue,
    #[serde(default)]
    bp: UnstoredValue,
    #[serde(default)]
    cname: UnstoredValue,
}

/// Reads Chrome's trace events one by one.
#[derive(Debug)]
pub(super) struct Chrome {
    tracks: Tracks,
    /// Intervals that have begun and not ended, by track.
    open: HashMap<usize, Vec<Slice>>,
    open_count: usize,
    /// Latest time (`ts`) of an event of each track, in ns.
    last_ns: HashMap<usize, i64>,
}

/// Returns a JSON value as text: a string without its quotes, null as an empty text.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Chrome {
    pub(super) fn new(content: &str) -> Self {
        Self {
            tracks: Tracks::new("chrome", content),
            open: HashMap::new(),
            open_count: 0,
            last_ns: HashMap::new(),
        }
    }

    /// Reports whether any record has been read.
    pub(super) fn has_any(&self) -> bool {
        self.tracks.told > 0
    }

    pub(super) fn take(&mut self, line: u64, record: &str, take: &mut dyn Take) {
        self.tracks.told += 1;
        let parsed = parse(record, "event", &mut |name| take.not_taken(line, name, 1));
        let event: Event<'_> = match parsed {
            Ok(event) => event,
            Err(error) => {
                let (offset, reason) = reason_of(&error);
                return take.bad(line + offset, &reason);
            }
        };
        for (name, unstored) in [
            ("tts", event.tts),
            ("tdur", event.tdur),
            ("bp", event.bp),
            ("cname", event.cname),
        ] {
            take.not_taken(line, &format!("event.{name}"), u64::from(unstored.0));
        }
        if let Err(reason) = self.phase(line, &event, record.len(), take) {
            take.bad(line, &reason);
        }
        if self.tracks.is_full() {
            take.not_taken(line, "nesting of events more than 500000 apart", 1);
            self.tracks.hand_on(take);
        }
        if self.tracks.is_wide() {
            take.not_taken(line, WIDE, 1);
            self.finish(take);
            self.last_ns.clear();
            self.open_count = 0;
            self.tracks.forget();
        }
    }

    fn phase(
        &mut self,
        line: u64,
        event: &Event<'_>,
        bytes: usize,
        take: &mut dyn Take,
    ) -> Result<(), BadLine> {
        let other;
        let name = match &*event.ph {
            "X" | "B" | "E" | "b" | "e" | "S" | "F" | "i" | "I" | "R" | "n" | "T" | "p" | "s"
            | "t" | "f" => "",
            "M" => {
                self.metadata(line, event, take);
                return Ok(());
            }
            "C" => "counters (ph C)",
            "P" => "samples (ph P)",
            "N" | "O" | "D" => "objects (ph N, O, D)",
            "v" | "V" => "memory dumps (ph v, V)",
            unknown => {
                let unknown: String = unknown.chars().take(8).collect();
                other = format!("events of phase {unknown}");
                &other
            }
        };
        if !name.is_empty() {
            take.not_taken(line, name, 1);
            return Ok(());
        }
        let slice = self.slice(line, event)?;
        let last_ns = self.last_ns.entry(slice.track).or_default();
        *last_ns = slice.start_ns.max(*last_ns);
        match &*event.ph {
            "X" => {
                let duration_ns = event.dur.map(|dur| length_ns(dur.get())).transpose()?;
                let end_ns = slice.start_ns.checked_add(duration_ns.unwrap_or_default());
                let end_ns = end_ns.ok_or(BadLine::Json("`dur` is too long".to_owned()))?;
                let whole = Slice {
                    end_ns: Some(end_ns),
                    flags: duration_ns.map_or(SpanFlag::Unfinished as u32, |_| 0),
                    ..slice
                };
                self.tracks.push(whole, bytes);
            }
            "B" | "b" | "S" if self.open_count >= OPEN_MAX => {
                take.not_taken(line, "begins beyond 100000 without ends", 1);
            }
            "B" | "b" | "S" => {
                self.open_count += 1;
                self.open.entry(slice.track).or_default().push(slice);
            }
            "E" | "e" | "F" => match self.open.get_mut(&slice.track).and_then(Vec::pop) {
                Some(mut begun) => {
                    self.open_count -= 1;
                    begun.end_ns = Some(slice.start_ns);
                    begun.attributes.extend(slice.attributes);
                    self.tracks.push(begun, bytes);
                }
                None => take.not_taken(line, "ends without their begins", 1),
            },
            _ => _ = self.tracks.push(slice, bytes),
        }
        Ok(())
    }

    /// Builds a slice from an event of any stored phase. The caller adds the end of an interval.
    /// Fails if the event has no valid time.
    fn slice(&mut self, line: u64, event: &Event<'_>) -> Result<Slice, BadLine> {
        let ts = event.ts.ok_or(BadLine::NoTime("`ts`"))?;
        let process = text(&event.pid);
        let mut attributes = match &event.args {
            Value::Object(args) => args.clone(),
            Value::Null => Attributes::new(),
            other => Attributes::from_iter([("args".to_owned(), other.clone())]),
        };
        if let Some(category) = event.cat.as_deref().filter(|category| !category.is_empty()) {
            attributes.insert("cat".to_owned(), category.into());
        }
        let id = match (&event.id, &event.id2) {
            (Value::Null, Value::Object(id2)) => id2.values().next().cloned().unwrap_or_default(),
            (id, _) => id.clone(),
        };
        let id = text(&id);
        let track = match &*event.ph {
            // Asynchronous events belong to no thread, or to several.
            "b" | "e" | "n" | "S" | "F" | "T" | "p" => {
                let (category, scope) = (event.cat.as_deref(), text(&event.scope));
                let name = event
                    .name
                    .as_deref()
                    .filter(|_| "SFTp".contains(&*event.ph));
                let parts = [category, name, Some(&*scope), Some(&*id)]
                    .into_iter()
                    .flatten();
                let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
                let thread = format!("async {}", parts.join(" "));
                self.tracks.track(&process, &thread)
            }
            phase => {
                let flows = [("s", "begin"), ("t", "step"), ("f", "end")];
                if let Some((_, flow)) = flows.into_iter().find(|flow| flow.0 == phase) {
                    attributes.insert("flow".to_owned(), flow.into());
                    attributes.insert("flow.id".to_owned(), id.into());
                }
                self.tracks.track(&process, &text(&event.tid))
            }
        };
        if !event.s.is_null() {
            attributes.insert("scope".to_owned(), event.s.clone());
        }
        Ok(Slice {
            line,
            number: self.tracks.told,
            track,
            name: event.name.as_deref().unwrap_or_default().to_owned(),
            start_ns: length_ns(ts.get())?,
            attributes,
            ..Slice::default()
        })
    }

    fn metadata(&mut self, line: u64, event: &Event<'_>, take: &mut dyn Take) {
        let name = event.args.get("name").and_then(Value::as_str);
        let process = text(&event.pid);
        match (event.name.as_deref(), name.map(str::to_owned)) {
            (Some("process_name"), Some(name)) => self.tracks.name_process(&process, name),
            (Some("thread_name"), Some(name)) => {
                self.tracks.name_thread(&process, &text(&event.tid), name);
            }
            (key, _) => {
                let key: String = key.unwrap_or_default().chars().take(40).collect();
                take.not_taken(line, &format!("metadata {key} (ph M)"), 1);
            }
        }
    }

    /// Passes on the remaining slices. An interval that began and has not ended is marked
    /// unfinished, and ends at the latest `ts` of its track.
    pub(super) fn finish(&mut self, take: &mut dyn Take) {
        let mut open: Vec<Slice> = self.open.drain().flat_map(|(_, open)| open).collect();
        open.sort_by_key(|slice| slice.line);
        for slice in open {
            let last_ns = self.last_ns.get(&slice.track).copied().unwrap_or_default();
            let unfinished = Slice {
                end_ns: Some(last_ns.max(slice.start_ns)),
                flags: SpanFlag::Unfinished as u32,
                ..slice
            };
            self.tracks.push(unfinished, 0);
        }
        self.tracks.hand_on(take);
    }
}

/// Parses µs, as a number or a text, perhaps with a fraction or an exponent, and returns ns. Fails
/// if the text is not such a number, is negative or is out of range.
fn length_ns(raw: &str) -> Result<i64, BadLine> {
    duration_ns(raw.trim_matches('"'), TimeUnit::Us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Heard;

    #[test]
    fn events_say_their_threads_and_arguments() {
        let (mut chrome, mut heard) = (Chrome::new("c0ffee00"), Heard::default());
        for event in [
            r#"{"ph":"B","name":"a","cat":"c","pid":"p","tid":7,"ts":1e3,"args":{"k":[1]}}"#,
            r#"{"ph":"E","pid":"p","tid":7,"ts":"1000.5","args":{"r":2}}"#,
            r#"{"ph":"s","name":"f","id":"0x1","pid":"p","tid":7,"ts":1000}"#,
            r#"{"ph":"M","name":"thread_name","pid":"p","tid":7,"args":{"name":"Main"}}"#,
            r#"{"ph":"X","name":"no time","pid":1}"#,
            r#"{"ph":7}"#,
        ] {
            chrome.take(1, event, &mut heard);
        }
        chrome.finish(&mut heard);
        let span = heard.told.iter().flatten().next().unwrap();
        let attributes = Value::from(span.attributes.clone()).to_string();
        assert_eq!(attributes, r#"{"k":[1],"cat":"c","r":2,"thread":"Main 7"}"#);
        assert_eq!(
            (span.start_ns, span.end_ns, &*span.trace),
            (1_000_000, 1_000_500, "chrome-c0ffee00")
        );
        assert_eq!(
            heard.events,
            [r#"chrome-c0ffee00  1000000 p/Main 7 f {"flow":"begin","flow.id":"0x1"}"#]
        );
        assert_eq!(
            heard.told.iter().filter(|told| told.is_err()).count(),
            2,
            "{:?}",
            heard.told
        );
    }

    #[test]
    fn the_first_begun_of_equal_intervals_is_the_parent() {
        let (mut chrome, mut heard) = (Chrome::new("c"), Heard::default());
        for (ph, name, ts) in [
            ("B", "outer", 1),
            ("B", "inner", 1),
            ("E", "", 5),
            ("E", "", 5),
        ] {
            let event = format!(r#"{{"ph":"{ph}","name":"{name}","pid":1,"tid":1,"ts":{ts}}}"#);
            chrome.take(1, &event, &mut heard);
        }
        chrome.finish(&mut heard);
        let spans: Vec<_> = heard.told.iter().flatten().collect();
        let names = [&*spans[0].name, &*spans[1].name];
        assert_eq!(names, ["outer", "inner"]);
        assert_eq!(
            [0, spans[0].span_id],
            [spans[0].parent_id, spans[1].parent_id]
        );
    }

    #[test]
    fn exponents_are_read_digit_by_digit() {
        let read = length_ns("1.790000000123456789e15");
        assert_eq!(read, Ok(1_790_000_000_123_456_789));
        let ones = "1".repeat(60);
        let error = length_ns(&format!("\"{ones}{ones}e\"")).unwrap_err();
        assert!(error.to_string().starts_with(&format!("`{ones}…`")));
    }

    /// On random nests of intervals, the parents equal those found by comparing every pair.
    #[test]
    fn parents_are_the_shortest_around() {
        let mut seed = 7u64;
        let mut random = |bound: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        for _ in 0..200 {
            // Random parts of earlier intervals: they nest, and no two are equal.
            let mut intervals = vec![(0u64, 1_024u64)];
            while intervals.len() < 20 {
                let (from, to) = intervals[random(intervals.len() as u64) as usize];
                let (a, b) = (from + random(to - from), to - random(to - from));
                let nests =
                    |&(f, t): &(u64, u64)| b <= f || t <= a || f <= a && b <= t || a <= f && t <= b;
                if a < b && intervals.iter().all(nests) && !intervals.contains(&(a, b)) {
                    intervals.push((a, b));
                } else if random(50) == 0 {
                    break;
                }
            }
            let (mut chrome, mut heard) = (Chrome::new("c"), Heard::default());
            for (from, to) in &intervals {
                let dur = to - from;
                let event = format!(
                    r#"{{"ph":"X","name":"{from} {to}","pid":1,"tid":1,"ts":{from},"dur":{dur}}}"#
                );
                chrome.take(1, &event, &mut heard);
            }
            chrome.finish(&mut heard);
            let spans: Vec<_> = heard.told.iter().flatten().collect();
            assert_eq!(spans.len(), intervals.len());
            for span in &spans {
                let around = |other: &&&stroboscope_otlp::ForeignSpan| {
                    other.span_id != span.span_id
                        && other.start_ns <= span.start_ns
                        && span.end_ns <= other.end_ns
                };
                let parent = spans
                    .iter()
                    .filter(around)
                    .min_by_key(|other| other.end_ns - other.start_ns);
                assert_eq!(
                    span.parent_id,
                    parent.map_or(0, |parent| parent.span_id),
                    "{}",
                    span.name
                );
            }
        }
    }
}
