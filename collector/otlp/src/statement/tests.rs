use proptest::prelude::*;

use super::*;

const DIALECTS: [Dialect; 5] = [
    Dialect::Standard,
    Dialect::MySql,
    Dialect::Sqlite,
    Dialect::SqlServer,
    Dialect::Unknown,
];

fn check_in(dialects: &[Dialect], sql: &str, expected: &str) {
    for dialect in dialects {
        let name = statement_name(sql, *dialect);
        let name = name.as_deref().unwrap_or("none");
        assert_eq!(name, expected, "{dialect:?}: {sql}");
    }
}

/// Checks a statement that means the same in all dialects.
fn check(sql: &str, expected: &str) {
    check_in(&DIALECTS, sql, expected);
}

#[test]
fn statements_lose_values_lists_and_comments() {
    check("select 1", "select ?");
    check(
        "  SELECT *\n\tFROM t  WHERE a=1 ;",
        "SELECT * FROM t WHERE a = ?",
    );
    check(
        "SELECT a, 'x''y', -1.5e-3, 0xFF, .5 FROM t",
        "SELECT a, ? FROM t",
    );
    check(
        "SELECT b FROM t WHERE a IN (1, 2,3) AND c = 'd'",
        "SELECT b FROM t WHERE a IN (?) AND c = ?",
    );
    check(
        "DELETE FROM t WHERE (a, b) IN ((1, 2), (3, 4))",
        "DELETE FROM t WHERE (a, b) IN ((?))",
    );
    check(
        "INSERT INTO t (a, b) VALUES (1, now()), (2, f(3, g(4))) ON CONFLICT (a) DO NOTHING",
        "INSERT INTO t(a, b) VALUES (?, now()) ON CONFLICT(a) DO NOTHING",
    );
    check(
        "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = VALUES(a), b = VALUES(b)",
        "INSERT INTO t VALUES (?) ON DUPLICATE KEY UPDATE a = VALUES (a), b = VALUES (b)",
    );
    check(
        "SELECT * FROM (VALUES (1),(2)) AS t, u",
        "SELECT * FROM (VALUES (?)) AS t, u",
    );
    check("VALUES ROW(1), ROW(2) LIMIT 3", "VALUES ROW(?) LIMIT ?");
    check(
        "SELECT a FROM t WHERE b IN (550e8400-e29b-41d4-a716-446655440000,f47ac10b-58cc-4372-a567-0e02b2c3d479)",
        "SELECT a FROM t WHERE b IN (?)",
    );
    check(
        "SELECT deadbeef-cafe-a FROM t",
        "SELECT deadbeef - cafe - a FROM t",
    );
    check(
        "/* a 'b */ SELECT -- it's\n 1 /* traceparent='00-1' */",
        "SELECT ?",
    );
    check(
        "SELECT a - 1, a-1, (- 1), +2 FROM t",
        "SELECT a - ?, a - ?, (?), ? FROM t",
    );
    check(
        "SELECT a FROM t WHERE b = TRUE AND c = null",
        "SELECT a FROM t WHERE b = ? AND c = ?",
    );
    check(
        "BEGIN; UPDATE t SET a = NULL; COMMIT;",
        "BEGIN; UPDATE t SET a = ?; COMMIT",
    );
    check(
        "SELECT a FROM t WHERE b IS NOT NULL AND c IS TRUE",
        "SELECT a FROM t WHERE b IS NOT NULL AND c IS TRUE",
    );
    check(
        "(SELECT 1) UNION ALL (SELECT 2)",
        "(SELECT ?) UNION ALL (SELECT ?)",
    );
    check(
        "SELECT count (*), DATE '2020-01-01', N'x', x'ff' FROM größe",
        "SELECT count(*), DATE ? FROM größe",
    );
    check(
        "INSERT INTO t VALUES (?, 'a', $1, :name, @p1, %s, %(x)s)",
        "INSERT INTO t VALUES (?)",
    );
    check(
        "SELECT CASE WHEN a = 'b' THEN 1 ELSE -1 END",
        "SELECT CASE WHEN a = ? THEN ? ELSE ? END",
    );
}

