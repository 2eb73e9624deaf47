//! Pointers to thread-locals without destructors.

#![allow(unsafe_code)]

use std::ops::Deref;
use std::thread::LocalKey;

/// Pointer to a thread-local without a destructor, valid as long as its thread lives. It cannot
/// leave the thread, because a pointer is not `Send`.
pub(crate) struct ThreadRef<T: 'static>(*const T);

impl<T> ThreadRef<T> {
    /// Returns a pointer to this thread's value. Taking a closure instead would require inlining
    /// the closure with all its code.
    #[inline(always)]
    pub(crate) fn of(key: &'static LocalKey<T>) -> Self {
        const { assert!(!std::mem::needs_drop::<T>()) };
        Self(key.with(std::ptr::from_ref))
    }
}

impl<T> Deref for ThreadRef<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: a thread-local without a destructor lives as long as its thread, and a
        // `ThreadRef` cannot leave the thread, because it is not `Send`. The returned reference
        // ends before the `ThreadRef` does.
        unsafe { &*self.0 }
    }
}
