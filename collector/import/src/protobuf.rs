//! Reads OTLP's protobuf from a file: requests one after the other, or each prefixed with its
//! length. The length is four bytes, big-endian, below 16 MiB, as the OpenTelemetry collector's
//! file exporter writes it, or a varint, as protobuf's own libraries write it.
//!
//! A request is just a list of `ResourceSpans`, so these are read one by one, whatever the size of
//! the request. A trace of Tempo has the same form. Tempo's responses contain a trace in their
//! first field, which is read as a whole.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read as _};

use prost::Message as _;

use super::BadLine;
use stroboscope_otlp::message::ResourceSpans;
use stroboscope_otlp::unknown_fields;
use stroboscope_otlp::wire;

/// Tag of `ExportTraceServiceRequest.resource_spans`: field 1, with a length.
const RESOURCE_SPANS: u64 = 10;
const LENGTH_DELIMITED: u64 = 2;

/// Length prefix of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    None,
    FourBytes,
    Varint,
}

/// Reports whether `head` looks like the beginning of a file of OTLP's protobuf.
pub(super) fn is_likely(head: &[u8]) -> bool {
    lengths(head).is_some()
}

fn lengths(head: &[u8]) -> Option<Lengths> {
    let is_text = |byte: &u8| *byte >= 0x20 || [b'\t', b'\n', b'\r'].contains(byte);
    let is_binary = || {
        !head.iter().all(is_text)
            || std::str::from_utf8(head).is_err_and(|e| e.error_len().is_some())
    };
    match head.first()? {
        0 => (head.get(4) == Some(&0x0a)).then_some(Lengths::FourBytes),
        0x0a => is_binary().then_some(Lengths::None),
        _ => {
            let mut rest = head;
            let length = wire::varint(&mut rest)? as usize;
            let is_first = rest.first() == Some(&0x0a) && is_binary();
            // If the whole message is visible, its fields must fill its length.
            let message = rest.get(..length);
            let is_whole =
                message.is_none_or(|message| wire::fields(message).all(|field| field.is_ok()));
            (is_first && is_whole).then_some(Lengths::Varint)
        }
    }
}

/// Reads the messages of a file.
pub(super) struct Messages<R> {
    source: R,
    limit: usize,
    lengths: Lengths,
    number: u64,
    /// Bytes read so far, and the end of the current message if its length is a varint.
    read_bytes: u64,
    end: u64,
    /// Messages that have not been returned yet.
    of_trace: VecDeque<Result<ResourceSpans, BadLine>>,
    not_taken: Vec<String>,
}

/// A message and its number in the file, from 1.
pub(super) type NumberedMessage = (u64, Result<ResourceSpans, BadLine>);

impl<R: BufRead> Messages<R> {
    /// Creates a reader of `source`, which begins with `head`. A `ResourceSpans` (or a trace of
    /// Tempo's response) of more than `limit` bytes is skipped and reported.
    pub(super) fn new(source: R, head: &[u8], limit: usize) -> Self {
        Self {
            source,
            limit,
            lengths: lengths(head).unwrap_or(Lengths::None),
            number: 0,
            read_bytes: 0,
            end: 0,
            of_trace: VecDeque::new(),
            not_taken: Vec::new(),
        }
    }

    /// Returns the names of the fields that were skipped since the last call.
    pub(super) fn not_taken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.not_taken)
    }

    /// Returns the next message; `None` at the end.
    ///
    /// # Errors
    /// Returns the errors of the source, except `UnexpectedEof` and `InvalidData` inside a field.
    /// These end the file with a bad message, as do an invalid tag or varint and an end inside
    /// a field or a length prefix.
    pub(super) fn next_message(&mut self) -> io::Result<Option<NumberedMessage>> {
        loop {
            if let Some(message) = self.of_trace.pop_front() {
                self.number += 1;
                return Ok(Some((self.number, message)));
            }
            if self.source.fill_buf()?.is_empty() {
                return Ok(None);
            }
            match self.field() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return self.give_up(error.to_string());
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return self.give_up("the file ends in the middle".to_owned());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn give_up(&mut self, reason: String) -> io::Result<Option<NumberedMessage>> {
        io::copy(&mut self.source, &mut io::sink())?;
        self.number += 1;
        Ok(Some((self.number, Err(BadLine::Protobuf { reason }))))
    }

    /// Reads one field of a request and adds its spans to `of_trace`, or reads the length in front
    /// of a request.
    fn field(&mut self) -> io::Result<()> {
        match self.lengths {
            // The first byte of a tag is never 0.
            Lengths::FourBytes if self.source.fill_buf()?.first() == Some(&0) => {
                return self.skip(4);
            }
            Lengths::Varint if self.read_bytes >= self.end => {
                let length = self.varint()?;
                self.end = self.read_bytes.saturating_add(length);
                return Ok(());
            }
            _ => {}
        }
        let tag = self.varint()?;
        if tag != RESOURCE_SPANS {
            let name = format!("field {} beside the spans", tag >> 3);
            self.not_taken.push(name);
            return self.skip_field(tag);
        }
        let length = self.varint()?;
        if length > self.limit as u64 {
            self.skip(length)?;
            let too_long = BadLine::RecordTooLong { limit: self.limit };
            self.of_trace.push_back(Err(too_long));
            return Ok(());
        }
        let mut bytes = Vec::new();
        let read = self.source.by_ref().take(length).read_to_end(&mut bytes)?;
        self.read_bytes += read as u64;
        if (read as u64) < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for message in unknown_fields::of_trace(&bytes).unwrap_or_else(|| vec![&bytes]) {
            let not_spans = |error: prost::DecodeError| {
                BadLine::Json(format!("not a ResourceSpans of OTLP: {error}"))
            };
            let decoded = ResourceSpans::decode(message).map_err(not_spans);
            // The fields of a rejected message, such as one of logs, are not named.
            if decoded.is_ok() {
                unknown_fields::unknown(message, &mut |name| self.not_taken.push(name.to_owned()));
            }
            self.of_trace.push_back(decoded);
        }
        Ok(())
    }

    fn skip_field(&mut self, tag: u64) -> io::Result<()> {
        match tag & 7 {
            0 => self.varint().map(|_| ()),
            1 => self.skip(8),
            5 => self.skip(4),
            LENGTH_DELIMITED => {
                let length = self.varint()?;
                self.skip(length)
            }
            _ => {
                let reason = format!("tag {tag} is not a field of an OTLP request for traces");
                Err(invalid(reason))
            }
        }
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.source.by_ref().take(bytes), &mut io::sink())?;
        self.read_bytes += skipped;
        if skipped < bytes {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.source.read_exact(&mut byte)?;
            self.read_bytes += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(invalid("a number of more than 64 bits"))
    }
}

fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}
