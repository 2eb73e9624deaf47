//! The format of records in a ring. Written by the recording threads, read by the drain of the same process.
//!
//! ```text
//! word 0   kind (8 bits) | flags (16) | fields (8) | length in words (12) | kinds of the first five fields (4 each)
//! BEGIN    tick, callsite, trace id high, low, span id, parent id, fields…
//! END      tick, span id
//! EVENT    tick, callsite, trace id high, low, span id, fields…
//! AGAIN    tick, callsite, fields…                            (an event in the span of the ring's last EVENT)
//! FIELDS   tick, callsite, 0, 0, span id, fields…             (fields added to an open span)
//! CONTEXT  trace id high, low, span id                        (never in a ring; what a copy of its records starts with)
//! field    its kind + 1 is in word 0, and its index is its position: one word, the value
//!          0 is there: value kind (8) | index in the callsite's names (8) | bytes (32), then one word, or a text's words
//! ```
//!
//! A callsite is the address of a `static`. Texts are copied into the record: nothing is allocated, and nothing
//! points to memory that could go away. Events come in runs within one span, so most are AGAIN: an event with one
//! integer takes 32 bytes, and a ring of 1 MiB holds what 5 million of them a second fill in 6.5 ms.

#![allow(unsafe_code)]

mod reader;

pub(crate) use reader::{FieldValue, Fields, Record, length, read};

use std::fmt::Write as _;

use crate::callsite::Callsite;
use crate::loss::{LOSSES, LossCause};
use crate::ring::RECORD_WORDS_MAX;

/// Texts longer than this many bytes are cut (at a character) and the cut is counted.
pub(crate) const TEXT_BYTES_MAX: usize = 1_024;

/// Words before the fields: BEGIN says its parent too, AGAIN leaves out what the EVENT before it said.
#[inline]
const fn header_words(kind: RecordKind) -> usize {
    match kind {
        RecordKind::Begin => 7,
        RecordKind::Again => 3,
        RecordKind::End | RecordKind::Event | RecordKind::Fields | RecordKind::Context => 6,
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    Begin = 1,
    End = 2,
    Event = 3,
    Fields = 4,
    Again = 5,
    Context = 6,
}

/// The span of a ring's last EVENT, known alike to who writes the ring and to who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventContext {
    trace_id: [u64; 2],
    span_id: u64,
}

impl EventContext {
    /// Of a new ring. Not that of an event outside any span, which is all zeros.
    pub(crate) const UNKNOWN: Self = Self { trace_id: [0, 0], span_id: u64::MAX };

    #[inline]
    const fn of(head: &Head) -> Self {
        Self { trace_id: [(head.trace_id >> 64) as u64, head.trace_id as u64], span_id: head.span_id }
    }

    /// Takes over what the record at the start of `words` says.
    #[inline]
    pub(crate) fn follow(&mut self, words: &[u64]) {
        if let [first, _, _, high, low, span_id, ..] = *words
            && first as u8 == RecordKind::Event as u8
        {
            *self = Self { trace_id: [high, low], span_id };
        }
    }

    /// As a CONTEXT record.
    pub(crate) fn as_record(self) -> [u64; 4] {
        let [high, low] = self.trace_id;
        [first_word(RecordKind::Context, 0, 0, 4), high, low, self.span_id]
    }
}

/// How a field's value is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ValueKind {
    Int = 0,
    Uint = 1,
    Double = 2,
    Bool = 3,
    Text = 4,
}

/// The fixed part of BEGIN, EVENT and FIELDS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) kind: RecordKind,
    /// Bits of the wire's `SpanFlag`, as far as they are known.
    pub(crate) flags: u16,
    pub(crate) ticks: u64,
    pub(crate) callsite: &'static Callsite,
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    /// Of a BEGIN; 0 otherwise.
    pub(crate) parent_id: u64,
}

type Place = [u64; RECORD_WORDS_MAX];

