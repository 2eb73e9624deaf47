//! The memory of a ring.

use std::cell::UnsafeCell;

use super::RECORD_WORDS_MAX;

pub(super) struct Words(Box<[UnsafeCell<u64>]>);

impl Words {
    /// So many words, written once, so that their pages are there: `vec![0]` would be the kernel's promise of pages.
    pub(super) fn present(length: usize) -> Self {
        Self(
            std::iter::repeat_with(|| UnsafeCell::new(u64::MAX))
                .take(length)
                .collect(),
        )
    }

    /// So many words, which the kernel promises.
    pub(super) fn promised(length: usize) -> Self {
        let words = Box::into_raw(vec![0u64; length].into_boxed_slice());
        // SAFETY: `UnsafeCell<u64>` is in memory what `u64` is, and nobody else has the box.
        Self(unsafe { Box::from_raw(words as *mut [UnsafeCell<u64>]) })
    }

    /// For the producer.
    pub(super) fn place(&self) -> PlacePointer {
        PlacePointer(UnsafeCell::raw_get(self.0.as_ptr()))
    }

    /// Lends the `length` words from `start` to `look`.
    ///
    /// # Safety
    /// They are in bounds, and nobody writes them meanwhile.
    #[inline]
    pub(super) unsafe fn read(
        &self,
        start: usize,
        length: usize,
        look: &mut impl FnMut(&[u64]) -> usize,
    ) -> usize {
        let first: *const u64 = UnsafeCell::raw_get(self.0[start..].as_ptr());
        // SAFETY: in bounds and not being written, as the caller ensures; every word was initialised. The pointer
        // comes from the slice from `start` on, so it may reach all of the words.
        look(unsafe { std::slice::from_raw_parts(first, length) })
    }
}

/// Where a ring's words are.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacePointer(*mut u64);

impl PlacePointer {
    pub(super) const NONE: Self = Self(std::ptr::null_mut());

    /// Lends the [`RECORD_WORDS_MAX`] words from `start` to `fill`.
    ///
    /// # Safety
    /// The words are still there, these are in bounds, and nobody else reads or writes them meanwhile.
    #[inline(always)]
    pub(super) unsafe fn write(
        self,
        start: usize,
        fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX]) -> usize,
    ) -> usize {
        // SAFETY: in bounds, as the caller ensures.
        let first = unsafe { self.0.add(start) };
        // SAFETY: in bounds and unshared, as the caller ensures. `u64` has no invalid values and every word was
        // initialised. The pointer comes from the whole slice, so it may reach all of the place.
        fill(unsafe { &mut *first.cast::<[u64; RECORD_WORDS_MAX]>() })
    }
}
