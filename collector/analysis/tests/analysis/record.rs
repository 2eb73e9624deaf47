//! Trace ids as text, and labels as operations.

use stroboscope_analysis::label::SegmentLabel;
use stroboscope_analysis::record::{SpanFlags, TraceId};

#[test]
fn trace_ids_parse_and_show() {
    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let parsed = text.parse::<TraceId>();
        assert_eq!(
            parsed.as_ref().ok().map(ToString::to_string).as_deref(),
            expected
        );
        if let Err(error) = parsed {
            assert!(
                error.to_string().contains("1 to 32 hexadecimal digits"),
                "{error}"
            );
        }
    }
    check("1", Some("00000000000000000000000000000001"));
    check(
        "4BF92F3577B34DA6A3CE929D0E0E4736",
        Some("4bf92f3577b34da6a3ce929d0e0e4736"),
    );
    check(
        "ffffffffffffffffffffffffffffffff",
        Some("ffffffffffffffffffffffffffffffff"),
    );
    check("", None);
    check("+1", None);
    check("-1", None);
    check("xyz", None);
    check("0x1", None);
    check(" 1", None);
    check("４", None);
    check("000000000000000000000000000000001", None);
}

#[test]
fn flags_combine() {
    let flags = SpanFlags::CLIENT.with(SpanFlags::CUT_OPEN);
    assert_eq!(flags.0, 65);
    assert!(flags.contains(SpanFlags::CLIENT) && !flags.contains(SpanFlags::SERVER));
}

#[test]
fn operations_are_the_last_component_without_its_number() {
    #[track_caller]
    fn check(task: &str, expected: &str) {
        assert_eq!(
            SegmentLabel::new(task, "start", "end").operation(),
            expected
        );
    }
    check("web:home", "web:home");
    check("web:home > store:read", "store:read");
    check("web:home > store:read#12", "store:read");
    check("web:home#2 > store:read#*", "store:read");
    check("web:home#2", "web:home");
    check("web:GET /home", "web:GET /home");
    check(
        "edge:x > web:newsfeed.v1.Page/Load#3",
        "web:newsfeed.v1.Page/Load",
    );
    check(r"edge:x > web:a \> b#3", "web:a > b");
    check(r"edge:x > web:a \\> b", r"web:a \> b");
    check(r"edge:x > web:a \>#2", "web:a >");
    check("worker#3", "worker#3"); // an event log's task
    check("queue:issue#", "queue:issue#");
    check("queue:c#sharp", "queue:c#sharp");
    check("#1", "#1");
    check("", "");
    check(r"a\", r"a\");
}
