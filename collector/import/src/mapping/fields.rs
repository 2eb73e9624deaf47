//! The fields of one record, by name.

use std::borrow::Cow;
use std::fmt;

use regex::{Captures, Regex};
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::BadLine;
use stroboscope_otlp::without_line_number;

/// Members of a JSON object, in their order, unparsed.
pub(super) type Members<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// Fields of a record, with the texts that the mapping declares `absent`.
pub(super) struct Fields<'a> {
    record: Record<'a>,
    absent: &'a [String],
}

enum Record<'a> {
    Json(Members<'a>),
    /// Line that matches a pattern.
    Groups(&'a Regex, Captures<'a>),
    /// Names of the columns of CSV, and the values of a record.
    Columns(&'a [String], &'a [String]),
}

impl<'a> Fields<'a> {
    /// Returns the fields of a JSON object. Fails if the line is not a JSON object.
    pub(super) fn of_json(line: &'a str, absent: &'a [String]) -> Result<Self, BadLine> {
        let members = members(line).map_err(|error| BadLine::Json(without_line_number(&error)))?;
        let record = Record::Json(members);
        Ok(Self { record, absent })
    }

    /// Returns the matches of a pattern's groups. Fails if the pattern does not match the line.
    pub(super) fn of_groups(
        line: &'a str,
        pattern: &'a Regex,
        absent: &'a [String],
    ) -> Result<Self, BadLine> {
        let captures = pattern.captures(line).ok_or(BadLine::NoMatch)?;
        let record = Record::Groups(pattern, captures);
        Ok(Self { record, absent })
    }

    /// Returns the fields of a CSV record.
    pub(super) fn of_columns(
        names: &'a [String],
        values: &'a [String],
        absent: &'a [String],
    ) -> Self {
        let record = Record::Columns(names, values);
        Self { record, absent }
    }

    fn is_absent(&self, text: &str) -> bool {
        self.absent.iter().any(|absent| absent == text)
    }

