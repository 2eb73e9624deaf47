//! Recent requests for critical paths, and the windows of known processes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::critical_path::{analyse, settle};
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::model::Relations;
use stroboscope_analysis::sampling::Weight;
use stroboscope_analysis::segment::SegmentedTrace;

use super::outcomes::{OutcomeSlices, RECENT, RecentOutcomes};
use super::window::ModelWindow;
use stroboscope_store::limits::INCARNATIONS_MAX;
use stroboscope_store::record::BatchRow;

/// Maximum recent requests kept; the oldest are dropped first. Also the maximum of requests for
/// which the totals of paths are computed at a time.
pub const RECENT_TRACES_MAX: usize = 1_024;
/// Maximum segments in total of the requests that [`RECENT_TRACES_MAX`] limits.
pub const RECENT_SEGMENTS_MAX: usize = 65_536;

/// A request with its weight, the number of requests it represents.
type WeightedTrace = (Weight, SegmentedTrace);

/// The latest complete requests.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Requests in the order in which the model observed them.
    traces: VecDeque<RecentTrace>,
    segments: usize,
}

#[derive(Debug)]
struct RecentTrace {
    /// Time when the model observed the request, in ns since the Unix epoch.
    at_ns: i64,
    /// Slice of the model's window that numbers its segments.
    slice: u64,
    weight: Weight,
    trace: Arc<SegmentedTrace>,
}

impl Recent {
    pub(super) fn add(
        &mut self,
        at_ns: i64,
        slice: u64,
        trace: Arc<SegmentedTrace>,
        weight: Weight,
    ) {
        self.segments += trace.segments.len();
        self.traces.push_back(RecentTrace {
            at_ns,
            slice,
            weight,
            trace,
        });
        while self.segments > RECENT_SEGMENTS_MAX || self.traces.len() > RECENT_TRACES_MAX {
            let Some(oldest) = self.traces.pop_front() else {
                break;
            };
            self.segments -= oldest.trace.segments.len();
        }
    }

    fn since(&self, from_ns: i64) -> impl Iterator<Item = &RecentTrace> {
        let traces = self.traces.iter();
        traces.filter(move |recent| recent.at_ns >= from_ns)
    }
}

/// Recent requests with the current model, from which critical paths are computed.
#[derive(Debug)]
pub struct RecentRequests {
    traces: Vec<WeightedTrace>,
    relations: Relations,
    labels: Labels,
    outcomes: RecentOutcomes,
    refused_segments: u64,
}

impl RecentRequests {
    pub(super) fn of(
        recent: &Recent,
        outcomes: &OutcomeSlices,
        window: &ModelWindow,
        now_ns: i64,
    ) -> Self {
        let recent_ns = i64::try_from(RECENT.as_nanos()).unwrap_or(i64::MAX);
        let from_ns = now_ns.saturating_sub(recent_ns);
        let model = window.merged_model();
        let labels = model.labels();
        let mut numbering = window.numbering(labels);
        let traces = recent.since(from_ns).filter_map(|recent| {
            let trace = numbering.renumbered(recent.slice, &recent.trace)?;
            Some((recent.weight, trace))
        });
        Self {
            traces: traces.collect(),
            outcomes: outcomes.since(from_ns),
            refused_segments: window.refused_labels(),
            relations: model.relations(0.0),
            labels: labels.clone(),
        }
    }

    /// Returns the outcomes of all recent requests, including incomplete ones.
    #[must_use]
    pub fn outcomes(&self) -> &RecentOutcomes {
        &self.outcomes
    }

    /// Returns how often a full slice of the model's window left out a segment.
    #[must_use]
    pub fn refused_segments(&self) -> u64 {
        self.refused_segments
    }

    /// Computes the critical paths of the requests, aggregated by segment. Takes milliseconds or
    /// longer, so async code must not call it.
    #[must_use]
    pub fn paths(&self) -> (PathAggregate, &Labels) {
        let mut aggregate = PathAggregate::new();
        for (weight, trace) in &self.traces {
            let mut trace = trace.clone();
            settle(&mut trace, &self.relations);
            aggregate.observe(&analyse(&trace, &self.relations), *weight);
        }
        (aggregate, &self.labels)
    }
}

/// Recording windows that a process reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessWindows {
    /// Number of windows that reached the model, since this collector started or since the last
    /// eviction of the process.
    pub count: u64,
    /// Burst-config of the latest window, as bits.
    pub burst_config: u64,
    /// End of the latest window by the process's clock, in ns since the Unix epoch.
    pub last_close_ns: i64,
}

