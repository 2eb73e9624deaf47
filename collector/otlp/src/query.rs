//! Names spans of databases by their statements.
//!
//! Many instrumentations call all of their spans `SELECT` or `query`. Such a span gets the name in
//! `db.query.summary`, or the [normalised](super::statement) text of its statement. A name that an
//! instrumentation or a service chose for its meaning remains, such as `find_user` or
//! `SELECT users`.

use super::statement::{Dialect, is_command, is_one_of, statement_name};

/// Maximum length of a summary, in bytes. OpenTelemetry's conventions set this limit in characters.
const SUMMARY_BYTES_MAX: usize = 255;

/// Words that instrumentations and drivers use for all statements.
const GENERIC: [&str; 63] = [
    "query",
    "queries",
    "execute",
    "executemany",
    "exec",
    "executes",
    "run",
    "raw",
    "batch",
    "many",
    "one",
    "all",
    "optional",
    "first",
    "fetch",
    "row",
    "rows",
    "scalar",
    "reader",
    "nonquery",
    "statement",
    "statements",
    "stmt",
    "prepare",
    "prepared",
    "unprepared",
    "process",
    "command",
    "cursor",
    "conn",
    "connection",
    "client",
    "engine",
    "pool",
    "driver",
    "tx",
    "transaction",
    "db",
    "database",
    "sql",
    "sqlx",
    "sqlclient",
    "pg",
    "pgx",
    "postgres",
    "postgresql",
    "psycopg",
    "psycopg2",
    "asyncpg",
    "mysql",
    "mysql2",
    "mariadb",
    "sqlite",
    "sqlite3",
    "mssql",
    "tedious",
    "jdbc",
    "pdo",
    "pdostatement",
    "gorm",
    "prisma",
    "sea",
    "orm",
];

/// Attributes of a span that describe a call of a database. A field is `None` if its attribute is
/// missing or not a text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<'a> {
    summary: Option<&'a str>,
    /// `db.query.text`, or `db.statement` of older conventions.
    text: Option<&'a str>,
    /// `db.system.name`, or `db.system` of older conventions.
    system: Option<&'a str>,
    /// `db.namespace`, or `db.name` of older conventions.
    namespace: Option<&'a str>,
    /// `db.operation.name`, or `db.operation` of older conventions.
    operation: Option<&'a str>,
}

impl<'a> Query<'a> {
    /// Stores the text of an attribute; ignores keys that do not matter.
    pub fn see(&mut self, key: &str, text: &'a str) {
        let (known, is_current) = match key {
            "db.query.summary" => (&mut self.summary, true),
            "db.query.text" => (&mut self.text, true),
            "db.statement" => (&mut self.text, false),
            "db.system.name" => (&mut self.system, true),
            "db.system" => (&mut self.system, false),
            "db.namespace" => (&mut self.namespace, true),
            "db.name" => (&mut self.namespace, false),
            "db.operation.name" => (&mut self.operation, true),
            "db.operation" => (&mut self.operation, false),
            _ => return,
        };
        if is_current || known.is_none() {
            *known = Some(text);
        }
    }

    /// Returns a name for the span's operation that distinguishes it from other statements. Returns
    /// `None` if `name` may already do so, or if there is neither a usable summary nor a statement
    /// of SQL.
    #[must_use]
    pub fn name(&self, name: &str) -> Option<String> {
        if self.summary.is_none() && self.text.is_none() || !self.is_generic(name) {
            return None;
        }
        let is_usable = |summary: &&str| {
            (1..=SUMMARY_BYTES_MAX).contains(&summary.len()) && !summary.contains('\0')
        };
        let of_text = || statement_name(self.text?, Dialect::of(self.system)?);
        let summary = self.summary.filter(is_usable).map(str::to_owned);
        let better = summary.or_else(of_text);
        better.filter(|better| better != name && !better.contains('\0'))
    }

