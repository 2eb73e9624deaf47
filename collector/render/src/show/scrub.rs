//! Shortens texts, and replaces or escapes characters that a terminal would obey.

use std::fmt::Write as _;

/// Replaces characters that a terminal would obey, including line feeds, by U+FFFD. In JSON,
/// [`escaped_json`] escapes such characters instead.
pub fn scrubbed(text: &str) -> String {
    text.replace(|c: char| c.is_control() || is_bidirectional(c), "\u{fffd}")
}

/// Returns an equivalent JSON document in which characters that a terminal would obey are escaped.
pub fn escaped_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        // These characters occur only inside strings, and four hexadecimal digits suffice for each.
        if is_bidirectional(c) || ('\u{7f}'..='\u{9f}').contains(&c) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Reports whether the character changes the direction of adjacent text.
fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Replaces characters that a terminal would obey, except line feeds, by U+FFFD, in a text of this
/// program that may contain untrusted words.
pub fn scrubbed_lines(text: &str) -> String {
    text.split('\n')
        .map(scrubbed)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Shortens a text to at most `max` characters, but not below one. Omits the middle, because both
/// ends of a text such as a segment's name are informative. At least two thirds of the kept
/// characters come from the end.
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
