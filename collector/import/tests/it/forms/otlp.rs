//! Parts of OTLP's files that are not imported.

use super::{Fixture, made};

/// A `ResourceSpans` without content, then a field with the number 99.
#[test]
fn fields_after_the_last_message_are_counted() {
    let fixture = Fixture::new();
    let file = [0x0a, 0, 0x98, 6, 1];
    let made = fixture.import(&fixture.importer(), &file).unwrap();
    assert_eq!(made.not_taken(), [("field 99 beside the spans", 1)]);
    assert_eq!(made.summary.not_taken[0].first, 1);
}

#[test]
fn telemetry_other_than_spans_is_counted_or_bad() {
    let logs = r#"{"scopeLogs":[{"logRecords":null},{"logRecords":[{}]}],
        "instrumentationLibraryLogs":[{"logs":[{},{}]}]}"#;
    let made = made(&format!(
        "{{\"resourceLogs\":[{logs},\n7,{{\"scopeLogs\":7}}]}}"
    ));
    assert_eq!(made.not_taken(), [("OTLP log records", 3)]);
    let bad: Vec<_> = made
        .bad
        .iter()
        .map(|(line, reason)| (*line, reason.split(" (").next().unwrap()))
        .collect();
    let expected = [
        "invalid type: integer `7`, expected the telemetry of a resource",
        "invalid type: integer `7`, expected a sequence",
    ];
    assert_eq!(bad, expected.map(|reason| (3, reason)));
}