    /// Reports whether a name consists of commands, [`GENERIC`] words and words of the database's
    /// attributes. A name that contains the statement, or is its beginning, may contain values, and
    /// is generic, too.
    fn is_generic(&self, name: &str) -> bool {
        let text = self.text.map_or("", str::trim);
        if !text.is_empty() && (text.starts_with(name) || name.contains(text)) {
            return true;
        }
        let words = |text: &'a str| text.split(|of: char| !of.is_alphanumeric());
        // Every word of the name may be compared with every known word.
        let is_short = |text: &str| text.len() <= SUMMARY_BYTES_MAX;
        let known = [self.system, self.namespace, self.operation];
        let known = known.map(|text| text.filter(|text| is_short(text)));
        let is_known = |word: &str| {
            let mut known = known.iter().flatten().flat_map(|text| words(text));
            known.any(|known| known.eq_ignore_ascii_case(word))
        };
        let mut of_name = name.split(|of: char| !of.is_alphanumeric());
        is_short(name)
            && of_name.all(|word| {
                word.is_empty() || is_command(word) || is_one_of(word, &GENERIC) || is_known(word)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: (&str, &str) = ("db.query.text", "SELECT a FROM t WHERE b = 'secret'");
    const NAME: &str = "SELECT a FROM t WHERE b = ?";

    fn check(name: &str, attributes: &[(&str, &str)], expected: &str) {
        let mut query = Query::default();
        for (key, text) in attributes {
            query.see(key, text);
        }
        let better = query.name(name);
        assert_eq!(
            better.as_deref().unwrap_or(name),
            expected,
            "{attributes:?}"
        );
    }

    #[test]
    fn generic_names_give_way_to_statements() {
        for name in [
            "",
            "SELECT",
            "select",
            "query",
            "pg.query:SELECT",
            "sqlx::query",
            "prisma:engine:db_query",
            "sql.conn.query",
            "PDOStatement::execute",
            "sea_orm.query_one",
            TEXT.1,
            "SELECT a FROM t",
            "query SELECT a FROM t WHERE b = 'secret' LIMIT 1",
        ] {
            check(name, &[TEXT], NAME);
        }
        for name in [
            "find_user",
            "SELECT t",
            "t",
            "GET /query",
            "Repo.findAll",
            "query:t",
        ] {
            check(name, &[TEXT], name);
        }
        // The name of the database, by both conventions.
        let named = "SELECT my_shop";
        check(named, &[TEXT], named);
        check(named, &[TEXT, ("db.namespace", "my_shop")], NAME);
        check(named, &[TEXT, ("db.name", "my_shop")], NAME);
        check("clickhouse", &[TEXT, ("db.system", "clickhouse")], NAME);
        check("Multi", &[TEXT, ("db.operation.name", "MULTI")], NAME);
    }

    /// Comparing each word with each known one would take minutes.
    #[test]
    fn long_names_are_not_compared_by_words() {
        let (name, long) = ("shop ".repeat(50_000), "x ".repeat(50_000) + "shop");
        check(&name, &[TEXT, ("db.namespace", &long)], &name);
        check("shop", &[TEXT, ("db.namespace", &long)], "shop");
    }

    #[test]
    fn summaries_come_first_and_current_conventions_second() {
        let old = ("db.statement", "SELECT 'old'");
        check("query", &[old], "SELECT ?");
        check("query", &[old, TEXT], NAME);
        check("query", &[TEXT, old], NAME);
        check(
            "query",
            &[TEXT, ("db.query.summary", "SELECT t")],
            "SELECT t",
        );
        check("query", &[("db.query.summary", "SELECT t")], "SELECT t");
        check("query", &[TEXT, ("db.query.summary", "")], NAME);
        check("query", &[TEXT, ("db.query.summary", "a\0")], NAME);
        let long = "x".repeat(256);
        check("query", &[TEXT, ("db.query.summary", &long)], NAME);
        check(
            "find_user",
            &[("db.query.summary", "SELECT t")],
            "find_user",
        );
    }

    #[test]
    fn other_languages_and_systems_keep_their_names() {
        check("query", &[], "query");
        check(
            "SET",
            &[("db.statement", "SET user 17"), ("db.system", "redis")],
            "SET",
        );
        check("find", &[("db.statement", r#"{"find": "t"}"#)], "find");
        check("query", &[("db.query.text", "")], "query");
        let nul = ("db.query.text", "SELECT \"a\0b\"");
        check("query", &[nul, ("db.system.name", "postgresql")], "query");
        let double = ("db.query.text", r#"SELECT "a""#);
        check(
            "query",
            &[double, ("db.system.name", "postgresql")],
            r#"SELECT "a""#,
        );
        check("query", &[double, ("db.system", "mysql")], "SELECT ?");
    }
}
