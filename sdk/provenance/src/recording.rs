//! Recording: the log to which the tracked values of the running code belong.

use std::boxed::Box;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::label::Label;
use crate::limits::Limits;
use crate::log::MergeLog;
use crate::source::Labels;

thread_local! {
    static CURRENT: RefCell<Option<Box<MergeLog>>> = const { RefCell::new(None) };
}

/// Log of one task, such as a request. Code that runs inside of it tracks values.
///
/// Outside of a recording, sources are not tracked: their bytes get the null label. Labels belong
/// to the recording that created them. In another recording, they name arbitrary inputs, or all of
/// them. So pass the bytes of a value from another recording on as a source. A merge of different
/// labels outside of any recording yields [`Label::ALL`], unless one is null.
#[derive(Debug)]
pub struct Recording {
    log: Option<Box<MergeLog>>,
}

/// Puts the logs back where they were, also if the recorded code panics.
struct EnteredScope<'a>(&'a mut Recording);

impl<'a> EnteredScope<'a> {
    fn new(recording: &'a mut Recording) -> Self {
        swap_current(&mut recording.log);
        Self(recording)
    }
}

impl Drop for EnteredScope<'_> {
    fn drop(&mut self) {
        swap_current(&mut self.0.log);
    }
}

/// Exchanges the log of the running recording. Does nothing while code uses that log, or when the
/// thread's values are gone.
fn swap_current(log: &mut Option<Box<MergeLog>>) {
    let _ = CURRENT.try_with(|current| {
        if let Ok(mut current) = current.try_borrow_mut() {
            core::mem::swap(&mut *current, log);
        }
    });
}

impl Recording {
    /// Creates a recording with an empty log.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            log: Some(Box::new(MergeLog::new(limits))),
        }
    }

    /// Runs code on this thread, and tracks the values of the code in this recording.
    pub fn run<R>(&mut self, code: impl FnOnce() -> R) -> R {
        let _entered = EnteredScope::new(self);
        code()
    }

    /// Wraps a future so that it tracks values in this recording, on any thread.
    pub fn run_async<F: Future>(self, future: F) -> RecordedFuture<F> {
        RecordedFuture {
            recording: Some(self),
            future: Box::pin(future),
        }
    }

    /// Ends the recording and returns its log.
    #[must_use]
    pub fn finish(mut self) -> MergeLog {
        self.take_log()
    }

    /// Returns the log, like [`finish`](Self::finish), for owners that are being dropped. The
    /// recording then tracks nothing, and a further call returns an empty log.
    #[must_use]
    pub fn take_log(&mut self) -> MergeLog {
        let mut log = self.log.take().map(|log| *log).unwrap_or_default();
        log.forget_recent();
        log
    }
}

impl Default for Recording {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

/// Future inside of a recording. Its output includes the recording.
#[derive(Debug)]
pub struct RecordedFuture<F> {
    recording: Option<Recording>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for RecordedFuture<F> {
    type Output = (F::Output, Recording);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let recording = this.recording.get_or_insert_default();
        match recording.run(|| this.future.as_mut().poll(context)) {
            Poll::Ready(output) => Poll::Ready((output, this.recording.take().unwrap_or_default())),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Calls code with the log of the running recording; returns `None` outside of recordings, and in
/// code that this function calls.
pub fn with_current<R>(code: impl FnOnce(&mut MergeLog) -> R) -> Option<R> {
    let result = CURRENT.try_with(|current| {
        let mut current = current.try_borrow_mut().ok()?;
        current.as_mut().map(|log| code(log))
    });
    result.ok().flatten()
}

/// Returns a label that contains the inputs of both labels, in the running recording.
#[inline]
pub fn merge(a: Label, b: Label) -> Label {
    if a == b || b.is_null() {
        a
    } else if a.is_null() {
        b
    } else {
        merge_distinct(a, b)
    }
}

#[inline(never)]
fn merge_distinct(a: Label, b: Label) -> Label {
    with_current(|log| log.merge(a, b)).unwrap_or(Label::ALL)
}

/// Returns a label that contains the inputs of `count` successive bytes.
pub(crate) fn merge_bytes(labels: Labels, count: usize) -> Label {
    let Labels::Inputs(first) = labels else {
        return labels.at(0);
    };
    match (first.span(), labels.at(count.saturating_sub(1)).span()) {
        (Some((first, _)), Some((_, last))) if first < last => {
            with_current(|log| log.range(first, last)).unwrap_or(Label::ALL)
        }
        _ => first,
    }
}
