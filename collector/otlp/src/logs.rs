//! Reads log records of OTLP that belong to a request, which means that they have a trace id.
//!
//! Events and log lines are distinguished as in OpenTelemetry: a record with an event name is an
//! event, and any other record is a log line. An event inside a span ends a segment and begins the
//! next. A log line inside a span belongs to this span, and does not divide segments. A record
//! without a span becomes an event of the event log of its task.
//!
//! | of OTLP | here |
//! |---|---|
//! | event name, or the attribute `event.name`, as it was until 2025 | name |
//! | without one: the body up to its first value, else the severity's text, else `log` | name |
//! | time, else the observed time | time |
//! | service, and the attribute `thread.name` or `thread.id`; `log` without either | task |
//! | body, severity, observed time | attributes `log.body`, `log.severity_text`, `log.severity_number`, `log.observed_time_unix_nano` |
//! | flags, dropped attributes | `otel.flags`, `otel.dropped_attributes_count` |
//!
//! Attributes keep their names. An attribute with the name of one in the last two rows is in
//! `otel.shadowed` if the record has that field, too. For the body and most other attributes, the
//! exact forms of values that JSON cannot express are not stored. Attributes of resource and scope
//! are stored as for [spans](super).

use prost::Message;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::{id, severity, u32_or_text, u64_or_text};
use super::message::{AnyValue, KeyValue, Resource, Scope};
use super::own_names::{is_made_of_log, put_own};
use super::{DROPPED_ATTRIBUTES, OfResource, number, reason_of, say_count, say_text, time, value};
use crate::typed::{nullable, parse};
use crate::{Attributes, BadSpan, ForeignSpan, SpanLimits, TakeSpans, check_count, check_text};

/// Maximum length of a name that is taken from a body, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Characters, besides digits and control characters, that begin a value in a message for people.
const VALUE_MARKS: [char; 14] = [
    '=', ':', '{', '}', '[', ']', '(', '<', '"', '\'', '`', '#', '@', '%',
];

/// Log records of one resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_logs: Vec<ScopeLogs>,
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

/// Log records of one instrumentation scope, such as a logger.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub log_records: Vec<LogRecord>,
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

/// One log record of a [`ScopeLogs`].
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LogRecord {
    #[prost(fixed64, tag = "1")]
    #[serde(deserialize_with = "u64_or_text", alias = "time_unix_nano")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "11")]
    #[serde(deserialize_with = "u64_or_text", alias = "observed_time_unix_nano")]
    pub observed_time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "severity", alias = "severity_number")]
    pub severity_number: i32,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable", alias = "severity_text")]
    pub severity_text: String,
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    #[serde(deserialize_with = "nullable")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "7")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_attributes_count")]
    pub dropped_attributes_count: u32,
    #[prost(fixed32, tag = "8")]
    #[serde(deserialize_with = "u32_or_text")]
    pub flags: u32,
    #[prost(bytes = "vec", tag = "9")]
    #[serde(deserialize_with = "id", alias = "trace_id")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    #[serde(deserialize_with = "id", alias = "span_id")]
    pub span_id: Vec<u8>,
    #[prost(string, tag = "12")]
    #[serde(deserialize_with = "nullable", alias = "event_name")]
    pub event_name: String,
}

/// Log records of one resource, in JSON.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceLogsText<'a> {
    resource: Option<Resource>,
    #[serde(borrow, alias = "scope_logs")]
    scope_logs: Option<Vec<ScopeLogsText<'a>>>,
    #[serde(deserialize_with = "nullable", alias = "schema_url")]
    schema_url: String,
}

/// Log records of one scope, still unparsed: a defect in one record does not affect the next.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ScopeLogsText<'a> {
    scope: Option<Scope>,
    #[serde(borrow, alias = "log_records")]
    log_records: Option<Vec<&'a RawValue>>,
    #[serde(deserialize_with = "nullable", alias = "schema_url")]
    schema_url: String,
}

