//! Patterns of values: finds matches in texts, and replaces them by a mask.

use std::ops::Range;

use regex::bytes::Regex;

/// Replacement of a match in a text. It hides the length of the match, too.
pub(super) const MASK: &str = "****";
/// Maximum size of a compiled pattern, in bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Maximum length to which masks may lengthen a text, in bytes. Otherwise, masks of short matches
/// could lengthen a text above the limit on strings, and the collector would reject it.
const LENGTHENED_BYTES_MAX: usize = 1 << 10;

/// Patterns with a name.
const NAMED: [(&str, &str); 4] = [
    ("bearer", r"(?i:\bbearer) +[A-Za-z0-9._~+/-]{16,}=*"),
    // Without separators, or with those on cards: groups of 4-4-4-4, 4-6-5 and 4-6-4 digits.
    (
        "card",
        r"[2-6][0-9]{12,18}|[2-6][0-9]{3}(?:[ -][0-9]{4}){3}|3[0-9]{3}[ -][0-9]{6}[ -][0-9]{4,5}",
    ),
    ("email", r"[\w.%+-]+@[\w-]+(?:\.[\w-]+)+"),
    (
        "jwt",
        r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    ),
];

/// Error: the text is not a pattern of values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// The regular expression is invalid or too large; contains the reason.
    #[error(
        "{0}\ncorrect or shorten the pattern; a backslash makes the next character stand for itself"
    )]
    Regex(String),
    #[error("no pattern is named {{{0}}}: write {{bearer}}, {{card}}, {{email}} or {{jwt}}")]
    Name(String),
    #[error(
        "the pattern matches the empty text or the mask ****: write one that matches only texts to hide, \
         for example + instead of *"
    )]
    TooWide,
}

/// Pattern of values to mask.
#[derive(Clone, Debug)]
pub(super) struct ValuePattern {
    regex: Regex,
    /// True if a match must also pass as a card number (see [`is_card`]).
    is_card: bool,
}

impl ValuePattern {
    /// Parses a regular expression, or the name of a pattern in braces. An opening brace cannot
    /// begin a regular expression.
    pub(super) fn new(text: &str) -> Result<Self, BadPattern> {
        let name = text
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'));
        let regex = match name {
            None => text,
            Some(name) => {
                let named = NAMED.iter().find(|named| named.0 == name);
                named.ok_or_else(|| BadPattern::Name(name.to_owned()))?.1
            }
        };
        let wrong = |error: regex::Error| BadPattern::Regex(error.to_string());
        // The first build rejects expressions that match a part of a character.
        regex::RegexBuilder::new(regex)
            .size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(wrong)?;
        let compiled = regex::bytes::RegexBuilder::new(regex)
            .size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(wrong)?;
        if compiled.is_match(b"") || compiled.is_match(MASK.as_bytes()) {
            return Err(BadPattern::TooWide);
        }
        Ok(Self {
            regex: compiled,
            is_card: name == Some("card"),
        })
    }

    /// Returns the matches in a text, except empty ones and, for `{card}`, those that are no card
    /// numbers.
    fn matches<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = Range<usize>> {
        let ranges = self.regex.find_iter(text).map(|found| found.range());
        ranges.filter(|range| !range.is_empty() && (!self.is_card || is_card(text, range)))
    }

    pub(super) fn occurs_in(&self, text: &[u8]) -> bool {
        self.matches(text).next().is_some()
    }

    fn replaced(&self, text: &str) -> Option<String> {
        let (mut replaced, mut end) = (String::new(), 0);
        for range in self.matches(text.as_bytes()) {
            replaced += &text[end..range.start];
            replaced += MASK;
            end = range.end;
        }
        (end > 0).then(|| replaced + &text[end..])
    }
}

/// Returns the text with masks in place of all matches; `None` if there are no matches. If patterns
/// match the result again, such as `[^@]+@x` in `a@x@x`, or if the result is longer than the text
/// and than [`LENGTHENED_BYTES_MAX`], the mask replaces the whole text.
pub(super) fn masked(patterns: &[ValuePattern], text: &str) -> Option<String> {
    let mut masked: Option<String> = None;
    for pattern in patterns {
        let replaced = pattern.replaced(masked.as_deref().unwrap_or(text));
        masked = replaced.or(masked);
    }
    let masked = masked?;
    let is_short = masked.len() <= text.len().max(LENGTHENED_BYTES_MAX);
    let is_left = |pattern: &ValuePattern| pattern.occurs_in(masked.as_bytes());
    match is_short && !patterns.iter().any(is_left) {
        true => Some(masked),
        false => Some(MASK.to_owned()),
    }
}

