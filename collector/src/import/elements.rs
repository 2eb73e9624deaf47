//! The records of a JSON document, one after the other, without the rest of the document in memory.

use std::io::{self, BufRead};

use super::BadLine;

/// Where the walk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Between documents.
    Outside,
    /// Inside the outermost object.
    Object,
    /// Inside a list of records; `true`: which is a member of the outermost object.
    List(bool),
}

/// Finds the records of JSON documents that follow each other. A record is an element of the outermost array, or of
/// the member `list` of the outermost object, or the outermost object itself when no list is named.
///
/// Only the bounds of records are found here (brackets and strings); what is between them is parsed by their readers.
/// At most `limit` bytes are held: a longer record is skipped and named.
#[derive(Debug)]
pub(super) struct Elements<R> {
    source: R,
    list: Option<&'static str>,
    limit: usize,
    /// Lines begun so far, from 1.
    line: u64,
    place: Place,
}

/// What became of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Whole,
    Cut,
    TooLong,
}

impl<R: BufRead> Elements<R> {
    /// Of `source`, which begins on line `first_line`.
    pub(super) fn new(source: R, list: Option<&'static str>, limit: usize, first_line: u64) -> Self {
        Self { source, list, limit, line: first_line, place: Place::Outside }
    }

    /// Puts the next record into `record`; the number is the line on which it begins. `None` at the end.
    ///
    /// # Errors
    /// Those of the source.
    pub(super) fn next_into(
        &mut self,
        record: &mut Vec<u8>,
    ) -> io::Result<Option<(u64, Result<(), BadLine>)>> {
        loop {
            record.clear();
            let Some(byte) = self.peek()? else {
                let was = std::mem::replace(&mut self.place, Place::Outside);
                let cut = BadLine::Json("the document ends in the middle".to_owned());
                return Ok((was != Place::Outside).then_some((self.line, Err(cut))));
            };
            let line = self.line;
            match (self.place, byte) {
                (Place::Outside, b'[') => self.enter(Place::List(false)),
                (Place::Outside, b'{') if self.list.is_some() => self.enter(Place::Object),
                (Place::Outside, b'{') => return self.record(line, record).map(Some),
                (Place::Outside, _) => {
                    self.skip_to_document()?;
                    return Ok(Some((
                        line,
                        Err(BadLine::Json("expected a JSON object or array".to_owned())),
                    )));
                }
                (_, b',') => self.source.consume(1),
                (Place::Object, b'}') | (Place::List(false), b']') => self.enter(Place::Outside),
                (Place::List(true), b']') => self.enter(Place::Object),
                (Place::Object, b'"') => self.member(record)?,
                (Place::Object, _) | (_, b'}' | b':') => {
                    self.place = Place::Outside;
                    self.skip_to_document()?;
                    let reason = format!("unexpected `{}` between records", char::from(byte));
                    return Ok(Some((line, Err(BadLine::Json(reason)))));
                }
                (Place::List(_), _) => return self.record(line, record).map(Some),
            }
        }
    }

    fn enter(&mut self, place: Place) {
        self.source.consume(1);
        self.place = place;
    }