/// Log record to store. It belongs to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignLog {
    pub trace_id: u128,
    /// Id of the span; 0 for none.
    pub span_id: u64,
    pub service: String,
    pub host: String,
    /// Time, in ns since the Unix epoch.
    pub time_ns: i64,
    pub name: String,
    /// True if the record has an event name; false for a log line.
    pub is_event: bool,
    /// Task of the record: the service, with the thread if it is known; `log` if neither is known.
    pub task: String,
    pub attributes: Attributes,
}

impl ForeignLog {
    /// Checks the record against the limits.
    ///
    /// # Errors
    /// Returns the first defect.
    pub fn check(&self, limits: SpanLimits) -> Result<(), BadSpan> {
        for text in [&self.service, &self.host, &self.name, &self.task] {
            if !text.is_empty() {
                let field = "a service's, host's, event's or thread's name";
                check_text(field, text, limits.string_bytes_max)?;
            }
        }
        check_count(self.attributes.len(), limits.attributes_max)
    }
}

/// Passes on the log records of one resource.
pub fn logs_of(message: &ResourceLogs, take: &mut dyn FnMut(Result<ForeignLog, BadSpan>)) {
    let of_resource = of_resource(message.resource.as_ref(), &message.schema_url);
    for of_scope in &message.scope_logs {
        let scope = of_scope.scope.as_ref();
        let shared = of_resource.shared(scope, &of_scope.schema_url, 0, &mut Unheard);
        for record in &of_scope.log_records {
            take(of_resource.log(record, &shared));
        }
    }
}

/// Passes on the log records of an element of `resourceLogs`.
///
/// # Errors
/// Returns an error if the text is not such an element.
pub fn logs_of_json(
    record: &str,
    take: &mut dyn FnMut(Result<ForeignLog, BadSpan>),
) -> Result<(), BadSpan> {
    let wrong = |error: &serde_json::Error| reason_of(error).1;
    let text: ResourceLogsText<'_> =
        parse(record, "resourceLogs[]", &mut |_| {}).map_err(|error| wrong(&error))?;
    let of_resource = of_resource(text.resource.as_ref(), &text.schema_url);
    for of_scope in text.scope_logs.iter().flatten() {
        let scope = of_scope.scope.as_ref();
        let shared = of_resource.shared(scope, &of_scope.schema_url, 0, &mut Unheard);
        for record in of_scope.log_records.iter().flatten() {
            let parsed = parse::<LogRecord>(record.get(), "logRecord", &mut |_| {});
            take(match parsed {
                Ok(record) => of_resource.log(&record, &shared),
                Err(error) => Err(wrong(&error)),
            });
        }
    }
    Ok(())
}

fn of_resource(resource: Option<&Resource>, schema_url: &str) -> OfResource {
    OfResource::new(resource, schema_url, 0, &mut Unheard)
}

/// Receiver that discards the notices of duplicate attributes. The last of the duplicates counts.
pub(super) struct Unheard;

impl TakeSpans for Unheard {
    fn span(&mut self, _line: u64, _span: Result<ForeignSpan, BadSpan>) {}

    fn not_taken(&mut self, _line: u64, _name: &str, _count: u64) {}
}

