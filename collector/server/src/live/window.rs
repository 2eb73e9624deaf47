//! Model of a sliding window of time, as a ring of slices.
//!
//! A slice is the model of the traces observed in one interval. The open slice observes traces; the
//! window is the merge of the open slice and the latest closed ones, at most [`SLICES`]. A slice
//! leaves the window as a whole, with all that it refuted and all its labels. So after a deploy
//! that reverses an order, the model has the new order at the latest when the window has passed.

use std::borrow::Cow;
use std::collections::VecDeque;

use stroboscope_analysis::by_root::ByRoot;
use stroboscope_analysis::label::{Labels, SegmentId, SegmentLabel};
use stroboscope_analysis::model::Model;
use stroboscope_analysis::segment::SegmentedTrace;

/// Number of closed slices in a full window. Each one takes as much memory as a model.
const SLICES: usize = 4;

#[derive(Debug)]
struct Slice {
    number: u64,
    /// Start of the slice, in ns since the Unix epoch; 0 if no trace was observed yet.
    from_ns: i64,
    model: Model,
    roots: ByRoot,
}

impl Slice {
    fn new(number: u64, from_ns: i64, max_segments: usize) -> Self {
        Self {
            number,
            from_ns,
            model: Model::with_max_labels(max_segments),
            roots: ByRoot::default(),
        }
    }
}

/// Models of the slices in a sliding window. Once a whole window has passed in steps much shorter
/// than a slice, they cover from about `SLICES / (SLICES + 1)` of its length to all of it.
#[derive(Debug)]
pub(super) struct ModelWindow {
    slice_ns: i64,
    /// Maximum number of segments of each model.
    max_segments: usize,
    open: Slice,
    /// Closed slices in order of time.
    closed: VecDeque<Slice>,
    /// Merge of the closed slices.
    past: (Model, ByRoot),
}

/// The merged models of a window.
#[derive(Debug)]
pub(super) struct WindowModel {
    pub(super) model: Model,
    pub(super) roots: ByRoot,
    /// Start of the window, in ns since the Unix epoch; 0 if no trace was observed yet.
    pub(super) from_ns: i64,
}

impl ModelWindow {
    /// Creates an empty window of the length `window_ns`, in ns. Its models distinguish at most
    /// `max_segments` segments.
    pub(super) fn new(window_ns: i64, max_segments: usize) -> Self {
        Self {
            slice_ns: (window_ns / (SLICES as i64 + 1)).max(1),
            max_segments,
            open: Slice::new(0, 0, max_segments),
            closed: VecDeque::new(),
            past: (Model::with_max_labels(max_segments), ByRoot::default()),
        }
    }

    /// Moves the window to `now_ns`. If the open slice has reached its length, closes it and drops
    /// the slices that began before the window, and those beyond [`SLICES`].
    pub(super) fn advance(&mut self, now_ns: i64) {
        // If the clock was set back, the slice would stay open until the clock has caught up.
        if self.open.from_ns == 0 || now_ns < self.open.from_ns {
            self.open.from_ns = now_ns;
        }
        let length_ns = self.slice_ns.saturating_mul(SLICES as i64);
        let is_old = |slice: &Slice| {
            now_ns.saturating_sub(slice.from_ns) >= length_ns.saturating_add(self.slice_ns)
        };
        let is_due = now_ns.saturating_sub(self.open.from_ns) >= self.slice_ns;
        if !is_due {
            return;
        }
        let fresh = Slice::new(self.open.number + 1, now_ns, self.max_segments);
        let done = std::mem::replace(&mut self.open, fresh);
        self.closed.push_back(done);
        while self.closed.front().is_some_and(is_old) || self.closed.len() > SLICES {
            self.closed.pop_front();
        }
        let model = Model::with_max_labels(self.max_segments);
        self.past = (model, ByRoot::default());
        for slice in &self.closed {
            self.past.0.merge(&slice.model);
            self.past.1.merge(&slice.roots);
        }
    }

