//! Errors of invalid formulas: their columns and the expected text.

use crate::parse;

#[track_caller]
fn wrong(text: &str, column: usize, expected: &str) {
    let error = parse(text).expect_err("refused");
    assert_eq!(error.column, column, "{text}: {error}");
    assert!(error.expected.contains(expected), "{text}: {error}");
    assert!(error.marked(text).lines().count() == 2, "{text}");
}

#[test]
fn errors_point_at_the_place() {
    wrong("", 1, "a formula");
    wrong("read", 1, "a formula");
    wrong("{ name = \"read\"", 16, "`}`");
    wrong("{ name = \"read }", 10, "a closing \"");
    wrong("{ name = read }", 10, "quotes: \"read\"");
    wrong(
        "{ nmae = \"read\" }",
        3,
        "attributes begin with a dot: `.nmae`",
    );
    wrong("{ duration > 5 }", 14, "unit");
    wrong("{ duration > 5parsecs }", 14, "5ms");
    wrong("{ duration ~ 5ms }", 12, "`=~`");
    wrong("{ name =~ \"(\" }", 11, "regular expression");
    wrong("{ name =~ \"a)|(?:b\" }", 11, "regular expression");
    wrong("{ name = \"a\" } then", 20, "a formula");
    wrong("{ name = \"a\" } after { }", 16, "`then`");
    wrong("{ } then { } within 5", 21, "duration");
    wrong("{ } then { } within -5ms", 21, "duration");
    wrong("{ .bytes > 5e }", 12, "a number");
    wrong("{ } during { } within 5ms", 16, "no `within`");
    wrong("{ } then { } at the same rack", 26, "`host`");
    wrong("at least many of { }", 10, "whole number");
    wrong("{ } | count() ! 3", 15, "`>`");
    wrong("{ kernel = sycall }", 12, "`lock_wait`");
    wrong("{ kernel = \"sycall\" }", 12, "`syscall`");
    wrong("{ } >> always { }", 8, "selector");
    wrong("{ } § { }", 5, "operator");
    wrong(&"(".repeat(100), 65, "levels");
    wrong(&format!("{{{}", " ".repeat(20_000)), 16_385, "at most");
    wrong(&"{}||".repeat(2_001), 8_001, "6000 words and signs");
    let long = format!("{} {{ nmae = 1 }}", "{ } and".repeat(100));
    assert!(parse(&long).expect_err("refused").marked(&long).len() < 300);
}

#[test]
fn both_ways_of_writing_are_one() {
    let same = |a: &str, b: &str| assert_eq!(parse(a), parse(b), "{a}");
    same("{ resource.service.name = `web` }", "{ service = \"web\" }");
    same("{ .bytes > 4_096 }", "{ .bytes > 4096 }");
    same("{ .change < -1.5e3 }", "{ .change < -1500 }");
    same("{ duration > 1.5e3us }", "{ duration > 1.5ms }");
    same("{ duration > 1.5ms }", "{ duration > 1500us }");
    same("{ kind = server }", "{ kind = \"server\" }");
    same("{ kernel = lock_wait }", "{ kernel = \"lock_wait\" }");
    same("{ } && { }", "{ } AND { }");
    same("{ span.\"a b\" = true }", "{ span.\"a b\" = \"true\" }");
    same("{ status = error }", "{ span:status = \"error\" }");
    same(
        "{ service = `web` } | count() > 2",
        "{ resource.service.name = `web` } | count() > 2",
    );
    same(
        "{ service = `web` } && { .n = 1 } | count() > 1",
        "{ resource.service.name = `web` } && { .n = 1 } | count() > 1",
    );
    same("! { }", "not { }");
}

#[test]
fn orders_and_distances_compare_times() {
    let check = |text: &str, expected: bool| {
        let formula = parse(text).unwrap();
        assert_eq!(formula.compares_times(), expected, "{text}");
        assert_eq!(formula.negated().compares_times(), expected, "not {text}");
    };
    check(r#"{ status = error && duration > 2ms }"#, false);
    check(r#"{ name = "a" } >> { name = "b" }"#, false);
    check(r#"never { name = "a" }"#, false);
    check(
        r#"eventually ({ name = "a" } and not { kind = server })"#,
        false,
    );
    check(r#"{ name = "a" } | count() > 3"#, false);
    check(r#"{ name = "a" } and always { duration < 1s }"#, false);
    check(r#"{ name = "a" } then { name = "b" }"#, true);
    check(r#"never ({ name = "a" } overlaps { name = "b" })"#, true);
    check(
        r#"always ({ name = "a" } implies eventually { name = "b" })"#,
        true,
    );
    check(r#"at most 3 of { name = "a" } within 5ms"#, true);
    check(r#"{ name = "a" } until { name = "b" }"#, true);
    check(r#"once { name = "a" }"#, true);
}
