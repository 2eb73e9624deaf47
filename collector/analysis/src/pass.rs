//! Trait for counts over many traces, which any driver can run: a query that reads a store in
//! parts, a live collector, or a query on a cluster.
//!
//! A pass is a commutative monoid while the limits of its tables are not reached. For each part of
//! the traces, an empty pass observes the part's traces in any order. The passes of all parts merge
//! to the pass of the whole. There are two stages. Without a model, a pass sees the
//! [records](crate::record::TraceRecords) of a trace. With a model, it sees a [`TraceView`]: the
//! trace cut into segments, with its critical path. Tuples and lists combine passes of one stage,
//! which then share one reading of the traces.

use crate::critical_path::TracePath;
use crate::label::Labels;
use crate::record::TraceRecords;
use crate::sampling::Weight;
use crate::segment::SegmentedTrace;

/// One trace, cut into segments and analysed with a model.
#[derive(Debug)]
pub struct TraceView<'a> {
    /// Records of the trace, on one time axis.
    pub records: &'a TraceRecords,
    /// Segments of the trace, without the excluded ones.
    pub trace: &'a SegmentedTrace,
    /// Labels of the model, and of segments that the model lacks.
    pub labels: &'a Labels,
    /// Critical path of the trace.
    pub path: &'a TracePath,
}

impl TraceView<'_> {
    /// Returns the number of requests that this trace represents, by its sampling.
    pub fn weight(&self) -> Weight {
        self.records.weight()
    }
}

/// Counts over many traces. `View` is the form in which the pass sees each trace.
pub trait Pass<View: ?Sized>: Send {
    /// Counts one trace.
    fn observe(&mut self, seen: &View);

    /// Adds the counts of another pass of the same kind and settings over other traces.
    fn merge(&mut self, other: Self)
    where
        Self: Sized;

    /// Reports whether the pass ignores all traces. If so, a driver need not read traces for it.
    fn is_idle(&self) -> bool {
        false
    }
}

/// A pass that ignores all traces.
impl<View: ?Sized> Pass<View> for () {
    fn observe(&mut self, _: &View) {}

    fn merge(&mut self, (): ()) {}

    fn is_idle(&self) -> bool {
        true
    }
}

/// Two passes over the same traces.
impl<View: ?Sized, A: Pass<View>, B: Pass<View>> Pass<View> for (A, B) {
    fn observe(&mut self, seen: &View) {
        self.0.observe(seen);
        self.1.observe(seen);
    }

    fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
        self.1.merge(other.1);
    }

    fn is_idle(&self) -> bool {
        self.0.is_idle() && self.1.is_idle()
    }
}

/// Several passes over the same traces. Two lists that are merged must have the same passes in the
/// same order.
impl<View: ?Sized, P: Pass<View>> Pass<View> for Vec<P> {
    fn observe(&mut self, seen: &View) {
        self.iter_mut().for_each(|pass| pass.observe(seen));
    }

    fn merge(&mut self, other: Self) {
        debug_assert_eq!(self.len(), other.len(), "parts have the same passes");
        self.iter_mut()
            .zip(other)
            .for_each(|(own, other)| own.merge(other));
    }

    fn is_idle(&self) -> bool {
        self.iter().all(Pass::is_idle)
    }
}

/// An optional pass; `None` ignores all traces. Two options that are merged must both be `Some` or
/// both be `None`.
impl<View: ?Sized, P: Pass<View>> Pass<View> for Option<P> {
    fn observe(&mut self, seen: &View) {
        if let Some(pass) = self {
            pass.observe(seen);
        }
    }

    fn merge(&mut self, other: Self) {
        debug_assert_eq!(
            self.is_some(),
            other.is_some(),
            "parts have the same passes"
        );
        if let (Some(own), Some(other)) = (self, other) {
            own.merge(other);
        }
    }

    fn is_idle(&self) -> bool {
        self.as_ref().is_none_or(Pass::is_idle)
    }
}
