//! Critical paths of a test's traces.

use std::fmt;

use stroboscope_analysis::critical_path::{analyse, settle};
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::segment::{OutlineSpan, SegmentedTrace, Segmenter, owners};

use crate::name::is_named;

/// Critical path of a trace, by span.
#[derive(Debug)]
pub(crate) struct SpanPath {
    /// Time from the first event of the trace to its answer, in ns.
    pub(crate) latency_ns: u64,
    /// Tree of the spans, by which the trace was cut into segments.
    pub(crate) outline: Vec<OutlineSpan>,
    /// Segments of the critical path in order of time, each with the index of its span in the
    /// outline and its duration in ns. Segments without a span are left out.
    pub(crate) steps: Vec<(usize, u64)>,
}

/// Critical path of a trace: the spans that determined the duration of its first span. Any of them,
/// made slower, would have delayed the end of the first span.
pub struct CriticalPath<'a> {
    records: &'a TraceRecords,
    path: &'a SpanPath,
}

/// Finds the critical paths of traces, by a model of these traces alone.
pub(crate) fn paths(traces: &[TraceRecords]) -> Vec<SpanPath> {
    let (mut model, mut segmenter) = (Model::new(), Segmenter::default());
    let mut segmented = Vec::with_capacity(traces.len());
    for records in traces {
        let (trace, _) = segmenter.segment(records, model.labels_mut());
        model.observe(&trace);
        segmented.push(trace);
    }
    let relations = model.relations(0.0);
    let path = |(records, mut trace): (&TraceRecords, SegmentedTrace)| {
        settle(&mut trace, &relations);
        let path = analyse(&trace, &relations);
        let outline = segmenter.outline(records);
        let owners = owners(records, &outline, &trace.segments, model.labels());
        let step = |index: usize| Some((owners[index]?, path.segments[index].duration_ns()));
        SpanPath {
            latency_ns: path.latency_ns,
            steps: path.critical().filter_map(step).collect(),
            outline,
        }
    };
    traces.iter().zip(segmented).map(path).collect()
}

impl SpanPath {
    pub(crate) fn of<'a>(&'a self, records: &'a TraceRecords) -> CriticalPath<'a> {
        CriticalPath {
            records,
            path: self,
        }
    }
}

impl<'a> CriticalPath<'a> {
    /// Reports whether a span of this name is on the path. The name may include the service, as in
    /// `shop:checkout`.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        let mut places = self.path.steps.iter().map(|(place, _)| *place);
        places.any(|place| is_named(&self.records.spans[self.path.outline[place].record], name))
    }

    /// Returns the names of the spans on the path, in order of time. A span occurs again after each
    /// child that it waited for, and after each of its events.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let (records, path) = (self.records, self.path);
        let places = path.steps.iter().map(|(place, _)| *place);
        places.map(move |place| &*records.spans[path.outline[place].record].name)
    }
}

impl fmt::Debug for CriticalPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
