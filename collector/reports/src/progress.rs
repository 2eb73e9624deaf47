//! Shows on standard error the progress of tasks, except for their first two seconds: a bar or
//! spinner on a terminal, otherwise a plain line now and then.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::stderr::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stroboscope_store::progress::{Observer, Task};

const QUIET_FOR: Duration = Duration::from_secs(2);
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Number of steps from one reading of the clock to the next, if a task has an unknown total or one
/// above [`FEW_STEPS`].
const STEPS_PER_LOOK: u64 = 64;
/// Maximum total of a task, such as its number of shards, for which each step reads the clock.
const FEW_STEPS: u64 = 4_096;

/// Returns an observer that shows tasks on standard error.
pub fn on_stderr() -> Arc<dyn Observer> {
    Arc::new(Stderr)
}

#[derive(Debug)]
struct Stderr;

impl Observer for Stderr {
    fn begin(&self, task: &'static str, unit: &'static str, total: Option<u64>) -> Box<dyn Task> {
        Box::new(Progress {
            what: task,
            unit,
            total,
            done: 0,
            steps: 0,
            next_look: Instant::now() + QUIET_FOR,
            is_terminal: std::io::stderr().is_terminal(),
            bar: None,
        })
    }
}

/// Progress of one task, and its display on standard error.
#[derive(Debug)]
struct Progress {
    what: &'static str,
    unit: &'static str,
    total: Option<u64>,
    done: u64,
    steps: u64,
    next_look: Instant,
    is_terminal: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn show(&mut self) {
        if self.is_terminal {
            let bar = self
                .bar
                .get_or_insert_with(|| new_bar(self.what, self.unit, self.total));
            bar.set_position(self.done);
            self.next_look = Instant::now() + Duration::from_millis(100);
        } else {
            let of = self
                .total
                .map_or(String::new(), |total| format!(" of {total}"));
            say!("{}: {}{of} {}", self.what, self.done, self.unit);
            self.next_look = Instant::now() + LINE_EVERY;
        }
    }
}

impl Task for Progress {
    fn add(&mut self, amount: u64) {
        self.done += amount;
        self.steps += 1;
        let is_few = self.total.is_some_and(|total| total <= FEW_STEPS);
        let looks = is_few || self.steps.is_multiple_of(STEPS_PER_LOOK);
        if looks && Instant::now() >= self.next_look {
            self.show();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(what: &'static str, unit: &'static str, total: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    let template = if total.is_some() {
        "{msg} [{bar:30}] {human_pos}/{human_len} {prefix} ({eta} left)"
    } else {
        "{msg} {spinner} {human_pos} {prefix} ({elapsed})"
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar.set_prefix(unit);
    bar
}
