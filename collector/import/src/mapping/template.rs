//! Templates: texts with fields in braces.

use std::borrow::Cow;

use super::fields::Fields;
use crate::BadLine;

/// One piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The first of these fields that is present.
    Field(Vec<String>),
}

/// A text with fields in braces: `"{service}/{thread|task}"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

/// Returns the error message for a field that is not a group of the pattern.
pub(super) fn no_group(field: &str, groups: &[String]) -> String {
    let groups = groups.join(", ");
    format!("`{field}` is not a named group of the pattern; its groups are: {groups}")
}

/// Converts a path of a mapping file to names separated by dots: `$.spans[0].id` becomes
/// `spans.0.id`. Omits `[*]`.
pub(super) fn plain_path(path: &str) -> String {
    let below = path.strip_prefix("$.").or(path.strip_prefix('$'));
    let path = below.unwrap_or(path);
    path.replace("[*]", "").replace('[', ".").replace(']', "")
}

impl Template {
    /// Parses a template. `field_name` converts a field as written to the name of the line's field,
    /// or describes why there is none. The error describes the defect.
    pub(super) fn new(
        text: &str,
        field_name: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            let after = &rest[at + 1..];
            if after.starts_with(brace) {
                plain.push_str(brace);
                rest = &after[1..];
                continue;
            }
            let (fields, after) = match after.split_once('}') {
                Some(found) if brace == "{" => found,
                _ => {
                    return Err(format!(
                        "`{text}` has a brace without its partner; write a field as {{field}}, and braces as {{{{ and }}}}"
                    ));
                }
            };
            let name_of = |field: &str| match field.trim() {
                "" => Ok(String::new()),
                field => field_name(field),
            };
            let fields: Vec<String> = fields.split('|').map(name_of).collect::<Result<_, _>>()?;
            if fields.iter().any(String::is_empty) {
                return Err(format!(
                    "`{text}` has a field without a name; write {{field}} or {{one|other}}"
                ));
            }
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Field(fields));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }

    /// Returns all fields that the template names.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        let fields = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Field(fields) => Some(fields),
        });
        fields.flatten().map(String::as_str)
    }

    /// Returns the text with a line's fields filled in; `None` if a field and all its alternatives
    /// are missing. Fails if a field is an object, a list or an invalid string.
    pub(super) fn fill<'a>(
        &'a self,
        fields: &'a Fields<'_>,
    ) -> Result<Option<Cow<'a, str>>, BadLine> {
        let piece = |piece: &'a Piece| match piece {
            Piece::Text(text) => Ok(Some(Cow::Borrowed(text.as_str()))),
            Piece::Field(names) => {
                for name in names {
                    if let Some(text) = fields.text(name)? {
                        return Ok(Some(text));
                    }
                }
                Ok(None)
            }
        };
        if let [only] = &self.pieces[..] {
            return piece(only);
        }
        let mut filled = String::new();
        for each in &self.pieces {
            match piece(each)? {
                Some(text) => filled.push_str(&text),
                None => return Ok(None),
            }
        }
        Ok(Some(Cow::Owned(filled)))
    }
}

/// Returns the text with a line's fields filled in. Fails if a field and all its alternatives are
/// missing, or if a field is an object, a list or an invalid string.
pub(super) fn needed<'a>(
    what: &'static str,
    template: &'a Template,
    fields: &'a Fields<'_>,
) -> Result<Cow<'a, str>, BadLine> {
    template.fill(fields)?.ok_or_else(|| lacks(what, template))
}

/// Returns the error for a line that lacks the fields of the template.
pub(super) fn lacks(what: &'static str, template: &Template) -> BadLine {
    let fields = template.fields().map(|field| format!("`{field}`"));
    BadLine::Lacks {
        what,
        fields: fields.collect(),
    }
}
