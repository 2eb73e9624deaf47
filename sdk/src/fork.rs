//! Handles `fork` while recording: the child starts clean, and state inherited from its parent has
//! no effect.
//!
//! Only the forking thread exists in the child, with a copy of all memory. Locks held by other
//! threads would stay locked forever there, so the locks that recording waits for are taken before
//! the fork and released on both sides. The child then closes the gate, forgets the parent's
//! threads, and gets its own ids and counters. It may call `init` again.
//!
//! The child handler does little, because most children only call `exec`: the child's `init`, if
//! any, handles the inherited rings.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{MutexGuard, RwLockWriteGuard};

use crate::baggage::ambient::replace_carried;
use crate::callsite::{self, Callsite};
use crate::context::{self, SpanContext};
use crate::drain::rings::{self, DrainedRings};
use crate::loss::LOSSES;
use crate::running::{self, ThreadHandles};
use crate::thread::{FreeLock, RINGS};
use crate::{gate, generation, sigterm, thread};

/// Guards of the process-wide locks that recording or the drain waits for, in the order in which
/// they are taken everywhere. Both sides of a fork drop them.
struct ForkLocks {
    /// Taken first: code of the service that is dropped under these locks may record.
    #[cfg(feature = "tradeoff")]
    _tradeoff: crate::tradeoff::TradeoffLocks,
    #[cfg(feature = "provenance")]
    tracked: crate::tracked::PendingLock,
    /// Taken before the rings' locks: a span that ends under this lock may need a ring.
    #[cfg(feature = "tracing")]
    _adapter: crate::adapter::AdapterLocks,
    running: MutexGuard<'static, Option<ThreadHandles>>,
    rings: MutexGuard<'static, DrainedRings>,
    _free: FreeLock<'static>,
    _names: RwLockWriteGuard<'static, HashMap<Box<str>, &'static Callsite>>,
}

thread_local! {
    static HELD: RefCell<Option<ForkLocks>> = const { RefCell::new(None) };
}

/// Registers the handlers below with the C library, once per process. The C library calls them
/// around every fork.
pub(crate) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Relaxed) && !cfg!(miri) {
        // The handlers do not unwind: they tolerate poisoned locks and destroyed thread-locals.
        crate::sys::at_fork(before, in_parent, in_child);
    }
}

extern "C" fn before() {
    // Initializes these statics now; otherwise the child could wait for another thread that is
    // initializing one.
    #[cfg(feature = "opentelemetry")]
    crate::propagation::otel::make_fields();
    #[cfg(feature = "tracing")]
    crate::tracing_filter::make_default();
    let held = ForkLocks {
        #[cfg(feature = "tradeoff")]
        _tradeoff: crate::tradeoff::lock(),
        #[cfg(feature = "provenance")]
        tracked: crate::tracked::lock(),
        #[cfg(feature = "tracing")]
        _adapter: crate::adapter::lock(),
        running: running::lock(),
        rings: rings::lock(),
        _free: RINGS.lock_free(),
        _names: callsite::lock(),
    };
    // Fails only in a thread that is being torn down; its fork then holds no locks.
    let _ = HELD.try_with(|slot| slot.borrow_mut().replace(held));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(|slot| slot.borrow_mut().take());
}

extern "C" fn in_child() {
    generation::advance();
    gate::reset();
    sigterm::reset();
    LOSSES.reset();
    thread::forget_ids();
    thread::forked();
    crate::marker::forked();
    context::replace(SpanContext::NONE);
    std::mem::forget(replace_carried(None));
    let held = HELD
        .try_with(|slot| slot.borrow_mut().take())
        .ok()
        .flatten();
    if let Some(mut held) = held {
        held.rings.forked();
        #[cfg(feature = "provenance")]
        held.tracked.forked();
        // Leaks it: dropping its channels would wake threads that exist only in the parent.
        std::mem::forget(held.running.take());
    }
}
