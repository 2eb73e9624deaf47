//! How far an answer has come, for those who wait for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stroboscope_store::progress::{Observer, Task};
use tokio::sync::watch;

/// So often those who wait are told.
const TOLD_EVERY: Duration = Duration::from_millis(250);

/// What is being done, and how much of it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// As in "reading"; empty: others are being answered first.
    pub(crate) task: &'static str,
    /// What is counted.
    pub(crate) unit: &'static str,
    pub(crate) done: u64,
    pub(crate) total: Option<u64>,
}

/// Tells whoever waits. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Telling(Arc<watch::Sender<Step>>);

impl Telling {
    pub(crate) fn new() -> (Self, watch::Receiver<Step>) {
        let (sender, receiver) = watch::channel(Step::default());
        (Self(Arc::new(sender)), receiver)
    }

    /// Its turn has come: until a reader says more, the store's files are looked at.
    pub(crate) fn begin_turn(&self) {
        self.0.send_replace(Step {
            task: "opening the store and looking which of its files are wanted",
            ..Step::default()
        });
    }

    /// As readers of a store want it.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(self.clone())
    }
}

impl Observer for Telling {
    fn begin(&self, task: &'static str, unit: &'static str, total: Option<u64>) -> Box<dyn Task> {
        let step = Step {
            task,
            unit,
            done: 0,
            total,
        };
        self.0.send_replace(step.clone());
        Box::new(Counting {
            to: self.0.clone(),
            step,
            steps: 0,
            told: Instant::now(),
        })
    }
}

#[derive(Debug)]
struct Counting {
    to: Arc<watch::Sender<Step>>,
    step: Step,
    steps: u64,
    told: Instant,
}

impl Task for Counting {
    fn add(&mut self, amount: u64) {
        self.step.done += amount;
        self.steps += 1;
        // The clock is asked seldom: a step is a trace.
        let is_time = self.steps.is_multiple_of(64) && self.told.elapsed() >= TOLD_EVERY;
        if self.steps == 1 || is_time {
            self.told = Instant::now();
            self.to.send_replace(self.step.clone());
        }
    }
}
