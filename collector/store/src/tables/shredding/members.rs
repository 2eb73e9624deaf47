//! Finds the members of a JSON object without building JSON values.

use std::borrow::Cow;

use super::name::ValueType;

/// Value of a member, with its type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(Cow<'a, str>),
    /// Value that no column stores, such as a list.
    Other,
}

impl Value<'_> {
    pub(super) fn value_type(&self) -> Option<ValueType> {
        match self {
            Self::Bool(_) => Some(ValueType::Bool),
            Self::Int(_) => Some(ValueType::Int),
            Self::Real(_) => Some(ValueType::Real),
            Self::Text(_) => Some(ValueType::Text),
            Self::Other => None,
        }
    }
}

/// Member of a JSON object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) value: Value<'a>,
    /// Original text `"key":value`.
    pub(super) text: &'a str,
}

/// Collects the members of `json` into `members`. Returns false if `json` is not an object. Parses
/// most flat objects itself, and lets serde_json parse escapes, reals, and inner lists and objects.
pub(super) fn find_members<'a>(json: &'a str, members: &mut Vec<Member<'a>>) -> bool {
    members.clear();
    let mut at = Scan { json, offset: 0 };
    at.object(members).is_some()
}

/// Removes all members `key` from a JSON object, if any of them is a text. Returns the rest (`None`
/// if nothing is left), and the first of these texts. Returns `None` if there is no such text.
pub(in crate::tables) fn without_text(json: &str, key: &str) -> Option<(Option<String>, String)> {
    let mut members = Vec::new();
    if !find_members(json, &mut members) {
        return None;
    }
    let found = members.iter().find_map(|member| match &member.value {
        Value::Text(text) if member.key == key => Some(text.to_string()),
        _ => None,
    })?;
    let others = members.iter().filter(|member| member.key != key);
    let others: Vec<&str> = others.map(|member| member.text).collect();
    let rest = (!others.is_empty()).then(|| format!("{{{}}}", others.join(",")));
    Some((rest, found))
}

struct Scan<'a> {
    json: &'a str,
    offset: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.json.as_bytes().get(self.offset).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.offset += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.offset += 1)
    }

    fn object(&mut self, members: &mut Vec<Member<'a>>) -> Option<()> {
        self.skip_space();
        self.expect(b'{')?;
        self.skip_space();
        if self.expect(b'}').is_none() {
            loop {
                self.skip_space();
                let begin = self.offset;
                let key = self.text()?;
                self.skip_space();
                self.expect(b':')?;
                self.skip_space();
                let value = self.value()?;
                let text = &self.json[begin..self.offset];
                members.push(Member { key, value, text });
                self.skip_space();
                if self.expect(b',').is_none() {
                    self.expect(b'}')?;
                    break;
                }
            }
        }
        self.skip_space();
        (self.offset == self.json.len()).then_some(())
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        let begin = self.offset;
        self.expect(b'"')?;
        let mut has_escapes = false;
        loop {
            self.offset += plain_bytes(self.json.as_bytes().get(self.offset..)?);
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    self.offset += 2;
                }
                _ => return None,
            }
        }
        self.offset += 1;
        let written = self.json.get(begin..self.offset)?;
        if has_escapes {
            serde_json::from_str(written).ok().map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(&written[1..written.len() - 1]))
        }
    }

    fn value(&mut self) -> Option<Value<'a>> {
        match self.peek()? {
            b'"' => self.text().map(Value::Text),
            b'{' | b'[' => self.nested(),
            _ => self.literal(),
        }
    }

    fn nested(&mut self) -> Option<Value<'a>> {
        let mut values = serde_json::Deserializer::from_str(&self.json[self.offset..])
            .into_iter::<serde::de::IgnoredAny>();
        values.next()?.ok()?;
        self.offset += values.byte_offset();
        Some(Value::Other)
    }

    fn literal(&mut self) -> Option<Value<'a>> {
        let rest = &self.json[self.offset..];
        let end = rest
            .bytes()
            .position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\n' | b'\r'))?;
        let text = &rest[..end];
        self.offset += end;
        match text {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" => Some(Value::Other),
            _ => number(text),
        }
    }
}