impl OfResource {
    fn log(&self, record: &LogRecord, shared: &Attributes) -> Result<ForeignLog, BadSpan> {
        // A sender without a context sends no id, or zeros.
        let is_none = |id: &[u8]| id.iter().all(|byte| *byte == 0);
        if is_none(&record.trace_id) && [0, 8, 16].contains(&record.trace_id.len()) {
            return Err(BadSpan::NoTrace);
        }
        let span_id = match &record.span_id[..] {
            id if is_none(id) && [0, 8].contains(&id.len()) => 0,
            id => u64::from_be_bytes(number("spanId", id)?),
        };
        let observed = record.observed_time_unix_nano;
        let time_ns = match (record.time_unix_nano, observed) {
            (0, 0) => Err(BadSpan::Empty {
                field: "timeUnixNano",
            }),
            (0, observed) => time("observedTimeUnixNano", observed),
            (given, _) => time("timeUnixNano", given),
        }?;
        let mut attributes = shared.clone();
        let (own, others): (Vec<_>, Vec<_>) = record
            .attributes
            .iter()
            .partition(|pair| is_made_of_log(&pair.key));
        for pair in others {
            attributes.insert(pair.key.clone(), value(pair.value.as_ref()));
        }
        let named = self.named(record, &attributes);
        let body = value(record.body.as_ref());
        let name = match &named {
            Some(name) => name.clone(),
            None => name_of(&body, &record.severity_text),
        };
        if body != Value::Null {
            attributes.insert("log.body".to_owned(), body);
        }
        say_text(&mut attributes, "log.severity_text", &record.severity_text);
        if record.severity_number != 0 {
            let number = record.severity_number.into();
            attributes.insert("log.severity_number".to_owned(), number);
        }
        if observed != 0 {
            let key = "log.observed_time_unix_nano".to_owned();
            attributes.insert(key, observed.into());
        }
        say_count(&mut attributes, "otel.flags", record.flags);
        let dropped = record.dropped_attributes_count;
        say_count(&mut attributes, DROPPED_ATTRIBUTES, dropped);
        put_own(&mut attributes, &own, 0, &mut Unheard);
        Ok(ForeignLog {
            trace_id: u128::from_be_bytes(number("traceId", &record.trace_id)?),
            span_id,
            service: self.service.clone(),
            host: self.host.clone(),
            time_ns,
            name,
            is_event: named.is_some(),
            task: self.task(&attributes),
            attributes,
        })
    }

    /// Returns the name of an event, from the record's field or from the attribute `event.name`.
    /// Returns `None` for a log line, which has neither.
    fn named(&self, record: &LogRecord, attributes: &Attributes) -> Option<String> {
        let former = attributes.get("event.name").and_then(Value::as_str);
        [Some(&record.event_name[..]), former]
            .into_iter()
            .flatten()
            .find(|name| !name.is_empty())
            .map(str::to_owned)
    }

    /// Returns the service, with the thread if it is known; `log` if neither is known.
    fn task(&self, attributes: &Attributes) -> String {
        let thread = ["thread.name", "thread.id"].iter().find_map(|key| {
            let value = attributes.get(*key)?;
            let text = value.as_str().map(str::to_owned);
            text.or_else(|| value.as_i64().map(|number| number.to_string()))
        });
        match thread.filter(|thread| !thread.is_empty()) {
            Some(thread) => format!("{}/{thread}", self.service),
            None if self.service.is_empty() => "log".to_owned(),
            None => self.service.clone(),
        }
    }
}