    /// Returns the number, the model and the roots of the open slice.
    pub(super) fn open(&mut self) -> (u64, &mut Model, &mut ByRoot) {
        let Slice {
            number,
            model,
            roots,
            ..
        } = &mut self.open;
        (*number, model, roots)
    }

    /// Returns the number of labels in the merged closed slices or in the open slice, whichever is
    /// larger.
    pub(super) fn segments(&self) -> usize {
        let past = self.past.0.labels().len();
        past.max(self.open.model.labels().len())
    }

    /// Returns the number of times that slices of the window refused a label, because a model had
    /// the maximum number of labels.
    pub(super) fn refused_labels(&self) -> u64 {
        let slices = self.closed.iter().chain([&self.open]);
        slices.map(|slice| slice.model.labels().refused()).sum()
    }

    /// Returns the statistics of the window's requests, by root operation.
    pub(super) fn roots(&self) -> ByRoot {
        let mut roots = self.past.1.clone();
        roots.merge(&self.open.roots);
        roots
    }

    /// Merges the slices of the window into one model.
    pub(super) fn merged(&self) -> WindowModel {
        let first = self.closed.front().unwrap_or(&self.open);
        WindowModel {
            model: self.merged_model().into_owned(),
            roots: self.roots(),
            from_ns: first.from_ns,
        }
    }

    /// Merges the models of the slices.
    pub(super) fn merged_model(&self) -> Cow<'_, Model> {
        if self.closed.is_empty() {
            return Cow::Borrowed(&self.open.model);
        }
        let mut model = self.past.0.clone();
        model.merge(&self.open.model);
        Cow::Owned(model)
    }

    /// Returns the numbering by the labels of the merged model.
    pub(super) fn numbering<'a>(&'a self, labels: &'a Labels) -> SegmentNumbers<'a> {
        SegmentNumbers {
            window: self,
            labels,
            of_slice: None,
        }
    }
}

/// Numbering of segments by the labels of a window's merged model.
#[derive(Debug)]
pub(super) struct SegmentNumbers<'a> {
    window: &'a ModelWindow,
    labels: &'a Labels,
    /// Slice of the latest trace, and the numbers of its labels. Successive traces are of few
    /// slices.
    of_slice: Option<(u64, Vec<Option<SegmentId>>)>,
}

