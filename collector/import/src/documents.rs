//! Reads JSON record by record. Outside of lists of known type, each record determines its own
//! form, unless a format is requested.

use std::io::BufRead;

use super::BadLine;
use super::chrome::Chrome;
use super::format::{Form, Format};
use super::jaeger;
use super::json_error::reason_of;
use super::json_records::{JsonRecords, NextRecord};
use super::json_shape::JsonShape;
use super::kutrace::Kutrace;
use super::layout::{Layout, List};
use super::line::{LogEvent, parse_in_order};
use super::lines::Lines;
use super::outcome::StopReason;
use super::plain_line::parse_plain;
use super::sink::Sink;
use super::take::Spans as AsSpans;
use super::take::Take as _;
use super::telemetry;
use super::time::Times;
use super::unknown::{Unknown, describe};
use super::zipkin::Zipkin;
use stroboscope_otlp::typed::count_of;
use stroboscope_store::limits::{IMPORT_LINE_BYTES_MAX, IMPORT_RECORD_BYTES_MAX, Limits};

/// Maximum number of nested lists and documents of lists in a record, including the record itself.
const DEPTH_MAX: usize = 4;

/// Reader of the records of a source.
pub(super) struct Documents<'a> {
    asked: Option<Format>,
    limits: &'a Limits,
    times: Times,
    /// Buffer for the attributes of an event, reused for each line.
    json: String,
    unknown: Unknown,
    zipkin: Zipkin,
    chrome: Chrome,
    kutrace: Kutrace,
}

impl<'a> Documents<'a> {
    /// Creates a reader. `times` parses the times of event logs; `content` identifies the source.
    pub(super) fn new(
        asked: Option<Format>,
        times: Times,
        limits: &'a Limits,
        content: &str,
    ) -> Self {
        Self {
            asked,
            limits,
            times,
            json: String::new(),
            unknown: Unknown::default(),
            zipkin: Zipkin::default(),
            chrome: Chrome::new(content),
            kutrace: Kutrace::new(content),
        }
    }

    /// Reads a whole source, whose first record has the form `form`.
    ///
    /// # Errors
    /// Returns an error if the source or the store fails, or if all records have unknown forms.
    pub(super) fn read(
        &mut self,
        source: impl BufRead,
        (form, is_lines): (Form, bool),
        sink: &mut Sink<'_>,
        at: &mut u64,
    ) -> Result<(), StopReason> {
        if self.asked.is_some() || form != Form::Unknown {
            self.unknown.known(sink);
        }
        let read = if is_lines {
            self.lines(source, form, sink, at)
        } else {
            let layout = match form {
                Form::Lists => Layout::Known,
                Form::Kutrace => Layout::Kutrace,
                _ => Layout::Whole,
            };
            self.records(source, &layout, 1, 0, sink, at)
        };
        // This also runs if the source broke off, so that the records before that point are kept.
        self.hand_on_zipkin(sink);
        self.chrome.finish(sink);
        self.kutrace.finish(sink);
        if let (Ok(()), Some(what)) = (&read, self.unknown.holds()) {
            return Err(StopReason::Unknown(what));
        }
        read
    }

    /// Reads each line as a document of its own: a defect in one does not affect the next.
    fn lines(
        &mut self,
        source: impl BufRead,
        form: Form,
        sink: &mut Sink<'_>,
        at: &mut u64,
    ) -> Result<(), StopReason> {
        let limit = match form {
            Form::Event | Form::Unknown => IMPORT_LINE_BYTES_MAX,
            _ => IMPORT_RECORD_BYTES_MAX,
        };
        let mut lines = Lines::new(source, limit);
        let mut line = Vec::new();
        while let Some(read) = lines.next_into(&mut line)? {
            sink.step()?;
            *at = lines.number();
            match read {
                Ok(()) if line.iter().all(u8::is_ascii_whitespace) => {}
                Ok(()) if self.plain_event(lines.number(), &line, sink) => {}
                Ok(()) => self.record(lines.number(), &line, 0, sink)?,
                Err(reason) => sink.bad(lines.number(), &reason),
            }
        }
        Ok(())
    }

    /// Stores an event of the plain form, or reports its time as bad. Returns false if the line has
    /// another form, or if the user asked for another format.
    fn plain_event(&mut self, number: u64, line: &[u8], sink: &mut Sink<'_>) -> bool {
        let is_asked = self.asked.is_none_or(|asked| asked == Format::Events);
        let parsed = is_asked.then(|| parse_plain(line, &mut self.json, self.limits));
        let Some(event) = parsed.flatten() else {
            return false;
        };
        self.unknown.known(sink);
        match self.times.ns(event.time_ns as u64, number) {
            Ok(time_ns) => sink.event(&LogEvent { time_ns, ..event }),
            Err(reason) => sink.bad(number, &reason),
        }
        true
    }

