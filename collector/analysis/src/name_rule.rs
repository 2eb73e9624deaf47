//! Replaces ids in names, so that names that differ only in ids become equal.
//!
//! A service should have few span names, but some services put ids into them (`GET /users/4711`).
//! Segments of different traces are matched by name, so ids would hide their relations. The rule:
//!
//! 1. A *word* is a run of letters, digits, `-` and `_`; everything else separates words.
//! 2. A word becomes `*` if it is all ASCII digits, a hexadecimal id, or a UUID. A hexadecimal id
//!    has at least 8 hex digits, and a UUID 8-4-4-4-12. Both must contain a decimal digit.
//! 3. Inside any other word, a piece between `-` or `_` becomes `*` if it is a hexadecimal id or
//!    consists of at least 5 digits. So `order-48213` becomes `order-*`, but `phase-2` stays.

use std::borrow::Cow;

/// Minimum length of a run of hex digits that counts as an id.
const HEX_ID_DIGITS_MIN: usize = 8;
/// Minimum length of a run of digits, joined to a word by `-` or `_`, that counts as an id.
const JOINED_DIGITS_MIN: usize = 5;

/// Returns the name with its ids replaced by `*`. Borrows when there is nothing to replace.
pub fn normalise(name: &str) -> Cow<'_, str> {
    // Every id contains a decimal digit; most names contain none.
    if !name.bytes().any(|b| b.is_ascii_digit()) {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while !rest.is_empty() {
        let word_len = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        push_word(&mut out, &rest[..word_len]);
        rest = &rest[word_len..];
        let gap_len = rest.find(is_word).unwrap_or(rest.len());
        out.push_str(&rest[..gap_len]);
        rest = &rest[gap_len..];
    }
    if out == name {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(out)
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '-' || c == '_'
}

fn push_word(out: &mut String, word: &str) {
    if is_digits(word) || is_hex_id(word) || is_uuid(word) {
        out.push('*');
        return;
    }
    for piece in word.split_inclusive(['-', '_']) {
        let (body, joint) = match piece.char_indices().next_back() {
            Some((at, '-' | '_')) => piece.split_at(at),
            _ => (piece, ""),
        };
        let is_id = is_hex_id(body) || (is_digits(body) && body.len() >= JOINED_DIGITS_MIN);
        out.push_str(if is_id { "*" } else { body });
        out.push_str(joint);
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_hex_id(text: &str) -> bool {
    text.len() >= HEX_ID_DIGITS_MIN
        && text.bytes().all(|b| b.is_ascii_hexdigit())
        && text.bytes().any(|b| b.is_ascii_digit())
}

fn is_uuid(text: &str) -> bool {
    let mut lengths = [8, 4, 4, 4, 12].into_iter();
    text.len() == 36
        && text.bytes().any(|b| b.is_ascii_digit())
        && text.split('-').all(|part| {
            lengths.next() == Some(part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: &str) {
        assert_eq!(normalise(name), expected);
        assert_eq!(
            normalise(expected),
            expected,
            "the rule changes its own result"
        );
    }

    #[test]
    fn ids_become_stars_and_names_stay() {
        check("", "");
        check("read", "read");
        check("GET /users/4711/posts", "GET /users/*/posts");
        check("GET /users/4711", "GET /users/*");
        check("item 7", "item *");
        check("7", "*");
        check("v2", "v2");
        check("/api/v2/7", "/api/v2/*");
        check("sha256", "sha256");
        check("get:deadbee1", "get:*");
        check("get:deadbeef", "get:deadbeef"); // no decimal digit: a word
        check("get:dead1", "get:dead1"); // too short
        check("get:DEADBEE1?x=1", "get:*?x=*");
        check("/o/550e8400-e29b-41d4-a716-446655440000/x", "/o/*/x");
        check(
            "/o/aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
            "/o/aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
        );
        check("order-48213", "order-*");
        check("phase-2", "phase-2");
        check("job_4bf92f3577b34da6_done", "job_*_done");
        check("10.0.0.1", "*.*.*.*");
        check("größe 12 µs", "größe * µs");
        check("-_-1_", "-_-1_");
        check("日本語123/４５", "日本語123/４５");
    }
}
