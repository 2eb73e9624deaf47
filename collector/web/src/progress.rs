//! Reports the progress of an answer to the clients that wait for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stroboscope_store::progress::{Observer, Task};
use tokio::sync::watch;

/// Minimum interval between reports of a task after its first step.
const TOLD_EVERY: Duration = Duration::from_millis(250);

/// Current task of a computation, and its progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Name of the task, such as "reading"; empty before the computation begins.
    pub(crate) task: &'static str,
    /// Unit of `done` and `total`, such as traces.
    pub(crate) unit: &'static str,
    pub(crate) done: u64,
    pub(crate) total: Option<u64>,
}

/// Sender of progress reports. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ProgressSender(Arc<watch::Sender<Step>>);

impl ProgressSender {
    pub(crate) fn new() -> (Self, watch::Receiver<Step>) {
        let (sender, receiver) = watch::channel(Step::default());
        (Self(Arc::new(sender)), receiver)
    }

    /// Reports that the computation has begun: until a reader reports its own progress, the store's
    /// files are being selected.
    pub(crate) fn begin_turn(&self) {
        self.0.send_replace(Step {
            task: "opening the store and selecting the files to read",
            ..Step::default()
        });
    }

    /// Returns the sender as the observer that readers of a store expect.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(self.clone())
    }
}

impl Observer for ProgressSender {
    fn begin(&self, task: &'static str, unit: &'static str, total: Option<u64>) -> Box<dyn Task> {
        let step = Step {
            task,
            unit,
            done: 0,
            total,
        };
        self.0.send_replace(step.clone());
        Box::new(StepCounter {
            to: self.0.clone(),
            step,
            steps: 0,
            told: Instant::now(),
        })
    }
}

#[derive(Debug)]
struct StepCounter {
    to: Arc<watch::Sender<Step>>,
    step: Step,
    steps: u64,
    told: Instant,
}

impl Task for StepCounter {
    fn add(&mut self, amount: u64) {
        self.step.done += amount;
        self.steps += 1;
        // A call mostly adds a single trace, so only the first and every 64th call read the clock.
        let is_time = self.steps.is_multiple_of(64) && self.told.elapsed() >= TOLD_EVERY;
        if self.steps == 1 || is_time {
            self.told = Instant::now();
            self.to.send_replace(self.step.clone());
        }
    }
}