    /// The next byte that is not white space, still unread.
    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let available = fill(&mut self.source)?;
            if available.is_empty() {
                return Ok(None);
            }
            let blank = |byte: &&u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
            let blanks = available.iter().take_while(blank).count();
            self.line += available[..blanks].iter().filter(|byte| **byte == b'\n').count() as u64;
            let next = available.get(blanks).copied();
            self.source.consume(blanks);
            if next.is_some() {
                return Ok(next);
            }
        }
    }

    /// Reads a key of the outermost object, and then enters the list or skips the value.
    fn member(&mut self, key: &mut Vec<u8>) -> io::Result<()> {
        self.value(key)?;
        if self.peek()? == Some(b':') {
            self.source.consume(1);
        }
        let is_list = self.list.is_some_and(|list| key.trim_ascii() == format!("\"{list}\"").as_bytes());
        match self.peek()? {
            Some(b'[') if is_list => self.enter(Place::List(true)),
            Some(b'}' | b',') | None => {}
            Some(_) => {
                self.value(key)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, line: u64, record: &mut Vec<u8>) -> io::Result<(u64, Result<(), BadLine>)> {
        Ok(match self.value(record)? {
            Ended::Whole => (line, Ok(())),
            Ended::TooLong => (line, Err(BadLine::RecordTooLong { limit: self.limit })),
            Ended::Cut => {
                self.place = Place::Outside;
                (line, Err(BadLine::Json("a record is cut".to_owned())))
            }
        })
    }

    /// Reads one value, which begins with the next byte, into `value`.
    fn value(&mut self, value: &mut Vec<u8>) -> io::Result<Ended> {
        value.clear();
        let mut extent = Extent::default();
        let mut is_too_long = false;
        loop {
            let available = fill(&mut self.source)?;
            if available.is_empty() {
                return Ok(if extent.is_scalar() && !value.is_empty() { Ended::Whole } else { Ended::Cut });
            }
            let (part, found) = extent.walk(available);
            self.line += available[..part].iter().filter(|byte| **byte == b'\n').count() as u64;
            is_too_long |= value.len() + part > self.limit;
            if !is_too_long {
                value.extend_from_slice(&available[..part]);
            }
            self.source.consume(part);
            match found {
                None => {}
                Some(Ended::Whole) if is_too_long => {
                    value.clear();
                    return Ok(Ended::TooLong);
                }
                Some(ended) => return Ok(ended),
            }
        }
    }

    /// Skips what cannot be used, up to the next line that begins a document in its first column.
    fn skip_to_document(&mut self) -> io::Result<()> {
        let mut is_line_start = false;
        loop {
            let available = fill(&mut self.source)?;
            let Some(&byte) = available.first() else { return Ok(()) };
            if is_line_start && (byte == b'{' || byte == b'[') {
                return Ok(());
            }
            let rest = available.iter().position(|byte| *byte == b'\n');
            is_line_start = rest.is_some();
            self.line += u64::from(is_line_start);
            let skipped = rest.map_or(available.len(), |at| at + 1);
            self.source.consume(skipped);
        }
    }
}

fn fill(source: &mut impl BufRead) -> io::Result<&[u8]> {
    // Asked again after an interruption; a loop around the borrow itself is more than the borrow checker accepts.
    while let Err(error) = source.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    source.fill_buf()
}

/// How far a value reaches.
#[derive(Default)]
struct Extent {
    depth: u32,
    is_in_string: bool,
    is_escaped: bool,
    is_begun: bool,
}

impl Extent {
    fn is_scalar(&self) -> bool {
        self.depth == 0 && !self.is_in_string
    }

    /// Walks over more bytes of the value: how many of them are its own, and how it ended, if it did.
    fn walk(&mut self, bytes: &[u8]) -> (usize, Option<Ended>) {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.is_in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => {
                        self.is_in_string = false;
                        if self.depth == 0 {
                            return (at + 1, Some(Ended::Whole));
                        }
                    }
                    // No string of JSON holds one: the record was cut, and the next line may begin another.
                    b'\n' => return (at, Some(Ended::Cut)),
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' if self.depth > 0 || !self.is_begun => self.is_in_string = true,
                b'{' | b'[' if self.depth > 0 || !self.is_begun => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return (at + 1, Some(Ended::Whole));
                    }
                }
                b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => {
                    return (at, Some(Ended::Whole));
                }
                _ => {}
            }
            self.is_begun = true;
        }
        (bytes.len(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    /// The records of a text, or what is wrong, each with its line; the same whatever the size of the buffer.
    fn check(text: &str, list: Option<&'static str>, expected: &[(u64, &str)]) {
        for buffer in [1, 2, 7, 4_096] {
            let mut elements = Elements::new(BufReader::with_capacity(buffer, text.as_bytes()), list, 40, 1);
            let (mut record, mut found) = (Vec::new(), Vec::new());
            while let Some((line, read)) = elements.next_into(&mut record).unwrap() {
                let text = String::from_utf8(record.clone()).unwrap();
                found.push((line, read.map_or_else(|reason| format!("! {reason}"), |()| text)));
            }
            let expected: Vec<_> = expected.iter().map(|(line, text)| (*line, (*text).to_owned())).collect();
            assert_eq!(found, expected, "{text}, {buffer}");
        }
    }

    #[test]
    fn records_are_found() {
        check("", None, &[]);
        check(" [ ] ", None, &[]);
        check(
            "[1, \"a,]\" ,{}\n,[[2]], null]",
            None,
            &[(1, "1"), (1, "\"a,]\""), (1, "{}"), (2, "[[2]]"), (2, "null")],
        );
        check("{\"a\":[1]}\n{\"b\":\"\\\"}\"}", None, &[(1, "{\"a\":[1]}"), (2, "{\"b\":\"\\\"}\"}")]);
        check(
            "{\"x\":{\"data\":[9]},\"data\":[{\"a\":1},\n2],\"y\":3}",
            Some("data"),
            &[(1, "{\"a\":1}"), (2, "2")],
        );
        check("{\"data\":null,\"errors\":[1]}{\"data\":[5]}", Some("data"), &[(1, "5")]);
    }

    #[test]
    fn flaws_are_named_and_the_rest_is_found() {
        check("[1, {\"a\": ", None, &[(1, "1"), (1, "! a record is cut")]);
        check("{\"data\": [", Some("data"), &[(1, "! the document ends in the middle")]);
        check("oh\n no\n[1]", None, &[(1, "! expected a JSON object or array"), (3, "1")]);
        check("[{\"a\":\"b\n{\"c\":1}", None, &[(1, "! a record is cut"), (2, "{\"c\":1}")]);
        check("{a:1}\n{\"data\":[7]}", Some("data"), &[(1, "! unexpected `a` between records"), (2, "7")]);
        let long = format!("[\"{}\",1]", "x".repeat(50));
        check(&long, None, &[(1, "! the record is longer than 40 bytes"), (1, "1")]);
    }
}
