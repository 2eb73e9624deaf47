//! Compares the labels of values from JSON, and of JSON from values, with the known places of the
//! values in the text.

#![cfg(feature = "serde")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stroboscope_provenance::{
    CopyLinkage, Label, MergeLog, Recording, Tracked, TrackedBuf, from_json, inputs_of, to_json,
};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
    name: Tracked<String>,
    price: Tracked<f64>,
    #[serde(default)]
    note: Option<Tracked<String>>,
    lines: Tracked<Vec<Tracked<Line>>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    count: Tracked<i32>,
    tags: Vec<Tracked<String>>,
}

/// The types without labels, whose names stand in errors.
mod plain {
    use serde::{Deserialize, Serialize};

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Order {
        pub(super) id: u64,
        pub(super) name: String,
        pub(super) price: f64,
        #[serde(default)]
        pub(super) note: Option<String>,
        pub(super) lines: Vec<Line>,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Line {
        pub(super) count: i32,
        pub(super) tags: Vec<String>,
    }
}

fn line() -> impl Strategy<Value = plain::Line> {
    let tags = prop::collection::vec("\\PC{0,4}|[\"\\\\{\\[\\n]{0,3}", 0..3);
    (any::<i32>(), tags).prop_map(|(count, tags)| plain::Line { count, tags })
}

fn order() -> impl Strategy<Value = plain::Order> {
    let (text, lines) = ("\\PC{0,8}", prop::collection::vec(line(), 0..4));
    (any::<u64>(), text, -1e9..1e9, prop::option::of(text), lines).prop_map(
        |(id, name, price, note, lines)| plain::Order {
            id,
            name,
            price,
            note,
            lines,
        },
    )
}

/// Text that grows, with the bytes of tracked values in the order of a walk.
struct Text<'a> {
    text: String,
    values: Vec<Range<usize>>,
    /// Choices of white space and of escapes.
    choices: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl Text<'_> {
    fn space(&mut self) {
        let spaces = ["", "", " ", "\n", "\t ", "\r\n"];
        let choice = usize::from(*self.choices.next().unwrap());
        self.text.push_str(spaces[choice % spaces.len()]);
    }

    fn plain(&mut self, text: &str) {
        self.space();
        self.text.push_str(text);
        self.space();
    }

    fn string(&mut self, text: &str) {
        if self.choices.next().unwrap().is_multiple_of(2) {
            self.text.push_str(&serde_json::to_string(text).unwrap());
            return;
        }
        let units: Vec<String> = text
            .encode_utf16()
            .map(|unit| format!("\\u{unit:04x}"))
            .collect();
        self.text.push_str(&format!("\"{}\"", units.concat()));
    }

    fn tracked(&mut self, write: impl FnOnce(&mut Self)) {
        self.space();
        let (place, start) = (self.values.len(), self.text.len());
        self.values.push(0..0);
        write(self);
        self.values[place] = start..self.text.len();
        self.space();
    }

    fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.text.push('[');
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.text.push(',');
            }
            write(self, item);
        }
        self.space();
        self.text.push(']');
    }

    fn order(&mut self, order: &plain::Order) {
        self.plain("{\"id\":");
        self.plain(&order.id.to_string());
        self.plain(",\"name\":");
        self.tracked(|text| text.string(&order.name));
        self.plain(", \"unknown\": [{\"]\": 1}], \"price\":");
        self.tracked(|text| {
            text.text
                .push_str(&serde_json::to_string(&order.price).unwrap());
        });
        if let Some(note) = &order.note {
            self.plain(",\"note\":");
            self.tracked(|text| text.string(note));
        }
        self.plain(",\"lines\":");
        self.tracked(|text| {
            text.list(&order.lines, |text, line| {
                text.tracked(|text| {
                    text.plain_start("{\"count\":");
                    text.tracked(|text| text.text.push_str(&line.count.to_string()));
                    text.plain(",\"tags\":");
                    text.list(&line.tags, |text, tag| {
                        text.tracked(|text| text.string(tag));
                    });
                    text.space();
                    text.text.push('}');
                });
            });
        });
        self.plain("}");
    }

    fn plain_start(&mut self, text: &str) {
        self.text.push_str(text);
        self.space();
    }
}

