//! Detects the format of a source and the form of a JSON record by their content.
//!
//! | format | recognised by |
//! |---|---|
//! | `perf-script`, `strace` | the first line that is neither blank nor a comment |
//! | `otlp-protobuf` | a first byte of 10 (field 1), perhaps after a varint length, and bytes that no text has; or a length of four bytes, the first of them 0, and then a byte of 10 |
//! | JSON | after white space, `{`, `[` or the byte 0xEF; then see below for records |
//! | lines | a first line of one whole JSON object or array, or no other row; then see below |
//!
//! | form of a record | recognised by |
//! |---|---|
//! | event | at least three of the keys `trace`, `host`, `ts_ns`, `ts`, `event`, `task` |
//! | OTLP | one of the lists `resourceSpans`, `batches`, `resourceLogs`, `resourceMetrics`, `resourceProfiles`, also in snake case; `resourceSpans` and `batches` also inside `trace` and `result` |
//! | Chrome trace events | the list `traceEvents`; or the key `ph` with `ts`, `pid` or `tid` |
//! | KUtrace | the list `events` and the key `tracebase` or `axisLabelX` |
//! | Jaeger | the key `spanID` or `operationName`, or `spans` together with `traceID` or `operationName`; also inside `data`, `_source` and `hits` |
//! | Zipkin | the keys `traceId` and `id` |
//!
//! For the source as a whole, only keys within its first 64 KiB are considered.

use memchr::memmem;

use super::json_shape::JsonShape;
use super::protobuf;

/// Formats that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Format {
    /// Event logs: one JSON object a line
    Events,
    /// Jaeger's JSON: responses of its API, single traces, spans as in its Elasticsearch indexes,
    /// its domain model
    Jaeger,
    /// Zipkin's JSON, version 1 or 2
    Zipkin,
    /// OTLP's JSON, of any version; Tempo's and Jaeger's answers in it
    OtlpJson,
    /// OTLP's protobuf: requests or Tempo's traces, concatenated or each prefixed with its length
    OtlpProtobuf,
    /// Chrome's and Perfetto's trace events in JSON
    Chrome,
    /// KUtrace's JSON
    Kutrace,
    /// Kernel events: perf record -a -k CLOCK_REALTIME -e
    /// 'raw_syscalls:*,sched:sched_switch,sched:sched_waking,task:*', then perf script --ns -F
    /// comm,pid,tid,cpu,time,event,trace
    PerfScript,
    /// System calls: strace -f -ttt -T
    Strace,
}

/// Form of a JSON record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Event,
    /// A document that contains lists of records, or a record as a member.
    Lists,
    Kutrace,
    /// An event of Chrome's tracing.
    ChromeEvent,
    /// A trace or a span of Jaeger.
    Jaeger,
    Zipkin,
    Unknown,
}

/// Format of a source, which decides how to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceForm {
    /// Kernel events, as text of `perf script` or `strace`.
    Kernel(Format),
    /// OTLP's protobuf.
    Protobuf,
    /// JSON, or lines of any text. If `is_lines`, each line is a separate document.
    Json { form: Form, is_lines: bool },
}

/// Recognises text of `perf script` or `strace` by its first line that is neither blank nor a
/// comment. Returns `None` for other text.
pub(super) fn recognise_kernel_text(head: &[u8]) -> Option<Format> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines();
    let line = lines.find(|line| !line.trim().is_empty() && !line.starts_with('#'))?;
    let is_event = |group: &&str| line.contains(&format!(": {group}:"));
    if line.contains("] ") && ["raw_syscalls", "sched", "task"].iter().any(is_event) {
        return Some(Format::PerfScript);
    }
    let is_time = |word: &str| {
        let are_digits = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
        let parts = word.split_once('.');
        parts.is_some_and(|(s, us)| s.len() >= 10 && are_digits(s) && are_digits(us))
    };
    // The line may begin with a thread's number, `N` or `[pid N]`, perhaps padded with spaces.
    let mut words = line.trim_start_matches("[pid ").split_whitespace().take(2);
    let time = words.find(|word| is_time(word))?;
    let call = line.split_once(time)?.1.trim_start();
    (call.contains('(') || call.starts_with(['+', '-', '<'])).then_some(Format::Strace)
}

/// Recognises a format. `asked` takes precedence over the content, except for some documents that
/// contain lists of records; see [`Form::of`].
pub(super) fn recognise(head: &[u8], asked: Option<Format>) -> SourceForm {
    match asked.or_else(|| recognise_kernel_text(head)) {
        Some(kernel @ (Format::PerfScript | Format::Strace)) => SourceForm::Kernel(kernel),
        Some(Format::OtlpProtobuf) => SourceForm::Protobuf,
        None if protobuf::is_likely(head) => SourceForm::Protobuf,
        asked => {
            let shape = JsonShape::of(head);
            let first = head.trim_ascii_start().first();
            let is_json = first.is_some_and(|byte| b"{[\xef".contains(byte));
            let form = Form::of(&shape, head, asked);
            SourceForm::Json {
                form,
                is_lines: shape.is_lines || !is_json || asked == Some(Format::Events),
            }
        }
    }
}

const OWN_KEYS: [&str; 6] = ["trace", "host", "ts_ns", "ts", "event", "task"];
/// Keys of lists inside documents. Many programs use `data`; its elements determine their own form.
const LISTS: [&str; 11] = [
    "resourceSpans",
    "resource_spans",
    "batches",
    "resourceLogs",
    "resource_logs",
    "resourceMetrics",
    "resource_metrics",
    "resourceProfiles",
    "resource_profiles",
    "traceEvents",
    "data",
];

