//! Event lines as nearly all of them are, parsed in place.
//!
//! A plain line holds the known fields only, each once, with texts without escapes, a time of plain digits, and a flat
//! object of attributes whose values are texts, short integers, booleans or null. Such a line is read several times
//! faster than by a general parser, and nothing is copied. Any other line is none of this file's business: it goes
//! to [`parse`](super::parse), which alone says what is wrong with a line.

use super::line::LogEvent;
use stroboscope_store::limits::Limits;

/// Most attributes of a plain line: repeated keys are looked for one by one.
const ATTRIBUTES_MAX: usize = 16;
/// Digits of an integer attribute, so that it surely fits and is written as it was read.
const INTEGER_DIGITS_MAX: usize = 18;

/// Reads a plain line without its end. None says nothing about the line but that it is not plain. The attributes are
/// written to `json` as a general parser would write them: without spaces.
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

/// A place in a line.
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

    /// The next byte that is not blank, which must be this one.
    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_blanks();
        (self.byte()? == byte).then(|| self.at += 1)
    }

    /// Whether a member of an object is its last.
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

    /// A text without escapes.
    fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let rest = self.text.as_bytes().get(self.at..)?;
        let length = rest
            .iter()
            .position(|byte| *byte == b'"' || *byte == b'\\' || *byte < 0x20)?;
        if rest[length] != b'"' {
            return None;
        }
        let text = self.text.get(self.at..self.at + length)?;
        self.at += length + 1;
        Some(text)
    }

    /// Digits, without a leading zero and with nothing after them that would make them another number.
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

    /// A flat object, written to `json`; nothing is written for `null`.
    fn attributes(&mut self, json: &mut String, limits: &Limits) -> Option<()> {
        self.skip_blanks();
        if self.byte()? == b'n' {
            return self
                .literal()
                .filter(|literal| *literal == "null")
                .map(|_| ());
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
            b'0'..=b'9' => json.push_str(
                self.digits()
                    .filter(|digits| digits.len() <= INTEGER_DIGITS_MAX)?,
            ),
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
        let literal = ["true", "false", "null"]
            .into_iter()
            .find(|literal| rest.starts_with(literal))?;
        self.at += literal.len();
        Some(literal)
    }
}

/// A text that was written without escapes needs none.
fn push_string(json: &mut String, text: &str) {
    json.push('"');
    json.push_str(text);
    json.push('"');
}
