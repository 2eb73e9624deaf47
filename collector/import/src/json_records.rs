//! Iterates over the records of a JSON document without keeping the rest of the document in memory.

use std::io::{self, BufRead};

use super::BadLine;
use super::layout::{Layout, List, MemberStep};

/// Part of a document in which [`JsonRecords`] currently reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Between documents.
    Outside,
    /// Inside an object whose members are read.
    Object,
    /// Inside a list of records; `true` if the list is a member of an object.
    List(List, bool),
}

/// Finds the records of consecutive JSON documents, at the places that a [`Layout`] defines. The
/// elements of an outermost array are records in any layout.
///
/// The walk only finds the bounds of records (brackets and strings); the readers of records parse
/// the content. At most `limit` bytes of a record are held in memory: a longer one is skipped and
/// reported.
#[derive(Debug)]
pub(super) struct JsonRecords<'a, R> {
    source: R,
    layout: &'a Layout,
    limit: usize,
    /// Number of the current line, from 1.
    line: u64,
    place: Place,
    /// Number of objects entered inside the document's outermost object.
    depth: usize,
    key: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextRecord {
    /// A record, with the type of its list; [`List::Any`] if it is in no list of known type.
    Record(List),
    /// Value of an object's member that contains no records. [`JsonRecords::key`] returns its key.
    Member,
    /// The source ends in an outermost array, but not inside an element.
    OpenList,
    /// A defect of a document or a record.
    Bad(BadLine),
}

/// Outcome of reading a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueEnd {
    Whole,
    Cut,
    TooLong,
}

impl<'a, R: BufRead> JsonRecords<'a, R> {
    /// Creates a walk over `source`, which begins on line `first_line`.
    pub(super) fn new(source: R, layout: &'a Layout, limit: usize, first_line: u64) -> Self {
        Self {
            source,
            layout,
            limit,
            line: first_line,
            place: Place::Outside,
            depth: 0,
            key: String::new(),
        }
    }

    /// Returns the key of the member found last.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Reads the next record, or the value of the next member, into `record`. Returns its kind
    /// and the line on which it begins, or `None` at the end.
    ///
    /// # Errors
    /// Returns the errors of the source.
    pub(super) fn next_into(
        &mut self,
        record: &mut Vec<u8>,
    ) -> io::Result<Option<(u64, NextRecord)>> {
        let bad = |what: String| NextRecord::Bad(BadLine::Json(what));
        loop {
            record.clear();
            let Some(byte) = self.peek()? else {
                let found = match std::mem::replace(&mut self.place, Place::Outside) {
                    Place::Outside => return Ok(None),
                    Place::List(_, false) => NextRecord::OpenList,
                    _ => bad("the document ends in the middle".to_owned()),
                };
                return Ok(Some((self.line, found)));
            };
            let line = self.line;
            match (self.place, byte) {
                (Place::Outside, b'[') => self.enter(Place::List(List::Any, false)),
                (Place::Outside, b'{') if *self.layout == Layout::Whole => {
                    return self.record(List::Any, record).map(Some);
                }
                (Place::Outside, b'{') => {
                    self.depth = 0;
                    self.enter(Place::Object);
                }
                (Place::Outside, _) => {
                    self.skip_to_document()?;
                    let what = "expected a JSON object or array".to_owned();
                    return Ok(Some((line, bad(what))));
                }
                (_, b',') => self.source.consume(1),
                (Place::Object, b'}') if self.depth > 0 => {
                    self.depth -= 1;
                    self.source.consume(1);
                }
                (Place::Object, b'}') | (Place::List(_, false), b']') => self.enter(Place::Outside),
                (Place::List(_, true), b']') => self.enter(Place::Object),
                (Place::Object, b'"') => {
                    if let Some(found) = self.member(record)? {
                        return Ok(Some(found));
                    }
                }
                (Place::Object, _) | (_, b'}' | b':') => {
                    self.place = Place::Outside;
                    self.skip_to_document()?;
                    let what = format!("unexpected `{}` between records", char::from(byte));
                    return Ok(Some((line, bad(what))));
                }
                (Place::List(list, _), _) => return self.record(list, record).map(Some),
            }
        }
    }

    fn enter(&mut self, place: Place) {
        self.source.consume(1);
        self.place = place;
    }

