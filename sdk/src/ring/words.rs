//! Memory of a ring.

use std::cell::UnsafeCell;

use super::RECORD_WORDS_MAX;

pub(super) struct Words(Box<[UnsafeCell<u64>]>);

impl Words {
    /// Allocates `length` words and writes each once, so that the kernel provides their pages now.
    pub(super) fn present(length: usize) -> Self {
        Self(
            std::iter::repeat_with(|| UnsafeCell::new(u64::MAX))
                .take(length)
                .collect(),
        )
    }

    /// Allocates `length` zeroed words. If they are many, the allocator does not write them, and
    /// the kernel provides each page when it is first written.
    pub(super) fn promised(length: usize) -> Self {
        let words = Box::into_raw(vec![0u64; length].into_boxed_slice());
        // SAFETY: `UnsafeCell<u64>` has the memory layout of `u64`, and the box is not shared.
        Self(unsafe { Box::from_raw(words as *mut [UnsafeCell<u64>]) })
    }

    /// Returns the producer's pointer to the first word.
    pub(super) fn place(&self) -> PlacePointer {
        PlacePointer(UnsafeCell::raw_get(self.0.as_ptr()))
    }

    /// Passes the `length` words from `start` to `look`, and returns its result.
    ///
    /// # Safety
    /// The words must be in bounds, and no thread may write them meanwhile.
    #[inline]
    pub(super) unsafe fn read(
        &self,
        start: usize,
        length: usize,
        look: &mut impl FnMut(&[u64]) -> usize,
    ) -> usize {
        let first: *const u64 = UnsafeCell::raw_get(self.0[start..].as_ptr());
        // SAFETY: in bounds and not being written, as the caller ensures; every word was
        // initialized. The pointer comes from the slice from `start` on, so it may access all of
        // the words.
        look(unsafe { std::slice::from_raw_parts(first, length) })
    }
}

/// Pointer to a ring's words.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacePointer(*mut u64);

impl PlacePointer {
    pub(super) const NONE: Self = Self(std::ptr::null_mut());

    /// Passes the [`RECORD_WORDS_MAX`] words from `start` to `fill`, and returns its result.
    ///
    /// # Safety
    /// The ring's words must still exist, these words must be in bounds, and no other thread may
    /// read or write them meanwhile.
    #[inline(always)]
    pub(super) unsafe fn write(
        self,
        start: usize,
        fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX]) -> usize,
    ) -> usize {
        // SAFETY: in bounds, as the caller ensures.
        let first = unsafe { self.0.add(start) };
        // SAFETY: in bounds and unshared, as the caller ensures. `u64` has no invalid values and
        // every word was initialized. The pointer comes from the whole slice, so it may access all
        // of these words.
        fill(unsafe { &mut *first.cast::<[u64; RECORD_WORDS_MAX]>() })
    }
}