impl Order {
    /// Returns the values without labels, and the labels in the order of a walk.
    fn plain(&self) -> (plain::Order, Vec<Label>) {
        let mut labels = vec![self.name.label(), self.price.label()];
        labels.extend(self.note.iter().map(Tracked::label));
        labels.push(self.lines.label());
        for line in self.lines.get() {
            labels.extend([line.label(), line.get().count.label()]);
            labels.extend(line.get().tags.iter().map(Tracked::label));
        }
        let lines = self.lines.get().iter().map(|line| plain::Line {
            count: *line.get().count.get(),
            tags: line
                .get()
                .tags
                .iter()
                .map(|tag| tag.get().clone())
                .collect(),
        });
        let plain = plain::Order {
            id: self.id,
            name: self.name.get().clone(),
            price: *self.price.get(),
            note: self.note.as_ref().map(|note| note.get().clone()),
            lines: lines.collect(),
        };
        (plain, labels)
    }
}

/// Returns the inputs of a label, which must be at most one range.
fn range(log: &MergeLog, label: Label) -> Range<usize> {
    let inputs = inputs_of(log, label);
    let mut ranges = inputs.ranges();
    let range = ranges.next().map_or(0..0, |range| {
        *range.start() as usize..*range.end() as usize + 1
    });
    assert_eq!(ranges.next(), None, "{inputs:?}");
    range
}

proptest! {
    #[test]
    fn values_have_the_labels_of_their_texts(
        order in order(), choices in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let mut text = Text { text: String::new(), values: Vec::new(), choices: choices.iter().cycle() };
        text.order(&order);
        let mut recording = Recording::default();
        let read: Order = recording
            .run(|| from_json(&TrackedBuf::source(1, 0, text.text.clone())))
            .unwrap();
        let log = recording.finish();
        let (plain, labels) = read.plain();
        prop_assert_eq!(&plain, &serde_json::from_str::<plain::Order>(&text.text).unwrap());
        let ranges: Vec<_> = labels.into_iter().map(|label| range(&log, label)).collect();
        prop_assert_eq!(ranges, text.values, "{}", text.text);
    }

    #[test]
    fn texts_have_the_labels_of_their_values(order in order()) {
        let mut recording = Recording::default();
        // Each tracked value has one input: the number of the value in a walk.
        let (text, written) = recording.run(|| {
            let inputs = TrackedBuf::source(1, 0, vec![0; 1_000]);
            let mut numbers = 0..;
            let mut label = || inputs.label(numbers.next().unwrap());
            let labelled = Order {
                id: order.id,
                name: Tracked::with_label(order.name.clone(), label()),
                price: Tracked::with_label(order.price, label()),
                note: order.note.clone().map(|note| Tracked::with_label(note, label())),
                lines: {
                    let of_lines = label();
                    let lines = order.lines.iter().map(|line| {
                        let of_line = label();
                        let line = Line {
                            count: Tracked::with_label(line.count, label()),
                            tags: line.tags.iter().map(|tag| Tracked::with_label(tag.clone(), label())).collect(),
                        };
                        Tracked::with_label(line, of_line)
                    });
                    Tracked::with_label(lines.collect(), of_lines)
                },
            };
            let text = to_json(&labelled).unwrap();
            let written = String::from_utf8(text.as_bytes().to_vec()).unwrap();
            (text, written)
        });
        prop_assert_eq!(&written, &serde_json::to_string(&order).unwrap());
        // A second reading finds the place of each value, which is the reference.
        let mut places = Recording::default();
        let read: Order = places.run(|| from_json(&TrackedBuf::source(1, 0, written))).unwrap();
        let places = places.finish();
        let mut expected: Vec<Vec<u32>> = vec![Vec::new(); text.len()];
        let (_, labels) = read.plain();
        for (number, label) in labels.into_iter().enumerate() {
            let range = range(&places, label);
            range.for_each(|byte| expected[byte].push(number as u32));
        }
        let log = recording.finish();
        let found: Vec<Vec<u32>> = (0..text.len())
            .map(|byte| inputs_of(&log, text.label(byte)).ranges().flatten().collect())
            .collect();
        prop_assert_eq!(found, expected);
    }

    /// Breaks a text at a random place. If the result is still JSON, the error must be that of
    /// serde_json without labels. Otherwise another error may come first, because a value's text is
    /// parsed after its end is found.
    #[test]
    fn errors_name_the_place_in_the_buffer(
        order in order(),
        choices in prop::collection::vec(any::<u8>(), 1..20),
        at in any::<prop::sample::Index>(),
        by in prop::sample::select(vec!["", "x", "\"\"", "null", "[", "}", "-1", "1e400", "\\ud800", "99999999999"]),
        is_inserted: bool,
    ) {
        let mut text = Text { text: String::new(), values: Vec::new(), choices: choices.iter().cycle() };
        text.order(&order);
        let starts: Vec<usize> = text.text.char_indices().map(|(at, _)| at).collect();
        let at = starts[at.index(starts.len())];
        let (start, end) = text.text.split_at(at);
        let rest = if is_inserted { end } else { &end[end.chars().next().unwrap().len_utf8()..] };
        let broken = [start, by, rest].concat();
        let expected = serde_json::from_str::<plain::Order>(&broken).map_err(|error| error.to_string());
        let read = Recording::default().run(|| from_json::<Order>(&TrackedBuf::source(1, 0, broken.clone())));
        let read = read.map(|read| read.plain().0).map_err(|error| error.to_string());
        match serde_json::from_str::<serde::de::IgnoredAny>(&broken) {
            Ok(_) => prop_assert_eq!(read, expected, "{}", broken),
            Err(_) => prop_assert!(read.is_err()),
        }
    }
}

