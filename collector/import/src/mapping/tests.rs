//! Tests of mappings: the events and spans made from lines, and the errors of invalid mappings.

use super::*;
use crate::tests::Heard;
use stroboscope_store::limits::Limits;

const LINE: &str = r#"{"t":"1767322800.5","id":"r1","a":{"h":"web1"},"svc":"shop","thread":4,"msg":"go","n":1.50,"o":{"x":[1]},"u":"-"}"#;
const GOOD: &str = "trace = \"{id}\"\nhost = \"{a.h}\"\ntime = \"{t}\"\nevent = \"{msg}\"\ntask = \"{svc}/{thread}\"\n";

fn read(mapping: &str, line: &str) -> Result<Vec<String>, String> {
    let mapping =
        FieldMapping::of(mapping).unwrap_or_else(|wrong| panic!("{mapping}: {}", wrong.what));
    let mut heard = Heard::default();
    let mut times = mapping.times(None);
    let written = (1, RawRecord::Text(line.as_bytes()));
    let read = mapping.read_record(
        written,
        &mut times,
        &mut Scratch::default(),
        &Limits::default(),
        &mut heard,
    );
    match read {
        Ok(MappedLine::Taken) => Ok(heard.events),
        Ok(MappedLine::Ignored) => Ok(Vec::new()),
        Err(reason) => Err(reason.to_string()),
    }
}

fn check(mapping: &str, line: &str, expected: &[&str]) {
    assert_eq!(
        read(mapping, line),
        Ok(expected.iter().map(|event| (*event).to_owned()).collect()),
        "{mapping}"
    );
}

fn check_bad(mapping: &str, line: &str, reason: &str) {
    let error = read(mapping, line).unwrap_err();
    assert!(error.contains(reason), "{error}");
}

/// Asserts that a mapping is rejected, with a message that contains `what`, at line `line`.
fn check_wrong(mapping: &str, line: usize, what: &str) {
    let wrong = FieldMapping::of(mapping)
        .err()
        .unwrap_or_else(|| panic!("{mapping} is right"));
    assert!(wrong.what.contains(what), "{mapping}: {}", wrong.what);
    assert_eq!(
        1 + mapping[..wrong.at].matches('\n').count(),
        line,
        "{mapping}: {}",
        wrong.what
    );
}

#[test]
fn lines_of_json() {
    let event = "r1 web1 1767322800500000000 shop/4 go";
    check(GOOD, LINE, &[event]);
    let with = |more: &str| format!("{GOOD}{more}");
    check(
        &with("attributes = [\"n\", \"o.x.0\", \"missing\", \"u\"]"),
        LINE,
        &[&format!("{event} {{\"n\":1.50,\"o.x.0\":1,\"u\":\"-\"}}")],
    );
    check(
        &with("attributes = \"*\"\nabsent = [\"-\"]"),
        LINE,
        &[&format!(
            "{event} {{\"a\":{{\"h\":\"web1\"}},\"n\":1.50,\"o\":{{\"x\":[1]}}}}"
        )],
    );
    check(&with("ignore = '\"msg\":\"g'"), LINE, &[]);
    check(
        &with("time_unit = \"ms\""),
        LINE,
        &["r1 web1 1767322800500 shop/4 go"].map(|_| "r1 web1 1767322800500000 shop/4 go"),
    );
    check(
        &GOOD.replace("{id}", "{nothing|id}-{{{n}}}"),
        LINE,
        &["r1-{1.50} web1 1767322800500000000 shop/4 go"],
    );
    check(
        &GOOD.replace("host = \"{a.h}\"\n", ""),
        LINE,
        &["r1  1767322800500000000 shop/4 go"],
    );
    check(
        &GOOD.replace("{a.h}", "{u}").replace("go", ""),
        LINE,
        &["r1 - 1767322800500000000 shop/4 go"],
    );
    let interval = "[interval]\nduration = \"{n}\"\nduration_unit = \"ms\"\ntime_is = ";
    let ends = |from: i64, to: i64| {
        [
            format!("r1 web1 {from} shop/4 go begin"),
            format!("r1 web1 {to} shop/4 go end {{\"n\":1.50}}"),
        ]
    };
    let check_interval = |time_is: &str, ends: [String; 2]| {
        let mapping = with(&format!("attributes = [\"n\"]\n{interval}\"{time_is}\""));
        check(&mapping, LINE, &ends.each_ref().map(String::as_str));
    };
    check_interval(
        "start",
        ends(1_767_322_800_500_000_000, 1_767_322_800_501_500_000),
    );
    check_interval(
        "end",
        ends(1_767_322_800_498_500_000, 1_767_322_800_500_000_000),
    );
    let too_long = LINE.replace("1.50", "99999999999999");
    check_bad(
        &with(&format!("{interval}\"end\"")),
        &too_long,
        "99999999999999 ms",
    );
    let longer_than_the_epoch = LINE.replace("1.50", "1767322900000");
    check_bad(
        &with(&format!("{interval}\"end\"")),
        &longer_than_the_epoch,
        "does not fit between the Unix epoch",
    );
}