/// Writes a BEGIN, an EVENT or FIELDS; says its length in words.
#[inline]
pub(crate) fn write(place: &mut Place, head: &Head, fields: impl FnOnce(&mut FieldWriter<'_>)) -> usize {
    write_context(place, head);
    if head.kind == RecordKind::Begin {
        place[6] = head.parent_id;
    }
    write_fields(place, head, head.kind, header_words(head.kind), fields)
}

/// Writes an event, without its context where that is the `last` one; says its length in words.
#[inline]
pub(crate) fn write_event(
    place: &mut Place,
    last: &mut EventContext,
    head: &Head,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) -> usize {
    let context = EventContext::of(head);
    let kind = if context == *last {
        RecordKind::Again
    } else {
        write_context(place, head);
        RecordKind::Event
    };
    let used = write_fields(place, head, kind, header_words(kind), fields);
    // Only now: formatting a field may have panicked, and then there is no such record.
    *last = context;
    used
}

#[inline]
fn write_context(place: &mut Place, head: &Head) {
    place[3] = (head.trace_id >> 64) as u64;
    place[4] = head.trace_id as u64;
    place[5] = head.span_id;
}

#[inline]
fn write_fields(
    place: &mut Place,
    head: &Head,
    kind: RecordKind,
    header_words: usize,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) -> usize {
    place[1] = head.ticks;
    place[2] = std::ptr::from_ref(head.callsite) as u64;
    let mut writer = FieldWriter { place, used: header_words, fields: 0, kinds: 0, left_out: false };
    fields(&mut writer);
    let (used, count, kinds, left_out) = (writer.used, writer.fields, writer.kinds, writer.left_out);
    if left_out {
        LOSSES.add(LossCause::Oversize, 1);
    }
    place[0] = first_word(kind, head.flags, count, used) | kinds << KINDS_SHIFT;
    used
}

/// Writes an END; says its length in words.
#[inline]
pub(crate) fn write_end(place: &mut Place, flags: u16, ticks: u64, span_id: u64) -> usize {
    place[0] = first_word(RecordKind::End, flags, 0, 3);
    place[1] = ticks;
    place[2] = span_id;
    3
}

#[inline]
fn first_word(kind: RecordKind, flags: u16, fields: u8, length: usize) -> u64 {
    kind as u64 | u64::from(flags) << 8 | u64::from(fields) << 24 | (length as u64) << 32
}

/// Where word 0 says the kinds of the first fields, how many, and in how many bits each.
const KINDS_SHIFT: u32 = 44;
const KINDS: u8 = 5;
const KIND_BITS: u32 = 4;

/// Takes the fields of one record.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    place: &'a mut Place,
    used: usize,
    fields: u8,
    /// Of the first fields, as word 0 has them.
    kinds: u64,
    left_out: bool,
}

impl FieldWriter<'_> {
    #[inline]
    pub(crate) fn scalar(&mut self, index: u8, kind: ValueKind, word: u64) {
        if self.used + 2 > RECORD_WORDS_MAX || self.fields == u8::MAX {
            self.left_out = true;
            return;
        }
        if index == self.fields && index < KINDS {
            self.kinds |= (kind as u64 + 1) << (u32::from(index) * KIND_BITS);
            self.place[self.used] = word;
            self.used += 1;
        } else {
            self.place[self.used] = kind as u64 | u64::from(index) << 8 | 8 << 32;
            self.place[self.used + 1] = word;
            self.used += 2;
        }
        self.fields += 1;
    }

    #[inline]
    pub(crate) fn text(&mut self, index: u8, text: &str) {
        self.formatted_with(index, |tail| tail.push(text));
    }

    pub(crate) fn formatted(&mut self, index: u8, arguments: std::fmt::Arguments<'_>) {
        // `Tail` never fails; a value whose own formatting fails is recorded as far as it came.
        self.formatted_with(index, |tail| {
            let _ = tail.write_fmt(arguments);
        });
    }

    #[inline]
    fn formatted_with(&mut self, index: u8, fill: impl FnOnce(&mut Tail<'_>)) {
        if self.used + 1 >= RECORD_WORDS_MAX || self.fields == u8::MAX {
            self.left_out = true;
            return;
        }
        let (header, rest) = self.place[self.used..].split_at_mut(1);
        let room = (rest.len() * 8).min(TEXT_BYTES_MAX);
        // SAFETY: `rest` is initialised words of at least `room` bytes, any bytes are valid for both types, `u8` has no
        // alignment needs, and the borrow of `rest` ends before the words are used as words again.
        let bytes = unsafe { std::slice::from_raw_parts_mut(rest.as_mut_ptr().cast::<u8>(), room) };
        let mut tail = Tail { bytes, used: 0, cut: false };
        fill(&mut tail);
        let (used, cut) = (tail.used, tail.cut);
        if cut {
            LOSSES.add(LossCause::StringCut, 1);
        }
        header[0] = ValueKind::Text as u64 | u64::from(index) << 8 | (used as u64) << 32;
        self.used += 1 + used.div_ceil(8);
        self.fields += 1;
    }
}