/// Parses a text, and returns the bytes that each of the values has as its sources.
fn sources<T: for<'de> Deserialize<'de>>(
    text: &str,
    labels: fn(&T) -> Vec<Label>,
) -> Vec<Range<usize>> {
    let mut recording = Recording::default();
    let read: T = recording
        .run(|| from_json(&TrackedBuf::source(1, 0, text)))
        .unwrap();
    let log = recording.finish();
    labels(&read)
        .into_iter()
        .map(|label| range(&log, label))
        .collect()
}

/// Reads a string that contains JSON.
fn embedded<'de, D: Deserializer<'de>, T: for<'a> Deserialize<'a>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    serde_json::from_str(&text).map_err(serde::de::Error::custom)
}

/// Reads a value of serde_json first.
fn held<'de, D: Deserializer<'de>, T: for<'a> Deserialize<'a>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    serde_json::from_value(value).map_err(serde::de::Error::custom)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Choice {
    Number(Tracked<u8>),
    Text(Tracked<String>),
}

#[derive(Deserialize)]
struct Indirect {
    #[serde(deserialize_with = "embedded")]
    embedded: Vec<Tracked<u8>>,
    #[serde(deserialize_with = "held")]
    held: Tracked<Vec<Tracked<u8>>>,
    choices: Tracked<Vec<Choice>>,
    direct: Tracked<u8, CopyLinkage>,
    #[serde(flatten)]
    rest: BTreeMap<String, Tracked<u8>>,
}

#[test]
fn values_without_a_text_of_their_own_have_the_label_around_them() {
    let text =
        r#"{"embedded": "[1, 2]", "held": [3], "choices": [4, "5"], "direct": 6, "rest": 7}"#;
    let found = sources(text, |read: &Indirect| {
        let (embedded, held) = (read.embedded.iter(), read.held.get().iter());
        let choices = read.choices.get().iter().map(|choice| match choice {
            Choice::Number(number) => number.label(),
            Choice::Text(text) => text.label(),
        });
        assert_eq!(read.rest["rest"].get(), &7);
        assert_eq!(read.direct.get(), &6);
        let labels = embedded.chain(held).map(Tracked::label).chain(choices);
        let others = [
            read.choices.label(),
            read.direct.label(),
            read.rest["rest"].label(),
        ];
        labels.chain(others).collect()
    });
    let (all, choices, none) = (0..text.len(), 47..55, 0..0);
    let held = vec![all.clone(); 3];
    let rest = [choices.clone(), choices.clone(), choices, none, all];
    assert_eq!(found, [held, rest.to_vec()].concat());
    let found = sources("[[1, \"2\"], [ 3 ]]", |read: &Vec<Tracked<Vec<Choice>>>| {
        let labels = read.iter().flat_map(|choices| choices.get().iter());
        let labels = labels.map(|choice| match choice {
            Choice::Number(number) => number.label(),
            Choice::Text(text) => text.label(),
        });
        labels.collect()
    });
    assert_eq!(found, [1..9, 1..9, 11..16]);
}

/// Calls code when it is read or written.
struct Hook;

