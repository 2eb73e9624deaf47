//! Splits statements into tokens. No text is an error.

use memchr::memmem;

use super::Dialect;
use super::is_one_of;

/// Words that do not count as names of columns. A sign after them belongs to the number that
/// follows, and a space separates them from a parenthesis.
const KEYWORDS: [&str; 39] = [
    "SELECT",
    "DISTINCT",
    "ALL",
    "FROM",
    "JOIN",
    "ON",
    "USING",
    "WHERE",
    "AND",
    "OR",
    "NOT",
    "IN",
    "LIKE",
    "ILIKE",
    "BETWEEN",
    "IS",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "AS",
    "OVER",
    "BY",
    "HAVING",
    "LIMIT",
    "OFFSET",
    "TOP",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "INTO",
    "VALUES",
    "SET",
    "RETURNING",
    "DEFAULT",
    "EXISTS",
    "WITH",
    "UPDATE",
    "TABLE",
];

/// Length of a UUID such as `550e8400-e29b-41d4-a716-446655440000`.
const UUID_BYTES: usize = 36;

/// Words before a name of a table.
const BEFORE_TABLE: [&str; 5] = ["FROM", "JOIN", "INTO", "UPDATE", "TABLE"];

pub(super) fn is_keyword(word: &str) -> bool {
    is_one_of(word, &KEYWORDS)
}