impl SegmentNumbers<'_> {
    /// Returns a copy of a trace of the slice, with its segments numbered anew. Returns `None` if
    /// the slice has left the window, or if a label is missing.
    pub(super) fn renumbered(
        &mut self,
        slice: u64,
        trace: &SegmentedTrace,
    ) -> Option<SegmentedTrace> {
        if self.of_slice.as_ref().is_none_or(|(of, _)| *of != slice) {
            let mut slices = self.window.closed.iter().chain([&self.window.open]);
            let of = slices.find(|of| of.number == slice)?.model.labels();
            let id = |label: &SegmentLabel| self.labels.id(&label.task, &label.start, &label.end);
            let numbers = of.iter().map(|(_, label)| id(label)).collect();
            self.of_slice = Some((slice, numbers));
        }
        let (_, numbers) = self.of_slice.as_ref()?;
        let mut trace = trace.clone();
        for segment in &mut trace.segments {
            segment.id = (*numbers.get(segment.id.index())?)?;
        }
        // Segments of one interval are in the order of their numbers.
        trace
            .segments
            .sort_by_key(|segment| (segment.start_ns, segment.end_ns, segment.id));
        Some(trace)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use stroboscope_analysis::label::DEFAULT_MAX_LABELS;
    use stroboscope_analysis::record::TraceId;
    use stroboscope_analysis::segment::Segment;

    /// Returns a trace in which the tasks work one after the other.
    fn trace(model: &mut Model, tasks: &[&str]) -> SegmentedTrace {
        let segments = tasks.iter().zip(0..).map(|(task, at)| {
            let [task, start, end] = [*task, "start", "end"].map(Arc::from);
            let id = model.labels_mut().intern(&task, &start, &end).unwrap();
            Segment::new(id, at * 10, at * 10 + 5)
        });
        SegmentedTrace::new(TraceId(1), None, 0, 100, segments.collect())
    }

    fn is_believed(window: &ModelWindow, first: &str, second: &str) -> bool {
        let merged = window.merged().model;
        let id = |task: &str| merged.labels().id(task, "start", "end");
        let (Some(first), Some(second)) = (id(first), id(second)) else {
            return false;
        };
        merged.relations(0.0).happens_before(first, second)
    }

    /// Checks the window against a model of exactly the traces that it should cover.
    #[test]
    fn an_order_that_a_deploy_reversed_is_believed_again_within_a_window() {
        const SLICE: i64 = 100;
        let mut window = ModelWindow::new(SLICE * (SLICES as i64 + 1), DEFAULT_MAX_LABELS);
        let mut seen: Vec<(i64, Vec<&str>)> = Vec::new();
        let mut latest_refuted = 0;
        for at in 1..2_000 {
            let tasks = match at {
                ..700 => vec!["a", "b", "old"],
                _ => vec!["b", "a", "new"],
            };
            window.advance(at);
            let (_, model, _) = window.open();
            let trace = trace(model, &tasks);
            model.observe(&trace);
            seen.push((at, tasks));
            if at % 50 != 0 {
                continue;
            }
            let from_ns = window.merged().from_ns;
            let mut expected = Model::new();
            for (_, tasks) in seen.iter().filter(|(at, _)| *at >= from_ns) {
                let trace = super::tests::trace(&mut expected, tasks);
                expected.observe(&trace);
            }
            assert_eq!(
                window.merged().model.canonical().parts(),
                expected.canonical().parts()
            );
            assert!(at - from_ns < SLICE * (SLICES as i64 + 1));
            let length = SLICE * SLICES as i64;
            assert!(from_ns == 1 || at - from_ns >= length, "{at} {from_ns}");
            if !is_believed(&window, "b", "a") {
                latest_refuted = at;
            }
        }
        assert!(is_believed(&window, "b", "a") && !is_believed(&window, "a", "b"));
        assert!(
            latest_refuted < 700 + SLICE * (SLICES as i64 + 1),
            "{latest_refuted}"
        );
        // Old labels have left.
        assert!(
            window
                .merged()
                .model
                .labels()
                .id("old", "start", "end")
                .is_none()
        );
    }

    #[test]
    fn a_trace_of_an_earlier_slice_gets_the_numbers_of_the_window() {
        let mut window = ModelWindow::new(500, DEFAULT_MAX_LABELS);
        window.advance(1);
        let (first, model, _) = window.open();
        let early = trace(model, &["x", "y"]);
        model.observe(&early);
        window.advance(150);
        let (second, model, _) = window.open();
        let late = trace(model, &["y", "x"]);
        model.observe(&late);
        assert!(first < second);
        let merged = window.merged().model;
        let mut numbering = window.numbering(merged.labels());
        for (slice, trace, tasks) in [(first, &early, ["x", "y"]), (second, &late, ["y", "x"])] {
            let renumbered = numbering.renumbered(slice, trace).unwrap();
            let names = renumbered.segments.iter().map(|segment| {
                let label = merged.labels().get(segment.id).unwrap();
                label.task.to_string()
            });
            assert_eq!(names.collect::<Vec<_>>(), tasks);
        }
        assert!(numbering.renumbered(9, &early).is_none());
    }

    #[test]
    fn a_pause_longer_than_the_window_empties_it() {
        let mut window = ModelWindow::new(500, DEFAULT_MAX_LABELS);
        window.advance(1);
        let (_, model, _) = window.open();
        let trace = trace(model, &["x", "y"]);
        model.observe(&trace);
        window.advance(10_000);
        assert!(window.merged().model.labels().is_empty());
        assert_eq!(window.merged().from_ns, 10_000);
    }
}