#[test]
fn dialects_have_quotes_of_their_own() {
    use Dialect::{MySql, SqlServer, Sqlite, Standard, Unknown};
    let double = r#"SELECT "a" FROM "t" WHERE "u"."b" = "c""#;
    check_in(
        &[Standard, SqlServer],
        double,
        r#"SELECT "a" FROM "t" WHERE "u"."b" = "c""#,
    );
    check_in(
        &[Sqlite, Unknown],
        double,
        r#"SELECT ? FROM "t" WHERE "u"."b" = ?"#,
    );
    check_in(&[MySql], double, r#"SELECT ? FROM ? WHERE "u"."b" = ?"#);
    let numbered = r#"UPDATE "t" SET "a" = $1 WHERE "b" = $2"#;
    check_in(
        &[Standard, Unknown],
        numbered,
        r#"UPDATE "t" SET "a" = ? WHERE "b" = ?"#,
    );
    let escaped = r"SELECT 'a\' OR b = 'c' FROM t";
    check_in(
        &[Standard, Sqlite, SqlServer],
        escaped,
        "SELECT ? OR b = ? FROM t",
    );
    check_in(
        &[MySql],
        r#"SELECT 'a\'b', "c\"d" FROM t"#,
        "SELECT ? FROM t",
    );
    check_in(&[Unknown], escaped, "SELECT ?");
    check_in(
        &[Standard, Unknown],
        r"SELECT E'a\'b' FROM t",
        "SELECT ? FROM t",
    );
    check_in(
        &[Standard, Unknown],
        "SELECT $$a'b$$, $t$c$$d$t$ FROM t",
        "SELECT ? FROM t",
    );
    check_in(
        &[Standard, Unknown],
        "SELECT q'[it's]' FROM t",
        "SELECT ? FROM t",
    );
    check_in(
        &[MySql, Sqlite, Unknown],
        "SELECT `a``b 1` FROM t",
        "SELECT `a``b 1` FROM t",
    );
    check_in(
        &[Sqlite, SqlServer],
        "SELECT [it's 1] FROM t",
        "SELECT [it's 1] FROM t",
    );
    check_in(
        &[Standard, Unknown],
        "SELECT ARRAY['a', 'b'], c[1:2]",
        "SELECT ARRAY[?], c[?]",
    );
    check_in(
        &[MySql, Unknown],
        "SELECT a # it's\n FROM t",
        "SELECT a FROM t",
    );
    check_in(
        &[Standard, Unknown],
        "SELECT a#>>'{b}' FROM t",
        "SELECT a #>> ? FROM t",
    );
    check_in(
        &[SqlServer],
        "SELECT a FROM #t WHERE b=@@c",
        "SELECT a FROM #t WHERE b = @@c",
    );
    check_in(
        &[Standard],
        "SELECT a::int, b->'c', d @> '1'::jsonb",
        "SELECT a::int, b -> ?, d @> ?::jsonb",
    );
    check_in(
        &[Standard],
        "SELECT 1 /* a /* b */ 'c */ FROM t",
        "SELECT ? FROM t",
    );
}

#[test]
fn broken_statements_and_other_languages() {
    check("", "none");
    check("\0\u{1}", "none");
    check("GET user:17", "none");
    check(r#"{"find": "users"}"#, "none");
    check("SELECT 'a FROM t", "SELECT ?");
    check("SELECT `a FROM t", "SELECT ?");
    check("SELECT a /* b", "SELECT a");
    check("SELECT )))((( , , 1", "SELECT))) (((, ?");
    check("SELECT\0a", "SELECT a");
    check_in(&[Dialect::Standard], "SELECT $a$ b", "SELECT ?");
}

#[test]
fn long_statements_are_cut_and_told_apart() {
    let list = |column: &str| format!("SELECT {}, {column} FROM t", ["column"; 100].join(", "));
    let [one, other] = ["a", "b"].map(|column| statement_name(&list(column), Dialect::Unknown));
    assert_ne!(one, other);
    let one = one.unwrap();
    assert!((80..=NAME_BYTES_MAX).contains(&one.len()), "{one}");
    assert_eq!(statement_name(&one, Dialect::Unknown).as_ref(), Some(&one));
    let rows = format!(
        "INSERT INTO t (a) VALUES {} RETURNING a",
        ["(1, 'b')"; 200_000].join(",")
    );
    check(&rows, "INSERT INTO t(a) VALUES (?) RETURNING a");
    let values = format!(
        "SELECT a FROM t WHERE b IN ({}) AND c = 2",
        ["1"; 500_000].join(", ")
    );
    check(&values, "SELECT a FROM t WHERE b IN (?) AND c = ?");
    for part in [
        "(", "-", "- ", "'", "\"", "`", "$a", "$a$", "/*", "*/", "\\'", "VALUES(", "#", "q'", "é",
    ] {
        for dialect in DIALECTS {
            let name = statement_name(&format!("SELECT {}", part.repeat(300_000)), dialect);
            assert!(name.is_some_and(|name| name.len() <= NAME_BYTES_MAX));
        }
    }
}

/// Returns a literal for a text, as a dialect writes it.
fn literal(text: &str, kind: u8, dialect: Dialect) -> String {
    let escaped = match dialect {
        Dialect::MySql => text.replace('\\', "\\\\"),
        // The meaning of a backslash before a quote is unknown.
        Dialect::Unknown => text.replace('\\', ""),
        _ => text.to_owned(),
    };
    match (kind, dialect) {
        (0, _) => format!("'{}'", escaped.replace('\'', "''")),
        (1, Dialect::MySql) => format!("\"{}\"", escaped.replace('"', "\\\"")),
        (1, Dialect::Standard | Dialect::Unknown) if !text.contains("$q") => {
            format!("$q${text}$q$")
        }
        (1, _) => format!("N'{}'", escaped.replace('\'', "''")),
        (2, Dialect::Standard | Dialect::Unknown) => {
            format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
        }
        (2, Dialect::MySql) => format!("'{}'", escaped.replace('\'', "\\'")),
        (2, _) => format!("x'{:x}'", text.len()),
        (3, _) => format!("-{}.5e-3", text.len()),
        (4, _) => "NULL".to_owned(),
        _ => format!("{}", text.len()),
    }
}

const TEMPLATES: [&str; 8] = [
    "SELECT a FROM t WHERE b = {} AND c > {} OR d LIKE {}",
    "SELECT a, {} AS b FROM t ORDER BY c LIMIT {} OFFSET {}",
    "INSERT INTO t (a, b) VALUES ({}, {}), ({}, f({})) RETURNING a",
    "UPDATE t SET a={},b=b+{} WHERE c BETWEEN {} AND {}",
    "DELETE FROM t WHERE a IN ({},{},{}) AND f({}) = g(b, {})",
    "SELECT CASE WHEN a<{} THEN {} ELSE b||{} END -- it's\nFROM t",
    "SELECT a FROM t WHERE b <> ALL({}) /* {} */ AND (c,d) IN (({},{}),({},{}))",
    "CALL f({}, {}, a => {})",
];

fn filled(template: &str, values: &[(String, u8)], dialect: Dialect) -> String {
    let mut values = values.iter().cycle();
    let mut parts = template.split("{}");
    let mut sql = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (text, kind) = values.next().unwrap();
        // A comment has no quotes.
        match sql.ends_with("/* ") {
            true => sql.push_str("secret"),
            false => sql.push_str(&literal(&format!("secret{text}"), *kind, dialect)),
        }
        sql.push_str(part);
    }
    sql
}

fn values() -> impl Strategy<Value = Vec<(String, u8)>> {
    prop::collection::vec(
        (
            "[a-c0-9'\"\\\\`$;,()\\[\\]?:@%#/*\n -]{0,8}|\\PC{0,8}",
            0..6u8,
        ),
        1..6,
    )
}

proptest! {
    #[test]
    fn no_value_changes_a_name(
        template in 0..TEMPLATES.len(),
        dialect in 0..DIALECTS.len(),
        (one, other) in (values(), values()),
    ) {
        let (template, dialect) = (TEMPLATES[template], DIALECTS[dialect]);
        let [one, other] = [one, other].map(|values| filled(template, &values, dialect));
        let name = statement_name(&one, dialect).unwrap();
        prop_assert!(!name.contains("secret"), "{} {}", one, name);
        let [of_other, again] = [&other, &name].map(|sql| statement_name(sql, dialect));
        prop_assert_eq!(Some(&name), of_other.as_ref(), "{} {}", one, other);
        prop_assert_eq!(Some(&name), again.as_ref());
    }

    #[test]
    fn any_text_has_a_name_which_names_itself(
        sql in "SELECT ([a-eEqnxVALUES0-9'\"\\\\`$;,.()\\[\\]{}?:@%#/*+=<>|!~é …\n-]|VALUES|NULL|IS|--|/\\*|\\$a\\$){0,60}",
        dialect in 0..DIALECTS.len(),
    ) {
        let name = statement_name(&sql, DIALECTS[dialect]);
        if let Some(name) = name {
            prop_assert!(name.len() <= NAME_BYTES_MAX, "{}", name);
            // Numbered parameters in the text may have shown that the dialect is the standard one.
            let again = [DIALECTS[dialect], Dialect::Standard];
            let again = again.map(|dialect| statement_name(&name, dialect));
            let is_own = again[0].as_ref() == Some(&name);
            let is_shown = DIALECTS[dialect] == Dialect::Unknown && again[1].as_ref() == Some(&name);
            prop_assert!(is_own || is_shown, "{} {} {:?}", sql, name, again);
        }
    }
}
