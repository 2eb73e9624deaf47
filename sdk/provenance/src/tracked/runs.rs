//! Labels of the bytes of a buffer, as runs.

use alloc::vec::Vec;
use core::ops::Range;

use crate::label::Label;
use crate::source::Labels;

/// Labels of successive bytes. Bytes after the last run have the null label, so an untracked buffer
/// has no runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs(Vec<Run>);

#[derive(Clone, Copy, Debug)]
struct Run {
    end: usize,
    labels: Labels,
}

impl Runs {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn with_capacity(runs: usize) -> Self {
        Self(Vec::with_capacity(runs))
    }

    /// Returns the first byte after the last run.
    fn end(&self) -> usize {
        self.0.last().map_or(0, |run| run.end)
    }

    fn start(&self, at: usize) -> usize {
        let before = at.checked_sub(1).and_then(|before| self.0.get(before));
        before.map_or(0, |run| run.end)
    }

    /// Appends the labels of `count` bytes from `start`, which is at or after the end.
    pub(super) fn push(&mut self, start: usize, count: usize, labels: Labels) {
        if count == 0 || labels == Labels::NULL {
            return;
        }
        let end = self.end();
        if end < start {
            self.0.push(Run {
                end: start,
                labels: Labels::NULL,
            });
        } else {
            let last = self.0.len().wrapping_sub(1);
            let of_last = self.start(last);
            if let Some(run) = self.0.get_mut(last)
                && run.labels.from(end - of_last) == labels
            {
                run.end += count;
                return;
            }
        }
        self.0.push(Run {
            end: start + count,
            labels,
        });
    }

    pub(super) fn at(&self, place: usize) -> Label {
        let at = self.0.partition_point(|run| run.end <= place);
        self.0
            .get(at)
            .map_or(Label::NULL, |run| run.labels.at(place - self.start(at)))
    }

    /// Returns the runs of a range of bytes. Leaves out bytes after the last run: their label is
    /// null.
    pub(super) fn within(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, Labels)> {
        let mut place = range.start;
        let mut at = match self.0.len() {
            1 => 0,
            _ => self.0.partition_point(|run| run.end <= place),
        };
        core::iter::from_fn(move || {
            let run = self.0.get(at)?;
            let end = run.end.min(range.end);
            if place >= end {
                return None;
            }
            let found = (place..end, run.labels.from(place - self.start(at)));
            (place, at) = (end, at + 1);
            Some(found)
        })
    }

    /// Appends, at `start`, the labels of a range of another buffer.
    #[inline]
    pub(super) fn extend(&mut self, start: usize, other: &Self, range: Range<usize>) {
        if other.0.is_empty() {
            return;
        }
        let first = range.start;
        for (of, labels) in other.within(range) {
            self.push(start + of.start - first, of.len(), labels);
        }
    }
}
