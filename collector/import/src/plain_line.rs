//! Fast parser for the common form of event lines, which works in place.
//!
//! A plain line contains only the known fields except `ts`, each at most once. Its texts have no
//! escapes, its time `ts_ns` consists of digits, and its attributes are a flat object or null. The
//! values of attributes are texts, short integers, booleans or null. This parser reads such a line
//! without allocating a tree, and copies only the attributes. A general parser such as
//! [`parse`](super::parse) reads any other line, and reports its defects.

use super::line::LogEvent;
use stroboscope_store::limits::Limits;

/// Maximum number of attributes of a plain line; repeated keys are found by linear search.
const ATTRIBUTES_MAX: usize = 16;
/// Maximum number of digits of an integer attribute. It guarantees that the integer fits and is
/// written exactly as it was read.
const INTEGER_DIGITS_MAX: usize = 18;

/// Parses a plain line without its end. `None` means that the line is not plain, exceeds a limit,
/// lacks a field other than `attrs`, has an empty `trace`, `event` or `task`, or has a time of more
/// than 63 bits. Writes the attributes to `json` as a general parser would: without spaces.
#[must_use]
pub fn parse_plain<'a>(
    line: &'a [u8],
    json: &'a mut String,
    limits: &Limits,
) -> Option<LogEvent<'a>> {
    json.clear();
    let text = std::str::from_utf8(line).ok()?;
    let mut cursor = Cursor { text, at: 0 };
    let (mut trace, mut host, mut event, mut task) = (None, None, None, None);
    let (mut time_ns, mut has_attributes) = (None, false);
    cursor.expect(b'{')?;
    loop {
        let key = cursor.string()?;
        cursor.expect(b':')?;
        let slot = match key {
            "trace" => &mut trace,
            "host" => &mut host,
            "event" => &mut event,
            "task" => &mut task,
            "ts_ns" if time_ns.is_none() => {
                time_ns = Some(cursor.time()?);
                if cursor.is_last()? { break } else { continue }
            }
            "attrs" if !has_attributes => {
                has_attributes = true;
                cursor.attributes(json, limits)?;
                if cursor.is_last()? { break } else { continue }
            }
            _ => return None,
        };
        let value = cursor.string()?;
        if slot.is_some() || value.len() > limits.string_bytes_max {
            return None;
        }
        *slot = Some(value);
        if cursor.is_last()? {
            break;
        }
    }
    cursor.skip_blanks();
    let (trace, event, task) = (trace?, event?, task?);
    if cursor.at < line.len() || trace.is_empty() || event.is_empty() || task.is_empty() {
        return None;
    }
    let attributes = (json.len() > 2).then_some(&**json);
    Some(LogEvent {
        trace,
        host: host?,
        time_ns: time_ns?,
        event,
        task,
        attributes,
    })
}

/// Reader of a line, with its position.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Consumes `byte` and the blanks before it; returns `None` if another byte, or none, follows.
    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_blanks();
        (self.byte()? == byte).then(|| self.at += 1)
    }

    /// Consumes the separator after a member of an object, and returns true if that member is the
    /// last; `None` if another byte, or none, follows.
    fn is_last(&mut self) -> Option<bool> {
        self.skip_blanks();
        let byte = self.byte()?;
        self.at += 1;
        match byte {
            b',' => Some(false),
            b'}' => Some(true),
            _ => None,
        }
    }

    /// Reads a text without escapes; `None` if the next value is not such a text.
    fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let rest = self.text.as_bytes().get(self.at..)?;
        let is_end = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
        let length = rest.iter().position(is_end)?;
        if rest[length] != b'"' {
            return None;
        }
        let text = self.text.get(self.at..self.at + length)?;
        self.at += length + 1;
        Some(text)
    }

    /// Reads digits. Returns `None` if there are none, if they begin with a zero that is not the
    /// only digit, or if a fraction or an exponent follows.
    fn digits(&mut self) -> Option<&'a str> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let is_plain = length == 1 || length > 1 && rest[0] != b'0';
        let is_whole = !matches!(rest.get(length), Some(b'.' | b'e' | b'E'));
        if !is_plain || !is_whole {
            return None;
        }
        let digits = self.text.get(self.at..self.at + length);
        self.at += length;
        digits
    }

    fn time(&mut self) -> Option<i64> {
        self.skip_blanks();
        self.digits()?.parse().ok()
    }

    /// Reads a flat object and writes it to `json`; writes nothing for `null`. Returns `None` if
    /// the attributes are not plain, or too many.
    fn attributes(&mut self, json: &mut String, limits: &Limits) -> Option<()> {
        self.skip_blanks();
        if self.byte()? == b'n' {
            return (self.literal()? == "null").then_some(());
        }
        self.expect(b'{')?;
        json.push('{');
        self.skip_blanks();
        if self.byte()? == b'}' {
            self.at += 1;
            json.push('}');
            return Some(());
        }
        let mut keys = [""; ATTRIBUTES_MAX];
        for count in 0..ATTRIBUTES_MAX.min(limits.attributes_per_record_max) {
            let key = self.string()?;
            if keys[..count].contains(&key) {
                return None;
            }
            keys[count] = key;
            self.expect(b':')?;
            if count > 0 {
                json.push(',');
            }
            push_string(json, key);
            json.push(':');
            self.value(json)?;
            if self.is_last()? {
                json.push('}');
                return Some(());
            }
        }
        None
    }

    fn value(&mut self, json: &mut String) -> Option<()> {
        self.skip_blanks();
        match self.byte()? {
            b'"' => push_string(json, self.string()?),
            b'0'..=b'9' => {
                let digits = self.digits()?;
                (digits.len() <= INTEGER_DIGITS_MAX).then(|| json.push_str(digits))?;
            }
            b'-' => {
                self.at += 1;
                // Minus zero is a floating-point number.
                let is_short = |digits: &&str| digits.len() <= INTEGER_DIGITS_MAX && *digits != "0";
                let digits = self.digits().filter(is_short)?;
                json.push('-');
                json.push_str(digits);
            }
            _ => json.push_str(self.literal()?),
        }
        Some(())
    }

    fn literal(&mut self) -> Option<&'static str> {
        let rest = self.text.get(self.at..)?;
        let mut literals = ["true", "false", "null"].into_iter();
        let literal = literals.find(|literal| rest.starts_with(literal))?;
        self.at += literal.len();
        Some(literal)
    }
}

/// Writes a text that had no escapes in the source and therefore needs none.
fn push_string(json: &mut String, text: &str) {
    json.push('"');
    json.push_str(text);
    json.push('"');
}
