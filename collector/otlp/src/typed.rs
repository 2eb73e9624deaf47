//! Deserializes JSON into types, and reports the keys for which the types have no field.

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_ignored::Path;

/// Parses a JSON text; fails if it does not have the form of `T`. Calls `ignored` with the path of
/// each unknown key, prefixed with `within`.
pub fn parse<'a, T: Deserialize<'a>>(
    text: &'a str,
    within: &str,
    ignored: &mut dyn FnMut(&str),
) -> serde_json::Result<T> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_ignored::deserialize(&mut json, |path| {
        let mut name = within.to_owned();
        push_path(&path, &mut name);
        ignored(&name);
    })?;
    json.end()?;
    Ok(value)
}

/// Writes a path without the indices of lists, so that the same key has the same name everywhere.
fn push_path(path: &Path<'_>, name: &mut String) {
    match path {
        Path::Root => {}
        Path::Seq { parent, .. } => {
            push_path(parent, name);
            name.push_str("[]");
        }
        Path::Map { parent, key } => {
            push_path(parent, name);
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(key);
        }
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => {
            push_path(parent, name);
        }
    }
}

/// Deserializes null as the default value.
pub fn nullable<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A value that is not stored: true if it has content. Null, zero, false and empty values have
/// none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnstoredValue(pub bool);

impl<'de> Deserialize<'de> for UnstoredValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Says).map(Self)
    }
}

struct Says;

impl<'de> Visitor<'de> for Says {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        Ok(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<bool, E> {
        Ok(value != 0)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<bool, E> {
        Ok(value != 0)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<bool, E> {
        Ok(value != 0.0)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<bool, E> {
        Ok(!value.is_empty())
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<bool, A::Error> {
        let mut says = false;
        while sequence.next_element::<UnstoredValue>()?.is_some() {
            says = true;
        }
        Ok(says)
    }

    // Keys inside this value belong to it, and are not reported as unknown.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut says = false;
        while map.next_entry::<IgnoredAny, UnstoredValue>()?.is_some() {
            says = true;
        }
        Ok(says)
    }
}

/// Counts the content of a raw value that is not stored: its elements if it is a list, otherwise 1,
/// or 0 for an empty or default value such as null or 0.
pub fn count_of(raw: &str) -> u64 {
    if raw.starts_with('[') {
        return serde_json::from_str::<Vec<IgnoredAny>>(raw).map_or(1, |list| list.len() as u64);
    }
    u64::from(serde_json::from_str(raw).map_or(true, |UnstoredValue(says)| says))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_are_named_by_their_paths() {
        #[derive(Debug, Default, Deserialize, PartialEq)]
        #[serde(default)]
        struct Inner {
            #[serde(deserialize_with = "nullable")]
            a: u32,
            b: UnstoredValue,
        }
        #[derive(Deserialize)]
        struct Outer {
            list: Vec<Inner>,
        }
        let mut names = Vec::new();
        let text = r#"{"list":[{"a":1,"x":[1]},{"a":null,"b":{"c":0},"x":{}}],"y":null}"#;
        let outer: Outer = parse(text, "record", &mut |name| names.push(name.to_owned())).unwrap();
        assert_eq!(names, ["record.list[].x", "record.list[].x", "record.y"]);
        assert_eq!(
            outer.list,
            [
                Inner {
                    a: 1,
                    b: UnstoredValue(false)
                },
                Inner {
                    a: 0,
                    b: UnstoredValue(true)
                }
            ]
        );
        assert!(parse::<Outer>("{\"list\":[]} x", "", &mut |_| {}).is_err());
    }

    #[test]
    fn what_says_nothing_is_no_loss() {
        for nothing in ["null", "0", "-0", "0.0", "\"\"", "false", "[]", "{}"] {
            assert_eq!(count_of(nothing), 0, "{nothing}");
        }
        for (something, count) in [
            ("1", 1),
            ("\"x\"", 1),
            ("true", 1),
            ("[0,1]", 2),
            ("{\"a\":0}", 1),
        ] {
            assert_eq!(count_of(something), count, "{something}");
        }
    }
}