/// Overwrites all matches with asterisks, so that all other bytes keep their offsets. Returns true
/// if there were any matches.
pub(super) fn overwrite(patterns: &[ValuePattern], bytes: &mut [u8]) -> bool {
    let mut is_changed = false;
    for pattern in patterns {
        let ranges: Vec<Range<usize>> = pattern.matches(bytes).collect();
        is_changed |= !ranges.is_empty();
        for range in ranges {
            bytes[range].fill(b'*');
        }
    }
    is_changed
}

/// Reports whether a range of a text is a card number: its digits are not a part of a longer
/// number, and the last one is the check digit of the others (Luhn).
fn is_card(text: &[u8], range: &Range<usize>) -> bool {
    let is_digit = |at: Option<usize>| {
        let byte = at.and_then(|at| text.get(at));
        byte.is_some_and(u8::is_ascii_digit)
    };
    if is_digit(range.start.checked_sub(1)) || is_digit(Some(range.end)) {
        return false;
    }
    let digits = text[range.clone()].iter().rev();
    let digits = digits.filter(|byte| byte.is_ascii_digit()).enumerate();
    let sum: u32 = digits
        .map(|(at, byte)| match (at % 2, u32::from(byte - b'0')) {
            (0, digit) => digit,
            // The sum of the digits of the double.
            (_, digit) => digit * 2 / 10 + digit * 2 % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, text: &str, expected: &str) {
        let patterns = [ValuePattern::new(pattern).unwrap()];
        let masked = masked(&patterns, text);
        let masked = masked.as_deref().unwrap_or(text);
        assert_eq!(masked, expected, "{pattern} in {text:?}");
        assert!(!patterns[0].occurs_in(masked.as_bytes()));
    }

    #[test]
    fn matches_are_replaced() {
        check("[0-9]{3}", "a 123 b 4567", "a **** b ****7");
        check("é+", "aéé", "a****");
        check("alice", "bob", "bob");
        check("^a", "aab", "****ab");
        // The replacement has a match again, or would be long.
        check("[^@]+@x", "a@x@x", "****");
        check("b", &"ab".repeat(600), MASK);
        check("b", "ab", "a****");
        // Empty matches count for nothing.
        check(r"\b|z", "a b", "a b");
    }

    #[test]
    fn card_numbers_have_a_check_digit() {
        for card in [
            "4111111111111111",
            "4111 1111 1111 1111",
            "5500-0000-0000-0004",
            "340000000000009",
            "3400 000000 00009",
            "30000000000004",
            "6011000000000004",
            "2223000048400011",
        ] {
            check("{card}", card, "****");
            check("{card}", &format!("n{card}, 123"), "n****, 123");
            check(
                "{card}",
                &format!("{card}12345678"),
                &format!("{card}12345678"),
            );
            check("{card}", &format!("1{card}"), &format!("1{card}"));
            // No other last digit fits.
            let (start, last) = card.split_at(card.len() - 1);
            let digits = ('0'..='9').filter(|digit| !last.starts_with(*digit));
            for digit in digits {
                let other = format!("{start}{digit}");
                check("{card}", &other, &other);
            }
        }
        check(
            "{card}",
            "at 1767322800000000000 ns",
            "at 1767322800000000000 ns",
        );
    }

    #[test]
    fn named_patterns_match_their_texts() {
        check("{email}", "to alice.b+c@mail.example.com.", "to ****.");
        check("{email}", "höhe@bücher.de, @x, a@b", "****, @x, a@b");
        let token = "mF_9.B5f-4.1JqM0123456789==";
        check(
            "{bearer}",
            &format!("Authorization: bearer {token}"),
            "Authorization: ****",
        );
        check("{bearer}", "the bearer of news", "the bearer of news");
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
        check("{jwt}", &format!("t={jwt}&x"), "t=****&x");
        check("{jwt}", "eyJ.eyJ.", "eyJ.eyJ.");
    }

    #[test]
    fn overwritten_matches_keep_the_offsets() {
        let patterns = ["[0-9]+", "b+"].map(|pattern| ValuePattern::new(pattern).unwrap());
        let mut bytes = *b"\xff123\xffabbc";
        assert!(overwrite(&patterns, &mut bytes));
        assert_eq!(&bytes, b"\xff***\xffa**c");
        assert!(!overwrite(&patterns, &mut bytes));
    }
}
