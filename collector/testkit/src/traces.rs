//! Traces of a test, and assertions on them.

use std::collections::HashSet;
use std::ops::Deref;

use stroboscope_analysis::completeness::{Incomplete, completeness};
use stroboscope_analysis::record::TraceRecords;

use crate::archive::Archive;
use crate::name::is_named;

/// Traces of a test, in order of their starts. Dereferences to a slice of [`Trace`].
#[derive(Debug)]
pub struct Traces {
    traces: Vec<Trace>,
    /// Everything that the process recorded, and the ids of the traces that were chosen from it.
    archive: Archive,
    ids: HashSet<u128>,
}

/// One trace: a span that the code under test began outside of any other span, with everything
/// recorded below it.
#[derive(Debug)]
pub struct Trace {
    records: TraceRecords,
    /// True if the trace lacks spans, because they have not ended.
    is_open: bool,
}

impl Traces {
    /// Returns the traces with these ids. `open` are the parents of spans that have not ended.
    pub(crate) fn of(archive: Archive, ids: HashSet<u128>, open: &HashSet<u64>) -> Self {
        let start_ns = |trace: &TraceRecords| trace.spans.iter().map(|span| span.start_ns).min();
        let mut records = archive.traces(&ids);
        records.sort_by_key(start_ns);
        let of = |records: TraceRecords| Trace {
            is_open: is_cut(&records) || records.spans.iter().any(|of| open.contains(&of.span_id)),
            records,
        };
        Self {
            traces: records.into_iter().map(of).collect(),
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
            [] => panic!("no trace is named {name}{}", self.hint(name)),
            ref several => panic!("{} traces are named {name}", several.len()),
        }
    }

    /// Returns the traces of this name, in order of their starts. The name is that of the first
    /// span, `checkout`, or includes its service, `shop:checkout`.
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<&Trace> {
        let is = |trace: &&Trace| (trace.records.root()).is_some_and(|root| is_named(root, name));
        self.traces.iter().filter(is).collect()
    }

    /// Explains where traces of this name are, if the test has none.
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

impl Trace {
    /// Returns the name of the first span.
    #[must_use]
    pub fn name(&self) -> &str {
        self.records.root().map_or("(no root)", |root| &root.name)
    }

    /// Returns the number of spans of this name.
    #[must_use]
    pub fn calls(&self, name: &str) -> usize {
        let spans = self.records.spans.iter();
        spans.filter(|span| is_named(span, name)).count()
    }
}

/// Reports whether a span is missing that other spans are below, because it has not ended.
fn is_cut(records: &TraceRecords) -> bool {
    let reasons = completeness(records, &[]).reasons;
    let mut reasons = reasons.iter();
    reasons.any(|reason| matches!(reason, Incomplete::MissingParent { .. }))
}