    /// Returns the text of a field; `None` if it is missing, null, empty, or a text that the
    /// mapping declares `absent`. Fails if it is an object, a list or an invalid string.
    pub(super) fn text(&self, path: &str) -> Result<Option<Cow<'_, str>>, BadLine> {
        let text = match &self.record {
            Record::Json(members) => match find(members, path) {
                Some(raw) => scalar(raw, path)?,
                None => None,
            },
            Record::Groups(_, captures) => captures.name(path).map(|group| group.as_str().into()),
            Record::Columns(names, values) => {
                column(names, values, path).map(|value| value.as_str().into())
            }
        };
        Ok(text.filter(|text| !text.is_empty() && !self.is_absent(text)))
    }

    /// Returns a field as JSON; `None` if it is missing or null, or if it is written, without its
    /// quotes, as a text that the mapping declares `absent`. An empty group or column counts as
    /// missing.
    fn json(&self, path: &str) -> Option<Cow<'_, str>> {
        let text = match &self.record {
            Record::Json(members) => {
                let raw = find(members, path)?;
                return (!self.stands_for_nothing(raw)).then_some(Cow::Borrowed(raw));
            }
            Record::Groups(_, captures) => captures.name(path)?.as_str(),
            Record::Columns(names, values) => column(names, values, path)?.as_str(),
        };
        (!text.is_empty() && !self.is_absent(text)).then(|| group_json(text))
    }

    /// Returns the number of top-level fields that have a value, except `used`. Counts a name twice
    /// if it occurs twice.
    pub(super) fn count_all_but(&self, used: &[String]) -> usize {
        let is_used = |name: &str| used.iter().any(|used| used == name);
        let is_kept = |name: &str| !is_used(name) && matches!(self.text(name), Ok(Some(_)));
        match &self.record {
            Record::Json(members) => {
                let says = |raw: &RawValue| !self.stands_for_nothing(raw.get());
                let kept = members.iter();
                kept.filter(|(name, raw)| !is_used(name) && says(raw))
                    .count()
            }
            Record::Groups(pattern, _) => {
                let names = pattern.capture_names().flatten();
                names.filter(|name| is_kept(name)).count()
            }
            Record::Columns(names, _) => names.iter().filter(|name| is_kept(name)).count(),
        }
    }

    /// Writes the present fields of `paths` as members of a JSON object, and returns their number.
    pub(super) fn write_these(&self, paths: &[String], json: &mut String) -> usize {
        self.write(paths.iter().map(String::as_str), json)
    }

    fn write<'n>(&self, names: impl Iterator<Item = &'n str>, json: &mut String) -> usize {
        let found = names.filter_map(|name| Some((name, self.json(name)?)));
        let written = found.map(|(name, value)| push_member(json, name, &value));
        written.count()
    }

    /// Writes all fields that have a value, except `used`, as members of a JSON object. Returns
    /// their number.
    pub(super) fn write_all_but(&self, used: &[String], json: &mut String) -> usize {
        let is_used = |name: &str| used.iter().any(|used| used == name);
        match &self.record {
            Record::Json(members) => {
                // If a name occurs twice, the last one counts.
                let is_last = |at: usize, name: &str| {
                    members[at + 1..].iter().all(|(later, _)| later != name)
                };
                let says = |raw: &RawValue| !self.stands_for_nothing(raw.get());
                let kept = members
                    .iter()
                    .enumerate()
                    .filter(|(at, (name, raw))| !is_used(name) && is_last(*at, name) && says(raw));
                kept.map(|(_, (name, raw))| push_member(json, name, raw.get()))
                    .count()
            }
            Record::Groups(pattern, _) => {
                let names = pattern.capture_names().flatten();
                self.write(names.filter(|name| !is_used(name)), json)
            }
            Record::Columns(names, _) => {
                // If a name occurs twice, the first one counts.
                let is_first = |at: usize| !names[..at].contains(&names[at]);
                let kept = names.iter().enumerate().filter(|(at, _)| is_first(*at));
                let names = kept.map(|(_, name)| name.as_str());
                self.write(names.filter(|name| !is_used(name)), json)
            }
        }
    }

    /// Calls `tell` with the name of each top-level field that has a value (in JSON: other than
    /// `[]`, `{}` and `""`), unless one of `paths` is that name or begins with it and a dot.
    pub(super) fn not_in(&self, paths: &[String], tell: &mut dyn FnMut(&str)) {
        let is_reached = |name: &str| {
            paths.iter().any(|path| {
                path.strip_prefix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        let is_told = |name: &&str| !is_reached(name) && self.json(name).is_some();
        match &self.record {
            Record::Json(members) => {
                let is_empty = |raw: &str| ["[]", "{}", "\"\""].contains(&raw);
                let says = |raw: &str| !is_empty(raw) && !self.stands_for_nothing(raw);
                members
                    .iter()
                    .filter(|(name, raw)| !is_reached(name) && says(raw.get()))
                    .for_each(|(name, _)| tell(name));
            }
            Record::Groups(pattern, _) => {
                let names = pattern.capture_names().flatten();
                names.filter(is_told).for_each(tell);
            }
            Record::Columns(names, _) => {
                let names = names.iter().map(String::as_str);
                names.filter(is_told).for_each(tell);
            }
        }
    }

    /// Reports whether a JSON value is null, or is written as a text that is declared `absent`.
    fn stands_for_nothing(&self, raw: &str) -> bool {
        let text = raw
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        raw == "null" || self.is_absent(text.unwrap_or(raw))
    }
}

fn column<'a>(names: &[String], values: &'a [String], name: &str) -> Option<&'a String> {
    values.get(names.iter().position(|column| column == name)?)
}

fn push_member(json: &mut String, name: &str, value: &str) {
    if json.len() > 1 {
        json.push(',');
    }
    json.push_str(&quoted(name));
    json.push(':');
    json.push_str(value);
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the text of a group or column as JSON. A JSON number in the range of `f64` stays a
/// number, so that searches can compare it as one; any other text becomes a string.
fn group_json(text: &str) -> Cow<'_, str> {
    match serde_json::from_str::<serde_json::Number>(text) {
        Ok(_) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(quoted(text)),
    }
}

