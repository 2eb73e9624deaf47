//! From the bytes of a source to its records, by its format.

use std::io::{self, BufRead};

use super::elements::Elements;
use super::file::{ImportError, Summary};
use super::format::{Format, Recognised, recognise};
use super::line::{LogEvent, parse_in_order};
use super::lines::Lines;
use super::mapping::{MappedLine, Mapping, Scratch};
use super::plain_line::parse_plain;
use super::protobuf::Messages;
use super::sink::Sink;
use super::source::Source;
use super::time::{TimeRule, TimeUnit, Times};
use super::zipkin::Zipkin;
use super::{BadLine, jaeger, otlp};
use crate::limits::{IMPORT_LINE_BYTES_MAX, IMPORT_RECORD_BYTES_MAX, Limits};

/// How sources are read.
#[derive(Debug, Default)]
pub(super) struct ReadAs {
    /// None: as what they look like.
    pub(super) format: Option<Format>,
    /// How lines say what an event is.
    pub(super) mapping: Option<Mapping>,
    /// The unit of an event log's times.
    pub(super) time_unit: Option<TimeUnit>,
}

/// Why reading stopped.
enum Stopped {
    Source(io::Error),
    Import(ImportError),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Source(error)
    }
}

impl From<ImportError> for Stopped {
    fn from(error: ImportError) -> Self {
        Self::Import(error)
    }
}

impl ReadAs {
    /// What names the rows of a source whose bytes have this hash: the same bytes read otherwise are other rows.
    pub(super) fn content(&self, hash: &str) -> String {
        let mut content = hash.to_owned();
        if let Some(format) = self.format {
            content += &format!("-{format:?}").to_ascii_lowercase();
        }
        if let Some(mapping) = &self.mapping {
            content += &format!("-map{:032x}", mapping.hash());
        }
        if let Some(unit) = self.time_unit {
            content += &format!("-{unit}");
        }
        content
    }

    /// Reads a whole source.
    ///
    /// # Errors
    /// When it cannot be read, is no trace, or the store cannot be written.
    pub(super) fn read(
        &self,
        name: &str,
        source: Source,
        mut sink: Sink<'_>,
        limits: &Limits,
    ) -> Result<Summary, ImportError> {
        let is_packed = source.is_packed;
        let mut line = 0;
        let read = match &self.mapping {
            Some(mapping) => mapped(mapping, self.time_unit, source.bytes, &mut sink, &mut line, limits),
            None => {
                let recognised = recognise(&source.head, self.format)
                    .map_err(|what| ImportError::NoTraces { source_name: name.to_owned(), what })?;
                if self.time_unit.is_some() && recognised.format != Format::Events {
                    let format = recognised.format;
                    return Err(ImportError::FixedUnit { source_name: name.to_owned(), format });
                }
                self.unmapped(recognised, source.bytes, &mut sink, &mut line, limits)
            }
        };
        match read {
            Ok(()) => {}
            Err(Stopped::Import(error)) => return Err(error),
            Err(Stopped::Source(error)) if is_packed => sink.bad(line, &BadLine::Packed(error.to_string())),
            Err(Stopped::Source(source)) => {
                return Err(ImportError::Source { source_name: name.to_owned(), source });
            }
        }
        sink.finish()
    }

    fn unmapped(
        &self,
        recognised: Recognised,
        source: impl BufRead,
        sink: &mut Sink<'_>,
        line: &mut u64,
        limits: &Limits,
    ) -> Result<(), Stopped> {
        match recognised.format {
            Format::Events => {
                let times = Times::new(self.time_unit.map_or(TimeRule::Recognised, TimeRule::Unit));
                events(source, times, sink, line, limits)
            }
            Format::OtlpProtobuf => messages(source, sink, line),
            Format::PerfScript | Format::Strace => {
                sink.kernel(recognised.format, source).map_err(Stopped::Source)
            }
            _ => Documents { recognised, zipkin: Zipkin::default() }.read(source, sink, line),
        }
    }
}

fn events(
    source: impl BufRead,
    mut times: Times,
    sink: &mut Sink<'_>,
    at: &mut u64,
    limits: &Limits,
) -> Result<(), Stopped> {
    let mut lines = Lines::new(source, IMPORT_LINE_BYTES_MAX);
    let (mut line, mut json) = (Vec::new(), String::new());
    while let Some(read) = lines.next_into(&mut line)? {
        sink.step()?;
        let number = lines.number();
        *at = number;
        if read.is_ok() && line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if read.is_ok()
            && let Some(event) = parse_plain(&line, &mut json, limits)
        {
            match times.ns(event.time_ns as u64, number) {
                Ok(time_ns) => sink.event(&LogEvent { time_ns, ..event }),
                Err(reason) => sink.bad(number, &reason),
            }
            continue;
        }
        match read.and_then(|()| parse_in_order((number, &line), &mut times, limits)) {
            Ok(parsed) => sink.event(&parsed.as_event(&mut json)),
            Err(reason) => sink.bad(number, &reason),
        }
    }
    Ok(())
}

