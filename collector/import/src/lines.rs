//! Lines of bounded length.

use std::io::{self, BufRead};

use super::BadLine;

/// Reads lines of at most `limit` bytes; keeps nothing of longer ones.
#[derive(Debug)]
pub struct Lines<R> {
    source: R,
    limit: usize,
    number: u64,
    bytes: u64,
}

impl<R: BufRead> Lines<R> {
    /// Creates a reader of the lines of `source`. It reports lines of more than `limit` bytes, not
    /// counting the line feed, as too long.
    pub fn new(source: R, limit: usize) -> Self {
        Self {
            source,
            limit,
            number: 0,
            bytes: 0,
        }
    }

    /// Returns the number of the last line read, from 1; 0 before the first.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of bytes read so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the next line into `line`, without its end and, for the first line, without a byte
    /// order mark. Returns `None` at the end of the source. The inner error means that the line is
    /// too long; the next call continues after it.
    ///
    /// # Errors
    /// Returns the errors of the source.
    pub fn next_into(&mut self, line: &mut Vec<u8>) -> io::Result<Option<Result<(), BadLine>>> {
        line.clear();
        let mut is_too_long = false;
        let mut is_empty = true;
        loop {
            let available = match self.source.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                available => available?,
            };
            if available.is_empty() {
                break;
            }
            is_empty = false;
            let end = memchr::memchr(b'\n', available);
            let part = &available[..end.unwrap_or(available.len())];
            is_too_long |= line.len() + part.len() > self.limit;
            if !is_too_long {
                line.extend_from_slice(part);
            }
            let consumed = part.len() + usize::from(end.is_some());
            self.bytes += consumed as u64;
            self.source.consume(consumed);
            if end.is_some() {
                break;
            }
        }
        if is_empty {
            return Ok(None);
        }
        self.number += 1;
        if is_too_long {
            line.clear();
            return Ok(Some(Err(BadLine::TooLong { limit: self.limit })));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if self.number == 1 && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        Ok(Some(Ok(())))
    }
}