    /// Returns the next byte that belongs neither to white space nor to a byte order mark, without
    /// consuming it; `None` at the end of the source.
    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let available = fill(&mut self.source)?;
            if available.is_empty() {
                return Ok(None);
            }
            let blank = |byte: &&u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
            let blanks = available.iter().take_while(blank).count();
            self.line += line_ends(&available[..blanks]);
            let next = available.get(blanks).copied();
            self.source.consume(blanks);
            if next.is_some() {
                return Ok(next);
            }
        }
    }

    /// Reads a key, and then enters its value or reads it, as the layout decides. Returns `None` if
    /// it entered the value, or if there is no value.
    fn member(&mut self, value: &mut Vec<u8>) -> io::Result<Option<(u64, NextRecord)>> {
        self.value(value)?;
        self.key.clear();
        let key = serde_json::from_slice(value)
            .unwrap_or_else(|_| String::from_utf8_lossy(value).into_owned());
        self.key.push_str(&key);
        value.clear();
        if self.peek()? == Some(b':') {
            self.source.consume(1);
        }
        let opening = match self.peek()? {
            None | Some(b'}' | b',') => return Ok(None),
            Some(opening) => opening,
        };
        match self.layout.step(self.depth, &self.key, opening) {
            MemberStep::List(list) => self.enter(Place::List(list, true)),
            MemberStep::Enter => {
                self.depth += 1;
                self.source.consume(1);
            }
            MemberStep::Record => return self.record(List::Any, value).map(Some),
            MemberStep::Member => {
                return Ok(Some(match self.record(List::Any, value)? {
                    (line, NextRecord::Record(_)) => (line, NextRecord::Member),
                    flaw => flaw,
                }));
            }
        }
        Ok(None)
    }

    fn record(&mut self, list: List, record: &mut Vec<u8>) -> io::Result<(u64, NextRecord)> {
        let line = self.line;
        let found = match self.value(record)? {
            ValueEnd::Whole => NextRecord::Record(list),
            ValueEnd::TooLong => NextRecord::Bad(BadLine::RecordTooLong { limit: self.limit }),
            ValueEnd::Cut => {
                self.place = Place::Outside;
                NextRecord::Bad(BadLine::Json("a record is cut".to_owned()))
            }
        };
        Ok((line, found))
    }

    /// Reads one value, which begins with the next byte, into `value`. Skips a value that is longer
    /// than the limit.
    fn value(&mut self, value: &mut Vec<u8>) -> io::Result<ValueEnd> {
        value.clear();
        let mut extent = Extent::default();
        let mut is_too_long = false;
        loop {
            let available = fill(&mut self.source)?;
            if available.is_empty() {
                return Ok(match extent.is_scalar() {
                    true if is_too_long => ValueEnd::TooLong,
                    true if !value.is_empty() => ValueEnd::Whole,
                    _ => ValueEnd::Cut,
                });
            }
            let (part, found) = extent.walk(available);
            self.line += line_ends(&available[..part]);
            is_too_long |= value.len() + part > self.limit;
            if !is_too_long {
                value.extend_from_slice(&available[..part]);
            }
            self.source.consume(part);
            match found {
                None => {}
                Some(ValueEnd::Whole) if is_too_long => {
                    value.clear();
                    return Ok(ValueEnd::TooLong);
                }
                Some(ended) => return Ok(ended),
            }
        }
    }

    /// Skips unusable input up to the next line that begins a document in its first column.
    fn skip_to_document(&mut self) -> io::Result<()> {
        let mut is_line_start = false;
        loop {
            let available = fill(&mut self.source)?;
            let Some(&byte) = available.first() else {
                return Ok(());
            };
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

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

fn fill(source: &mut impl BufRead) -> io::Result<&[u8]> {
    // Retries after an interruption. The borrow checker does not accept a loop around the borrow
    // itself.
    while let Err(error) = source.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    source.fill_buf()
}

/// Finds the end of a JSON value whose bytes arrive in several buffers.
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

    /// Walks over more bytes of the value. Returns the number of bytes that belong to the value
    /// and, if the value ended, the outcome.
    fn walk(&mut self, bytes: &[u8]) -> (usize, Option<ValueEnd>) {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.is_in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => {
                        self.is_in_string = false;
                        if self.depth == 0 {
                            return (at + 1, Some(ValueEnd::Whole));
                        }
                    }
                    // A JSON string never contains a line feed: the record was cut, and the next
                    // line may begin another.
                    b'\n' => return (at, Some(ValueEnd::Cut)),
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
                        return (at + 1, Some(ValueEnd::Whole));
                    }
                }
                b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => {
                    return (at, Some(ValueEnd::Whole));
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

    /// Checks the records, members and defects of a text, each with its line, with buffers of
    /// several sizes.
    fn check(text: &str, layout: &Layout, expected: &[(u64, &str)]) {
        for buffer in [1, 2, 7, 4_096] {
            let mut elements = JsonRecords::new(
                BufReader::with_capacity(buffer, text.as_bytes()),
                layout,
                40,
                1,
            );
            let (mut record, mut found) = (Vec::new(), Vec::new());
            while let Some((line, what)) = elements.next_into(&mut record).unwrap() {
                let text = String::from_utf8(record.clone()).unwrap();
                found.push(match what {
                    NextRecord::Record(List::Any) => (line, text),
                    NextRecord::Record(list) => (line, format!("{list:?} {text}")),
                    NextRecord::Member => (line, format!("{}={text}", elements.key())),
                    NextRecord::OpenList => (line, "! open".to_owned()),
                    NextRecord::Bad(reason) => (line, format!("! {reason}")),
                });
            }
            let expected: Vec<_> = expected
                .iter()
                .map(|(line, text)| (*line, (*text).to_owned()))
                .collect();
            assert_eq!(found, expected, "{text}, {buffer}");
        }
    }

    #[test]
    fn records_are_found() {
        let (whole, known) = (&Layout::Whole, &Layout::Known);
        check("", whole, &[]);
        check(" [ ] ", whole, &[]);
        check(
            "[1, \"a,]\" ,{}\n,[[2]], null]",
            whole,
            &[
                (1, "1"),
                (1, "\"a,]\""),
                (1, "{}"),
                (2, "[[2]]"),
                (2, "null"),
            ],
        );
        check(
            "{\"a\":[1]}\n{\"b\":\"\\\"}\"}",
            whole,
            &[(1, "{\"a\":[1]}"), (2, "{\"b\":\"\\\"}\"}")],
        );
        check(
            "{\"x\":{\"data\":[9]},\"data\":[{\"a\":1},\n2],\"y\":3}",
            known,
            &[
                (1, "x={\"data\":[9]}"),
                (1, "{\"a\":1}"),
                (2, "2"),
                (2, "y=3"),
            ],
        );
        check(
            "{\"data\":null,\"e\":[1]}{\"data\":[5]}",
            known,
            &[(1, "data=null"), (1, "e=[1]"), (1, "5")],
        );
        check(
            "{\"result\":{\"resourceSpans\":[1],\"z\":2}, \"resource_logs\":[3]} {\"trace\":{\"batches\":[4]}}",
            known,
            &[(1, "Spans 1"), (1, "z=2"), (1, "Logs 3"), (1, "Spans 4")],
        );
        check(
            "{\"hits\":{\"total\":{},\"hits\":[{}]}}",
            known,
            &[(1, "total={}"), (1, "{}")],
        );
        check(
            "{\"_id\":1,\"_source\":{\"a\":1}}",
            known,
            &[(1, "_id=1"), (1, "{\"a\":1}")],
        );
        check(
            "{\"events\":[[1]],\"v\":\"x\"}",
            &Layout::Kutrace,
            &[(1, "KutraceRows [1]"), (1, "v=\"x\"")],
        );
        let path = Layout::Path(vec!["a".to_owned(), "b".to_owned()]);
        check(
            "{\"b\":1,\"a\":{\"b\":[2,\n3]}}{\"a\":{\"b\":{}}}",
            &path,
            &[(1, "b=1"), (1, "2"), (2, "3"), (2, "{}")],
        );
    }

    #[test]
    fn flaws_are_named_and_the_rest_is_found() {
        let (whole, known) = (&Layout::Whole, &Layout::Known);
        check("[1, {\"a\": ", whole, &[(1, "1"), (1, "! a record is cut")]);
        check("[1, 2,", whole, &[(1, "1"), (1, "2"), (1, "! open")]);
        check(
            "{\"data\": [",
            known,
            &[(1, "! the document ends in the middle")],
        );
        check(
            "oh\n no\n[1]",
            whole,
            &[(1, "! expected a JSON object or array"), (3, "1")],
        );
        check(
            "[{\"a\":\"b\n{\"c\":1}",
            whole,
            &[(1, "! a record is cut"), (2, "{\"c\":1}")],
        );
        check(
            "{a:1}\n{\"data\":[7]}",
            known,
            &[(1, "! unexpected `a` between records"), (2, "7")],
        );
        let long = format!("[\"{}\",1]", "x".repeat(50));
        check(
            &long,
            whole,
            &[(1, "! the record is longer than 40 bytes"), (1, "1")],
        );
    }
}
