//! Converts ids from and to texts: hex, or base64, in which protobuf's own JSON writes bytes.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Accepts base64 with or without padding, because both occur.
const PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PADDING);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, PADDING);

/// Decodes an id from base64 or from pairs of hex digits; `None` for other texts. The length
/// distinguishes both forms of a valid id: hex has 16 or 32 digits, base64 has 11 or 22 characters
/// and possibly `=`.
pub fn bytes_of(text: &str) -> Option<Vec<u8>> {
    base64_of(text, false).or_else(|| hex_of(text))
}

/// Decodes 8 or 16 bytes from base64. With `needs_padding`, accepts only a text that cannot be
/// a word, because it ends in `=`. Returns `None` for other texts.
pub fn base64_of(text: &str, needs_padding: bool) -> Option<Vec<u8>> {
    let fits = match text.len() {
        24 | 12 => text.ends_with('='),
        22 | 11 => !needs_padding,
        _ => false,
    };
    let decoded = fits.then(|| {
        STANDARD
            .decode(text)
            .or_else(|_| URL_SAFE.decode(text))
            .ok()
    })??;
    (decoded.len() == 8 || decoded.len() == 16).then_some(decoded)
}

/// Encodes bytes as base64, with padding.
pub fn standard_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes a base64 text of the standard or the URL-safe alphabet; `None` if it is invalid.
pub fn standard_bytes(text: &str) -> Option<Vec<u8>> {
    let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text));
    decoded.ok()
}

/// Decodes pairs of hex digits; `None` if the text contains anything else.
pub fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    hex_of(text)
}

fn hex_of(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? * 16 + digit(*pair.get(1)?)?) as u8);
    text.as_bytes().chunks(2).map(pair).collect()
}

/// Encodes bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_the_same_bytes() {
        let check = |text: &str, expected: &str| {
            assert_eq!(
                bytes_of(text).map(|bytes| hex(&bytes)).as_deref(),
                Some(expected),
                "{text}"
            );
        };
        let trace = "5b8efff798038103d269b633813fc60c";
        check("5B8EFFF798038103D269B633813FC60C", trace);
        check("W47/95gDgQPSabYzgT/GDA==", trace);
        check("W47/95gDgQPSabYzgT/GDA", trace);
        check("W47_95gDgQPSabYzgT_GDA==", trace);
        check("7uGbfsPBsXQ=", "eee19b7ec3c1b174");
        check("7uGbfsPBsXQ", "eee19b7ec3c1b174");
        check("eee19b7ec3c1b174", "eee19b7ec3c1b174");
        check("", "");
        for wrong in ["xyz", "5b8", "W47/95gDgQPSabYzgT/G!A==", "7uGbfsPBsX=="] {
            assert_eq!(bytes_of(wrong), None, "{wrong}");
        }
        assert_eq!(base64_of("7uGbfsPBsXQ", true), None);
    }
}
