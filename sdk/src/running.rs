//! Recording that runs in this process, if any.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::gate::timer::Timer;
use crate::ship::{Flush, Progressed};

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

/// Handles of the SDK's two threads.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) timer: Arc<Timer>,
    pub(crate) progressed: Arc<Progressed>,
    pub(crate) flushes: mpsc::UnboundedSender<Flush>,
}

pub(crate) fn lock() -> MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
