//! Recording of one test.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use stroboscope::{__private, Entered, SpanContext};
use stroboscope_store::decode::loses_records;

use crate::archive::Archive;
use crate::process::Lease;
use crate::traces::Traces;

/// Name of the span below which a test records.
const TEST: &str = "stroboscope-testkit";
/// Maximum time to wait for the SDK to begin recording, or for the collector to store records.
const WAIT: Duration = Duration::from_secs(10);
/// Maximum time to wait for spans to end. The span of a server may end a moment after its client
/// has the response.
const ENDS_WAIT: Duration = Duration::from_secs(1);

/// Recording of one test, started by [`start`](crate::start).
///
/// It belongs to the thread that started it, and cannot move to another one.
#[derive(Debug)]
#[must_use = "recording stops when this is dropped: `let recording = stroboscope_testkit::start();`"]
pub struct Recording {
    /// Span below which the test records, current on the thread; `None` while this starts and while
    /// it is dropped.
    test: Option<Entered>,
    context: SpanContext,
    lease: Lease,
    /// Number of records that the process had lost before this recording, by cause.
    lost: HashMap<&'static str, u64>,
}

impl Recording {
    pub(crate) fn start() -> Result<Self, String> {
        let mut recording = Self {
            test: None,
            context: SpanContext::NONE,
            lease: Lease::begin()?,
            lost: losses().collect(),
        };
        let until = Instant::now() + WAIT;
        loop {
            // Begins a request of its own, even if the thread has an open span.
            let test = stroboscope::span!(request: TEST);
            if test.is_recorded() {
                recording.context = test.context();
                recording.test = Some(test.entered());
                recording.lease.archive.add_test(recording.context);
                return Ok(recording);
            }
            // The SDK begins to record a moment after its start.
            if Instant::now() > until {
                return Err(format!("the SDK has not begun to record within {WAIT:?}"));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Waits until everything recorded so far is stored, and returns the traces of this test in
    /// order of their starts: one for each span that the code under test began outside of any other
    /// span. The [crate's documentation](crate) describes which traces belong to a test.
    ///
    /// Open spans are not recorded yet; ended spans below them form a trace of their own. Waits up
    /// to a second for this test's spans to end. Blocks the thread, also in async code, so await
    /// the tasks under test first.
    ///
    /// # Panics
    /// Panics if the process lost records since this recording began, or if the collector does not
    /// store all records within ten seconds or cannot pass them on.
    #[must_use]
    #[track_caller]
    pub fn traces(&self) -> Traces {
        match self.read(|archive| archive.linked(self.context.trace_id())) {
            Ok(traces) => traces,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Returns the traces of the whole process, like [`traces`](Self::traces). They include those
    /// of tasks and threads without the test's context, and of all tests since the collector began.
    ///
    /// # Panics
    /// Panics under the same conditions as [`traces`](Self::traces).
    #[must_use]
    #[track_caller]
    pub fn all_traces(&self) -> Traces {
        match self.read(Archive::ids) {
            Ok(traces) => traces,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Waits until everything is stored, and returns the traces that `select` chooses.
    fn read(&self, select: impl FnOnce(&Archive) -> HashSet<u128>) -> Result<Traces, String> {
        let until = Instant::now() + ENDS_WAIT;
        let open = loop {
            let open = __private::flush_trace(self.context.trace_id(), WAIT);
            self.check_losses()?;
            let mut open = open.ok_or_else(|| {
                let trouble = stroboscope::stats().trouble;
                let trouble = trouble.unwrap_or_else(|| "it is too slow".to_owned());
                format!("the collector has not stored all records within {WAIT:?}: {trouble}")
            })?;
            // The test's own span has no parent.
            open.retain(|parent| *parent != 0);
            if open.is_empty() || Instant::now() > until {
                break open.into_iter().collect();
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let flushed = self.lease.flush();
        flushed.map_err(|error| format!("the collector does not forward its log: {error}"))?;
        let archive = &self.lease.archive;
        Ok(Traces::of(archive.clone(), select(archive), &open))
    }

    fn check_losses(&self) -> Result<(), String> {
        let lost: Vec<String> = losses()
            .map(|(cause, lost)| (cause, lost - self.lost.get(cause).unwrap_or(&0)))
            .filter(|(_, lost)| *lost > 0)
            .map(|(cause, lost)| format!("{cause}: {lost}"))
            .collect();
        match lost.join(", ") {
            none if none.is_empty() => Ok(()),
            lost => Err(format!(
                "the process lost records, so its traces may be incomplete ({lost})"
            )),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Ends the span while the SDK records.
        drop(self.test.take());
        Lease::end();
    }
}

/// Returns the numbers of records that the process has lost, by cause. Omits other losses, such as
/// values of records that were kept.
fn losses() -> impl Iterator<Item = (&'static str, u64)> {
    let losses = stroboscope::stats().losses.into_iter();
    let losses = losses.map(|(cause, lost)| (cause.name(), lost));
    losses.filter(|(cause, _)| loses_records(cause))
}
