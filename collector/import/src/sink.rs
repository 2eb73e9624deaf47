//! Destination of the records that readers find.

use std::cell::Cell;
use std::io::{self, BufRead};
use std::rc::Rc;

use stroboscope_store::progress::Task;

use super::BadLine;
use super::format::Format;
use super::kernel_text;
use super::line::LogEvent;
use super::outcome::{ImportError, ImportSummary};
use super::run::RunWriter;
use super::take::Take;
use stroboscope_otlp::ForeignSpan;

/// Stores records, reports those left out, and shows progress.
pub(super) struct Sink<'a> {
    run: RunWriter<'a>,
    bad: &'a mut dyn FnMut(u64, &BadLine),
    progress: Box<dyn Task>,
    read_bytes: Rc<Cell<u64>>,
    seen_bytes: u64,
    /// First error of the store, which the next [`Sink::step`] returns.
    failure: Option<ImportError>,
}

impl<'a> Sink<'a> {
    /// Creates a sink for a source. `read_bytes` is the number of bytes read so far.
    pub(super) fn new(
        run: RunWriter<'a>,
        read_bytes: Rc<Cell<u64>>,
        progress: Box<dyn Task>,
        bad: &'a mut dyn FnMut(u64, &BadLine),
    ) -> Self {
        Self {
            run,
            bad,
            progress,
            read_bytes,
            seen_bytes: 0,
            failure: None,
        }
    }

    /// Updates the progress.
    ///
    /// # Errors
    /// Returns an earlier failure to write.
    pub(super) fn step(&mut self) -> Result<(), ImportError> {
        let read_bytes = self.read_bytes.get();
        self.progress.add(read_bytes - self.seen_bytes);
        self.seen_bytes = read_bytes;
        self.failure.take().map_or(Ok(()), Err)
    }

    pub(super) fn content(&self) -> &str {
        self.run.content()
    }

    /// Reads a whole text of kernel events and stores them. Sets `at` to the last line read. The
    /// next [`step`](Self::step) returns a failure to store them.
    ///
    /// # Errors
    /// Fails if the text cannot be read. The events before damage to the text are stored.
    pub(super) fn kernel(
        &mut self,
        format: Format,
        text: impl BufRead,
        at: &mut u64,
    ) -> io::Result<()> {
        let recording = self.run.recording();
        let mut bad_lines = Vec::new();
        let (chunk, end) = kernel_text::read(format, text, recording, at, &mut |line, reason| {
            bad_lines.push((line, reason.clone()));
        });
        // After an error of the operating system, the next attempt may read more. It would not
        // overwrite the chunk, whose name contains the time of its last event.
        let read = end.as_ref();
        if read.is_err_and(|error| error.raw_os_error().is_some()) {
            return end;
        }
        for (line, reason) in &bad_lines {
            self.bad(*line, reason);
        }
        if let Some(failure) = chunk.and_then(|chunk| self.run.kernel(&chunk).err()) {
            self.failure.get_or_insert(failure);
        }
        end
    }

    pub(super) fn ignored(&mut self) {
        self.run.ignored();
    }

    /// Writes the remaining rows.
    ///
    /// # Errors
    /// Fails if these or earlier rows cannot be written.
    pub(super) fn finish(mut self) -> Result<ImportSummary, ImportError> {
        self.step()?;
        self.run.finish()
    }
}

impl Take for Sink<'_> {
    fn event(&mut self, event: &LogEvent<'_>) {
        if let Err(failure) = self.run.event(event) {
            self.failure.get_or_insert(failure);
        }
    }

    fn span(&mut self, line: u64, span: Result<ForeignSpan, BadLine>) {
        match span.map(|span| self.run.span(span)) {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(reason))) | Err(reason) => self.bad(line, &reason),
            Ok(Err(failure)) => {
                self.failure.get_or_insert(failure);
            }
        }
    }

    fn bad(&mut self, line: u64, reason: &BadLine) {
        self.run.left_out();
        (self.bad)(line, reason);
    }

    fn not_taken(&mut self, line: u64, name: &str, count: u64) {
        self.run.not_taken(line, name, count);
    }
}