/// Derives a name for a log line: its text up to the first value, at most [`NAME_BYTES_MAX`] bytes,
/// or else `severity` or `log`. Lines of one log statement mostly have the same name.
fn name_of(body: &Value, severity: &str) -> String {
    let text = body.as_str().unwrap_or_default().trim_start();
    let is_value = |c: char| c.is_ascii_digit() || c.is_control() || VALUE_MARKS.contains(&c);
    let mut end = text.find(is_value).unwrap_or(text.len());
    // A name does not end within a word with digits: `user-17` is a value as a whole.
    if text[end..].starts_with(|c: char| c.is_ascii_digit()) {
        end = text[..end].rfind(' ').unwrap_or(0);
    }
    end = end.min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let words = text[..end].trim_end();
    let found = [words, severity, "log"]
        .into_iter()
        .find(|name| !name.is_empty());
    found.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_statement_have_one_name() {
        let check = |body: &str, name: &str| assert_eq!(name_of(&body.into(), "INFO"), name);
        check("payment failed: card 17 declined", "payment failed");
        check("user 17 logged in", "user");
        check("fetched user-17 from cache", "fetched");
        check("GET /cart 200", "GET /cart");
        check("started\nin 5 ms", "started");
        check("", "INFO");
        check("17 rows", "INFO");
        check(&"ä".repeat(100), &"ä".repeat(32));
        assert_eq!(name_of(&serde_json::json!({"a": 1}), ""), "log");
    }

    fn read(json: &str) -> Vec<Result<ForeignLog, BadSpan>> {
        let mut found = Vec::new();
        logs_of_json(json, &mut |log| found.push(log)).unwrap();
        found
    }

    #[test]
    fn nothing_of_a_record_is_lost() {
        let found = read(
            r#"{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}},
                {"key":"host.name","value":{"stringValue":"web1"}}],"droppedAttributesCount":2},"schemaUrl":"r",
                "scopeLogs":[{"scope":{"name":"lib","version":"1","attributes":[{"key":"k","value":{"intValue":"1"}}]},
                "schemaUrl":"s","logRecords":[{"timeUnixNano":"5","observedTimeUnixNano":7,"severityNumber":"SEVERITY_NUMBER_WARN2",
                "severityText":"warn","body":{"kvlistValue":{"values":[{"key":"a","value":{"boolValue":true}}]}},
                "attributes":[{"key":"thread.id","value":{"intValue":3}}],"droppedAttributesCount":1,"flags":1,
                "traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","eventName":"paid","later":1}]}]}"#,
        );
        let log = found[0].as_ref().unwrap();
        assert_eq!((log.time_ns, &*log.name, log.is_event), (5, "paid", true));
        assert_eq!(log.trace_id, 0x5b8e_fff7_9803_8103_d269_b633_813f_c60c);
        assert_eq!(log.span_id, 0xeee1_9b7e_c3c1_b174);
        let texts = [&log.service, &log.host, &log.task];
        assert_eq!(texts, ["shop", "web1", "shop/3"]);
        let expected = serde_json::json!({
            "resource.host.name": "web1", "otel.resource.schema_url": "r", "otel.resource.dropped_attributes_count": 2,
            "otel.scope.schema_url": "s", "otel.scope.name": "lib", "otel.scope.version": "1", "scope.k": 1,
            "thread.id": 3, "log.body": {"a": true}, "log.severity_text": "warn", "log.severity_number": 14,
            "log.observed_time_unix_nano": 7, "otel.flags": 1, "otel.dropped_attributes_count": 1,
        });
        assert_eq!(Value::Object(log.attributes.clone()), expected);
    }

    #[test]
    fn attributes_with_the_name_of_a_field_stay() {
        let found = read(
            r#"{"resource":{"attributes":[{"key":"host.name","value":{"stringValue":"web1"}}]},
                "scopeLogs":[{"logRecords":[{"timeUnixNano":5,"traceId":"5b8efff798038103d269b633813fc60c",
                "body":{"stringValue":"paid"},"attributes":[
                {"key":"log.body","value":{"intValue":7}},
                {"key":"log.severity_text","value":{"stringValue":"own"}},
                {"key":"resource.host.name","value":{"stringValue":"own"}},
                {"key":"resource.a","value":{"boolValue":true}}]}]}]}"#,
        );
        let expected = serde_json::json!({
            "resource.host.name": "web1", "log.body": "paid", "log.severity_text": "own", "resource.a": true,
            "otel.own_names": ["log.severity_text", "resource.a"],
            "otel.shadowed": {"log.body": {"intValue": "7"}, "resource.host.name": {"stringValue": "own"}},
        });
        let log = found[0].as_ref().unwrap();
        assert_eq!(Value::Object(log.attributes.clone()), expected);
    }

    #[test]
    fn what_is_wrong_with_one_record_says_nothing_of_the_next() {
        let found = read(
            r#"{"scopeLogs":[{"logRecords":[{"timeUnixNano":5},{"traceId":"00000000000000000000000000000000","timeUnixNano":5},
                {"traceId":"17"},{"traceId":7},{"traceId":"5b8efff798038103d269b633813fc60c"},
                {"traceId":"5b8efff798038103d269b633813fc60c","observedTimeUnixNano":9,"body":{"stringValue":"x"}}]}]}"#,
        );
        assert_eq!(found[0], Err(BadSpan::NoTrace));
        assert_eq!(found[1], Err(BadSpan::NoTrace));
        assert!(matches!(
            found[2],
            Err(BadSpan::Empty { .. } | BadSpan::Id { .. })
        ));
        assert!(matches!(found[3], Err(BadSpan::Json(_))));
        assert!(matches!(found[4], Err(BadSpan::Empty { .. })));
        let last = found[5].as_ref().unwrap();
        assert_eq!((last.time_ns, last.span_id, last.is_event), (9, 0, false));
        assert_eq!((&*last.name, &*last.task), ("x", "log"));
    }
}
