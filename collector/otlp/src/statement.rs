//! Normalises statements of SQL, so that statements that differ only in their values are equal.
//!
//! Literals and parameters become `?`, and a list of them becomes one `?`. Only the first row of
//! `VALUES` remains. Comments vanish, and spaces are uniform. The case of words remains, as in
//! OpenTelemetry's sanitizers and in `pg_stat_statements`.
//!
//! Databases differ in the meaning of backslashes and double quotes. If the database is unknown,
//! text in double quotes counts as a literal in case of doubt. If the end of a literal is in doubt,
//! the normal form ends there. So values do not become names of operations. Broken statements
//! have a normal form, too. The time is linear in the length of the statement.

mod dialect;
mod lexer;

use twox_hash::XxHash3_128;

pub(crate) use dialect::Dialect;
use lexer::{Lexer, Token};

/// Length from which on a normal form takes no further token, in bytes.
const NORMAL_BYTES_MAX: usize = 4 << 10;

/// Maximum length of a name made from a statement, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// First words of statements.
const COMMANDS: [&str; 36] = [
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "WITH",
    "MERGE",
    "REPLACE",
    "UPSERT",
    "VALUES",
    "CALL",
    "EXEC",
    "EXECUTE",
    "PREPARE",
    "DEALLOCATE",
    "DECLARE",
    "FETCH",
    "COPY",
    "BEGIN",
    "START",
    "COMMIT",
    "END",
    "ROLLBACK",
    "ABORT",
    "SAVEPOINT",
    "RELEASE",
    "SET",
    "SHOW",
    "EXPLAIN",
    "PRAGMA",
    "LOCK",
    "CREATE",
    "ALTER",
    "DROP",
    "TRUNCATE",
    "ANALYZE",
    "VACUUM",
];

/// Reports whether a statement may begin with this word.
pub(crate) fn is_command(word: &str) -> bool {
    is_one_of(word, &COMMANDS)
}

pub(crate) fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Returns a name for the operation of a statement: its normal form. A long one is cut, and ends
/// with its hash. Returns `None` if the text does not begin like a statement of SQL.
pub(crate) fn statement_name(sql: &str, dialect: Dialect) -> Option<String> {
    let mut name = normal_form(sql, dialect);
    let first = name.trim_start_matches(['(', ' ']);
    let end = first.find(|of: char| !of.is_ascii_alphabetic());
    if !is_command(&first[..end.unwrap_or(first.len())]) {
        return None;
    }
    if name.len() > NAME_BYTES_MAX {
        let hash = XxHash3_128::oneshot(name.as_bytes()) as u32;
        let suffix = format!(" …{hash:08x}");
        let mut cut = NAME_BYTES_MAX - suffix.len();
        while !name.is_char_boundary(cut) {
            cut -= 1;
        }
        // A space, if there is one, is between two tokens or inside a quoted name.
        name.truncate(name[..cut].rfind(' ').unwrap_or(cut));
        name.push_str(&suffix);
    }
    Some(name)
}

/// Returns the normal form of a statement, or of its beginning if it is long.
fn normal_form(sql: &str, dialect: Dialect) -> String {
    let (normal, has_numbered) = normal_form_in(sql, dialect);
    // MySQL has no such parameters, so texts in double quotes are names.
    match dialect == Dialect::Unknown && has_numbered {
        true => normal_form_in(sql, Dialect::Standard).0,
        false => normal,
    }
}

/// Returns the normal form in a dialect. Also reports whether there are parameters such as `$1`.
fn normal_form_in(sql: &str, dialect: Dialect) -> (String, bool) {
    let mut writer = Writer {
        // Most normal forms fit.
        out: String::with_capacity(sql.len().min(128)),
        ..Writer::default()
    };
    let mut lexer = Lexer::new(sql, dialect);
    while writer.out.len() < NORMAL_BYTES_MAX
        && let Some(token) = lexer.next_token()
    {
        writer.take(token);
    }
    (writer.out, lexer.has_numbered)
}

/// Writer of a normal form.
#[derive(Debug, Default)]
struct Writer<'a> {
    out: String,
    /// The last written token.
    last: Option<Token<'a>>,
    /// A comma or semicolon that follows `last`. It is written only before a further token.
    separator: Option<Token<'a>>,
    depth: u32,
    rows: Rows,
}

/// Position relative to the rows of `VALUES`, with the depth of parentheses around them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rows {
    #[default]
    Outside,
    First(u32),
    /// After a row.
    Between(u32),
    /// In a further row, which is not written.
    Further(u32),
}

impl<'a> Writer<'a> {
    fn take(&mut self, token: Token<'a>) {
        match token {
            Token::Open(_) => self.depth += 1,
            Token::Close(_) => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        // A function of MySQL has the same name.
        let begins_rows = token.is_word("VALUES") && !matches!(self.last, Some(Token::Operator(_)));
        self.rows = match self.rows {
            _ if begins_rows => Rows::First(self.depth),
            Rows::First(depth) | Rows::Further(depth)
                if token.is_close() && self.depth == depth =>
            {
                // The parenthesis of a further row is not written.
                if matches!(self.rows, Rows::Further(_)) {
                    self.rows = Rows::Between(depth);
                    return;
                }
                Rows::Between(depth)
            }
            Rows::First(depth) if self.depth > depth || token.is_word("ROW") => self.rows,
            Rows::Further(depth) if self.depth >= depth => self.rows,
            Rows::Between(depth) if token == Token::Comma => Rows::Further(depth),
            _ => Rows::Outside,
        };
        if !matches!(self.rows, Rows::Further(_)) {
            self.put(token);
        }
    }

    fn put(&mut self, token: Token<'a>) {
        match (token, self.last, self.separator) {
            (Token::Comma | Token::Semicolon, ..) => {
                if self.last.is_some() {
                    self.separator.get_or_insert(token);
                }
                return;
            }
            // A list of literals, or a literal in several parts.
            (Token::Literal, Some(Token::Literal), None | Some(Token::Comma)) => {
                self.separator = None;
                return;
            }
            _ => {}
        }
        if let Some(separator) = self.separator.take() {
            self.out.push_str(separator.text());
            self.last = Some(separator);
        }
        if self.last.is_some_and(|last| has_space(last, token)) {
            self.out.push(' ');
        }
        self.out.push_str(token.text());
        self.last = Some(token);
        // A list of lists.
        if token == Token::Close(")") && self.out.ends_with("(?), (?)") {
            self.out.truncate(self.out.len() - ", (?)".len());
        }
    }
}

/// Reports whether a space separates two tokens.
fn has_space(left: Token<'_>, right: Token<'_>) -> bool {
    match (left, right) {
        (Token::Open(_) | Token::Dot(_), _) | (_, Token::Close(_) | Token::Dot(_)) => false,
        (Token::Word(word), Token::Open(_)) => lexer::is_keyword(word),
        (_, Token::Open("[")) => matches!(left, Token::Operator(_) | Token::Comma),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
