//! Formulas to search for: a rare event, and a formula of each kind that the documentation shows.

/// A search with its arguments.
pub(crate) struct SearchCase {
    /// Name in the first column.
    pub(crate) name: &'static str,
    pub(crate) formula: &'static str,
    /// Arguments in addition to the formula.
    pub(crate) more: &'static [&'static str],
    /// True if hardly any request has the spans that the formula needs.
    pub(crate) is_selective: bool,
}

const fn asked(name: &'static str, formula: &'static str) -> SearchCase {
    SearchCase {
        name,
        formula,
        more: &[],
        is_selective: false,
    }
}

const fn selective(name: &'static str, formula: &'static str) -> SearchCase {
    SearchCase {
        is_selective: true,
        ..asked(name, formula)
    }
}

const fn bursts(name: &'static str, formula: &'static str) -> SearchCase {
    SearchCase {
        more: &["--bursts"],
        ..asked(name, formula)
    }
}

pub(crate) const ALL: [SearchCase; 19] = [
    selective("rare name", r#"{ name = "evict" }"#),
    selective("rare attribute", r#"{ .reason = "full" }"#),
    selective("no such name", r#"{ name = "nothing" }"#),
    selective(
        "rare below",
        r#"{ service = "web" } >> { name = "evict" && .reason = "full" }"#,
    ),
    selective("one key", r#"{ name = "read" && .key = "k4711" }"#),
    asked("attribute", r#"{ service = "store" && .bytes > 100000 }"#),
    asked(
        "then, same attribute",
        r#"{ name = "read" } then { name = "read" } with the same .key within 5ms"#,
    ),
    asked(
        "below",
        r#"{ service = "ranker" } >> { name = "read" && duration > 200us }"#,
    ),
    asked(
        "at least",
        r#"at least 6 of { kind = client && name =~ ".*read" } within 50ms"#,
    ),
    asked(
        "then, within",
        r#"{ name = "attempt" && .error = true } then { name = "attempt" } within 2s"#,
    ),
    asked(
        "not during",
        r#"eventually ({ name = "copy" } and not ({ name = "copy" } during { name = "read" }))"#,
    ),
    asked(
        "before",
        r#"{ name = "assemble" } before { name = "auth" }"#,
    ),
    asked(
        "always, implies",
        r#"always ({ name = "lock" } implies eventually within 10ms { name = "assemble" })"#,
    ),
    asked("never", r#"never { name = "attempt" && .error = true }"#),
    asked(
        "until",
        r#"not { service = "ranker" } until { name = "verify" }"#,
    ),
    asked("count", r#"{ name = "read" } | count() > 5"#),
    bursts(
        "bursts, same shard",
        r#"{ name = "wait" } overlaps { name = "wait" } with the same .shard in another request"#,
    ),
    bursts(
        "bursts, compaction",
        r#"{ kind = server && duration > 500us } overlaps { name = "compact" } at the same host"#,
    ),
    SearchCase {
        more: &["--bursts", "--memory", "16"],
        ..bursts(
            "bursts, in 16 MiB",
            r#"{ name = "wait" } overlaps { name = "wait" } with the same .shard in another request"#,
        )
    },
];
