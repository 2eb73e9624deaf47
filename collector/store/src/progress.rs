//! Progress of what takes long, for whoever shows it. A library shows nothing by itself.

use std::fmt::Debug;
use std::sync::Arc;

/// Shows the progress of tasks.
pub trait Observer: Debug + Send + Sync {
    /// A task begins, as in "reading", counted in `unit`, of which there are `total` if that is known. It ends when what is
    /// returned is dropped.
    fn begin(&self, task: &'static str, unit: &'static str, total: Option<u64>) -> Box<dyn Task>;
}

/// A task on its way.
pub trait Task: Debug + Send {
    /// So much more is done.
    fn add(&mut self, amount: u64);
}

/// Shows nothing.
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

/// One that shows nothing.
#[must_use]
pub fn silent() -> Arc<dyn Observer> {
    Arc::new(Silent)
}