#[test]
fn flaws_of_lines() {
    check_bad(GOOD, "[]", "expected a JSON object");
    check_bad(
        GOOD,
        &LINE.replace("\"id\"", "\"no\""),
        "no trace: the line has no `id`",
    );
    check_bad(
        &GOOD.replace("{svc}", "{x|y}"),
        LINE,
        "no task: the line has no `x`, or no `y`, or no `thread`",
    );
    check_bad(
        &GOOD.replace("{msg}", "{o}"),
        LINE,
        "the field `o` is an object or a list",
    );
    check_bad(
        GOOD,
        &LINE.replace("1767322800.5", "soon"),
        "`soon` is not a time",
    );
    check_bad(GOOD, &LINE.replace("go", "\\u0000"), "event contains a NUL");
    check_bad(
        GOOD,
        &LINE.replace("go", &"x".repeat(70_000)),
        "event is 70000 bytes long",
    );
    check_bad(
        &format!("{GOOD}absent = [\"-\"]")
            .replace("{a.h}", "{u}")
            .replace("{msg}", "{u}"),
        LINE,
        "no event: the line has no `u`",
    );
    check(
        &format!("{GOOD}lines_without_trace = \"ignore\""),
        &LINE.replace("\"id\"", "\"no\""),
        &[],
    );
    let many: String = (0..300).map(|i| format!("\"k{i}\":1,")).collect();
    check_bad(
        &format!("{GOOD}attributes = \"*\""),
        &LINE.replacen('{', &format!("{{{many}"), 1),
        "attrs has",
    );
    // Fields without a value are not kept.
    let empty = many.replace(":1", ":null");
    check(
        &format!("{GOOD}attributes = \"*\"\nabsent = [\"-\"]"),
        &LINE.replacen('{', &format!("{{{empty}"), 1),
        &[
            "r1 web1 1767322800500000000 shop/4 go {\"a\":{\"h\":\"web1\"},\"n\":1.50,\"o\":{\"x\":[1]}}",
        ],
    );
}

#[test]
fn lines_by_a_pattern() {
    let good = "pattern = '^(?<t>\\S+) (?<id>\\w+) (?<what>.*?)(?: n=(?<n>\\S+))?$'\ntrace = \"{id}\"\nhost = \"h\"\n\
                time = \"{t}\"\nevent = \"{what}\"\ntask = \"main\"\nattributes = \"*\"\nabsent = [\"-\"]\n";
    let event = "r7 h 1767322800000000000 main it went on";
    check(good, "1767322800 r7 it went on", &[event]);
    check(
        good,
        "1767322800 r7 it went on n=12.5",
        &[&format!("{event} {{\"n\":12.5}}")],
    );
    check(
        good,
        "1767322800 r7 it went on n=012",
        &[&format!("{event} {{\"n\":\"012\"}}")],
    );
    check(good, "1767322800 r7 it went on n=-", &[event]);
    check_bad(
        good,
        "1767322800",
        "the mapping's pattern does not match the line",
    );
    check_bad(good, "1767322800 r7 ", "no event: the line has no `what`");
    check_wrong(
        &good.replace("{id}", "{rid}"),
        2,
        "`rid` is not a named group of the pattern; its groups are: t, id, what, n",
    );
    check_wrong(
        &good.replace("\"*\"", "[\"m\"]"),
        7,
        "`m` is not a named group",
    );
    check_wrong(&good.replace("(?<t>", "(?<t"), 1, "regex parse error");
}

