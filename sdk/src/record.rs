//! Format of records in a ring. Recording threads write it, and the drain of the same process reads
//! it.
//!
//! ```text
//! word 0   kind (8 bits) | flags (16) | fields (8) | length in words (12) | kinds of the first five fields (4 each)
//! BEGIN    tick, callsite, trace id high, low, span id, parent id, fields…
//! CHILD    tick, callsite, span id, fields…                   (a BEGIN in the ring's innermost span, see `lineage`)
//! END      tick, span id
//! END      tick                                               (of the innermost span)
//! EVENT    tick, callsite, trace id high, low, span id, fields…
//! AGAIN    tick, callsite, fields…                            (an EVENT in the innermost span)
//! FIELDS   tick, callsite, 0, 0, span id, fields…             (fields added to an open span)
//! FIELDS   tick, callsite, name, its length, span id, field   (one field, which the callsite does not name)
//! CLOSE    tick, callsite, 0, 0, span id, fields…             (an END with fields)
//! CONTEXT  trace id high, low, span ids                       (never in a ring; precedes a copy of a ring's records)
//! field    if word 0 has its kind + 1: the value, in one word; its place is the name's index
//!          if word 0 has 0: kind (8) | name's index (8) | unused (16) | bytes (32), then the value
//! ```
//!
//! A callsite or a name is the address of data that is never freed. Texts are copied into the
//! record, so nothing is allocated and nothing points to memory that could be freed. Most records
//! belong to the span that is the innermost one after the previous record, and are therefore short.
//! A short event with one integer takes 32 bytes, a short span without fields 48.

#![allow(unsafe_code)]

mod field_writer;
mod lineage;
mod reader;

pub(crate) use field_writer::FieldWriter;
pub(crate) use lineage::Lineage;
pub(crate) use reader::{FieldValue, Fields, Record, added_to, length, read};

use crate::callsite::Callsite;
use crate::loss::{LOSSES, LossCause};
use crate::ring::RECORD_WORDS_MAX;

/// Maximum length of a text in bytes. Longer texts are truncated at a character boundary and
/// counted.
pub(crate) const TEXT_BYTES_MAX: usize = 1_024;

/// Returns the number of words before the fields of a record with a callsite.
#[inline]
const fn header_words(kind: RecordKind) -> usize {
    match kind {
        RecordKind::Begin => 7,
        RecordKind::Child => 4,
        RecordKind::Again => 3,
        _ => 6,
    }
}

/// Kind of a record; the module's documentation describes the format of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    Begin = 1,
    End = 2,
    Event = 3,
    Fields = 4,
    Again = 5,
    Context = 6,
    Child = 7,
    EndInnermost = 8,
    Close = 9,
}

/// Type of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ValueKind {
    Int = 0,
    Uint = 1,
    Double = 2,
    Bool = 3,
    Text = 4,
}

/// Fixed part of BEGIN, EVENT, FIELDS and CLOSE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) kind: RecordKind,
    /// Bits of the wire's `SpanFlag` that are known when the record is written.
    pub(crate) flags: u16,
    pub(crate) ticks: u64,
    pub(crate) callsite: &'static Callsite,
    /// Trace id. FIELDS and CLOSE have none; FIELDS may have a name in its place, see
    /// [`Head::naming`].
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    /// Parent's span id in a BEGIN; 0 otherwise.
    pub(crate) parent_id: u64,
}

impl Head {
    /// Sets the name of the only field of FIELDS, in place of the callsite's names.
    pub(crate) fn naming(mut self, name: &'static str) -> Self {
        let address = name.as_ptr() as u64;
        self.trace_id = u128::from(address) << 64 | name.len() as u128;
        self
    }

    /// Returns the name set by [`naming`](Self::naming), if any. Only valid for results of
    /// [`read`].
    pub(crate) fn name(&self) -> Option<&'static str> {
        let (address, bytes) = ((self.trace_id >> 64) as u64, self.trace_id as usize);
        if self.kind != RecordKind::Fields || address == 0 {
            return None;
        }
        // SAFETY: FIELDS have no trace, so only `naming` makes these words, in this process, from a
        // `&'static str`; the ring's protocol hands them over unchanged.
        let name = unsafe { std::slice::from_raw_parts(address as *const u8, bytes) };
        std::str::from_utf8(name).ok()
    }
}

type Place = [u64; RECORD_WORDS_MAX];

