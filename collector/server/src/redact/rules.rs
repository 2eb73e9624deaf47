//! Rules of redaction: actions for attributes by their keys, and patterns of values to mask.
//! `Redaction` in `mod.rs` applies them.

use std::str::FromStr;

use super::pattern::{BadPattern, ValuePattern};

/// Action on an attribute, or on the name or content of a tracked item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Keep,
    /// An attribute is removed, as if it had not been sent; a name or content is emptied.
    Drop,
    /// A keyed hash replaces the attribute's value, or the item's name; the content is emptied.
    Hash,
}

/// A rule, written as `ACTION:PATTERN`.
#[derive(Clone, Debug)]
pub struct Rule(pub(super) RuleKind);

#[derive(Clone, Debug)]
pub(super) enum RuleKind {
    Key(KeyRule),
    Mask(ValuePattern),
}

/// Action for attributes and tracked items whose keys or names match a pattern.
#[derive(Clone, Debug)]
pub(super) struct KeyRule {
    pub(super) action: Action,
    /// Pattern of keys, in lower case; `*` matches any text.
    pattern: String,
}

/// Error: the text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    #[error(
        "write drop:PATTERN, hash:PATTERN or keep:PATTERN, such as drop:http.request.header.*, \
         or mask:REGEX, such as mask:{{card}}"
    )]
    Form,
    #[error(transparent)]
    Pattern(#[from] BadPattern),
}

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let (action, pattern) = text.split_once(':').ok_or(BadRule::Form)?;
        if pattern.trim().is_empty() {
            return Err(BadRule::Form);
        }
        let action = match action {
            "keep" => Action::Keep,
            "drop" => Action::Drop,
            "hash" => Action::Hash,
            "mask" => return Ok(Self(RuleKind::Mask(ValuePattern::new(pattern)?))),
            _ => return Err(BadRule::Form),
        };
        let pattern = pattern.trim().to_ascii_lowercase();
        Ok(Self(RuleKind::Key(KeyRule { action, pattern })))
    }
}

impl KeyRule {
    /// Reports whether the rule matches a key. It ignores the case of ASCII letters, as header
    /// names occur in upper and lower case.
    pub(super) fn fits(&self, key: &str) -> bool {
        let (pattern, key) = (self.pattern.as_bytes(), key.as_bytes());
        let (mut at, mut in_pattern) = (0, 0);
        // Position to resume from if the text after the last `*` does not match here.
        let mut last_star: Option<(usize, usize)> = None;
        while at < key.len() {
            match pattern.get(in_pattern) {
                Some(b'*') => {
                    last_star = Some((at, in_pattern));
                    in_pattern += 1;
                }
                Some(byte) if *byte == key[at].to_ascii_lowercase() => {
                    (at, in_pattern) = (at + 1, in_pattern + 1);
                }
                _ => {
                    let Some((from, star)) = last_star else {
                        return false;
                    };
                    last_star = Some((from + 1, star));
                    (at, in_pattern) = (from + 1, star + 1);
                }
            }
        }
        pattern[in_pattern..].iter().all(|byte| *byte == b'*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation: tries every length for every `*`.
    fn fits_slowly(pattern: &[u8], key: &[u8]) -> bool {
        match pattern.split_first() {
            None => key.is_empty(),
            Some((b'*', rest)) => (0..=key.len()).any(|from| fits_slowly(rest, &key[from..])),
            Some((byte, rest)) => key.split_first().is_some_and(|(first, key)| {
                *byte == first.to_ascii_lowercase() && fits_slowly(rest, key)
            }),
        }
    }

    #[test]
    fn patterns_fit_as_by_trying() {
        let words = |letters: &[u8], length: u32| -> Vec<Vec<u8>> {
            let of = |mut number: usize| -> Vec<u8> {
                let mut word = Vec::new();
                while number > 0 {
                    number -= 1;
                    word.push(letters[number % letters.len()]);
                    number /= letters.len();
                }
                word
            };
            (0..letters.len().pow(length) * 3 / 2).map(of).collect()
        };
        let keys = words(b"aB.", 4);
        let mut fitted = 0;
        for pattern in words(b"ab*", 5)
            .into_iter()
            .filter(|pattern| !pattern.is_empty())
        {
            let pattern = String::from_utf8(pattern).unwrap();
            let rule: Rule = format!("drop:{pattern}").parse().unwrap();
            let RuleKind::Key(rule) = rule.0 else {
                panic!("{rule:?}")
            };
            for key in &keys {
                let fits = fits_slowly(pattern.as_bytes(), key);
                assert_eq!(
                    rule.fits(std::str::from_utf8(key).unwrap()),
                    fits,
                    "{pattern} {key:?}"
                );
                fitted += usize::from(fits);
            }
        }
        assert!(fitted > 1_000, "{fitted}");
    }

    #[test]
    fn texts_that_are_no_rules_are_rejected() {
        for bad in [
            "", "drop", "drop:", "drop: ", "erase:x", "x.*", ":x", "mask:",
        ] {
            assert_eq!(bad.parse::<Rule>().unwrap_err(), BadRule::Form, "{bad:?}");
        }
        for wide in ["mask:[0-9]*", "mask:.+", "mask:|a", r"mask:\*", "mask:a|^"] {
            let error = wide.parse::<Rule>().unwrap_err();
            assert_eq!(error, BadRule::Pattern(BadPattern::TooWide), "{wide}");
        }
        let check = |bad: &str, reason: &str| {
            let error = bad.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        };
        check(
            "mask:{cards}",
            "no pattern is named {cards}: write {bearer}, {card}",
        );
        check(
            "mask:ab(c",
            "\n    ab(c\n      ^\nerror: unclosed group\ncorrect or shorten",
        );
        check("mask:(?-u:\\xff)", "invalid UTF-8");
        check("mask:{3}", "no pattern is named {3}");
        check("mask:{3}a", "repetition operator missing expression");
        check("mask:a{9999}{99}", "exceeds size limit of 1048576 bytes");
    }
}
