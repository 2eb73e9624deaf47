//! How a model converges: relations found and removed as traces come in (The Mystery Machine, §4.2, figure 3).

use crate::model::{Changes, Model, Relations};

/// A series has at most so many points. When it is full, every second one is dropped, and points come half as often.
pub const POINTS_MAX: usize = 512;

/// The model after so many traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ConvergencePoint {
    /// Traces observed by then.
    pub traces: u64,
    /// Segments seen by then.
    pub segments: usize,
    /// Happens-before relations believed then.
    pub happens_before: usize,
    /// Mutual exclusions believed then.
    pub mutual_exclusion: usize,
    /// Pipelines believed then.
    pub pipelines: usize,
    /// What came and went since the point before.
    pub changes: Changes,
}

/// When points are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Every so many traces.
    Traces(u64),
    /// When one more in so many of those observed before has been observed: some hundreds of points of however many traces,
    /// most of them where most changes.
    OneIn(u64),
}

impl Pace {
    /// After how many more traces than these a point is due.
    pub fn next(self, observed: u64) -> u64 {
        match self {
            Pace::Traces(traces) => traces.max(1),
            Pace::OneIn(part) => (observed / part.max(1)).max(1),
        }
    }

    /// Half as many points.
    fn halved(self) -> Pace {
        match self {
            Pace::Traces(traces) => Pace::Traces(traces.saturating_mul(2)),
            Pace::OneIn(part) => Pace::OneIn((part / 2).max(1)),
        }
    }
}

/// A series of points. Taking a point costs as much as
/// [`Model::relations`](crate::model::Model::relations), so take them some thousand traces apart.
#[derive(Clone, Debug)]
pub struct Convergence {
    pace: Pace,
    tolerance: f64,
    points: Vec<ConvergencePoint>,
    last: Option<Relations>,
}

impl Convergence {
    /// A series with a point every so many traces, of what is believed at this tolerance.
    pub fn every(traces: u64, tolerance: f64) -> Convergence {
        Convergence::at(Pace::Traces(traces), tolerance)
    }

    /// A series at this pace, of what is believed at this tolerance.
    pub fn at(pace: Pace, tolerance: f64) -> Convergence {
        Convergence {
            pace,
            tolerance,
            points: Vec::new(),
            last: None,
        }
    }

    /// To be called after each trace that the model observed; takes a point when one is due.
    pub fn observe(&mut self, model: &Model) {
        if model.traces() >= self.traces() + self.pace.next(self.traces()) {
            self.take_point(model);
        }
    }

    /// Takes a last point, for the traces since the one before.
    pub fn finish(&mut self, model: &Model) {
        if model.traces() > self.traces() {
            self.take_point(model);
        }
    }

    /// The points so far, in order.
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
            segments: model
                .labels()
                .iter()
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

    /// Drops every second point; what changed up to it is part of the next one's changes.
    fn thin(&mut self) {
        self.pace = self.pace.halved();
        let join = |pair: &[ConvergencePoint]| match pair {
            [a, b] => {
                let (a, c) = (a.changes, b.changes);
                let changes = Changes {
                    happens_before_added: a.happens_before_added + c.happens_before_added,
                    happens_before_removed: a.happens_before_removed + c.happens_before_removed,
                    mutual_exclusion_added: a.mutual_exclusion_added + c.mutual_exclusion_added,
                    mutual_exclusion_removed: a.mutual_exclusion_removed
                        + c.mutual_exclusion_removed,
                };
                ConvergencePoint { changes, ..*b }
            }
            alone => alone[0],
        };
        self.points = self.points.chunks(2).map(join).collect();
    }
}
