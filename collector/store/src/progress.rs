//! Interface for displaying the progress of long tasks. The library itself displays nothing.

use std::fmt::Debug;
use std::sync::Arc;

/// Display for the progress of tasks.
pub trait Observer: Debug + Send + Sync {
    /// Begins a task, such as "reading", counted in `unit`, with its `total` if known. The task
    /// ends when the returned value is dropped.
    fn begin(&self, task: &'static str, unit: &'static str, total: Option<u64>) -> Box<dyn Task>;
}

/// Task whose progress a display may show, until the value is dropped.
pub trait Task: Debug + Send {
    /// Adds `amount`, in the unit of the task, to the amount that is done.
    fn add(&mut self, amount: u64);
}

/// Display that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn begin(&self, _: &'static str, _: &'static str, _: Option<u64>) -> Box<dyn Task> {
        Box::new(Self)
    }
}

impl Task for Silent {
    fn add(&mut self, _: u64) {}
}

/// Returns a display that shows nothing.
#[must_use]
pub fn silent() -> Arc<dyn Observer> {
    Arc::new(Silent)
}
