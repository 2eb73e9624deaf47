//! Memory of a ring for `loom`, which reports an access to a word that another thread may be
//! writing.

use loom::cell::UnsafeCell;

use super::RECORD_WORDS_MAX;

pub(super) struct Words(Box<[UnsafeCell<u64>]>);

impl Words {
    pub(super) fn present(length: usize) -> Self {
        Self(
            std::iter::repeat_with(|| UnsafeCell::new(u64::MAX))
                .take(length)
                .collect(),
        )
    }

    pub(super) fn place(&self) -> PlacePointer {
        PlacePointer(&raw const *self.0)
    }

    pub(super) unsafe fn read(
        &self,
        start: usize,
        length: usize,
        look: &mut impl FnMut(&[u64]) -> usize,
    ) -> usize {
        // SAFETY: `loom` checks that no other thread writes the word.
        let words: Vec<u64> = self.0[start..start + length]
            .iter()
            .map(|cell| cell.with(|there| unsafe { *there }))
            .collect();
        look(&words)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PlacePointer(*const [UnsafeCell<u64>]);

impl PlacePointer {
    pub(super) const NONE: Self = Self(&[]);

    /// Accesses a whole slice of `RECORD_WORDS_MAX` words, like the real implementation.
    pub(super) unsafe fn write(
        self,
        start: usize,
        fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX]) -> usize,
    ) -> usize {
        let mut place = [u64::MAX; RECORD_WORDS_MAX];
        let used = fill(&mut place);
        // SAFETY: the producer keeps the ring alive.
        let words = unsafe { &*self.0 };
        for (cell, word) in words[start..start + RECORD_WORDS_MAX].iter().zip(place) {
            // SAFETY: `loom` checks that no other thread accesses the word.
            cell.with_mut(|there| unsafe { *there = word });
        }
        used
    }
}
