//! From the bytes of a source to its records, by its format.

use std::io::{self, BufRead};

use super::elements::Elements;
use super::file::{ImportError, Summary};
use super::format::{Format, Recognised, recognise};
use super::line::parse;
use super::lines::Lines;
use super::plain_line::parse_plain;
use super::protobuf::Messages;
use super::sink::Sink;
use super::source::Source;
use super::zipkin::Zipkin;
use super::{BadLine, jaeger, otlp};
use crate::limits::{IMPORT_LINE_BYTES_MAX, IMPORT_RECORD_BYTES_MAX, Limits};

/// What sources are taken for.
#[derive(Debug, Default)]
pub(super) enum ReadAs {
    /// What they look like.
    #[default]
    Recognised,
    /// This.
    Format(Format),
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
        match self {
            Self::Recognised => hash.to_owned(),
            Self::Format(format) => format!("{hash}-{format:?}").to_ascii_lowercase(),
        }
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
        let asked = match self {
            Self::Recognised => None,
            Self::Format(format) => Some(*format),
        };
        let recognised = recognise(&source.head, asked)
            .map_err(|what| ImportError::NoTraces { source_name: name.to_owned(), what })?;
        let is_packed = source.is_packed;
        let mut line = 0;
        let read = match recognised.format {
            Format::Events => events(source.bytes, &mut sink, &mut line, limits),
            Format::OtlpProtobuf => messages(source.bytes, &mut sink, &mut line),
            Format::PerfScript | Format::Strace => {
                sink.kernel(recognised.format, source.bytes).map_err(Stopped::Source)
            }
            _ => Documents { recognised, zipkin: Zipkin::default() }.read(source.bytes, &mut sink, &mut line),
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
}

fn events(source: impl BufRead, sink: &mut Sink<'_>, at: &mut u64, limits: &Limits) -> Result<(), Stopped> {
    let mut lines = Lines::new(source, IMPORT_LINE_BYTES_MAX);
    let (mut line, mut json) = (Vec::new(), String::new());
    while let Some(read) = lines.next_into(&mut line)? {
        sink.step()?;
        *at = lines.number();
        if read.is_ok() && line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if read.is_ok()
            && let Some(event) = parse_plain(&line, &mut json, limits)
        {
            sink.event(&event);
            continue;
        }
        match read.and_then(|()| parse(&line, limits)) {
            Ok(parsed) => sink.event(&parsed.as_event(&mut json)),
            Err(reason) => sink.bad(lines.number(), &reason),
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
