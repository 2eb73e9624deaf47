//! Writes the rows of one source in runs: batches of rows that are written together.

use std::collections::BTreeSet;

use super::BadLine;
use super::line::LogEvent;
use super::not_taken::NotTakenCounts;
use super::outcome::{ImportError, ImportSummary};
use stroboscope_otlp::{ForeignSpan, trace_id, trace_label};
use stroboscope_store::decode::rows_of_span;
use stroboscope_store::limits::{IMPORT_RUN_BYTES, Limits};
use stroboscope_store::record::{EventRow, Rows, SpanRow};
use stroboscope_store::tables::{
    Hour, KernelChunk, PartitionRule, Store, write_kernel, write_rows,
};

/// Maximum number of hours in a run, because each hour has its own files. Earlier rows go to the
/// first of these hours, so that no row expires early.
const HOURS_MAX: usize = 168;

/// Store for the runs, with the limits of rows and runs.
#[derive(Debug)]
pub(super) struct RunTarget {
    pub(super) store: Store,
    pub(super) limits: Limits,
    /// Number of rows (spans, and events outside of spans) at which a run is written.
    pub(super) run_rows: usize,
}

/// Collects rows up to a bound and writes them as one sorted run.
pub(super) struct RunWriter<'a> {
    target: &'a RunTarget,
    content: &'a str,
    rows: Rows,
    /// Spans with their events. When the run is written, they are sorted and moved to `rows`,
    /// except those that equal their predecessor.
    spans: Vec<(SpanRow, Vec<EventRow>)>,
    attribute_bytes: usize,
    runs: usize,
    lines: u64,
    summary: ImportSummary,
    not_taken: NotTakenCounts,
}

impl<'a> RunWriter<'a> {
    pub(super) fn new(target: &'a RunTarget, content: &'a str) -> Self {
        Self {
            target,
            content,
            rows: Rows::default(),
            spans: Vec::new(),
            attribute_bytes: 0,
            runs: 0,
            lines: 0,
            summary: ImportSummary::default(),
            not_taken: NotTakenCounts::default(),
        }
    }

    /// Adds one event outside of spans.
    pub(super) fn event(&mut self, event: &LogEvent<'_>) -> Result<(), ImportError> {
        self.attribute_bytes += event.attributes.map_or(0, str::len);
        let id = trace_id(event.trace);
        let strings = &mut self.rows.strings;
        self.rows.events.push(EventRow {
            trace_id: id,
            trace_name: trace_label(event.trace, id).map(|name| strings.intern(name)),
            span_id: 0,
            time_ns: event.time_ns,
            // Order of events. It wraps after four billion events; then only events of one trace
            // with equal times may be in another order.
            seq: self.lines as u32,
            host: strings.intern(event.host),
            service: strings.intern(""),
            task: Some(strings.intern(event.task)),
            name: strings.intern(event.event),
            attributes: event.attributes.map(Into::into),
        });
        self.lines += 1;
        self.summary.events += 1;
        self.summary.last_ns = self.summary.last_ns.max(event.time_ns);
        self.write_if_full()
    }

    /// Adds one span; the inner error is the reason for leaving it out.
    pub(super) fn span(&mut self, span: ForeignSpan) -> Result<Result<(), BadLine>, ImportError> {
        if let Err(reason) = span.check(self.target.limits.of_span()) {
            return Ok(Err(reason.into()));
        }
        let (row, events) = rows_of_span(span, &mut self.rows.strings);
        let attributes = events.iter().map(|event| &event.attributes);
        let bytes = |json: &Option<Box<str>>| json.as_ref().map_or(0, |json| json.len());
        self.attribute_bytes += bytes(&row.attributes) + attributes.map(bytes).sum::<usize>();
        self.summary.spans += 1;
        self.spans.push((row, events));
        self.write_if_full().map(Ok)
    }

    pub(super) fn left_out(&mut self) {
        self.summary.bad_lines += 1;
    }

    pub(super) fn ignored(&mut self) {
        self.summary.ignored_lines += 1;
    }

    pub(super) fn finish(mut self) -> Result<ImportSummary, ImportError> {
        self.write()?;
        self.summary.not_taken = self.not_taken.entries();
        Ok(self.summary)
    }

    pub(super) fn not_taken(&mut self, line: u64, name: &str, count: u64) {
        self.not_taken.count(name, count, line);
    }

    pub(super) fn content(&self) -> &str {
        self.content
    }

    /// Returns the id of a kernel recording with this content; the same content always has the same
    /// id.
    pub(super) fn recording(&self) -> u128 {
        u128::from_str_radix(self.content.get(..32).unwrap_or(self.content), 16).unwrap_or_default()
    }

    pub(super) fn kernel(&mut self, chunk: &KernelChunk) -> Result<(), ImportError> {
        let written = write_kernel(&self.target.store, chunk)?;
        self.target.store.make_durable(&written.paths)?;
        self.summary.events += chunk.events.len() as u64;
        self.summary.objects += written.paths.len();
        Ok(())
    }

    fn write_if_full(&mut self) -> Result<(), ImportError> {
        let bytes = self.rows.strings.bytes() + self.attribute_bytes;
        let rows = self.rows.events.len() + self.spans.len();
        if rows >= self.target.run_rows || bytes >= IMPORT_RUN_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), ImportError> {
        self.put_spans_into_rows();
        let rows = std::mem::take(&mut self.rows);
        self.attribute_bytes = 0;
        let starts = rows.spans.iter().map(|row| row.start_ns);
        let times = starts.chain(rows.events.iter().map(|row| row.time_ns));
        let hours: BTreeSet<Hour> = times.map(Hour::of).collect();
        let Some(first) = hours.iter().rev().take(HOURS_MAX).next_back() else {
            return Ok(());
        };
        let name = format!("import-{}-{}", self.content, self.runs);
        let rule = PartitionRule::imported(first.begin_ns());
        let written = write_rows(&self.target.store, &name, rows, &rule)?;
        self.target.store.make_durable(&written.paths)?;
        self.summary.objects += written.paths.len();
        self.runs += 1;
        Ok(())
    }

    /// Moves spans to the rows. An exporter that retries may write a span twice, identical in all
    /// fields. Within one run, such copies are stored once if the sort makes them neighbours.
    fn put_spans_into_rows(&mut self) {
        let mut spans = std::mem::take(&mut self.spans);
        // The sort is stable, and its key does not distinguish all spans. Equal spans are still
        // neighbours, unless unequal spans share the whole key.
        spans.sort_by_key(|(row, _)| (row.trace_id, row.span_id, row.start_ns, row.end_ns));
        let told = spans.len();
        spans.dedup();
        let duplicates = (told - spans.len()) as u64;
        self.summary.duplicates += duplicates;
        self.summary.spans -= duplicates;
        for (span, events) in spans {
            self.rows.spans.push(span);
            self.summary.events += events.len() as u64;
            self.rows.events.extend(events);
        }
    }
}
