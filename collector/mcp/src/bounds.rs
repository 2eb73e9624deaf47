//! Bounds of answers: cuts the lists of a JSON document that is too large.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use serde_json::Value;

/// A document within its limit.
#[derive(Debug, PartialEq)]
pub(crate) struct BoundedJson {
    pub(crate) value: Value,
    /// Lists that were cut, in the order of their paths.
    pub(crate) cut: Vec<CutList>,
}

/// A list that was cut, or all lists of one path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CutList {
    /// Keys from the root, such as `series[].columns`.
    pub(crate) path: String,
    /// Number of items that remain.
    pub(crate) shown: usize,
    /// Number of items before; a list inside a removed item does not count.
    pub(crate) of: usize,
}

/// Cuts all lists of a document to one length: the largest with which its JSON has at most
/// `bytes_max` bytes.
///
/// # Errors
/// Returns the size of the JSON with all lists empty, in bytes, if that is still too large.
pub(crate) fn bounded(mut value: Value, bytes_max: usize) -> Result<BoundedJson, usize> {
    let longest = longest_list(&value);
    if bytes(&value, longest) <= bytes_max {
        return Ok(BoundedJson {
            value,
            cut: Vec::new(),
        });
    }
    let empty = bytes(&value, 0);
    if empty > bytes_max {
        return Err(empty);
    }
    // Lists of length `fits` fit, and those of length `exceeds` do not.
    let (mut fits, mut exceeds) = (0, longest);
    while exceeds - fits > 1 {
        let middle = fits + (exceeds - fits) / 2;
        if bytes(&value, middle) <= bytes_max {
            fits = middle;
        } else {
            exceeds = middle;
        }
    }
    let mut cut = BTreeMap::new();
    cut_lists(&mut value, fits, "", &mut cut);
    let cut = cut.into_iter().filter(|(_, (shown, of))| shown < of);
    let cut = cut.map(|(path, (shown, of))| CutList { path, shown, of });
    Ok(BoundedJson {
        value,
        cut: cut.collect(),
    })
}

fn longest_list(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(longest_list).fold(items.len(), usize::max),
        Value::Object(fields) => fields.values().map(longest_list).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns the length of the JSON, if each list had at most `items_max` items.
fn bytes(value: &Value, items_max: usize) -> usize {
    let separated = |lengths: usize, count: usize| 2 + lengths + count.saturating_sub(1);
    match value {
        Value::Array(items) => {
            let kept = &items[..items.len().min(items_max)];
            let lengths = kept.iter().map(|item| bytes(item, items_max)).sum();
            separated(lengths, kept.len())
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                length_of(key.as_str()) + 1 + bytes(value, items_max)
            };
            separated(fields.iter().map(field).sum(), fields.len())
        }
        scalar => length_of(scalar),
    }
}

fn length_of(scalar: impl Serialize) -> usize {
    let mut length = Length(0);
    // Scalars do not fail, and the writer does not either.
    let _ = serde_json::to_writer(&mut length, &scalar);
    length.0
}

/// Writer that counts bytes.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Cuts lists, and adds their lengths after and before the cut to `cut`, by path.
fn cut_lists(
    value: &mut Value,
    items_max: usize,
    path: &str,
    cut: &mut BTreeMap<String, (usize, usize)>,
) {
    match value {
        Value::Array(items) => {
            let (shown, of) = cut.entry(path.to_owned()).or_default();
            *of += items.len();
            items.truncate(items_max);
            *shown += items.len();
            for item in items {
                cut_lists(item, items_max, &format!("{path}[]"), cut);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = match path {
                    "" => key.clone(),
                    _ => format!("{path}.{key}"),
                };
                cut_lists(value, items_max, &path, cut);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn cut_lists_are_named_with_their_lengths() {
        let rows =
            |count: usize| -> Vec<Value> { (0..count).map(|row| json!({"n": row})).collect() };
        let value = json!({
            "name": "x",
            "few": rows(2),
            "series": [{"columns": rows(30)}, {"columns": rows(3)}],
        });
        let found = bounded(value.clone(), 120).unwrap();
        let shown = found.cut[0].shown;
        assert_eq!(
            found.cut,
            [CutList {
                path: "series[].columns".to_owned(),
                shown,
                of: 33
            }]
        );
        assert!(found.value.to_string().len() <= 120, "{}", found.value);
        let whole = value.to_string().len();
        assert_eq!(bounded(value.clone(), whole).unwrap().cut, []);
        assert!(!bounded(value, whole - 1).unwrap().cut.is_empty());
        assert_eq!(bounded(json!({"text": "long"}), 5), Err(15));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ab\"\\\\é\n]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::btree_map("[a-c]{1,2}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// Cuts lists of a copy, for comparison.
    fn cut_copy(value: &Value, items_max: usize) -> Value {
        let mut copy = value.clone();
        cut_lists(&mut copy, items_max, "", &mut BTreeMap::new());
        copy
    }

    proptest! {
        /// The cut document is the largest of those that fit, and lengths are those of the text.
        #[test]
        fn the_longest_lists_that_fit_remain(value in any_json(), bytes_max in 0_usize..400) {
            let longest = longest_list(&value);
            for items_max in 0..=longest {
                let text = cut_copy(&value, items_max).to_string();
                prop_assert_eq!(text.len(), bytes(&value, items_max));
            }
            let fitting = (0..=longest).rev().map(|items_max| cut_copy(&value, items_max));
            let expected = fitting.into_iter().find(|copy| copy.to_string().len() <= bytes_max);
            match (bounded(value.clone(), bytes_max), expected) {
                (Ok(found), Some(expected)) => {
                    prop_assert_eq!(found.cut.is_empty(), found.value == value);
                    prop_assert_eq!(found.value, expected);
                }
                (Err(bytes), None) => prop_assert!(bytes > bytes_max),
                (found, expected) => prop_assert!(false, "{:?} {:?}", found, expected),
            }
        }
    }
}
