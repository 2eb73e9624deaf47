//! OTLP's protobuf from a file: one or more requests one after the other, or each behind its length (four bytes,
//! big-endian, up to 16 MiB), as the OpenTelemetry collector's file exporter writes them.
//!
//! A request is nothing but a list of `ResourceSpans`, so these are read one by one, whatever the size of the request.

use std::io::{self, BufRead, Read as _};

use prost::Message as _;

use super::BadLine;
use super::otlp_message::ResourceSpans;

/// Tag of `ExportTraceServiceRequest.resource_spans`: field 1, with a length.
const RESOURCE_SPANS: u64 = 10;
const LENGTH_DELIMITED: u64 = 2;

/// Reads the messages of a file.
pub(super) struct Messages<R> {
    source: R,
    limit: usize,
    has_lengths: bool,
    number: u64,
}

/// A message and its number in the file, from 1.
pub(super) type Numbered = (u64, Result<ResourceSpans, BadLine>);

impl<R: BufRead> Messages<R> {
    /// Of `source`; messages of more than `limit` bytes are skipped and named.
    pub(super) fn new(mut source: R, limit: usize) -> io::Result<Self> {
        let has_lengths = source.fill_buf()?.first() == Some(&0);
        Ok(Self { source, limit, has_lengths, number: 0 })
    }

    /// The next message; none at the end.
    ///
    /// # Errors
    /// Those of the source. A file that ends inside of a message is not one of them: the message is bad.
    pub(super) fn next_message(&mut self) -> io::Result<Option<Numbered>> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            match self.field() {
                Ok(Some(message)) => return Ok(Some((self.number, message))),
                Ok(None) => self.number -= 1,
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

    fn give_up(&mut self, reason: String) -> io::Result<Option<Numbered>> {
        io::copy(&mut self.source, &mut io::sink())?;
        Ok(Some((self.number, Err(BadLine::Protobuf { reason }))))
    }

    /// Reads one field of a request; none when it is of no interest.
    fn field(&mut self) -> io::Result<Option<Result<ResourceSpans, BadLine>>> {
        // The lengths say nothing that is not known otherwise; the first byte of a tag is never 0.
        if self.has_lengths && self.source.fill_buf()?.first() == Some(&0) {
            self.skip(4)?;
            return Ok(None);
        }
        let tag = self.varint()?;
        if tag != RESOURCE_SPANS {
            return self.skip_field(tag).map(|()| None);
        }
        let length = self.varint()?;
        if length > self.limit as u64 {
            self.skip(length)?;
            return Ok(Some(Err(BadLine::RecordTooLong { limit: self.limit })));
        }
        let mut bytes = Vec::new();
        let read = self.source.by_ref().take(length).read_to_end(&mut bytes)?;
        if (read as u64) < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let not_spans =
            |error: prost::DecodeError| BadLine::Json(format!("not a ResourceSpans of OTLP: {error}"));
        Ok(Some(ResourceSpans::decode(&bytes[..]).map_err(not_spans)))
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
            _ => Err(invalid(format!("tag {tag} is no field of an OTLP request for traces"))),
        }
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.source.by_ref().take(bytes), &mut io::sink())?;
        if skipped < bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.source.read_exact(&mut byte)?;
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