/// Windows by process.
#[derive(Debug, Default)]
pub(super) struct Windows(HashMap<u128, ProcessWindows>);

impl Windows {
    pub(super) fn take(&mut self, batch: &BatchRow) {
        let Some(last) = batch.windows.iter().max_by_key(|window| window.close_ns) else {
            return;
        };
        if !self.0.contains_key(&batch.process) && self.0.len() >= INCARNATIONS_MAX {
            self.forget_longest_ago();
        }
        let of = self.0.entry(batch.process).or_default();
        of.count += batch.windows.len() as u64;
        if last.close_ns >= of.last_close_ns {
            of.last_close_ns = last.close_ns;
            of.burst_config = last.burst_config;
        }
    }

    /// Evicts the processes whose latest windows are oldest. It evicts at least a sixteenth of the
    /// maximum at once, so that a flood of processes costs little per process.
    fn forget_longest_ago(&mut self) {
        let mut closes: Vec<i64> = self.0.values().map(|of| of.last_close_ns).collect();
        let (_, from_ns, _) = closes.select_nth_unstable(INCARNATIONS_MAX / 16);
        let from_ns = *from_ns;
        self.0.retain(|_, of| of.last_close_ns > from_ns);
    }

    pub(super) fn get(&self, process: u128) -> Option<ProcessWindows> {
        self.0.get(&process).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_analysis::label::SegmentId;
    use stroboscope_analysis::record::TraceId;
    use stroboscope_analysis::segment::Segment;
    use stroboscope_fixtures::batches::batch;
    use stroboscope_store::decode::CheckedBatch;
    use stroboscope_store::limits::Limits;
    use stroboscope_store::record::Rows;

    fn trace(id: u128, segments: usize) -> Arc<SegmentedTrace> {
        let segment = Segment::new(SegmentId(0), 0, 1);
        SegmentedTrace::new(TraceId(id), None, 0, 1, vec![segment; segments]).into()
    }

    #[test]
    fn what_is_kept_is_bounded_and_recent() {
        let mut recent = Recent::default();
        for at_ns in 0..10_000 {
            recent.add(at_ns, 0, trace(1, 1), Weight::ONE);
        }
        assert_eq!(recent.traces.len(), RECENT_TRACES_MAX);
        assert_eq!(recent.since(9_999).count(), 1);
        recent.add(10_000, 0, trace(2, RECENT_SEGMENTS_MAX - 10), Weight::ONE);
        assert_eq!(
            (recent.traces.len(), recent.segments),
            (11, RECENT_SEGMENTS_MAX)
        );
        // A request that is too large by itself is not kept either.
        recent.add(10_001, 0, trace(3, RECENT_SEGMENTS_MAX + 1), Weight::ONE);
        assert_eq!((recent.traces.len(), recent.segments), (0, 0));
    }

    #[test]
    fn only_reported_windows_are_known() {
        let mut rows = Rows::default();
        for process in [1, 2] {
            let mut sent = batch(process, 0, 1);
            if process == 2 {
                sent.windows.clear();
            }
            // The config changed after the window.
            sent.windows.iter_mut().for_each(|of| of.burst_config = 7);
            sent.burst_config = 0;
            let checked = CheckedBatch::check(sent, &Limits::default()).unwrap();
            checked.append_to(1, &mut rows);
        }
        let mut windows = Windows::default();
        rows.batches.iter().for_each(|row| windows.take(row));
        let known = windows.get(1).map(|of| (of.count, of.burst_config));
        assert_eq!(known, Some((1, 7)));
        assert_eq!(windows.get(2), None);
    }

    #[test]
    fn windows_of_many_processes_are_bounded() {
        let mut windows = Windows::default();
        for process in 0..INCARNATIONS_MAX as u128 + 1_000 {
            let at_ns = process as i64 + 1;
            windows.0.entry(process).or_default();
            if let Some(of) = windows.0.get_mut(&process) {
                of.last_close_ns = at_ns;
            }
            if windows.0.len() > INCARNATIONS_MAX {
                windows.forget_longest_ago();
            }
        }
        assert!(windows.0.len() <= INCARNATIONS_MAX);
        assert!(windows.get(0).is_none() && windows.get(INCARNATIONS_MAX as u128).is_some());
    }
}