fn mapped(
    mapping: &Mapping,
    time_unit: Option<TimeUnit>,
    source: impl BufRead,
    sink: &mut Sink<'_>,
    at: &mut u64,
    limits: &Limits,
) -> Result<(), Stopped> {
    let mut lines = Lines::new(source, IMPORT_LINE_BYTES_MAX);
    let (mut line, mut scratch, mut times) = (Vec::new(), Scratch::default(), mapping.times(time_unit));
    while let Some(read) = lines.next_into(&mut line)? {
        sink.step()?;
        let number = lines.number();
        *at = number;
        if read.is_ok() && line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let mut take = |event: &LogEvent<'_>| sink.event(event);
        let outcome = read
            .and_then(|()| mapping.read_line((number, &line), &mut times, &mut scratch, limits, &mut take));
        match outcome {
            Ok(MappedLine::Taken) => {}
            Ok(MappedLine::Ignored) => sink.ignored(),
            Err(reason) => sink.bad(number, &reason),
        }
    }
    Ok(())
}

fn messages(source: impl BufRead, sink: &mut Sink<'_>, at: &mut u64) -> Result<(), Stopped> {
    let mut messages = Messages::new(source, IMPORT_RECORD_BYTES_MAX)?;
    while let Some((number, message)) = messages.next_message()? {
        sink.step()?;
        *at = number;
        match message {
            Ok(of_resource) => otlp::spans_of(&of_resource, &mut |span| sink.span(number, span)),
            Err(reason) => sink.bad(number, &reason),
        }
    }
    Ok(())
}

/// Reads JSON documents of spans.
struct Documents {
    recognised: Recognised,
    zipkin: Zipkin,
}

impl Documents {
    fn read(&mut self, source: impl BufRead, sink: &mut Sink<'_>, at: &mut u64) -> Result<(), Stopped> {
        let read = if self.recognised.is_lines {
            self.lines(source, sink, at)
        } else {
            self.records(source, 1, sink, at)
        };
        // Also when the source broke off: what came before is kept.
        self.zipkin.matched().for_each(|(line, span)| sink.span(line, Ok(span)));
        read
    }

    /// Each line is a document by itself: what is wrong with one says nothing about the next.
    fn lines(&mut self, source: impl BufRead, sink: &mut Sink<'_>, at: &mut u64) -> Result<(), Stopped> {
        let mut lines = Lines::new(source, IMPORT_RECORD_BYTES_MAX);
        let mut line = Vec::new();
        while let Some(read) = lines.next_into(&mut line)? {
            match read {
                Ok(()) => self.records(&line[..], lines.number(), sink, at)?,
                Err(reason) => sink.bad(lines.number(), &reason),
            }
        }
        Ok(())
    }

    fn records(
        &mut self,
        source: impl BufRead,
        first_line: u64,
        sink: &mut Sink<'_>,
        at: &mut u64,
    ) -> Result<(), Stopped> {
        let list = self.recognised.list;
        let mut elements = Elements::new(source, list, IMPORT_RECORD_BYTES_MAX, first_line);
        let mut record = Vec::new();
        while let Some((line, read)) = elements.next_into(&mut record)? {
            sink.step()?;
            *at = line;
            let text = read.and_then(|()| {
                let wrong = |error: std::str::Utf8Error| BadLine::NotUtf8 { valid: error.valid_up_to() };
                std::str::from_utf8(&record).map_err(wrong)
            });
            match text {
                Ok(text) => self.record(line, text, sink),
                Err(reason) => sink.bad(line, &reason),
            }
        }
        Ok(())
    }

    fn record(&mut self, line: u64, record: &str, sink: &mut Sink<'_>) {
        let told = match self.recognised.format {
            Format::Jaeger => jaeger::spans_of(record, &mut |offset, span| sink.span(line + offset, span)),
            Format::OtlpJson => {
                let is_request = self.recognised.list.is_none();
                otlp::spans_of_json(record, is_request, &mut |span| sink.span(line, span))
            }
            Format::Zipkin => {
                self.zipkin.take(line, record, &mut |line, reason| sink.bad(line, &reason));
                if self.zipkin.is_full() {
                    self.zipkin.matched().for_each(|(line, span)| sink.span(line, Ok(span)));
                }
                Ok(())
            }
            Format::Events | Format::OtlpProtobuf | Format::PerfScript | Format::Strace => Ok(()),
        };
        if let Err((offset, reason)) = told {
            sink.bad(line + offset, &reason);
        }
    }
}
