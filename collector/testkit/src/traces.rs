//! Traces of a test, and assertions on them.

use std::collections::HashSet;
use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::time::Duration;

use stroboscope_analysis::completeness::{Incomplete, completeness};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_search::{Truth, Unit, parse};

use crate::archive::Archive;
use crate::critical_path::{CriticalPath, SpanPath, paths};
use crate::name::is_named;
use crate::tree::text;

/// Traces of a test or process, in order of their starts. Dereferences to a slice of [`Trace`].
#[derive(Debug)]
pub struct Traces {
    traces: Vec<Trace>,
    /// Everything that the process recorded, and the ids of the traces that were chosen from it.
    archive: Archive,
    ids: HashSet<u128>,
}

/// One trace: usually a span that the code under test began outside of any other span, with the
/// records below it. Its `Display` form is a tree of the spans, with the time on the critical
/// path.
#[derive(Debug)]
pub struct Trace {
    records: TraceRecords,
    path: SpanPath,
    /// True if the trace lacks a parent, or a span has not ended.
    is_open: bool,
}

impl Traces {
    /// Returns the traces with these ids. `open` has the parents of spans that have not ended.
    pub(crate) fn of(archive: Archive, ids: HashSet<u128>, open: &HashSet<u64>) -> Self {
        let start_ns = |trace: &TraceRecords| trace.spans.iter().map(|span| span.start_ns).min();
        let mut records = archive.traces(&ids);
        records.sort_by_key(start_ns);
        let paths = paths(&records);
        let of = |(records, path): (TraceRecords, SpanPath)| Trace {
            is_open: is_cut(&records) || records.spans.iter().any(|of| open.contains(&of.span_id)),
            records,
            path,
        };
        Self {
            traces: records.into_iter().zip(paths).map(of).collect(),
            archive,
            ids,
        }
    }

    /// Returns the trace of this name.
    ///
    /// # Panics
    /// Panics if there is none, or several.
    #[must_use]
    #[track_caller]
    pub fn only(&self, name: &str) -> &Trace {
        match self.named(name)[..] {
            [trace] => trace,
            [] => panic!("no trace is named {name}{}\n\n{self}", self.hint(name)),
            ref several => panic!("{} traces are named {name}\n\n{self}", several.len()),
        }
    }

    /// Returns the traces of this name, in order of their starts. The name is that of the root
    /// span, `checkout`, or includes its service, `shop:checkout`.
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<&Trace> {
        let is = |trace: &&Trace| (trace.records.root()).is_some_and(|root| is_named(root, name));
        self.traces.iter().filter(is).collect()
    }

    /// Explains why the test has no trace of this name; empty if the reason is unknown.
    fn hint(&self, name: &str) -> &'static str {
        if self.traces.iter().any(|trace| trace.is_open) {
            ". A span of the test has not ended, so it was not recorded"
        } else if self.archive.has_elsewhere(name, &self.ids) {
            ". The process recorded a span of this name outside of this test: in another test, or in a \
             thread or task without the test's context (see `in_current_context`, `in_current_span`)"
        } else {
            ""
        }
    }
}

impl Deref for Traces {
    type Target = [Trace];

    fn deref(&self) -> &[Trace] {
        &self.traces
    }
}

impl<'a> IntoIterator for &'a Traces {
    type Item = &'a Trace;
    type IntoIter = std::slice::Iter<'a, Trace>;

    fn into_iter(self) -> Self::IntoIter {
        self.traces.iter()
    }
}

impl fmt::Display for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.traces.is_empty() {
            return f.write_str("The test recorded no trace.");
        }
        let texts: Vec<String> = self.traces.iter().map(Trace::to_string).collect();
        f.write_str(&texts.join("\n\n"))
    }
}

impl Trace {
    /// Returns the name of the root span; `(no root)` if it was not recorded.
    #[must_use]
    pub fn name(&self) -> &str {
        self.records.root().map_or("(no root)", |root| &root.name)
    }

    /// Returns the duration of the first span or, if that has not ended, of the trace so far.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.path.latency_ns)
    }

    /// Returns the number of spans of this name.
    #[must_use]
    pub fn calls(&self, name: &str) -> usize {
        let spans = self.records.spans.iter();
        spans.filter(|span| is_named(span, name)).count()
    }

    /// Returns the critical path.
    #[must_use]
    pub fn critical_path(&self) -> CriticalPath<'_> {
        self.path.of(&self.records)
    }

    /// Reports whether a formula holds, in the language of `stroboscope search`.
    ///
    /// # Panics
    /// Panics if the formula has a syntax error, or if the trace does not show whether it holds.
    #[must_use]
    #[track_caller]
    pub fn holds(&self, formula: &str) -> bool {
        match self.evaluate(formula) {
            Ok(holds) => holds,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Asserts that a formula holds, in the language of `stroboscope search`.
    ///
    /// # Panics
    /// Panics if the formula does not hold, with a tree of the trace. Also panics if the formula
    /// has a syntax error, or if the trace does not show whether it holds.
    #[track_caller]
    pub fn assert_holds(&self, formula: &str) {
        match self.evaluate(formula) {
            Ok(true) => {}
            Ok(false) => panic!("the trace violates `{formula}`\n\n{self}"),
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Asserts that the number of spans of this name is in a range, such as `..=1`.
    ///
    /// # Panics
    /// Panics if the number is outside the range, with a tree of the trace. Also panics if spans
    /// are missing, because they have not ended.
    #[track_caller]
    pub fn assert_calls(&self, name: &str, range: impl RangeBounds<usize> + fmt::Debug) {
        let calls = self.calls(name);
        if self.is_open {
            panic!("the trace cannot tell how many spans are named {name}\n\n{self}");
        }
        if !range.contains(&calls) {
            panic!("the trace has {calls} spans named {name}, not {range:?}\n\n{self}");
        }
    }

    /// Asserts that a span of this name is on the critical path.
    ///
    /// # Panics
    /// Panics if there is none, with a tree of the trace.
    #[track_caller]
    pub fn assert_critical(&self, name: &str) {
        if !self.critical_path().contains(name) {
            panic!("no span named {name} is on the critical path\n\n{self}");
        }
    }

    /// Evaluates a formula, or explains why that is impossible.
    fn evaluate(&self, formula: &str) -> Result<bool, String> {
        let parsed = parse(formula).map_err(|error| {
            let marked = error.marked(formula);
            format!("the formula has a syntax error: {error}\n{marked}")
        })?;
        let reason = match Unit::of_request(&self.records, self.is_open).of_whole(&parsed) {
            Truth::True => return Ok(true),
            Truth::False => return Ok(false),
            Truth::Unknown if parsed.names_kernel() => "tests do not record the kernel",
            Truth::Unknown => "a span has not ended",
        };
        Err(format!(
            "the trace cannot tell whether `{formula}` holds: {reason}\n\n{self}"
        ))
    }
}

/// Reports whether the trace lacks the parent of a recorded span, which usually has not ended.
fn is_cut(records: &TraceRecords) -> bool {
    let reasons = completeness(records, &[]).reasons;
    let mut reasons = reasons.iter();
    reasons.any(|reason| matches!(reason, Incomplete::MissingParent { .. }))
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(&self.records, &self.path, self.is_open))
    }
}