    fn records(
        &mut self,
        source: impl BufRead,
        layout: &Layout,
        first_line: u64,
        depth: usize,
        sink: &mut Sink<'_>,
        at: &mut u64,
    ) -> Result<(), StopReason> {
        let mut elements = JsonRecords::new(source, layout, IMPORT_RECORD_BYTES_MAX, first_line);
        let mut record = Vec::new();
        if *layout != Layout::Whole {
            self.unknown.known(sink);
        }
        while let Some((line, found)) = elements.next_into(&mut record)? {
            sink.step()?;
            *at = line;
            match found {
                NextRecord::Record(List::Any) => self.record(line, &record, depth, sink)?,
                NextRecord::Record(list) => self.element(line, list, &record, sink),
                NextRecord::Member
                    if *layout == Layout::Kutrace
                        && self.kutrace.header(elements.key(), &record) => {}
                NextRecord::Member => {
                    let count = std::str::from_utf8(&record).map_or(1, count_of);
                    sink.not_taken(line, elements.key(), count);
                }
                // A traced program that is killed leaves the list open, and the format allows that.
                NextRecord::OpenList if self.chrome.has_any() => {}
                NextRecord::OpenList => {
                    let reason = "the document ends in the middle".to_owned();
                    sink.bad(line, &BadLine::Json(reason));
                }
                // The source may be a text log that begins with a bracket.
                NextRecord::Bad(reason) => {
                    let what = "text that is not JSON".to_owned();
                    self.unknown.take(line, reason, what, sink);
                }
            }
        }
        Ok(())
    }

    /// Determines the form of a record and reads it. `depth` is the number of lists and documents
    /// around it, except one that encloses the source's records. Reports a list, or a document of
    /// lists, at the depth [`DEPTH_MAX`] as bad.
    fn record(
        &mut self,
        line: u64,
        record: &[u8],
        depth: usize,
        sink: &mut Sink<'_>,
    ) -> Result<(), StopReason> {
        let shape = JsonShape::of(record);
        let form = Form::of(&shape, record, self.asked);
        let is_list = shape.is_array && (form != Form::Event || self.asked.is_none());
        if depth >= DEPTH_MAX && (is_list || form == Form::Lists) {
            let reason = "more lists in lists than any known form has".to_owned();
            sink.bad(line, &BadLine::Json(reason));
            return Ok(());
        }
        let nested = match form {
            _ if is_list => Some(Layout::Whole),
            Form::Lists => Some(Layout::Known),
            Form::Kutrace => Some(Layout::Kutrace),
            _ => None,
        };
        if let Some(layout) = nested {
            let mut at = line;
            return self.records(record, &layout, line, depth + 1, sink, &mut at);
        }
        let text = match std::str::from_utf8(record) {
            Ok(text) => text,
            Err(error) => {
                let reason = BadLine::from(error);
                if form == Form::Unknown {
                    let what = "bytes that are neither text nor packed by gzip or zstd".to_owned();
                    self.unknown.take(line, reason, what, sink);
                } else {
                    sink.bad(line, &reason);
                }
                return Ok(());
            }
        };
        if form == Form::Unknown {
            self.of_no_form(line, record, &shape, sink);
            return Ok(());
        }
        self.unknown.known(sink);
        match form {
            Form::Event => self.event(line, record, sink),
            Form::Jaeger => {
                if let Err((offset, reason)) = jaeger::spans_of(line, text, sink) {
                    sink.bad(line + offset, &reason);
                }
            }
            Form::ChromeEvent => self.chrome.take(line, text, sink),
            _ => {
                self.zipkin.take(line, text, sink);
                if self.zipkin.is_full() {
                    self.hand_on_zipkin(sink);
                }
            }
        }
        Ok(())
    }

    fn hand_on_zipkin(&mut self, sink: &mut Sink<'_>) {
        let matched = self.zipkin.matched();
        matched.for_each(|(line, span)| sink.span(line, Ok(span)));
    }

    fn event(&mut self, line: u64, record: &[u8], sink: &mut Sink<'_>) {
        let mut ignored = |name: &str| sink.not_taken(line, name, 1);
        match parse_in_order((line, record), &mut self.times, self.limits, &mut ignored) {
            Ok(parsed) => sink.event(&parsed.as_event(&mut self.json)),
            Err(reason) => sink.bad(line, &reason),
        }
    }

    fn of_no_form(&mut self, line: u64, record: &[u8], shape: &JsonShape, sink: &mut Sink<'_>) {
        let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(record);
        let what = describe(parsed.is_ok(), shape);
        // An error in the JSON takes precedence over the forms it might have had.
        let reason = match parsed {
            Err(error) => reason_of(&error).1,
            Ok(_) => BadLine::UnknownForm { what: what.clone() },
        };
        self.unknown.take(line, reason, what, sink);
    }

    /// Reads an element of a list of known type.
    fn element(&mut self, line: u64, list: List, record: &[u8], sink: &mut Sink<'_>) {
        let text = match std::str::from_utf8(record) {
            Ok(text) => text,
            Err(error) => return sink.bad(line, &BadLine::from(error)),
        };
        let read = match list {
            List::Spans => stroboscope_otlp::spans_of_json(line, text, &mut AsSpans(sink))
                .map_err(|(offset, reason)| (offset, reason.into())),
            List::Logs | List::Metrics | List::Profiles => {
                telemetry::count(list, text).map(|(name, count)| sink.not_taken(line, name, count))
            }
            List::KutraceRows => {
                self.kutrace.take(line, text, sink);
                Ok(())
            }
            List::ChromeEvents | List::Any => {
                self.chrome.take(line, text, sink);
                Ok(())
            }
        };
        if let Err((offset, reason)) = read {
            sink.bad(line + offset, &reason);
        }
    }
}