/// Returns the text of a string, number or boolean; `None` for null. Fails for an object, a list or
/// an invalid string.
fn scalar<'a>(raw: &'a str, path: &str) -> Result<Option<Cow<'a, str>>, BadLine> {
    match raw.as_bytes().first() {
        Some(b'"') if !raw.contains('\\') => Ok(Some(Cow::Borrowed(&raw[1..raw.len() - 1]))),
        Some(b'"') => serde_json::from_str::<String>(raw)
            .map(|text| Some(Cow::Owned(text)))
            .map_err(|error| BadLine::Json(without_line_number(&error))),
        Some(b'{' | b'[') => Err(BadLine::NotScalar {
            field: path.to_owned(),
        }),
        _ => Ok((raw != "null").then_some(Cow::Borrowed(raw))),
    }
}

/// Returns the value at a path; `None` if there is none. A member whose name is the whole path
/// takes precedence over a member whose name is the beginning of the path.
fn find<'a>(members: &Members<'a>, path: &str) -> Option<&'a str> {
    let of_name = |name: &str| {
        let mut last_first = members.iter().rev();
        let found = last_first.find(|(member, _)| member == name);
        found.map(|(_, raw)| raw.get())
    };
    of_name(path).or_else(|| {
        let mut points = path.match_indices('.');
        points.find_map(|(at, _)| find_in(of_name(&path[..at])?, &path[at + 1..]))
    })
}

fn find_in<'a>(value: &'a str, path: &str) -> Option<&'a str> {
    match value.as_bytes().first()? {
        b'{' => find(&members(value).ok()?, path),
        b'[' => {
            let parts = path.split_once('.');
            let index = parts.map_or(path, |(index, _)| index);
            let elements: Vec<&RawValue> = serde_json::from_str(value).ok()?;
            let element = elements.get(index.parse::<usize>().ok()?)?.get();
            parts.map_or(Some(element), |(_, rest)| find_in(element, rest))
        }
        _ => None,
    }
}

fn members(text: &str) -> serde_json::Result<Members<'_>> {
    struct Object;

    impl<'de> Visitor<'de> for Object {
        type Value = Members<'de>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a JSON object")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            let mut members = Members::with_capacity(16);
            while let Some((Name(name), value)) = map.next_entry()? {
                members.push((name, value));
            }
            Ok(members)
        }
    }

    let mut deserializer = serde_json::Deserializer::from_str(text);
    let members = deserializer.deserialize_map(Object)?;
    deserializer.end()?;
    Ok(members)
}

/// A key, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_and_path() {
        let line = r#"{"a":{"b":{"c":1},"d":[{"e":"x\n"},[2]]},"a.b":{"c":"flat"},"n":null,"t":true,"dup":1,"dup":2}"#;
        let fields = Fields::of_json(line, &[]).unwrap();
        let text = |path: &str| fields.text(path).map(|text| text.map(Cow::into_owned));
        let some = |text: &str| Ok(Some(text.to_owned()));
        // The first dot is tried first: `a` contains `b.c`.
        assert_eq!(text("a.b.c"), some("1"));
        assert_eq!(text("a.d.0.e"), some("x\n"));
        assert_eq!(
            (text("a.d.1.0"), text("t"), text("dup")),
            (some("2"), some("true"), some("2"))
        );
        for missing in ["n", "x", "a.x", "a.d.2", "a.d.x", "t.x", ""] {
            assert_eq!(text(missing), Ok(None), "{missing}");
        }
        assert_eq!(
            text("a.b").unwrap_err().to_string(),
            "the field `a.b` is an object or a list; a text or a number is needed"
        );
        let mut json = "{".to_owned();
        assert_eq!(
            fields.write_all_but(&["a".to_owned(), "a.b".to_owned()], &mut json),
            2
        );
        assert_eq!(json, r#"{"t":true,"dup":2"#);
        assert!(Fields::of_json("[1]", &[]).is_err() && Fields::of_json("{} x", &[]).is_err());
    }
}
