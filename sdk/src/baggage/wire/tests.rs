//! Tests of parsing: a parser without limits on reading gives the same result for legal headers.

use proptest::prelude::*;

use super::*;

/// Parses a header like [`parse`], without limits on reading.
fn parsed_plainly(header: &str) -> Baggage {
    let mut baggage = Baggage::default();
    for member in header
        .split(',')
        .map(trim)
        .filter(|member| !member.is_empty())
    {
        let parts: Vec<&str> = member.split(';').map(trim).collect();
        let is_allowed = |byte: u8| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t';
        let Some((key, value)) = parts[0].split_once('=') else {
            continue;
        };
        let (key, value) = (trim(key), trim(value));
        if !is_token(key) || !member.bytes().all(is_allowed) {
            continue;
        }
        match key.strip_prefix(PREFIX).filter(|key| is_token(key)) {
            Some(key) => match entry_plainly(key, value, &parts[1..]) {
                Some(entry) => _ = baggage.set(entry),
                None => baggage.foreign.push(member.to_owned()),
            },
            None => baggage.foreign.push(member.to_owned()),
        }
    }
    baggage
}

fn entry_plainly(key: &str, value: &str, properties: &[&str]) -> Option<Entry> {
    let (mut letter, mut entry) = ("", Entry::new(Scope::Request, key, ""));
    for property in properties.iter().filter(|property| !property.is_empty()) {
        match property
            .split_once('=')
            .map(|(name, value)| (trim(name), trim(value)))
        {
            Some(("t", value)) => letter = value,
            Some(("s", "c")) => entry.scope = Scope::Component,
            Some(("i", value)) => {
                entry.importance = value.parse().ok().filter(|&i| i <= IMPORTANCE_MAX)?;
            }
            _ => entry.properties.push_str(&format!(";{property}")),
        }
    }
    entry.value = parse_value(value, letter)?;
    Some(entry)
}

proptest! {
    #[test]
    fn legal_headers_are_read_as_before(
        members in prop::collection::vec(
            prop_oneof![
                // Members of the SDK, with few keys, so that some repeat.
                6 => "sb\\.[ab]{1,2} ?= ?[0-9a-c%C3BC]{0,6}( ?; ?(t=[iudb]|s=c|i=[0-9]|ttl=3|x)){0,5}",
                // Members of other vendors.
                3 => "[a-z]{1,4} ?=[!-+.-:<-~]{0,9}(;[a-z]{1,3}(=[a-z]{0,3})?){0,20}",
                1 => "[ -~]{0,9}",
                1 => "[ \t]{0,3}",
            ],
            0..100,
        ),
    ) {
        let header = members.join(", ");
        prop_assume!(header.len() <= BYTES_MAX);
        // A comma inside a generated member splits it, so there may be more members than were
        // generated.
        prop_assume!(header.split(',').count() <= MEMBERS_MAX);
        prop_assert_eq!(parse([header.as_bytes()]), parsed_plainly(&header));
    }

    #[test]
    fn lengths_are_those_of_what_is_written(text in any::<String>(), double in any::<f64>(), number in any::<i64>(), importance in 0u8..10) {
        let [int, uint] = [Value::Int(number), Value::Uint(number.unsigned_abs())];
        for value in [Value::Text(text), Value::Double(double), int, uint, Value::Bool(number > 0)] {
            let mut entry = Entry::new(Scope::Component, "k", value).with_importance(importance);
            entry.properties = ";p".to_owned();
            let mut written = String::new();
            format_entry(&entry, &mut written);
            prop_assert_eq!(encoded_bytes(&entry), written.len());
        }
    }
}

/// Checks that the part before the limit is read, and the part beyond it is not.
#[test]
fn reading_stops_at_the_limit() {
    let of = |n: usize| format!("sb.k{n}=1");
    let members: Vec<String> = (0..2 * MEMBERS_MAX).map(of).collect();
    let read = parse([members.join(",").as_bytes()]);
    assert_eq!(read.entries.len(), MEMBERS_MAX);
    let long = format!("sb.a=1,sb.b={},sb.c=1", "x".repeat(BYTES_MAX));
    let read = parse([long.as_bytes()]);
    assert_eq!(read.entries.len(), 1, "a part of a value is no value");
}

/// Checks that an entry with too many properties is forwarded without being parsed.
#[test]
fn members_with_many_properties_are_somebody_elses() {
    let few = format!("sb.a=1{}", ";x".repeat(PROPERTIES_MAX));
    assert_eq!(parse([few.as_bytes()]).entries.len(), 1);
    let many = format!("{few};x");
    assert_eq!(parse([many.as_bytes()]).foreign, [many]);
}
