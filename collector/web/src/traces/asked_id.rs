//! Trace and span ids in addresses.

use stroboscope_otlp::trace_id;

use crate::respond::NoPage;

/// Maximum length of a trace's name, in characters.
const NAME_CHARS_MAX: usize = 256;

/// Parses a trace's id, either in hexadecimal digits or as its source wrote it.
pub(super) fn asked_trace(text: &str) -> Result<u128, NoPage> {
    let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let wrong = if is_hex && text.len() > 32 {
        format!("has {} digits", text.len())
    } else if is_hex && text.bytes().all(|byte| byte == b'0') {
        "is all zeros, which means no trace".to_owned()
    } else if text.trim().is_empty() {
        "is empty".to_owned()
    } else if text.chars().count() > NAME_CHARS_MAX {
        format!("is longer than {NAME_CHARS_MAX} characters")
    } else {
        return Ok(trace_id(text));
    };
    let shown: String = text.chars().take(64).collect();
    Err(NoPage::bad_request(format!(
        "The trace id {shown:?} {wrong}: an id is 1 to 32 hexadecimal digits, or the name its source gave it."
    )))
}

/// Parses a span's id.
pub(super) fn asked_span(text: &str) -> Result<u64, NoPage> {
    let is_hex =
        (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
    id.ok_or_else(|| {
        let shown: String = text.chars().take(64).collect();
        NoPage::bad_request(format!(
            "The span id {shown:?} is invalid: write 1 to 16 hexadecimal digits."
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_told_from_what_is_neither() {
        assert_eq!(asked_trace("ff").ok(), Some(255));
        assert_eq!(asked_trace("request-7").ok(), Some(trace_id("request-7")));
        for wrong in [
            "",
            " ",
            "0",
            "00000000000000000000000000000000",
            &"a".repeat(33),
            &"x".repeat(257),
        ] {
            let none = asked_trace(wrong).expect_err(wrong);
            assert_eq!(none.status, axum::http::StatusCode::BAD_REQUEST, "{wrong}");
        }
        assert_eq!(asked_span("0A").ok(), Some(10));
        for wrong in ["", "+1", "xyz", &"1".repeat(17)] {
            assert!(asked_span(wrong).is_err(), "{wrong}");
        }
    }
}