thread_local! {
    static HOOK: std::cell::Cell<fn()> = const { std::cell::Cell::new(|| ()) };
}

impl<'de> Deserialize<'de> for Hook {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        HOOK.get()();
        <()>::deserialize(deserializer).map(|()| Self)
    }
}

impl Serialize for Hook {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        HOOK.get()();
        serializer.serialize_unit()
    }
}

type Hooked = (Tracked<u8>, Tracked<Hook>, Tracked<u8>);

#[test]
fn inner_calls_and_panics_leave_outer_calls_as_they_were() {
    HOOK.set(|| {
        let inner = TrackedBuf::source(2, 0, "[1]");
        let [one]: [Tracked<u8>; 1] = from_json(&inner).unwrap();
        let text = to_json(&one).unwrap();
        let of = |label| Recording::default().run(|| label);
        assert_eq!(of(text.label(0)), one.label());
        let other: Tracked<u8> = from_json(&TrackedBuf::from(&b"1"[..])).unwrap();
        assert!(other.label().is_null(), "the inner buffer has no labels");
        let fails = || {
            HOOK.set(|| panic!("while it is read or written"));
            let read = || from_json::<Tracked<Hook>>(&TrackedBuf::source(3, 0, "null")).map(|_| ());
            assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
            let write = || to_json(&Tracked::<_>::with_label(Hook, Label::ALL)).map(|_| ());
            assert!(catch_unwind(AssertUnwindSafe(write)).is_err());
        };
        let hook = HOOK.get();
        fails();
        HOOK.set(hook);
    });
    let mut recording = Recording::default();
    let (read, written) = recording.run(|| {
        let read: Hooked = from_json(&TrackedBuf::source(1, 0, "[1,null,2]")).unwrap();
        let written = to_json(&read).unwrap();
        (read, written)
    });
    let log = recording.finish();
    let labels = [read.0.label(), read.1.label(), read.2.label()];
    assert_eq!(labels.map(|label| range(&log, label)), [1..2, 3..7, 8..9]);
    assert_eq!(written.as_bytes(), b"[1,null,2]");
    let found: Vec<_> = written
        .labels()
        .map(|(bytes, labels)| (bytes, range(&log, labels.at(0))))
        .collect();
    assert_eq!(found, [(1..2, 1..2), (3..7, 3..7), (8..9, 8..9)]);

    HOOK.set(|| ());
    let plain: Hooked = serde_json::from_str("[1,null,2]").unwrap();
    assert!(plain.0.label().is_null());
    assert_eq!(serde_json::to_string(&plain).unwrap(), "[1,null,2]");
}

/// Writes a string that contains JSON.
fn embed<S: Serializer>(value: &Tracked<u8>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = serde_json::to_string(value).map_err(serde::ser::Error::custom)?;
    serializer.serialize_str(&text)
}

#[derive(Serialize)]
struct Embedding {
    plain: Tracked<u8>,
    #[serde(serialize_with = "embed")]
    embedded: Tracked<u8>,
}

#[test]
fn values_in_strings_give_all_bytes_their_labels() {
    let mut recording = Recording::default();
    let written = recording.run(|| {
        let [plain, embedded] = from_json(&TrackedBuf::source(1, 0, "[1,2]")).unwrap();
        to_json(&Embedding { plain, embedded }).unwrap()
    });
    assert_eq!(written.as_bytes(), br#"{"plain":1,"embedded":"2"}"#);
    let log = recording.finish();
    for byte in 0..written.len() {
        let inputs: Vec<u32> = inputs_of(&log, written.label(byte))
            .ranges()
            .flatten()
            .collect();
        assert_eq!(inputs, [1, 3]);
    }
}

/// Recursive value, whose text can have any depth.
#[derive(Deserialize, Debug)]
struct Nested(#[allow(dead_code)] Vec<Tracked<Nested>>);

#[test]
fn deep_texts_are_errors() {
    let read = |depth: usize| {
        let text = ["[".repeat(depth), "]".repeat(depth)].concat();
        let read = Recording::default()
            .run(|| from_json::<Nested>(&TrackedBuf::source(1, 0, text)).map(|_| ()));
        read.map_err(|error| error.to_string())
    };
    assert_eq!(read(120), Ok(()));
    let error = read(100_000).unwrap_err();
    assert!(error.starts_with("recursion limit exceeded"), "{error}");
}
