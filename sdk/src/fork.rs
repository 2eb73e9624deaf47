//! `fork` while recording: the child starts clean, and what it inherited from its parent does nothing.
//!
//! Only the forking thread lives on in the child, with a copy of all memory. Locks that other threads held would stay
//! locked for ever there, so they are taken before the fork and released on both sides of it. The child then shuts
//! the gate, forgets the parent's threads, and gets ids and counters of its own; it may call `init` again.
//!
//! The child handler does little, because most children only go on to `exec`: the rings it inherited are sorted out
//! by the first drain of the child, if there ever is one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{MutexGuard, RwLockWriteGuard};

use crate::baggage::ambient::replace_carried;
use crate::callsite::{self, Callsite};
use crate::context::{self, SpanContext};
use crate::drain::rings::{self, Known};
use crate::loss::LOSSES;
use crate::running::{self, Running};
use crate::thread::{RINGS, RingsLock};
use crate::{gate, generation, sigterm, thread};

/// The SDK's process-wide locks, in the order in which they are taken everywhere. Both sides of a fork drop it.
struct Held {
    /// First: a span that ends under it may need a ring.
    #[cfg(feature = "tracing")]
    _adapter: crate::adapter::Held,
    running: MutexGuard<'static, Option<Running>>,
    rings: MutexGuard<'static, Known>,
    _made: RingsLock<'static>,
    _names: RwLockWriteGuard<'static, HashMap<Box<str>, &'static Callsite>>,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Asks the C library to call the handlers below around every fork of this process. Does so once.
pub(crate) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Relaxed) && !cfg!(miri) {
        // They do not unwind: poisoned locks and destroyed thread-locals are passed over.
        crate::sys::at_fork(before, in_parent, in_child);
    }
}

extern "C" fn before() {
    // Made by now, or by another thread that the child would wait for.
    #[cfg(feature = "opentelemetry")]
    crate::propagation::otel::make_fields();
    let held = Held {
        #[cfg(feature = "tracing")]
        _adapter: crate::adapter::lock(),
        running: running::lock(),
        rings: rings::lock(),
        _made: RINGS.lock(),
        _names: callsite::lock(),
    };
    // Fails only in a thread that is being torn down; the locks are then not held across its fork.
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
        // Not dropped: its channels would wake threads that exist in the parent only.
        std::mem::forget(held.running.take());
    }
}
