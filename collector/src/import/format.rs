//! Which format a source is in, by its content.
//!
//! | format | recognised by |
//! |---|---|
//! | `otlp-json` | an object (or an array of objects) with the key `resourceSpans` |
//! | `jaeger` | an object with the key `data`; objects with the key `spanID`, `operationName`, or `traceID` and `spans` |
//! | `zipkin` | objects with the keys `traceId` and `id`, in an array, in arrays in an array, or one a line |
//! | `otlp-protobuf` | a first byte of 10 (field 1) and bytes that no text has; or a first byte of 0 (a length in front) |
//! | `events` | anything else |
//!
//! Only keys that begin within the first 64 KiB are seen. What holds other telemetry than traces is named and refused.

use super::head::Head;
use super::kernel_text;

/// The formats that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Event logs: one JSON object a line
    Events,
    /// Jaeger's JSON: answers of its API, single traces, or spans one a line as in its Elasticsearch indexes
    Jaeger,
    /// Zipkin's JSON, version 1 or 2
    Zipkin,
    /// OTLP's JSON: one request, or one a line
    OtlpJson,
    /// OTLP's protobuf: requests one after the other, or each behind its length in four bytes
    OtlpProtobuf,
    /// Kernel events: perf record -a -k CLOCK_REALTIME -e
    /// 'raw_syscalls:*,sched:sched_switch,sched:sched_waking,task:*', then perf script --ns -F
    /// comm,pid,tid,cpu,time,event,trace
    PerfScript,
    /// System calls: strace -f -ttt -T
    Strace,
}

/// A format and how the source is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recognised {
    pub(super) format: Format,
    /// The records are the elements of this member of the outermost object.
    pub(super) list: Option<&'static str>,
    /// Each line is a document by itself.
    pub(super) is_lines: bool,
}

/// Recognises a format; `asked` wins over the content. The error names what the source holds instead of traces.
pub(super) fn recognise(head: &[u8], asked: Option<Format>) -> Result<Recognised, &'static str> {
    let seen = Head::of(head);
    let has = |key: &str| seen.keys.iter().any(|seen| seen == key);
    let format = match asked.or_else(|| kernel_text::recognise(head)) {
        Some(known) => known,
        None if is_protobuf(head) => Format::OtlpProtobuf,
        None if has("resourceSpans") => Format::OtlpJson,
        None if has("resourceMetrics") => return Err("OTLP metrics"),
        None if has("resourceLogs") => return Err("OTLP logs"),
        None if has("hits") && has("took") => {
            return Err("an answer of Elasticsearch (import its `_source` documents, one a line)");
        }
        None if has("traceEvents") => return Err("Chrome trace events"),
        None if has("spanID") || has("operationName") || has("traceID") && has("spans") => Format::Jaeger,
        None if has("traceId") && has("id") => Format::Zipkin,
        None if has("data") && !has("event") => Format::Jaeger,
        None => Format::Events,
    };
    let list = match format {
        Format::Jaeger => Some("data"),
        Format::OtlpJson => Some("resourceSpans"),
        _ => None,
    };
    let list = list.filter(|key| has(key) && !seen.is_array);
    Ok(Recognised { format, list, is_lines: seen.is_lines })
}

fn is_protobuf(head: &[u8]) -> bool {
    let is_text = |byte: &u8| *byte >= 0x20 || [b'\t', b'\n', b'\r'].contains(byte);
    match head.first() {
        Some(0) => head.get(4) == Some(&0x0a),
        Some(0x0a) => {
            !head.iter().all(is_text) || std::str::from_utf8(head).is_err_and(|e| e.error_len().is_some())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, format: Format, list: Option<&'static str>, is_lines: bool) {
        assert_eq!(recognise(head.as_bytes(), None), Ok(Recognised { format, list, is_lines }), "{head}");
    }

    #[test]
    fn formats_are_recognised_by_content() {
        use Format::{Events, Jaeger, OtlpJson, Zipkin};
        check("", Events, None, false);
        check("not json\n", Events, None, false);
        check("{\"trace\":\"a\",\"host\":\"h\"}\n", Events, None, true);
        check("\u{feff}\n {\"data\":\n[{\"traceID\":", Jaeger, Some("data"), false);
        check("{\"total\":0,\"data\":[{\"x\":[\"}\\\"\"]}]}\n", Jaeger, Some("data"), true);
        check("{\"traceID\":\"a\",\"spans\":[", Jaeger, None, false);
        check("{\"traceID\":\"a\",\"spanID\":\"b\"}\n{", Jaeger, None, true);
        check("[{\"traceID\":\"a\",\"spanID\":\"b\"}]", Jaeger, None, true);
        check("{\"resourceSpans\":[]}\n{\"resourceSpans\":[]}", OtlpJson, Some("resourceSpans"), true);
        check("[{\"resourceSpans\":[", OtlpJson, None, false);
        check("[{\"traceId\":\"a\",\"id\":\"b\"},\n", Zipkin, None, false);
        check("[[{\"traceId\":\"a\",\"id\":\"b\"}]]", Zipkin, None, true);
        check("{\"id\":\"b\",\"tags\":{\"traceID\":1},\"traceId\":\"a\"}\n", Zipkin, None, true);
        assert_eq!(recognise(b"{\"resourceMetrics\":[]}", None), Err("OTLP metrics"));
        assert_eq!(recognise(b"{\"resourceLogs\":[]}", None), Err("OTLP logs"));
        let format = |head: &[u8]| recognise(head, None).map(|recognised| recognised.format);
        assert_eq!(format(&[0x0a, 0x05, 0x12, 0x03, 1, 2, 3]), Ok(Format::OtlpProtobuf));
        assert_eq!(format(&[0, 0, 0, 7, 0x0a, 0x05]), Ok(Format::OtlpProtobuf));
        assert_eq!(format(b"\n{\n \"data\": ["), Ok(Jaeger));
        assert_eq!(recognise(b"{}", Some(Zipkin)).map(|recognised| recognised.format), Ok(Zipkin));
    }
}
