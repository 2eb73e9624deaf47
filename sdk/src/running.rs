//! Recording that runs in this process, if any.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::gate::timer::Timer;
use crate::ship::{Flush, ShipCounters};

static RUNNING: Mutex<Option<ThreadHandles>> = Mutex::new(None);

/// Handles of the SDK's two threads.
#[derive(Clone)]
pub(crate) struct ThreadHandles {
    pub(crate) timer: Arc<Timer>,
    pub(crate) progressed: Arc<ShipCounters>,
    pub(crate) flushes: mpsc::UnboundedSender<Flush>,
}

pub(crate) fn lock() -> MutexGuard<'static, Option<ThreadHandles>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
