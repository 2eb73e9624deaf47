//! Writes fields into a record.

use std::fmt::Write as _;

use super::{KIND_BITS, KINDS, Place, TEXT_BYTES_MAX, ValueKind};
use crate::loss::{LOSSES, LossCause};
use crate::ring::RECORD_WORDS_MAX;

/// Writer of one record's fields.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    pub(super) place: &'a mut Place,
    pub(super) used: usize,
    pub(super) fields: u8,
    /// Kinds of the first fields, encoded as in word 0.
    pub(super) kinds: u64,
    /// True if a field is missing, which counts as a loss.
    pub(crate) left_out: bool,
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
            // A volatile write prevents the compiler from later copying two words at a time right
            // after they were stored one by one. The processor cannot forward such stores to such a
            // load, and waits until they are in the cache.
            // SAFETY: a valid, aligned location in initialized memory, borrowed for this write.
            unsafe { std::ptr::write_volatile(&raw mut self.place[self.used], word) };
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
        // `Tail` never fails; if a value's own formatting fails, the text written so far is
        // recorded.
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
        // SAFETY: `rest` consists of initialized words of at least `room` bytes, any bytes are
        // valid for both types, `u8` has no alignment requirement, and the borrow of `rest` ends
        // before the words are used as words again.
        let bytes = unsafe { std::slice::from_raw_parts_mut(rest.as_mut_ptr().cast::<u8>(), room) };
        let mut tail = Tail {
            bytes,
            used: 0,
            cut: false,
        };
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

/// Buffer of a text that is being written.
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
            (0..=room)
                .rev()
                .find(|&end| text.is_char_boundary(end))
                .unwrap_or(0)
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
