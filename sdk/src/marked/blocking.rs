//! Lock for threads that writes markers.

use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use super::Waiters;

/// A [`std::sync::Mutex`] that writes markers when threads have to wait for it.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    waiters: Waiters,
    inner: std::sync::Mutex<T>,
}

/// Guard of a [`Mutex`], which it releases when dropped.
#[derive(Debug)]
#[must_use = "the lock is given up when this is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    // Fields are dropped after the guard's own `drop`, which writes its marker while the lock is
    // still held.
    inner: std::sync::MutexGuard<'a, T>,
    waiters: &'a Waiters,
}

impl<T> Mutex<T> {
    /// Creates a free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            waiters: Waiters::new(),
            inner: std::sync::Mutex::new(value),
        }
    }

    /// Consumes the lock and returns the value.
    ///
    /// # Errors
    /// Returns an error with the value if a holder panicked, like [`std::sync::Mutex::into_inner`].
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Acquires the lock, blocking the thread until it is free.
    ///
    /// # Errors
    /// Returns an error with the guard if another holder panicked, like [`std::sync::Mutex::lock`].
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let locked = match self.inner.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => {
                let waiting = self.waiters.begin();
                let locked = self.inner.lock();
                waiting.acquired();
                locked
            }
        };
        self.wrap(locked)
    }

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    /// Returns an error if the lock is held, or if another holder panicked, like
    /// [`std::sync::Mutex::try_lock`].
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => {
                self.wrap(Err(poisoned)).map_err(TryLockError::Poisoned)
            }
            Ok(inner) => self.wrap(Ok(inner)).map_err(TryLockError::Poisoned),
        }
    }

    fn wrap<'a>(
        &'a self,
        locked: LockResult<std::sync::MutexGuard<'a, T>>,
    ) -> LockResult<MutexGuard<'a, T>> {
        let guard = |inner| MutexGuard {
            inner,
            waiters: &self.waiters,
        };
        locked
            .map(guard)
            .map_err(|poisoned| PoisonError::new(guard(poisoned.into_inner())))
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.waiters.releases();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_as_the_one_inside() {
        let counter = Mutex::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *counter.lock().unwrap() += 1;
                    }
                });
            }
        });
        let held = counter.lock().unwrap();
        assert!(matches!(counter.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        assert_eq!(counter.into_inner().unwrap(), 40_000);
    }

    #[test]
    fn is_poisoned_by_a_panic() {
        let lock = Mutex::new(1);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = lock.lock();
            panic!("with the lock");
        }));
        assert!(outcome.is_err());
        assert_eq!(
            lock.lock()
                .map(|_| ())
                .map_err(|poisoned| *poisoned.into_inner()),
            Err(1)
        );
        assert!(matches!(lock.try_lock(), Err(TryLockError::Poisoned(_))));
    }
}
