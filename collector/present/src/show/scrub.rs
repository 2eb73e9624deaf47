//! Texts of others without characters that a terminal would obey, and as short as they are wanted.

use std::fmt::Write as _;

/// Returns the text without characters that a terminal would obey. Each text of others passes here on its way to it.
#[must_use]
pub fn scrubbed(text: &str) -> String {
    text.replace(|c: char| c.is_control() || is_bidirectional(c), "\u{fffd}")
}

/// A JSON document of the same meaning without characters that a terminal would obey, which are escaped.
#[must_use]
pub fn escaped_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        // They stand inside strings only, and all of them have 16 bits.
        if is_bidirectional(c) || ('\u{7f}'..='\u{9f}').contains(&c) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns whether the character turns around what stands beside it.
fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns our own text, which may have several lines, without such characters of others' words in it.
#[must_use]
pub fn scrubbed_lines(text: &str) -> String {
    text.split('\n')
        .map(scrubbed)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns at most so many characters of a text. Those left out are in the middle: a segment's name begins with its request and
/// ends with its events. Of what is kept, two thirds are its end, which tells more.
#[must_use]
pub fn shortened(text: &str, max: usize) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let kept = max.saturating_sub(1);
    let (head, tail) = (kept / 3, kept - kept / 3);
    text.chars()
        .take(head)
        .chain(['…'])
        .chain(text.chars().skip(count - tail))
        .collect()
}