#[test]
fn wrong_mappings_are_told_by_line() {
    check_wrong(
        "",
        1,
        "`trace` is missing; write for example trace = \"{request_id}\"",
    );
    check_wrong(
        &GOOD.replace("event", "evnt"),
        4,
        "unknown field `evnt`, expected one of `pattern`, `csv`, `records`, `trace`",
    );
    check_wrong(
        &GOOD.replace("event = \"{msg}\"", "event = 7"),
        4,
        "invalid type: integer `7`, expected a string",
    );
    check_wrong(&GOOD.replace("event = ", "event "), 4, "key with no value");
    check_wrong(
        &GOOD.replace("{msg}", "{msg"),
        4,
        "a brace without its partner",
    );
    check_wrong(
        &GOOD.replace("{msg}", "msg}"),
        4,
        "a brace without its partner",
    );
    check_wrong(
        &GOOD.replace("{msg}", "{msg|}"),
        4,
        "a field without a name",
    );
    check_wrong(
        &GOOD.replace("{id}", "id"),
        1,
        "`trace` is the same for all lines",
    );
    check_wrong(
        &format!("{GOOD}time_unit = \"minutes\""),
        6,
        "write \"s\", \"ms\", \"us\" or \"ns\"",
    );
    check_wrong(
        &format!("{GOOD}time_format = \"%H\""),
        6,
        "does not specify a whole instant",
    );
    check_wrong(
        &format!("{GOOD}time_unit = \"s\"\ntime_format = \"%Y\""),
        7,
        "exclude each other",
    );
    check_wrong(
        &format!("{GOOD}attributes = \"user\""),
        6,
        "write attributes = [\"user\"], or \"*\" for all",
    );
    check_wrong(
        &format!("{GOOD}attributes = 3"),
        6,
        "expected a list of fields",
    );
    check_wrong(
        &format!("{GOOD}lines_without_trace = \"drop\""),
        6,
        "write \"ignore\" or \"report\"",
    );
    check_wrong(
        &format!("{GOOD}[interval]\nduration = \"{{n}}\"\ntime_is = \"end\""),
        6,
        "`duration_unit` is missing",
    );
    check_wrong(
        &format!("{GOOD}[interval]\nduration_unit = \"s\"\ntime_is = \"end\""),
        6,
        "`duration` is missing in [interval]; write for example duration = \"{request_time}\"",
    );
    check_wrong(
        &format!(
            "{GOOD}[interval]\nduration = \"{{n}}\"\nduration_unit = \"s\"\ntime_is = \"mid\""
        ),
        9,
        "write \"start\" or \"end\"",
    );
    check_wrong(
        &format!("{GOOD}[interval]\nlength = 1"),
        7,
        "unknown field `length`",
    );
}

const SPAN: &str = "trace = \"{ctx.trace}\"\nabsent = [\"-\"]\n[span]\nid = \"{$.ctx.span}\"\nparent = \"{parent}\"\n\
                    name = \"{op}\"\nservice = \"{svc}\"\nkind = \"{kind}\"\nstart = \"{start}\"\n";
const SPAN_LINE: &str = r#"{"ctx":{"trace":"0x5b8efff798038103d269b633813fc60c","span":"0xeee19b7ec3c1b174"},"parent":"-","op":"pay",
    "svc":"shop","kind":"SpanKind.SERVER","start":"2026-01-02T03:00:00Z","end":1767322801.5,"ms":1500,"more":{"a":1},"nothing":null}"#;

