//! Tracks the convergence of a model: the relations added and removed as traces arrive (The Mystery
//! Machine, §4.2, figure 3).

use crate::model::{Changes, Model, Relations};

/// Number of points at which a series is full. It then drops every second point, and takes points
/// about half as often.
pub const POINTS_MAX: usize = 512;

/// State of the model after a number of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ConvergencePoint {
    /// Number of traces observed so far.
    pub traces: u64,
    /// Number of segments (labels) that occurred so far.
    pub segments: usize,
    /// Number of happens-before relations that the model believes.
    pub happens_before: usize,
    /// Number of mutual exclusions of different segments that the model believes.
    pub mutual_exclusion: usize,
    /// Number of pipelines that the model believes.
    pub pipelines: usize,
    /// Happens-before relations and mutual exclusions added and removed since the previous point.
    pub changes: Changes,
}

/// Interval between points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineLimit {
    /// A point every this many traces.
    Traces(u64),
    /// A point whenever the number of observed traces grew by one part in this many. The number of
    /// points grows with the logarithm of the number of traces. Points are denser at the beginning,
    /// when most relations change.
    OneIn(u64),
}

impl LineLimit {
    /// Returns the number of traces from a point to the next, if the model had observed `observed`
    /// traces at the first of these points.
    pub fn next(self, observed: u64) -> u64 {
        match self {
            LineLimit::Traces(traces) => traces.max(1),
            LineLimit::OneIn(part) => (observed / part.max(1)).max(1),
        }
    }

    /// Returns the interval for half as many points.
    fn halved(self) -> LineLimit {
        match self {
            LineLimit::Traces(traces) => LineLimit::Traces(traces.saturating_mul(2)),
            LineLimit::OneIn(part) => LineLimit::OneIn((part / 2).max(1)),
        }
    }
}

/// A series of points. A point costs as much as
/// [`Model::relations`](crate::model::Model::relations), so take points some thousand traces apart.
#[derive(Clone, Debug)]
pub struct Convergence {
    pace: LineLimit,
    tolerance: f64,
    points: Vec<ConvergencePoint>,
    last: Option<Relations>,
}

impl Convergence {
    /// Creates a series with a point every `traces` traces, for the relations that the model
    /// believes at this tolerance for noise (see [`Model::relations`]).
    pub fn every(traces: u64, tolerance: f64) -> Convergence {
        Convergence::at(LineLimit::Traces(traces), tolerance)
    }

    /// Creates a series with this interval between points, for the relations that the model
    /// believes at this tolerance for noise.
    pub fn at(pace: LineLimit, tolerance: f64) -> Convergence {
        Convergence {
            pace,
            tolerance,
            points: Vec::new(),
            last: None,
        }
    }

    /// Takes a point when one is due. Call it after each trace that the model observed.
    pub fn observe(&mut self, model: &Model) {
        if model.traces() >= self.traces() + self.pace.next(self.traces()) {
            self.take_point(model);
        }
    }

    /// Takes a last point if the model observed traces since the previous one.
    pub fn finish(&mut self, model: &Model) {
        if model.traces() > self.traces() {
            self.take_point(model);
        }
    }

    /// Returns the points so far, in order.
    pub fn points(&self) -> &[ConvergencePoint] {
        &self.points
    }

    fn traces(&self) -> u64 {
        self.points.last().map_or(0, |point| point.traces)
    }

    fn take_point(&mut self, model: &Model) {
        let now = model.relations(self.tolerance);
        let changes = match &self.last {
            Some(last) => now.changes_since(last),
            None => Changes {
                happens_before_added: now.all_happens_before().len(),
                mutual_exclusion_added: now.all_mutual_exclusion().len(),
                ..Changes::default()
            },
        };
        self.points.push(ConvergencePoint {
            traces: model.traces(),
            segments: (model.labels().iter())
                .filter(|(id, _)| model.segment_counts(*id).traces > 0)
                .count(),
            happens_before: now.all_happens_before().len(),
            mutual_exclusion: now.all_mutual_exclusion().len(),
            pipelines: now.all_pipelines().len(),
            changes,
        });
        self.last = Some(now);
        if self.points.len() >= POINTS_MAX {
            self.thin();
        }
    }

    /// Drops every second point, and adds its changes to those of the next point.
    fn thin(&mut self) {
        self.pace = self.pace.halved();
        let join = |pair: &[ConvergencePoint]| match pair {
            [a, b] => {
                let (added, mut changes) = (a.changes, b.changes);
                changes.happens_before_added += added.happens_before_added;
                changes.happens_before_removed += added.happens_before_removed;
                changes.mutual_exclusion_added += added.mutual_exclusion_added;
                changes.mutual_exclusion_removed += added.mutual_exclusion_removed;
                ConvergencePoint { changes, ..*b }
            }
            alone => alone[0],
        };
        self.points = self.points.chunks(2).map(join).collect();
    }
}