impl Form {
    /// Returns the form of the record that begins with `text`. If `asked` is events or KUtrace, it
    /// decides the form. Otherwise, known members with records make the record [`Self::Lists`],
    /// unless it has at least three keys of an event. In the other cases, `asked` decides, or else
    /// the keys of the record.
    pub(super) fn of(shape: &JsonShape, text: &[u8], asked: Option<Format>) -> Self {
        let contains = |needle: &str| memmem::find(text, needle.as_bytes()).is_some();
        let is_kutrace =
            shape.opens("events", b'[') && (shape.has("tracebase") || shape.has("axisLabelX"));
        let has_lists = LISTS.iter().any(|list| shape.opens(list, b'['))
            || shape.opens("data", b'{')
            || shape.opens("_source", b'{')
            || shape.opens("hits", b'{') && contains("\"_source\"")
            || (shape.opens("trace", b'{') || shape.opens("result", b'{'))
                && ["\"resourceSpans\"", "\"resource_spans\"", "\"batches\""]
                    .iter()
                    .any(|list| contains(list));
        let own_keys = OWN_KEYS.iter().filter(|key| shape.has(key)).count();
        match asked {
            Some(Format::Events) => Self::Event,
            Some(Format::Kutrace) => Self::Kutrace,
            _ if has_lists && own_keys < 3 => Self::Lists,
            Some(Format::OtlpJson) => Self::Lists,
            Some(Format::Jaeger) => Self::Jaeger,
            Some(Format::Zipkin) => Self::Zipkin,
            Some(Format::Chrome) => Self::ChromeEvent,
            _ if own_keys >= 3 => Self::Event,
            _ if is_kutrace => Self::Kutrace,
            _ if shape.has("ph") && ["ts", "pid", "tid"].iter().any(|key| shape.has(key)) => {
                Self::ChromeEvent
            }
            _ if shape.has("spanID")
                || shape.has("operationName")
                || shape.has("traceID") && shape.has("spans") =>
            {
                Self::Jaeger
            }
            _ if shape.opens("spans", b'[') && contains("\"operationName\"") => Self::Jaeger,
            _ if shape.has("traceId") && shape.has("id") => Self::Zipkin,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, form: Form, is_lines: bool) {
        assert_eq!(
            recognise(head.as_bytes(), None),
            SourceForm::Json { form, is_lines },
            "{head}"
        );
    }

    #[test]
    fn formats_are_recognised_by_content() {
        use Form::{ChromeEvent, Event, Jaeger, Kutrace, Lists, Unknown, Zipkin};
        check("", Unknown, true);
        check("not json\n", Unknown, true);
        check(
            "{\"trace\":\"a\",\"host\":\"h\",\"task\":\"t\"}\n",
            Event,
            true,
        );
        check(
            "{\"trace\":{\"id\":\"a\"},\"host\":\"h\",\"data\":1}\n",
            Unknown,
            true,
        );
        check("\u{feff}\n {\"data\":\n[{\"traceID\":", Lists, false);
        check(
            "{\"total\":0,\"data\":[{\"x\":[\"}\\\"\"]}]}\n",
            Lists,
            true,
        );
        check("{\"traceID\":\"a\",\"spans\":[", Jaeger, false);
        check("{\"traceID\":\"a\",\"spanID\":\"b\"}\n{", Jaeger, true);
        check("[{\"traceID\":\"a\",\"spanID\":\"b\"}]", Jaeger, true);
        check(
            "{\"spans\":[{\"traceId\":\"AAAAAAAAAABSlpqJVVcaPw==\",\n\"operationName\":\"x\"",
            Jaeger,
            false,
        );
        check("{\"spans\":[{\"x\":1}]}", Unknown, true);
        check(
            "{\"_index\":\"jaeger\",\"_source\":{\"traceID\":\"a\"}}\n",
            Lists,
            true,
        );
        check(
            "{\"took\":1,\"hits\":{\"total\":1,\"hits\":[{\"_source\":",
            Lists,
            false,
        );
        for list in [
            "resourceSpans",
            "resource_spans",
            "batches",
            "resourceLogs",
            "resource_logs",
            "resourceMetrics",
            "resource_metrics",
            "resourceProfiles",
            "resource_profiles",
            "traceEvents",
        ] {
            check(
                &format!("{{\"{list}\":[]}}\n{{\"{list}\":[]}}"),
                Lists,
                true,
            );
            check(&format!("[{{\"{list}\" : ["), Lists, false);
            check(&format!("{{\"{list}\":7}}"), Unknown, true);
        }
        check("{\"trace\":{\"batches\":[", Lists, false);
        check("{\"result\":{\"resourceSpans\":[]}}\n", Lists, true);
        check("[{\"ph\":\"X\",\"ts\":1},\n", ChromeEvent, false);
        check(
            "{\"tracebase\":\"2021-10-28_14:01:00\",\"events\":[[",
            Kutrace,
            false,
        );
        check("[{\"traceId\":\"a\",\"id\":\"b\"},\n", Zipkin, false);
        check("[[{\"traceId\":\"a\",\"id\":\"b\"}]]", Zipkin, true);
        check(
            "{\"id\":\"b\",\"tags\":{\"traceID\":1},\"traceId\":\"a\"}\n",
            Zipkin,
            true,
        );
        assert_eq!(
            recognise(&[0x0a, 0x05, 0x12, 0x03, 1, 2, 3], None),
            SourceForm::Protobuf
        );
        assert_eq!(
            recognise(&[0, 0, 0, 7, 0x0a, 0x05], None),
            SourceForm::Protobuf
        );
        let json = SourceForm::Json {
            form: Zipkin,
            is_lines: true,
        };
        assert_eq!(recognise(b"{}", Some(Format::Zipkin)), json);
    }
}
