//! Parts of OTLP's files that are not imported.

use super::Fixture;

/// A `ResourceSpans` without content, then a field with the number 99.
#[test]
fn fields_after_the_last_message_are_counted() {
    let fixture = Fixture::new();
    let file = [0x0a, 0, 0x98, 6, 1];
    let made = fixture.import(&fixture.importer(), &file).unwrap();
    assert_eq!(made.not_taken(), [("field 99 beside the spans", 1)]);
    assert_eq!(made.summary.not_taken[0].first, 1);
}
