//! Lock for asynchronous tasks that writes markers.

use std::ops::{Deref, DerefMut};

use super::Waiters;

/// A [`tokio::sync::Mutex`] that writes markers when tasks have to wait for it.
#[derive(Debug, Default)]
pub struct AsyncMutex<T: ?Sized> {
    waiters: Waiters,
    inner: tokio::sync::Mutex<T>,
}

/// Guard of an [`AsyncMutex`], which it releases when dropped.
#[derive(Debug)]
#[must_use = "the lock is given up when this is dropped"]
pub struct AsyncMutexGuard<'a, T: ?Sized> {
    // Fields are dropped after the guard's own `drop`, which writes its marker while the lock is
    // still held.
    inner: tokio::sync::MutexGuard<'a, T>,
    waiters: &'a Waiters,
}

impl<T> AsyncMutex<T> {
    /// Creates a free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            waiters: Waiters::new(),
            inner: tokio::sync::Mutex::const_new(value),
        }
    }

    /// Consumes the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> AsyncMutex<T> {
    /// Acquires the lock, waiting until it is free.
    pub async fn lock(&self) -> AsyncMutexGuard<'_, T> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(_) => {
                let waiting = self.waiters.begin();
                let inner = self.inner.lock().await;
                waiting.acquired();
                inner
            }
        };
        AsyncMutexGuard {
            inner,
            waiters: &self.waiters,
        }
    }

    /// Acquires the lock if it is free; otherwise returns `None`.
    pub fn try_lock(&self) -> Option<AsyncMutexGuard<'_, T>> {
        let inner = self.inner.try_lock().ok()?;
        Some(AsyncMutexGuard {
            inner,
            waiters: &self.waiters,
        })
    }
}

impl<T: ?Sized> Deref for AsyncMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for AsyncMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized> Drop for AsyncMutexGuard<'_, T> {
    fn drop(&mut self) {
        self.waiters.releases();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    #[tokio::test]
    async fn locks_as_the_one_inside_and_forgets_who_gave_up() {
        let lock = Arc::new(AsyncMutex::new(0));
        let held = lock.lock().await;
        assert!(lock.try_lock().is_none());
        let waiting = tokio::spawn({
            let lock = Arc::clone(&lock);
            async move { *lock.lock().await += 1 }
        });
        while lock.waiters.0.load(Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert_eq!(lock.waiters.0.load(Relaxed), 0);
        drop(held);
        *lock.lock().await += 2;
        assert_eq!(Arc::into_inner(lock).unwrap().into_inner(), 2);
    }
}