/// Writes a BEGIN, EVENT, FIELDS or CLOSE record, as short as the ring's `lineage` allows; returns
/// its length in words.
#[inline(always)]
pub(crate) fn write(
    place: &mut Place,
    lineage: &mut Lineage,
    head: &Head,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) -> usize {
    place[TICKS] = head.ticks;
    let flags = u64::from(head.flags) << FLAGS_SHIFT;
    match head.kind {
        RecordKind::Begin if lineage.is_in(head.trace_id, head.parent_id) => {
            return write_child(place, lineage, flags, head.callsite, head.span_id, fields);
        }
        RecordKind::Event if lineage.is_in(head.trace_id, head.span_id) => {
            return write_again(place, flags, head.callsite, fields);
        }
        _ => {}
    }
    place[3] = (head.trace_id >> 64) as u64;
    place[4] = head.trace_id as u64;
    place[5] = head.span_id;
    if head.kind == RecordKind::Begin {
        place[6] = head.parent_id;
    }
    let used = write_with_fields(place, head.kind, flags, head.callsite, fields);
    // Updated last: formatting a field may panic, and then no such record exists.
    match head.kind {
        RecordKind::Begin => {
            lineage.restart(head.trace_id, head.parent_id);
            lineage.push(head.span_id);
        }
        RecordKind::Event => lineage.restart(head.trace_id, head.span_id),
        RecordKind::Close => lineage.close(head.span_id),
        _ => {}
    }
    used
}

/// Writes the BEGIN of a span inside the innermost one, except its tick. `flags` must already be
/// shifted to its position in word 0.
#[inline(always)]
pub(crate) fn write_child(
    place: &mut Place,
    lineage: &mut Lineage,
    flags: u64,
    callsite: &'static Callsite,
    span_id: u64,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) -> usize {
    place[3] = span_id;
    let used = write_with_fields(place, RecordKind::Child, flags, callsite, fields);
    // Updated last, as above.
    lineage.push(span_id);
    used
}

/// Writes an EVENT in the innermost span, except its tick. `flags` must already be shifted to its
/// position in word 0.
#[inline(always)]
pub(crate) fn write_again(
    place: &mut Place,
    flags: u64,
    callsite: &'static Callsite,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) -> usize {
    write_with_fields(place, RecordKind::Again, flags, callsite, fields)
}

/// Writes the part common to all records with a callsite: callsite, fields and word 0.
#[inline(always)]
fn write_with_fields(
    place: &mut Place,
    kind: RecordKind,
    flags: u64,
    callsite: &'static Callsite,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) -> usize {
    place[2] = std::ptr::from_ref(callsite) as u64;
    let mut writer = FieldWriter {
        place,
        used: header_words(kind),
        fields: 0,
        kinds: 0,
        left_out: false,
    };
    fields(&mut writer);
    let (used, count, kinds, left_out) =
        (writer.used, writer.fields, writer.kinds, writer.left_out);
    if left_out {
        LOSSES.add(LossCause::Oversize, 1);
    }
    place[0] = first_word(kind, count, used) | flags | kinds << KINDS_SHIFT;
    used
}

/// Writes an END record; returns its length in words.
#[inline(always)]
pub(crate) fn write_end(
    place: &mut Place,
    lineage: &mut Lineage,
    flags: u16,
    ticks: u64,
    span_id: u64,
) -> usize {
    place[TICKS] = ticks;
    let flags = u64::from(flags) << FLAGS_SHIFT;
    if lineage.innermost() == span_id {
        write_end_of_innermost(place, lineage, flags)
    } else {
        place[2] = span_id;
        place[0] = first_word(RecordKind::End, 0, 3) | flags;
        3
    }
}

/// Writes the END of the innermost span, except its tick. `flags` must already be shifted to its
/// position in word 0.
#[inline(always)]
pub(crate) fn write_end_of_innermost(
    place: &mut Place,
    lineage: &mut Lineage,
    flags: u64,
) -> usize {
    lineage.pop();
    place[0] = first_word(RecordKind::EndInnermost, 0, 2) | flags;
    2
}

/// Index of the word with a record's tick.
pub(crate) const TICKS: usize = 1;
/// Bit position of a record's flags in word 0.
pub(crate) const FLAGS_SHIFT: u32 = 8;

#[inline]
const fn first_word(kind: RecordKind, fields: u8, length: usize) -> u64 {
    kind as u64 | (fields as u64) << 24 | (length as u64) << 32
}

/// Bit position in word 0 of the kinds of the first fields. `KINDS` is their number, `KIND_BITS`
/// the size of each in bits.
const KINDS_SHIFT: u32 = 44;
const KINDS: u8 = 5;
const KIND_BITS: u32 = 4;

#[cfg(test)]
mod tests;
