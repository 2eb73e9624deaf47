//! Finds hidden work: a task's own work after the end of one call, before it awaits another call.
//!
//! Suppose that a task calls X and Y at once, and awaits X first. If X ends last, the task's
//! segment after X includes the work between both awaits. If Y ends last, that work runs while Y
//! still does, and no segment shows it. Among segments that differ only in the call that ended
//! last, the shortest is therefore the work after both awaits: the remaining work. If another
//! segment is longer, the excess is work before the remaining work. The remaining work begins when
//! every call and the work that follows it have ended.

use super::follows::{POINTS_MIN, fit, stays};
use super::sample::WaitingSample;
use crate::label::{Labels, SegmentId};
use crate::segment::{SegmentedTrace, interval_ns};
use crate::task_path;
use rustc_hash::FxHashMap;

/// Minimum difference of two means, in standard errors, that counts.
const ERRORS_MIN: f64 = 4.0;

/// Calls that a task's segment waits for before its remaining work.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Join {
    /// Last segment of each call, and the task's own work between the end of the call and the
    /// remaining work, in nanoseconds.
    pub(super) calls: Vec<(SegmentId, u64)>,
}

/// Recorded instances of one label.
#[derive(Clone, Default)]
struct StretchEnds {
    /// Start and end of each instance, in nanoseconds after the end of the second-to-last call. The
    /// last call ends at the start.
    ends: Vec<(f64, f64)>,
}

impl StretchEnds {
    /// Returns the statistics of the half of the instances with the longest times between the last
    /// two calls. Work after the second-to-last call has the least influence there. Returns `None`
    /// for too few instances.
    fn clear(mut self) -> Option<Clear> {
        self.ends.sort_unstable_by(|(a, _), (b, _)| b.total_cmp(a));
        self.ends.truncate(self.ends.len().div_ceil(2));
        if self.ends.len() < POINTS_MIN {
            return None;
        }
        let count = self.ends.len() as f64;
        let lengths = || {
            self.ends
                .iter()
                .map(|(called_ns, ended_ns)| ended_ns - called_ns)
        };
        let mean_ns = lengths().sum::<f64>() / count;
        let variance = lengths()
            .map(|ns| (ns - mean_ns) * (ns - mean_ns))
            .sum::<f64>()
            / count;
        let follows = fit(&self.ends).is_some();
        Some(Clear {
            follows,
            stays: !follows && stays(&self.ends),
            mean_ns,
            squared_error: variance / count,
        })
    }
}

/// Statistics of the instances of one label.
struct Clear {
    /// True if the segments end later by as much as the last call ends later.
    follows: bool,
    /// True if the segments certainly end later by less than the last call does.
    stays: bool,
    mean_ns: f64,
    squared_error: f64,
}

/// Returns the calls that the segments of each label wait for. The entry is `None` unless there are
/// several calls, followed by different amounts of work.
pub(super) fn joins(sample: &WaitingSample, labels: &Labels, known: usize) -> Vec<Option<Join>> {
    let mut joins = vec![None; known];
    let families = families(labels, known);
    let mut of_label = vec![None; known];
    for (family, (_, members)) in families.iter().enumerate() {
        members
            .iter()
            .enumerate()
            .for_each(|(at, (label, _))| of_label[label.index()] = Some((family, at)));
    }
    let mut seen: Vec<Vec<StretchEnds>> = families
        .iter()
        .map(|(_, members)| vec![StretchEnds::default(); members.len()])
        .collect();
    for trace in sample.spread() {
        let ends = last_of_labels(trace);
        for segment in &trace.segments {
            let Some((family, at)) = of_label.get(segment.id.index()).copied().flatten() else {
                continue;
            };
            // The order of the calls matters only if another call has ended before.
            let others = families[family]
                .1
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at);
            let others_ns = others
                .filter_map(|(_, (_, call))| Some(trace.segments[*ends.get(call)?].end_ns))
                .filter(|end_ns| *end_ns <= segment.start_ns);
            if let Some(other_ns) = others_ns.max() {
                let since = |at_ns| interval_ns(other_ns, at_ns) as f64;
                seen[family][at]
                    .ends
                    .push((since(segment.start_ns), since(segment.end_ns)));
            }
        }
    }
    for ((_, members), seen) in families.iter().zip(seen) {
        let told: Vec<_> = members
            .iter()
            .zip(seen)
            .filter_map(|((label, call), seen)| Some((*label, *call, seen.clear()?)))
            .collect();
        // A segment whose end does not depend on the last call did not await that call.
        let is_join = told.iter().any(|(.., clear)| clear.follows)
            && !told.iter().any(|(.., clear)| clear.stays);
        let least = told
            .iter()
            .map(|(.., clear)| clear)
            .min_by(|a, b| a.mean_ns.total_cmp(&b.mean_ns));
        let Some(rest) = least.filter(|_| is_join) else {
            continue;
        };
        let before_ns = |clear: &Clear| {
            let more_ns = clear.mean_ns - rest.mean_ns;
            let is_sure = more_ns > ERRORS_MIN * (clear.squared_error + rest.squared_error).sqrt();
            if is_sure { more_ns as u64 } else { 0 }
        };
        let calls: Vec<_> = told
            .iter()
            .map(|(_, call, clear)| (*call, before_ns(clear)))
            .collect();
        if calls.iter().any(|(_, before_ns)| *before_ns > 0) {
            told.iter().for_each(|(label, ..)| {
                joins[label.index()] = Some(Join {
                    calls: calls.clone(),
                });
            });
        }
    }
    joins
}

type Family<'a> = ((&'a str, &'a str), Vec<(SegmentId, SegmentId)>);

/// Returns families of labels. The segments of a family belong to one task and end at the same
/// event, but follow different calls. Each label comes with the newest label of a last segment of
/// the call that it follows.
fn families(labels: &Labels, known: usize) -> Vec<Family<'_>> {
    let mut last: FxHashMap<(&str, &str), SegmentId> = FxHashMap::default();
    for (id, label) in labels
        .iter()
        .take(known)
        .filter(|(_, label)| &*label.end == "end")
    {
        let component = task_path::last_component(&label.task);
        if let Some(parent) = label
            .task
            .len()
            .checked_sub(component.len() + task_path::JOINT.len())
        {
            last.insert((&label.task[..parent], component), id);
        }
    }
    let mut families: FxHashMap<(&str, &str), Vec<(SegmentId, SegmentId)>> = FxHashMap::default();
    for (id, label) in labels.iter().take(known) {
        let Some(component) = label.start.strip_prefix('←') else {
            continue;
        };
        if let Some(call) = last.get(&(&*label.task, component)) {
            families
                .entry((&*label.task, &*label.end))
                .or_default()
                .push((id, *call));
        }
    }
    let mut families: Vec<Family<'_>> = families
        .into_iter()
        .filter(|(_, members)| members.len() > 1)
        .collect();
    families.sort_unstable();
    families
}

/// Returns the index of the instance that ended last, by label.
pub(super) fn last_of_labels(trace: &SegmentedTrace) -> FxHashMap<SegmentId, usize> {
    let mut ends: FxHashMap<SegmentId, usize> = FxHashMap::default();
    for (index, segment) in trace.segments.iter().enumerate() {
        let last = ends.entry(segment.id).or_insert(index);
        if trace.segments[*last].end_ns < segment.end_ns {
            *last = index;
        }
    }
    ends
}
