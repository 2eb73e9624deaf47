//! Times with an exponent, as Python writes floats.

use stroboscope_store::limits::Limits;

use crate::line::parse_in_order;
use crate::time::{TimeRule, TimeUnit, Times, duration_ns};

#[test]
fn exponents_are_read_digit_by_digit() {
    let mut times = Times::default();
    for text in [
        "1790000000.123456789e0",
        "1.790000000123456789e9",
        "1.790000000123456789E+09",
        "1790000000123456789e-9",
    ] {
        assert_eq!(
            times.text(text, 1).ok(),
            Some(1_790_000_000_123_456_789),
            "{text}"
        );
    }
    assert_eq!(
        times.text("1.79e9", 1).ok(),
        Some(1_790_000_000_000_000_000)
    );
    let mut given = Times::new(TimeRule::Unit(TimeUnit::Us));
    assert_eq!(given.text("1.5e-1", 1).ok(), Some(150));
    for (text, ns) in [
        ("9.5e-05", 95_000),
        ("0.00012", 120_000),
        ("1e-10", 0),
        ("1E1", 10_000_000_000),
    ] {
        assert_eq!(duration_ns(text, TimeUnit::S).ok(), Some(ns), "{text}");
    }
    for text in ["-1e5", "1e", "e5", "1e5s", "1e300"] {
        assert!(duration_ns(text, TimeUnit::S).is_err(), "{text}");
    }
}

#[test]
fn lines_of_event_logs_may_have_them() {
    let line = |time: &str| {
        let text = format!(r#"{{"trace":"t","host":"h",{time},"event":"e","task":"a"}}"#);
        let times = &mut Times::default();
        let parsed = parse_in_order((1, text.as_bytes()), times, &Limits::default(), &mut |_| {});
        parsed
            .map(|line| line.time_ns)
            .map_err(|error| error.to_string())
    };
    assert_eq!(line(r#""ts":1.790000001e9"#), Ok(1_790_000_001_000_000_000));
    assert_eq!(line(r#""ts":"1.79e9""#), Ok(1_790_000_000_000_000_000));
    assert_eq!(
        line(r#""ts_ns":1.790000000123456789e18"#),
        Ok(1_790_000_000_123_456_789)
    );
    assert!(line(r#""ts_ns":1.5"#).is_err());
    assert!(line(r#""ts_ns":-1.5e3"#).is_err());
}
