//! Predicts the latency of requests if some segments took less time, or more. Replays each request
//! by the relations of the model.

use std::collections::BTreeMap;

use stroboscope_analysis::label::{SegmentId, SegmentLabel};
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::what_if::{
    Change, ChangedWaits, ExpectedChange, LatencyChange, ReplaySample, WaitModel, WaitingSample,
    WhatIf,
};

use super::inference::Inference;
use super::notes::Notes;
use super::query_error::QueryError;
use super::sampled_notes::WeightUse;
use super::study::{Question, Study, StudyInput};

/// Latency before and after a change of some segments.
#[derive(Debug)]
pub struct WhatIfReport {
    /// Segments that were changed, in order of their numbers.
    pub segments: Vec<SegmentId>,
    /// Change over all requests, including those without any of the segments. The prediction
    /// assumes that a segment that was seen to wait does no work before the awaited event.
    pub latency: LatencyChange,
    /// Change under the opposite assumption: a segment that was seen to wait first worked for as
    /// long as its times allow. No request takes less time than under the first assumption.
    pub longest: LatencyChange,
    /// Change of `latency` by root operation. Root operations with callers come first. Within both
    /// groups, the order is by total latency, the largest first.
    pub by_root: Vec<(String, LatencyChange)>,
    /// Number of segments that wait between their start and end, and number of segments that wait
    /// before their start. Waits in shared queues do not count.
    pub waiting: (usize, usize),
    /// Number of queues at which requests wait for each other.
    pub shared_queues: usize,
    /// Expected ranges of the latency's [statistics](stroboscope_analysis::what_if::STATISTICS).
    pub expected: [ExpectedChange; 4],
    /// Notes about the data that the query read.
    pub notes: Notes,
}

/// Replays all selected traces with `segments` changed, which must be in order of their numbers.
/// Reads the critical paths twice: to learn the dependencies of waits, and to replay the traces.
///
/// # Errors
/// Fails if `segments` is empty, if the store cannot be read, if no trace is selected and complete,
/// or if there is too little memory.
pub fn what_if(
    study: &Study,
    segments: Vec<SegmentId>,
    change: Change,
) -> Result<WhatIfReport, QueryError> {
    if segments.is_empty() {
        let (data, segments) = (study.source().name(), study.inference()?.segments().count());
        return Err(QueryError::NoSuchSegment { data, segments });
    }
    let waiting = study.ask(&WaitingQuestion)?;
    let queues = waiting.changed_queues(study.inference()?.model.labels(), |id, _| {
        segments.binary_search(&id).ok().map(|_| change)
    });
    study.ask(&ReplayQuestion {
        waiting,
        queues,
        segments,
        change,
    })
}

/// Asks for the dependencies of waits in the selected traces.
struct WaitingQuestion;

impl Question for WaitingQuestion {
    type Records = ();
    type Preparation = ();
    type Paths<'a> = WaitingSample;
    type Answer = WaitModel;

    fn what(&self) -> &'static str {
        "looking for waits"
    }

    fn records(&self) {}

    fn prepare(&self, _: StudyInput<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, (): &'a ()) -> WaitingSample {
        WaitingSample::default()
    }

    fn answer(
        &self,
        studied: StudyInput<'_>,
        (): &(),
        sample: WaitingSample,
        _: Notes,
    ) -> Result<WaitModel, QueryError> {
        let (relations, model) = (&studied.inference.relations, &studied.inference.model);
        Ok(WaitModel::learn(&sample, relations, model.labels()))
    }
}

/// Asks for the latency of all selected traces with some segments changed.
struct ReplayQuestion {
    waiting: WaitModel,
    queues: ChangedWaits,
    /// Segments in order of their numbers.
    segments: Vec<SegmentId>,
    change: Change,
}

impl Question for ReplayQuestion {
    type Records = ();
    type Preparation = ();
    type Paths<'a> = Replays<'a>;
    type Answer = WhatIfReport;

    fn what(&self) -> &'static str {
        "replaying"
    }

    fn records(&self) {}

    fn prepare(&self, _: StudyInput<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn paths<'a>(&'a self, studied: StudyInput<'a>, (): &'a ()) -> Replays<'a> {
        let chosen = |id: SegmentId, _: &SegmentLabel| {
            self.segments.binary_search(&id).ok().map(|_| self.change)
        };
        Replays {
            inference: studied.inference,
            what_if: WhatIf::new(&self.waiting, Box::new(chosen) as ChangeRule<'_>)
                .with_queues(&self.queues),
            by_root: BTreeMap::new(),
            longest: LatencyChange::default(),
            sample: ReplaySample::default(),
        }
    }

    fn answer(
        &self,
        studied: StudyInput<'_>,
        (): &(),
        paths: Replays<'_>,
        notes: Notes,
    ) -> Result<WhatIfReport, QueryError> {
        let (by_root, mut latency) = (paths.by_root, LatencyChange::default());
        by_root.values().for_each(|of_root| latency.merge(of_root));
        Ok(WhatIfReport {
            segments: self.segments.clone(),
            expected: paths.sample.expected(&latency.before, &latency.after),
            latency,
            longest: paths.longest,
            by_root: studied.inference.ranked(by_root),
            waiting: self.waiting.found(),
            shared_queues: self.waiting.shared_queues(),
            notes: notes.weighing(WeightUse::Everything),
        })
    }
}

/// Function that returns the change of a segment; `None` if it is not changed.
type ChangeRule<'a> = Box<dyn Fn(SegmentId, &SegmentLabel) -> Option<Change> + Send + 'a>;

/// Pass that replays requests, and compares their latency before and after the change.
struct Replays<'a> {
    inference: &'a Inference,
    what_if: WhatIf<'a, ChangeRule<'a>>,
    by_root: BTreeMap<String, LatencyChange>,
    longest: LatencyChange,
    sample: ReplaySample,
}

impl Pass<TraceView<'_>> for Replays<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let TraceView {
            records,
            trace,
            labels,
            path,
        } = seen;
        let weight = seen.weight();
        let replayed = self.what_if.replay(trace, path, labels);
        let root = self.inference.known_root(records);
        self.by_root
            .entry(root)
            .or_default()
            .observe(path.latency_ns, replayed.latency_ns, weight);
        self.longest
            .observe(path.latency_ns, replayed.longest_ns, weight);
        let request = (trace.id, trace.start_ns, weight);
        self.sample.observe(request, path.latency_ns, replayed);
    }

    fn merge(&mut self, other: Self) {
        for (root, change) in other.by_root {
            self.by_root.entry(root).or_default().merge(&change);
        }
        self.longest.merge(&other.longest);
        self.sample.merge(other.sample);
    }
}