/// Token of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Keyword or name, also in quotes.
    Word(&'a str),
    /// Literal or parameter.
    Literal,
    Open(&'a str),
    Close(&'a str),
    Comma,
    Semicolon,
    /// `.` and `::`, which connect their operands without spaces.
    Dot(&'a str),
    Operator(&'a str),
}

impl<'a> Token<'a> {
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::Word(text) | Self::Dot(text) | Self::Operator(text) => text,
            Self::Open(text) | Self::Close(text) => text,
            Self::Literal => "?",
            Self::Comma => ",",
            Self::Semicolon => ";",
        }
    }

    pub(super) fn is_word(self, word: &str) -> bool {
        matches!(self, Self::Word(text) if text.eq_ignore_ascii_case(word))
    }

    pub(super) fn is_close(self) -> bool {
        matches!(self, Self::Close(_))
    }
}

/// Reader of a statement's tokens.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    sql: &'a str,
    at: usize,
    dialect: Dialect,
    last: Option<Token<'a>>,
    /// True after a parameter such as `$1`.
    pub(super) has_numbered: bool,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(sql: &'a str, dialect: Dialect) -> Self {
        Self {
            sql,
            at: 0,
            dialect,
            last: None,
            has_numbered: false,
        }
    }

    pub(super) fn next_token(&mut self) -> Option<Token<'a>> {
        self.skip_spaces();
        let token = self.read(self.byte(0)?);
        self.last = Some(token);
        Some(token)
    }

    /// Returns the byte at this distance.
    fn byte(&self, distance: usize) -> Option<u8> {
        self.sql.as_bytes().get(self.at + distance).copied()
    }

    fn is_at(&self, distance: usize, matches: impl Fn(u8) -> bool) -> bool {
        self.byte(distance).is_some_and(matches)
    }

    fn rest(&self) -> &'a [u8] {
        &self.sql.as_bytes()[self.at.min(self.sql.len())..]
    }

    /// Advances past the next occurrence of `end`, or to the end of the statement. Returns false if
    /// there is none.
    fn skip_past(&mut self, end: &[u8]) -> bool {
        let found = memmem::find(self.rest(), end);
        self.at = found.map_or(self.sql.len(), |found| self.at + found + end.len());
        found.is_some()
    }

    fn skip_line(&mut self) {
        self.skip_past(b"\n");
    }

    fn skip_while(&mut self, matches: impl Fn(u8) -> bool) {
        while self.is_at(0, &matches) {
            self.at += 1;
        }
    }

    /// Skips spaces, control characters and comments.
    fn skip_spaces(&mut self) {
        loop {
            match (self.byte(0), self.byte(1)) {
                (Some(0..=b' ' | 0x7f), _) => self.at += 1,
                (Some(b'-'), Some(b'-')) => self.skip_line(),
                (Some(b'/'), Some(b'*')) => self.skip_comment(),
                (Some(b'#'), next) if self.is_comment(next) => self.skip_line(),
                _ => return,
            }
        }
    }

    /// Reports whether `#` before `next` begins a comment: always in MySQL; in an unknown dialect,
    /// unless it begins `#>` or `#=`, as some operators do; never in other dialects.
    fn is_comment(&self, next: Option<u8>) -> bool {
        match self.dialect {
            Dialect::MySql => true,
            Dialect::Unknown => !matches!(next, Some(b'>' | b'=')),
            _ => false,
        }
    }

    /// Skips a comment. Takes comments as nested, except in MySQL and SQLite. If the dialect is
    /// unknown, a comment is thus never too short.
    fn skip_comment(&mut self) {
        self.at += 2;
        if matches!(self.dialect, Dialect::MySql | Dialect::Sqlite) {
            self.skip_past(b"*/");
            return;
        }
        let mut depth = 1;
        while depth > 0 && self.at < self.sql.len() {
            match (self.byte(0), self.byte(1)) {
                (Some(b'*'), Some(b'/')) => (self.at, depth) = (self.at + 2, depth - 1),
                (Some(b'/'), Some(b'*')) => (self.at, depth) = (self.at + 2, depth + 1),
                _ => self.at += 1,
            }
        }
    }

    fn read(&mut self, first: u8) -> Token<'a> {
        let from = self.at;
        match first {
            b'\'' => self.literal(|lexer| lexer.skip_text(false)),
            b'"' => self.double_quoted(),
            b'`' => self.quoted_name(b'`'),
            b'[' if matches!(self.dialect, Dialect::Sqlite | Dialect::SqlServer) => {
                self.quoted_name(b']')
            }
            b'$' => self.literal(Self::skip_dollar),
            b'?' => self.literal(|lexer| {
                lexer.at += 1;
                lexer.skip_while(|byte| byte.is_ascii_digit());
            }),
            _ if self.is_uuid() => self.literal(|lexer| lexer.at += UUID_BYTES),
            b'0'..=b'9' => self.literal(Self::skip_number),
            b'.' if self.is_at(1, |byte| byte.is_ascii_digit()) && !self.is_after_operand() => {
                self.literal(Self::skip_number)
            }
            b'+' | b'-' if !self.is_after_operand() && self.signs_number() => {
                self.literal(Self::skip_number)
            }
            b':' => self.colon(),
            b'@' if self.is_at(1, is_of_word) => self.literal(Self::skip_word_after_mark),
            b'@' if self.is_at(1, |byte| byte == b'@') && self.is_at(2, is_of_word) => {
                self.at += 2;
                self.skip_while(is_of_word);
                Token::Word(&self.sql[from..self.at])
            }
            b'%' if self.is_format() => self.literal(Self::skip_format),
            b'#' if self.dialect == Dialect::SqlServer => {
                self.skip_while(|byte| byte == b'#' || is_of_word(byte));
                Token::Word(&self.sql[from..self.at])
            }
            b'(' | b'[' | b'{' => Token::Open(self.one()),
            b')' | b']' | b'}' => Token::Close(self.one()),
            b',' | b';' | b'.' => match self.one() {
                "," => Token::Comma,
                ";" => Token::Semicolon,
                text => Token::Dot(text),
            },
            byte if is_of_word(byte) => self.word(),
            _ => self.operator(),
        }
    }

    fn one(&mut self) -> &'a str {
        self.at += 1;
        &self.sql[self.at - 1..self.at]
    }

    fn literal(&mut self, skip: impl FnOnce(&mut Self)) -> Token<'a> {
        skip(self);
        Token::Literal
    }

    /// Reports whether the last token counts as an operand.
    fn is_after_operand(&self) -> bool {
        match self.last {
            Some(Token::Word(word)) => !is_keyword(word),
            Some(Token::Literal | Token::Close(_)) => true,
            _ => false,
        }
    }

    /// Reports whether a number follows the sign here. If so, advances to it.
    fn signs_number(&mut self) -> bool {
        let spaces = self.rest()[1..].iter().take_while(|byte| **byte <= b' ');
        let distance = 1 + spaces.count();
        let after = |byte: u8| byte.is_ascii_digit();
        let is_number = self.is_at(distance, after)
            || self.is_at(distance, |byte| byte == b'.') && self.is_at(distance + 1, after);
        self.at += if is_number { distance } else { 0 };
        is_number
    }

    /// Reports whether a UUID without quotes begins here, which is a literal in CQL.
    fn is_uuid(&self) -> bool {
        let is_expected = |(at, byte): (usize, &u8)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        };
        let bytes = self.rest().get(..UUID_BYTES);
        bytes.is_some_and(|bytes| bytes.iter().enumerate().all(is_expected))
            && !self.is_at(UUID_BYTES, is_of_word)
    }

    fn skip_number(&mut self) {
        while let Some(byte) = self.byte(0) {
            self.at += match byte {
                b'e' | b'E' if self.is_at(1, |sign| matches!(sign, b'+' | b'-')) => 2,
                b'.' => 1,
                byte if is_of_word(byte) => 1,
                _ => return,
            };
        }
    }

    fn skip_text(&mut self, escapes: bool) {
        self.skip_quoted(b'\'', escapes || self.dialect == Dialect::MySql);
    }

    /// Skips a text in quotes; with `escapes`, a backslash escapes the next byte. Without
    /// `escapes`, a backslash before a quote skips the rest of the statement if the dialect is
    /// unknown. Returns false if it found no end of the text.
    fn skip_quoted(&mut self, quote: u8, escapes: bool) -> bool {
        self.at += 1;
        while let Some(byte) = self.byte(0) {
            let is_quote = byte == quote;
            if byte == b'\\' && !escapes && self.dialect == Dialect::Unknown {
                self.skip_while(|byte| byte == b'\\');
                if self.is_at(0, |byte| byte == quote) {
                    break;
                }
            } else if is_quote && !self.is_at(1, |byte| byte == quote) {
                self.at += 1;
                return true;
            } else {
                self.at += if is_quote || byte == b'\\' && escapes {
                    2
                } else {
                    1
                };
            }
        }
        self.at = self.sql.len();
        false
    }

    /// Reads a name in quotes. An unterminated one counts as a literal.
    fn quoted_name(&mut self, end: u8) -> Token<'a> {
        let from = self.at;
        self.at += 1;
        while self.skip_past(&[end]) {
            if !self.is_at(0, |byte| byte == end) {
                return Token::Word(&self.sql[from..self.at]);
            }
            self.at += 1;
        }
        Token::Literal
    }

    /// Reads a text in double quotes. Where it may be a name or a literal, it is a name only if it
    /// is a part of a qualified name, or, except in MySQL, stands where a table is named.
    fn double_quoted(&mut self) -> Token<'a> {
        if matches!(self.dialect, Dialect::Standard | Dialect::SqlServer) {
            return self.quoted_name(b'"');
        }
        let from = self.at;
        let has_end = self.skip_quoted(b'"', self.dialect == Dialect::MySql);
        let is_after = match self.last {
            Some(Token::Dot(".")) => true,
            Some(Token::Word(word)) => {
                self.dialect != Dialect::MySql && is_one_of(word, &BEFORE_TABLE)
            }
            _ => false,
        };
        if has_end && (is_after || self.is_at(0, |byte| byte == b'.')) {
            return Token::Word(&self.sql[from..self.at]);
        }
        Token::Literal
    }

    /// Skips a text in dollar quotes, or a parameter: `$1` or `$name`.
    fn skip_dollar(&mut self) {
        let from = self.at;
        self.at += 1;
        self.skip_while(|byte| byte != b'$' && is_of_word(byte));
        let has_tag = !self.sql.as_bytes()[from..self.at]
            .get(1)
            .is_some_and(u8::is_ascii_digit);
        if has_tag && self.is_at(0, |byte| byte == b'$') && self.dialect != Dialect::MySql {
            self.at += 1;
            let tag = &self.sql.as_bytes()[from..self.at];
            self.skip_past(tag);
        }
        self.has_numbered |= !has_tag;
    }

    fn skip_word_after_mark(&mut self) {
        self.at += 1;
        self.skip_while(is_of_word);
    }

    /// Reads `::`, a parameter such as `:name`, or an operator.
    fn colon(&mut self) -> Token<'a> {
        let from = self.at;
        if self.is_at(1, |byte| byte == b':') {
            self.at += 2;
            return Token::Dot(&self.sql[from..self.at]);
        }
        if self.is_at(1, is_of_word) {
            return self.literal(Self::skip_word_after_mark);
        }
        self.at += if self.is_at(1, |byte| byte == b'=') {
            2
        } else {
            1
        };
        Token::Operator(&self.sql[from..self.at])
    }

    /// Reports whether a parameter of Python's drivers begins here: `%s` or `%(name)s`.
    fn is_format(&self) -> bool {
        let is_short = self.is_at(1, |byte| byte == b's') && !self.byte(2).is_some_and(is_of_word);
        !self.is_after_operand() && (is_short || self.is_at(1, |byte| byte == b'('))
    }

    fn skip_format(&mut self) {
        self.at += 1;
        if self.is_at(0, |byte| byte == b'(') {
            self.skip_past(b")");
        }
        self.skip_while(|byte| byte == b's');
    }

    fn word(&mut self) -> Token<'a> {
        let from = self.at;
        self.skip_while(is_of_word);
        let word = &self.sql[from..self.at];
        if self.is_at(0, |byte| byte == b'\'') {
            match word {
                "E" | "e" => return self.literal(|lexer| lexer.skip_text(true)),
                "B" | "b" | "N" | "n" | "X" | "x" => {
                    return self.literal(|lexer| lexer.skip_text(false));
                }
                "Q" | "q" | "NQ" | "nq" | "Nq" | "nQ" => return self.literal(Self::skip_q_quoted),
                _ => {}
            }
        }
        let is_constant = is_one_of(word, &["TRUE", "FALSE", "NULL"]);
        let is_test = |last: Token<'_>| last.is_word("IS") || last.is_word("NOT");
        if is_constant && !self.last.is_some_and(is_test) {
            return Token::Literal;
        }
        Token::Word(word)
    }

    /// Skips a text of Oracle with delimiters of its own: `q'[…]'`.
    fn skip_q_quoted(&mut self) {
        self.at += 1;
        let end = match self.byte(0) {
            Some(b'[') => b']',
            Some(b'(') => b')',
            Some(b'{') => b'}',
            Some(b'<') => b'>',
            Some(other) => other,
            None => return,
        };
        self.at += 1;
        self.skip_past(&[end, b'\'']);
    }

    /// Reads the characters of an operator. A sign at its end belongs to the next operand.
    fn operator(&mut self) -> Token<'a> {
        let from = self.at;
        self.at += 1;
        while self.is_at(0, |byte| b"+-*/<>=~!#%^&|@".contains(&byte)) {
            let ends = match (self.byte(0), self.byte(1)) {
                (Some(b'-'), Some(b'-')) | (Some(b'/'), Some(b'*')) => true,
                (Some(b'@'), Some(next)) => is_of_word(next) || next == b'@',
                (Some(b'%'), Some(next)) => matches!(next, b's' | b'('),
                (Some(b'+' | b'-'), next) => next != Some(b'>'),
                (Some(b'#'), next) => self.dialect == Dialect::SqlServer || self.is_comment(next),
                _ => false,
            };
            if ends {
                break;
            }
            self.at += 1;
        }
        Token::Operator(&self.sql[from..self.at])
    }
}

/// Reports whether a name or number may contain this byte. All bytes of characters beyond ASCII
/// may be in a name, so that tokens end between characters.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}
