//! Tests of `tracing_filter.rs`.

use super::*;

const LEVELS: [Level; 5] = [
    Level::ERROR,
    Level::WARN,
    Level::INFO,
    Level::DEBUG,
    Level::TRACE,
];

/// Checks the most verbose level recorded for each target, and the filter's maximum level.
fn check(text: &str, expected: &[(&str, &str)]) {
    let filter: TracingFilter = text.parse().unwrap();
    let mut most = LevelFilter::OFF;
    for (target, level) in expected {
        let recorded: Vec<Level> = LEVELS
            .into_iter()
            .filter(|level| filter.records(target, *level))
            .collect();
        let last = recorded
            .last()
            .map_or(LevelFilter::OFF, |level| LevelFilter::from_level(*level));
        assert_eq!(recorded, LEVELS[..recorded.len()], "{text}: {target}");
        assert_eq!(last.to_string(), *level, "{text}: {target}");
        most = most.max(last);
    }
    assert_eq!(
        filter.max_level(),
        most,
        "{text}: the expectation names the most verbose target"
    );
    assert_eq!(filter.to_string().parse(), Ok(filter), "{text}");
}

#[test]
fn directives() {
    let request = "tower_http::trace::make_span";
    let response = "tower_http::trace::on_response";
    check(
        "info",
        &[
            ("shop", "info"),
            ("h2::codec", "off"),
            ("tonic", "off"),
            ("h2o", "info"),
            (request, "debug"),
            (response, "debug"),
            ("sqlx::query", "debug"),
            ("sqlx::pool::acquire", "debug"),
            ("sqlx::pool", "info"),
            ("tower_http::trace::on_failure", "info"),
        ],
    );
    check(
        "INFO",
        &[
            ("tower::buffer::worker", "off"),
            ("tower_http::trace", "info"),
            (request, "debug"),
        ],
    );
    check("off", &[(request, "off")]);
    check("shop=info", &[("shop", "info"), (request, "off")]);
    check(
        "info,tower_http=off",
        &[(request, "off"), ("sqlx::query", "debug")],
    );
    check(
        "info,tower_http=off,sqlx=info",
        &[("shop", "info"), ("sqlx::query", "info")],
    );
    check(
        "trace",
        &[
            ("shop", "trace"),
            ("h2::codec", "off"),
            ("hyper_util::client", "off"),
        ],
    );
    check(
        "debug,h2=trace",
        &[
            ("shop", "debug"),
            ("h2::codec", "trace"),
            ("hyper::proto", "off"),
        ],
    );
    check(
        "info,shop=debug,shop::cart=off",
        &[
            ("shop::cart::sum", "off"),
            ("shop::page", "debug"),
            ("x", "info"),
        ],
    );
    // As in RUST_LOG, targets that are not named are off, and a target without a level is "trace".
    check("shop=warn", &[("shop::page", "warn"), ("other", "off")]);
    check("shop", &[("shop::page", "trace"), ("other", "off")]);
    check("off", &[("shop", "off"), ("h2", "off")]);
    check(
        " warn , shop = debug ",
        &[("shop", "debug"), ("other", "warn")],
    );
    check("3", &[("shop", "info"), (request, "debug")]);
    // A target may be a part of a name, and the longest one applies, in any order.
    check(
        "h=debug,hyper=info",
        &[
            ("h2::codec", "debug"),
            ("hyper_util", "info"),
            ("shop", "off"),
        ],
    );
}

#[test]
fn refusals() {
    for (text, part) in [
        ("", "empty"),
        (" , ", "empty"),
        ("shop=loud", "\"shop=loud\": the text after"),
        ("info,a=b=c", "\"a=b=c\": the text after"),
        ("info,=debug", "\"=debug\": there is no target"),
        ("shop=", "\"shop=\": there is no level"),
        (
            "info,shop[request]=debug",
            "\"shop[request]=debug\": spans, fields",
        ),
    ] {
        let error = text.parse::<TracingFilter>().unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains("info,shop::cart=debug"),
            "{text}: {error}"
        );
    }
}

#[test]
fn everything_is_everything() {
    let all = TracingFilter::everything();
    for target in TRANSPORTS.into_iter().chain(["", "shop", "h2::codec"]) {
        assert!(
            LEVELS.into_iter().all(|level| all.records(target, level)),
            "{target}"
        );
    }
    let usual = TracingFilter::default();
    for name in TRANSPORTS {
        for target in [name.to_owned(), format!("{name}::inside")] {
            assert!(
                !LEVELS
                    .into_iter()
                    .any(|level| usual.records(&target, level)),
                "{target}"
            );
        }
        assert!(
            usual.records(&format!("{name}ish"), Level::INFO),
            "{name}ish is another crate"
        );
    }
}

/// Checks that the comparison of the first four bytes does not change the result.
#[test]
fn transports_are_told_by_their_names() {
    for name in TRANSPORTS {
        let others = [
            format!("{name}ish"),
            format!("{name}:"),
            name[..name.len() - 1].to_owned(),
        ];
        let same = [
            name.to_owned(),
            format!("{name}::inside"),
            format!("{name}::"),
        ];
        for target in others.into_iter().chain(same).chain([String::new()]) {
            assert_eq!(
                is_transport(&target),
                has_name_of_transport(&target),
                "{target}"
            );
        }
        assert!(is_transport(name));
    }
}

/// Checks that the comparison of the first two bytes does not change the result.
#[test]
fn agrees_with_the_definition() {
    let texts = [
        "info",
        "h2=debug,trace",
        "a=off,ab=trace,warn",
        "tokio=info",
        "debug,é=trace",
    ];
    let targets = [
        "",
        "a",
        "ab",
        "abc",
        "b",
        "é::x",
        "h2",
        "h2::x",
        "h2x",
        "hyper",
        "tokio::task",
        "tokio_util",
        "tower_http::trace::make_span",
        "tower_http::trace::make_spanner",
        "tower_http::trace::on_response",
        "sqlx::query",
        "sqlx::pool::acquire",
        "z",
    ];
    for filter in texts.map(|text| text.parse::<TracingFilter>().unwrap()) {
        for target in targets {
            for level in LEVELS {
                let least = filter
                    .level_of(target)
                    .max(filter.level_of_described(target));
                let expected = level <= least;
                assert_eq!(
                    filter.records(target, level),
                    expected,
                    "{filter}: {target} {level}"
                );
            }
        }
    }
}