/// Returns the length of the prefix without quotes, backslashes and bytes below 0x20. Checks eight
/// bytes at a time (SWAR). A borrow affects only bytes above a match, so the lowest match is
/// correct.
fn plain_bytes(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let quote = has_zero(word ^ (ONES * u64::from(b'"')));
        let backslash = has_zero(word ^ (ONES * u64::from(b'\\')));
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let found = (quote | backslash | control) & HIGH;
        if found != 0 {
            return at * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let is_plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
    words.len() * 8 + rest.iter().take_while(|byte| is_plain(byte)).count()
}

/// Parses a number; `None` if it is not valid JSON. Returns [`Value::Other`] for a number that a
/// column would not preserve exactly.
fn number(text: &str) -> Option<Value<'static>> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.is_empty()
        && (digits == "0" || !digits.starts_with('0'));
    if is_plain {
        // Excludes minus zero, which an integer cannot preserve.
        let value = text.parse().ok().filter(|_| text != "-0");
        return Some(value.map_or(Value::Other, Value::Int));
    }
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    // Excludes numbers that are too large for a float, and those that a float would format
    // differently.
    let value = serde_json::from_str(text).ok();
    let value = value.filter(|value: &f64| value.is_finite() && real_text(*value) == text);
    Some(value.map_or(Value::Other, Value::Real))
}

/// Formats a floating-point number like the code that writes attributes as JSON.
pub(super) fn real_text(value: f64) -> String {
    serde_json::Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;

    /// Reference implementation with serde_json alone.
    fn slow(json: &str) -> Option<Vec<(String, String)>> {
        struct Pairs(Vec<(String, String)>);
        impl<'de> serde::Deserialize<'de> for Pairs {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = Pairs;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<Pairs, A::Error> {
                        let mut pairs = Vec::new();
                        while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                            pairs.push((key, value.get().to_owned()));
                        }
                        Ok(Pairs(pairs))
                    }
                }
                from.deserialize_map(Visitor)
            }
        }
        serde_json::from_str::<Pairs>(json)
            .ok()
            .map(|pairs| pairs.0)
    }

    fn check(json: &str) -> Result<(), TestCaseError> {
        let mut members = Vec::new();
        let is_object = find_members(json, &mut members);
        let Some(expected) = slow(json) else {
            prop_assert!(!is_object, "{json}");
            return Ok(());
        };
        prop_assert!(is_object, "{json}");
        prop_assert_eq!(members.len(), expected.len());
        for (member, (key, raw)) in members.iter().zip(&expected) {
            prop_assert_eq!(&*member.key, key);
            prop_assert!(member.text.ends_with(raw.as_str()), "{} {raw}", member.text);
            let written = match &member.value {
                Value::Bool(value) => value.to_string(),
                Value::Int(value) => value.to_string(),
                Value::Real(value) => real_text(*value),
                Value::Text(text) => {
                    let expected: String = serde_json::from_str(raw).unwrap();
                    prop_assert_eq!(&**text, expected);
                    continue;
                }
                Value::Other => {
                    let is_typed = raw.starts_with('"') || raw == "true" || raw == "false";
                    prop_assert!(!is_typed, "{raw}");
                    continue;
                }
            };
            prop_assert_eq!(&written, raw, "as it stood");
        }
        Ok(())
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            ".{0,8}".prop_map(Into::into),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
                prop::collection::btree_map(".{0,3}", inner, 0..3)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn members_are_those_that_serde_finds(
            object in prop::collection::btree_map(".{0,4}", value(), 0..6),
            pretty: bool,
        ) {
            let object: BTreeMap<_, _> = object;
            let json = if pretty {
                serde_json::to_string_pretty(&object).unwrap()
            } else {
                serde_json::to_string(&object).unwrap()
            };
            check(&json)?;
        }

        #[test]
        fn what_is_no_json_is_none_for_both(json in r#"[{}\[\]:,"\\ a0-9.eEtrufalsn-]{0,12}"#) {
            check(&json)?;
            check(&format!("{{{json}}}"))?;
            check(&format!("{{\"a\":{json}}}"))?;
        }
    }

    proptest! {
        #[test]
        fn eight_bytes_at_a_time_are_as_one_by_one(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let special = |byte: &u8| *byte < 0x20 || [b'"', b'\\'].contains(byte);
            let expected = bytes.iter().position(special).unwrap_or(bytes.len());
            prop_assert_eq!(plain_bytes(&bytes), expected);
        }
    }

    #[test]
    fn numbers_keep_what_they_say() {
        for (text, value) in [
            ("7", Value::Int(7)),
            ("-9223372036854775808", Value::Int(i64::MIN)),
            ("9223372036854775808", Value::Other),
            ("-0", Value::Other),
            ("1.5", Value::Real(1.5)),
            ("1.50", Value::Other),
            ("1e3", Value::Other),
        ] {
            let json = format!("{{\"n\":{text}}}");
            let mut members = Vec::new();
            assert!(find_members(&json, &mut members), "{text}");
            assert_eq!(members[0].value, value, "{text}");
        }
        for wrong in ["01", "+1", "1.", ".5", "1e", "--1", "NaN", "tru"] {
            assert!(
                !find_members(&format!("{{\"n\":{wrong}}}"), &mut Vec::new()),
                "{wrong}"
            );
        }
    }
}