/// Returns the span of a line, and the names of fields that the mapping does not use.
fn span(mapping: &str, line: &str) -> Result<(stroboscope_otlp::ForeignSpan, Vec<String>), String> {
    let mapping =
        FieldMapping::of(mapping).unwrap_or_else(|wrong| panic!("{mapping}: {}", wrong.what));
    let (mut heard, mut times) = (Heard::default(), mapping.times(None));
    let written = (1, RawRecord::Text(line.as_bytes()));
    mapping
        .read_record(
            written,
            &mut times,
            &mut Scratch::default(),
            &Limits::default(),
            &mut heard,
        )
        .map_err(|reason| reason.to_string())?;
    let names = heard.not_taken.into_iter().map(|(name, _)| name).collect();
    heard.told.remove(0).map(|span| (span, names))
}

#[test]
fn spans_by_a_mapping() {
    let with_end = format!("{SPAN}end = \"{{end}}\"\n");
    let (by_end, names) = span(&with_end, SPAN_LINE).unwrap();
    assert_eq!(names, ["field ms", "field more"]);
    assert_eq!(
        (&*by_end.trace, by_end.span_id),
        ("5b8efff798038103d269b633813fc60c", 0xeee1_9b7e_c3c1_b174)
    );
    assert_eq!(
        (
            by_end.parent_id,
            &*by_end.service,
            &*by_end.name,
            by_end.flags
        ),
        (0, "shop", "pay", 128)
    );
    assert_eq!(
        (by_end.start_ns, by_end.end_ns),
        (1_767_322_800_000_000_000, 1_767_322_801_500_000_000)
    );
    let duration = "duration = \"{ms}\"\nduration_unit = \"ms\"\n";
    let by_duration = span(&format!("{SPAN}{duration}"), SPAN_LINE).unwrap().0;
    let from_end = span(
        &format!("{SPAN}{duration}").replace("start = \"{start}\"", "end = \"{end}\""),
        SPAN_LINE,
    );
    assert_eq!((&by_duration, &from_end.unwrap().0), (&by_end, &by_end));
    let all = span(
        &with_end.replace("absent", "attributes = \"*\"\nabsent"),
        SPAN_LINE,
    )
    .unwrap();
    assert_eq!(
        serde_json::Value::Object(all.0.attributes),
        serde_json::json!({"ctx": {"trace": "0x5b8efff798038103d269b633813fc60c", "span": "0xeee19b7ec3c1b174"}, "ms": 1500, "more": {"a": 1}})
    );
    assert!(all.1.is_empty());
    let lacks = span(&with_end, &SPAN_LINE.replace("\"op\"", "\"po\"")).unwrap_err();
    assert_eq!(lacks, "no name: the line has no `op`");
    let before = span(&with_end, &SPAN_LINE.replace("1767322801.5", "1767322799"))
        .unwrap()
        .0;
    assert!(
        before
            .check(Limits::default().of_span())
            .unwrap_err()
            .to_string()
            .contains("ends 1000000000 ns before")
    );
}

#[test]
fn wrong_mappings_of_spans_are_told_by_line() {
    check_wrong(SPAN, 3, "[span] needs two of `start`, `end` and `duration`");
    let good = format!("{SPAN}end = \"{{end}}\"\n");
    check_wrong(
        &good.replace("id = \"{$.ctx.span}\"\n", ""),
        3,
        "`id` is missing in [span]",
    );
    check_wrong(
        &format!("{SPAN}duration = \"{{ms}}\""),
        3,
        "`duration_unit` is missing in [span]",
    );
    check_wrong(
        &format!("event = \"x\"\n{good}"),
        1,
        "[span] defines a span; leave `event` out",
    );
    check_wrong(
        &format!("{good}[interval]\nduration = \"{{ms}}\"\nduration_unit = \"weeks\""),
        11,
        "leave [interval] out",
    );
    check_wrong(
        &format!("csv = \",\"\nrecords = \"$\"\n{good}"),
        2,
        "exclude each other",
    );
    check_wrong(
        &format!("csv = \"tab\"\n{good}"),
        1,
        "write the separator of the fields",
    );
}
