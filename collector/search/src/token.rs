//! Splits the text of a formula into tokens: signs, words, quoted texts, numbers and durations.

use stroboscope_analysis::duration::unit_ns;

use super::syntax_error::SyntaxError;

/// Token of a formula, with its position in the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// Column at which the token begins, in characters, counted from 1.
    pub(super) column: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// Bracket, comma or operator.
    Sign(&'static str),
    /// Keyword, field or value without quotes.
    Word(String),
    /// Quoted text.
    Text(String),
    Number(f64),
    /// Whole number of more than 53 bits, which floating point may not represent exactly.
    Whole(i128),
    /// Number with a unit of time, converted to ns.
    Duration(f64),
    End,
}

impl Kind {
    pub(super) fn said(&self) -> String {
        match self {
            Self::Sign(sign) => format!("`{sign}`"),
            Self::Word(word) => format!("`{word}`"),
            Self::Text(text) => format!("{text:?}"),
            Self::Number(number) => format!("{number}"),
            Self::Whole(number) => format!("{number}"),
            Self::Duration(ns) => format!("{ns}ns"),
            Self::End => "the end".to_owned(),
        }
    }
}

/// Signs of the language. A longer sign comes before its prefixes.
const SIGNS: [&str; 19] = [
    ">>", ">=", "<=", "!=", "=~", "!~", "&&", "||", "{", "}", "(", ")", ">", "<", "=", "!", "~",
    "|", ",",
];

/// Maximum number of tokens of a formula. It bounds the depth of formulas, because evaluation
/// recurses on the stack.
pub(super) const TOKENS_MAX: usize = 6_000;

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | ':' | '/')
}

/// Splits a text into tokens. The last token is [`Kind::End`]. Fails at the first character that
/// begins no token, at an unfinished text, a malformed number or an unknown unit, and at the token
/// beyond [`TOKENS_MAX`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, SyntaxError> {
    let chars: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let column = at + 1;
        if c.is_whitespace() {
            at += 1;
            continue;
        }
        let rest = chars.get(at..).unwrap_or_default();
        let sign = SIGNS
            .into_iter()
            .find(|sign| sign.chars().eq(rest.iter().take(sign.len()).copied()));
        let (kind, length) = if c == '"' || c == '`' || c == '\'' {
            quoted(rest, column)?
        } else if c.is_ascii_digit() || (c == '-' && rest.get(1).is_some_and(char::is_ascii_digit))
        {
            number(rest, column)?
        } else if let Some(sign) = sign {
            (Kind::Sign(sign), sign.len())
        } else if is_of_word(c) && c != '-' && c != ':' && c != '/' {
            word(rest, column)?
        } else {
            return Err(SyntaxError::new(
                column,
                "a selector such as `{ service = \"store\" }`, a word or an operator",
                format!("`{c}`"),
            ));
        };
        if found.len() >= TOKENS_MAX {
            return Err(SyntaxError::new(
                column,
                format!("the end, as a formula has {TOKENS_MAX} words and signs at most"),
                kind.said(),
            ));
        }
        found.push(Token { kind, column });
        at += length;
    }
    let column = chars.len() + 1;
    found.push(Token {
        kind: Kind::End,
        column,
    });
    Ok(found)
}

fn quoted(rest: &[char], column: usize) -> Result<(Kind, usize), SyntaxError> {
    let quote = rest.first().copied().unwrap_or('"');
    let mut text = String::new();
    let mut at = 1;
    while let Some(&c) = rest.get(at) {
        at += 1;
        match c {
            _ if c == quote => return Ok((Kind::Text(text), at)),
            '\\' if quote != '`' => {
                let Some(&escaped) = rest.get(at) else { break };
                at += 1;
                match escaped {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    '"' | '\'' | '\\' => text.push(escaped),
                    // Keeps the escapes of regular expressions, such as `\d`.
                    other => text.extend(['\\', other]),
                }
            }
            _ => text.push(c),
        }
    }
    Err(SyntaxError::new(
        column,
        format!("a closing {quote}"),
        "the end".to_owned(),
    ))
}

fn number(rest: &[char], column: usize) -> Result<(Kind, usize), SyntaxError> {
    let is_of_number = |c: &char| c.is_ascii_digit() || *c == '.' || *c == '_';
    let mut digits: String = rest
        .iter()
        .enumerate()
        .take_while(|(at, c)| is_of_number(c) || (*at == 0 && **c == '-'))
        .map(|(_, c)| *c)
        .collect();
    // An exponent, as in `1e5` and `2.5e-3`, needs digits; otherwise, the `e` begins a unit.
    let power: String = rest
        .iter()
        .skip(digits.len())
        .enumerate()
        .take_while(|(at, c)| match at {
            0 => matches!(c, 'e' | 'E'),
            1 => c.is_ascii_digit() || matches!(c, '-' | '+'),
            _ => c.is_ascii_digit(),
        })
        .map(|(_, c)| *c)
        .collect();
    if power.ends_with(|c: char| c.is_ascii_digit()) {
        digits.push_str(&power);
    }
    let unit: String = rest
        .iter()
        .skip(digits.len())
        .take_while(|c| c.is_alphabetic() || **c == '%')
        .collect();
    let length = digits.chars().count() + unit.chars().count();
    let wrong = || {
        SyntaxError::new(
            column,
            "a number, or a duration such as 5ms, 1.5s or 200us",
            format!("`{digits}{unit}`"),
        )
    };
    let digits_only = digits.replace('_', "");
    let value: f64 = digits_only.parse().map_err(|_| wrong())?;
    if unit.is_empty() {
        let whole = digits_only.parse::<i128>().ok();
        let whole = whole.filter(|whole| whole.unsigned_abs() > 1_u128 << f64::MANTISSA_DIGITS);
        return Ok((whole.map_or(Kind::Number(value), Kind::Whole), length));
    }
    let unit_ns = unit_ns(&unit).ok_or_else(wrong)?;
    Ok((Kind::Duration(value * unit_ns as f64), length))
}

/// Parses a word such as `name`, `.http.status` or `span."a b"`.
fn word(rest: &[char], column: usize) -> Result<(Kind, usize), SyntaxError> {
    let mut word: String = rest
        .iter()
        .copied()
        .take_while(|c| is_of_word(*c))
        .collect();
    let mut length = word.chars().count();
    if word.ends_with('.') {
        let after = rest.get(length..).unwrap_or_default();
        if after.first() == Some(&'"') {
            let (kind, more) = quoted(after, column + length)?;
            if let Kind::Text(text) = kind {
                word.push_str(&text);
            }
            length += more;
        }
    }
    Ok((Kind::Word(word), length))
}
