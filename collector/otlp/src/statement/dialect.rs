//! Dialects of SQL, as far as they differ in literals, names and comments.

/// Dialect of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// PostgreSQL and others in which double quotes enclose names, and backslashes escape only in
    /// `E'…'`.
    Standard,
    MySql,
    Sqlite,
    SqlServer,
    Unknown,
}

impl Dialect {
    /// Returns the dialect of a database, by its name in `db.system.name` or `db.system`. Returns
    /// `None` for caches whose commands are not SQL, but may begin with the same words.
    pub(crate) fn of(system: Option<&str>) -> Option<Self> {
        Some(match system.unwrap_or_default() {
            "postgresql" | "cockroachdb" | "redshift" | "aws.redshift" | "edb" | "oracle"
            | "oracle.db" | "db2" | "ibm.db2" | "h2" | "h2database" | "hsqldb" | "derby"
            | "firebird" | "firebirdsql" | "duckdb" | "trino" | "sap.maxdb" => Self::Standard,
            "mysql" | "mariadb" => Self::MySql,
            "sqlite" => Self::Sqlite,
            "mssql" | "microsoft.sql_server" => Self::SqlServer,
            "redis" | "valkey" | "memcached" => return None,
            _ => Self::Unknown,
        })
    }
}
