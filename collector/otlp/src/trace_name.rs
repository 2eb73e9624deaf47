//! Trace ids and names in the notation of their sources.

use twox_hash::XxHash3_128;

/// Returns the id of the trace that a source calls `text`. A number of 1 to 32 hex digits is the id
/// itself, unless it is 0. For any other text, the id is a stable hash of the text (XXH3, 128
/// bits).
#[must_use]
pub fn trace_id(text: &str) -> u128 {
    let is_hex =
        (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u128::from_str_radix(text, 16) {
        Ok(id) if is_hex && id != 0 => id,
        _ => XxHash3_128::oneshot(text.as_bytes()).max(1),
    }
}

/// Returns the name to store with the id, so that output shows the source's notation. Returns
/// `None` if `text` is the id as 32 lower-case hex digits, which needs no name.
#[must_use]
pub fn trace_label(text: &str, id: u128) -> Option<&str> {
    (format!("{id:032x}") != text).then_some(text)
}