/// The place of a text that is being written.
struct Tail<'a> {
    bytes: &'a mut [u8],
    used: usize,
    cut: bool,
}

impl Tail<'_> {
    #[inline]
    fn push(&mut self, text: &str) {
        let room = self.bytes.len() - self.used;
        let take = if text.len() <= room {
            text.len()
        } else {
            self.cut = true;
            (0..=room).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0)
        };
        self.bytes[self.used..self.used + take].copy_from_slice(&text.as_bytes()[..take]);
        self.used += take;
    }
}

impl std::fmt::Write for Tail<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if !self.cut {
            self.push(text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Value, debug, display};

    static CALLSITE: Callsite = Callsite::new("here", &["a", "b", "c"], "file", 1);

    fn head() -> Head {
        Head {
            kind: RecordKind::Begin,
            flags: 0x1234,
            ticks: 7,
            callsite: &CALLSITE,
            trace_id: (1 << 100) + 5,
            span_id: 9,
            parent_id: 8,
        }
    }

    fn read_one(words: &[u64]) -> Record<'_> {
        let mut last = EventContext::UNKNOWN;
        read(words, &mut last)
    }

    fn check(values: &[&dyn Fn(&mut FieldWriter<'_>)], expected: &str) {
        let mut place = [0; RECORD_WORDS_MAX];
        let length = write(&mut place, &head(), |writer| values.iter().for_each(|value| value(writer)));
        assert_eq!(length, super::length(&place));
        let record = read_one(&place);
        let Record::Full { head: got, fields } = record else { panic!("{record:?}") };
        assert_eq!((got.kind, got.flags, got.ticks), (RecordKind::Begin, 0x1234, 7));
        assert_eq!((got.trace_id, got.span_id, got.parent_id), ((1 << 100) + 5, 9, 8));
        assert!(std::ptr::eq(got.callsite, &raw const CALLSITE));
        let text: Vec<String> = fields.map(|(index, value)| format!("{index}={value:?}")).collect();
        assert_eq!(text.join(" "), expected);
    }

    #[test]
    fn every_kind_of_value_comes_back() {
        check(&[], "");
        check(
            &[&|w| (-3i32).write(0, w), &|w| 7usize.write(1, w), &|w| true.write(2, w)],
            "0=Int(-3) 1=Uint(7) 2=Bool(true)",
        );
        check(
            &[&|w| 0.5f32.write(0, w), &|w| "twelve bytes".write(1, w)],
            "0=Double(0.5) 1=Text(\"twelve bytes\")",
        );
        check(&[&|w| "".write(0, w), &|w| String::from("ü").write(2, w)], "0=Text(\"\") 2=Text(\"ü\")");
        check(&[&|w| None::<u8>.write(0, w), &|w| Some(1u8).write(1, w)], "1=Uint(1)");
        check(
            &[&|w| display(1.5).write(0, w), &|w| debug("x").write(1, w)],
            "0=Text(\"1.5\") 1=Text(\"\\\"x\\\"\")",
        );
    }

    #[test]
    fn fields_come_back_in_any_order_and_number() {
        check(&[&|w| 1u8.write(1, w), &|w| 2u8.write(0, w)], "1=Uint(1) 0=Uint(2)");
        check(&[&|w| "t".write(0, w), &|w| 2u8.write(1, w)], "0=Text(\"t\") 1=Uint(2)");
        check(
            &[&|w| None::<u8>.write(0, w), &|w| 1u8.write(1, w), &|w| 2i8.write(2, w)],
            "1=Uint(1) 2=Int(2)",
        );
        let many: Vec<String> = (0..9).map(|i| format!("{i}=Int({})", i - 4)).collect();
        let write_many = |w: &mut FieldWriter<'_>| (0..9).for_each(|i| (i64::from(i) - 4).write(i, w));
        check(&[&write_many], &many.join(" "));
    }

    /// Writes events of these spans; their lengths, and what is read of each.
    fn events(contexts: &[(u128, u64)]) -> (Vec<usize>, Vec<(u128, u64, String)>) {
        let (mut written, mut lengths, mut last) = (Vec::new(), Vec::new(), EventContext::UNKNOWN);
        for (i, &(trace_id, span_id)) in contexts.iter().enumerate() {
            let mut place = [0; RECORD_WORDS_MAX];
            let head = Head { kind: RecordKind::Event, trace_id, span_id, parent_id: 0, ..head() };
            let length = write_event(&mut place, &mut last, &head, |w| (i as u64).write(0, w));
            lengths.push(length);
            written.extend_from_slice(&place[..length]);
        }
        let (mut rest, mut seen, mut last) = (written.as_slice(), Vec::new(), EventContext::UNKNOWN);
        while !rest.is_empty() {
            let (this, others) = rest.split_at(super::length(rest));
            let record = read(this, &mut last);
            let Record::Full { head, fields } = record else { panic!("{record:?}") };
            assert_eq!(head.kind, RecordKind::Event);
            seen.push((head.trace_id, head.span_id, format!("{:?}", fields.collect::<Vec<_>>())));
            rest = others;
        }
        (lengths, seen)
    }

    #[test]
    fn an_event_in_the_span_of_the_last_one_is_short() {
        let (a, b) = (((1 << 100) + 5, 9), ((1 << 100) + 5, 10));
        let (lengths, _) = events(&[a, a, a, b, b, a, (0, 0), (0, 0)]);
        assert_eq!(lengths, [7, 4, 4, 7, 4, 7, 7, 4]);
        assert_eq!(events(&[(0, 0), (0, 0)]).0, [7, 4]);
    }

    proptest::proptest! {
        #[test]
        fn every_event_is_read_in_its_own_span(
            spans in proptest::collection::vec((0..3u128, 0..3u64), 0..40),
            high in proptest::prelude::any::<u64>(),
        ) {
            let spans: Vec<_> = spans.iter().map(|&(trace, span)| (trace << 63 | u128::from(high), span)).collect();
            let (_, seen) = events(&spans);
            let expected: Vec<_> = spans
                .iter()
                .enumerate()
                .map(|(i, &(trace_id, span_id))| (trace_id, span_id, format!("[(0, Uint({i}))]")))
                .collect();
            proptest::prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn an_event_whose_field_panics_leaves_no_context_behind() {
        let (mut place, mut last) = ([0; RECORD_WORDS_MAX], EventContext::UNKNOWN);
        let head = Head { kind: RecordKind::Event, ..head() };
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            write_event(&mut place, &mut last, &head, |_| std::panic::resume_unwind(Box::new(())))
        }));
        assert!(panicked.is_err());
        assert_eq!(last, EventContext::UNKNOWN);
    }

    #[test]
    fn long_texts_are_cut_at_a_character_and_counted() {
        let before = LOSSES.get(LossCause::StringCut);
        let long = "ü".repeat(TEXT_BYTES_MAX);
        let mut place = [0; RECORD_WORDS_MAX];
        write(&mut place, &head(), |writer| writer.text(0, &format!("x{long}")));
        let Record::Full { mut fields, .. } = read_one(&place) else { panic!() };
        let Some((0, FieldValue::Text(text))) = fields.next() else { panic!() };
        assert_eq!(text.len(), TEXT_BYTES_MAX - 1);
        assert!(LOSSES.get(LossCause::StringCut) > before);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_counted() {
        let before = LOSSES.get(LossCause::Oversize);
        let mut place = [0; RECORD_WORDS_MAX];
        let text = "x".repeat(1_000);
        let length = write(&mut place, &head(), |writer| (0..10).for_each(|i| writer.text(i, &text)));
        assert!(length <= RECORD_WORDS_MAX);
        let Record::Full { fields, .. } = read_one(&place) else { panic!() };
        assert_eq!(fields.count(), 4);
        assert!(LOSSES.get(LossCause::Oversize) > before);
    }

    #[test]
    fn an_end_is_short() {
        let mut place = [0; RECORD_WORDS_MAX];
        assert_eq!(write_end(&mut place, 32, 5, 6), 3);
        let record = read_one(&place);
        let Record::End { flags: 32, ticks: 5, span_id: 6 } = record else { panic!("{record:?}") };
    }
}
