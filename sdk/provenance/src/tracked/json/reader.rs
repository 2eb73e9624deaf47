//! Values from JSON, with the labels of the bytes from which they were parsed.
//!
//! serde cannot ask a parser for its position. A tracked value therefore takes its own JSON text,
//! finds its bytes by the text's address in the buffer, and parses the text.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;
use std::string::{String, ToString};
use std::{format, thread_local};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::Scope;
use crate::label::Label;
use crate::linkage::Linkage;
use crate::tracked::{Tracked, TrackedBuf};

/// Name by which serde_json recognizes its `RawValue`, the text of a value. `RawValue` itself would
/// fail in deserializers that hold parsed values, such as those of `flatten`. These ignore the
/// name. If serde_json ignored it, too, labels would only be coarser.
const TEXT: &str = "$serde_json::private::RawValue";
/// Maximum depth of arrays and objects in a tracked value. Each tracked value has a parser of its
/// own, so serde_json's own limit of 127 does not bound the total depth.
const DEPTH_MAX: usize = 127;

thread_local! {
    static INPUT: RefCell<Option<Input>> = const { RefCell::new(None) };
}

/// Buffer that a thread parses.
#[derive(Clone)]
struct Input {
    copy: Rc<TrackedBuf>,
    /// Address of the first byte of the original.
    address: usize,
    /// Bytes of the innermost tracked value whose place is known, or of the whole buffer.
    value: Range<usize>,
}

/// Parses JSON. Each [`Tracked`] in the value gets the label of the bytes of its JSON text, under a
/// linkage of calculations.
///
/// serde does not parse every tracked value directly from the buffer, for example not those in an
/// untagged enum, under `flatten`, or in a string that contains JSON. Such a value gets the label
/// of the tracked value around it, or of the whole buffer.
///
/// # Errors
/// Returns serde_json's error, with the place in the buffer, if the bytes are no such value. If the
/// buffer has labels, also returns an error if arrays and objects in a tracked value are deeper
/// than 127.
pub fn from_json<'de, T: Deserialize<'de>>(json: &'de TrackedBuf) -> serde_json::Result<T> {
    let input = json.labels().next().map(|_| Input {
        copy: Rc::new(json.clone()),
        address: json.as_bytes().as_ptr().addr(),
        value: 0..json.len(),
    });
    let _scope = Scope::enter(&INPUT, input);
    serde_json::from_slice(json.as_bytes())
}

impl Input {
    fn label<L: Linkage>(&self, bytes: Range<usize>) -> Label {
        if L::DATA {
            self.copy.merged(bytes)
        } else {
            Label::NULL
        }
    }

    /// Returns the bytes of the buffer in which a text lies; `None` if it lies outside.
    fn place(&self, text: &str) -> Option<Range<usize>> {
        let start = text.as_ptr().addr().checked_sub(self.address)?;
        let end = start.checked_add(text.len())?;
        (end <= self.copy.len()).then_some(start..end)
    }

    /// Describes an error in the text at `place`. Ends with the line and column in `value`, if they
    /// are known; serde_json takes both from there.
    fn describe(&self, error: &serde_json::Error, place: Option<Range<usize>>) -> String {
        let (line, column) = (error.line(), error.column());
        let message = error.to_string();
        let suffix = format!(" at line {line} column {column}");
        let message = message.strip_suffix(&suffix).unwrap_or(&message);
        let before = place.and_then(|place| {
            let bytes = self.copy.as_bytes();
            bytes.get(self.value.start..place.start)
        });
        let (Some(before), 1..) = (before, line) else {
            return message.to_owned();
        };
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        let of_line = before.rsplit(|byte| *byte == b'\n').next();
        let column = match line {
            1 => column + of_line.map_or(0, <[u8]>::len),
            _ => column,
        };
        format!("{message} at line {} column {column}", line + lines)
    }
}

impl<'de, T: Deserialize<'de>, L: Linkage> Deserialize<'de> for Tracked<T, L> {
    /// Gives the value the label of its bytes in [`from_json`], and no label otherwise.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match INPUT.try_with(|input| input.borrow().clone()) {
            Ok(Some(input)) => {
                let value = PhantomData;
                deserializer.deserialize_newtype_struct(TEXT, ValueVisitor { input, value })
            }
            _ => T::deserialize(deserializer).map(Self::new),
        }
    }
}

struct ValueVisitor<V> {
    input: Input,
    value: PhantomData<fn() -> V>,
}

impl<'de, T: Deserialize<'de>, L: Linkage> Visitor<'de> for ValueVisitor<Tracked<T, L>> {
    type Value = Tracked<T, L>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tracked value")
    }

    /// Takes the value from a deserializer that does not know its text.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        let label = self.input.label::<L>(self.input.value.clone());
        T::deserialize(value).map(|value| Tracked::with_label(value, label))
    }

    /// Takes the value's text.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some((_, text)) = map.next_entry::<Text<'de>, Text<'de>>()? else {
            return Err(A::Error::custom("a tracked value has no text"));
        };
        if depth(text.get()) > DEPTH_MAX {
            return Err(A::Error::custom("recursion limit exceeded"));
        }
        let place = self.input.place(text.get());
        let mut inner = self.input.clone();
        inner.value = place.clone().unwrap_or(inner.value);
        let label = inner.label::<L>(inner.value.clone());
        let scope = Scope::enter(&INPUT, Some(inner));
        let value = match &text {
            Text::Borrowed(text) => serde_json::from_str(text),
            Text::Owned(text) => {
                T::deserialize(&mut serde_json::Deserializer::from_reader(text.as_bytes()))
            }
        };
        drop(scope);
        value
            .map(|value| Tracked::with_label(value, label))
            .map_err(|error| A::Error::custom(self.input.describe(&error, place)))
    }
}

/// Text of a value: a part of the parsed text, or a text of its own if the parser has read a stream
/// or holds parsed values.
enum Text<'de> {
    Borrowed(&'de str),
    Owned(String),
}

impl Text<'_> {
    fn get(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text of a value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text::Owned(text.to_owned()))
    }
}

/// Returns the depth of arrays and objects in valid JSON.
fn depth(json: &str) -> usize {
    let (mut depth, mut depth_max) = (0_usize, 0);
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
                    if byte == b'\\' {
                        bytes.next();
                    }
                }
            }
            _ => {}
        }
        depth_max = depth_max.max(depth);
    }
    depth_max
}
