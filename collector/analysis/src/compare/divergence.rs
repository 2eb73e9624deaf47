//! Finds the first difference between two structures (Spectroscope, §5.5: the common template ends
//! at the first difference).

use crate::flow::{Operation, Part, Repeats, Shape};
use std::sync::Arc;

/// Difference between two structures at one operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathDifference {
    /// The operation now also calls this one.
    Added(Operation),
    /// The operation no longer calls this one.
    Removed(Operation),
    /// The operation calls another operation instead of the former one.
    Replaced {
        /// Former callee.
        before: Operation,
        /// New callee.
        after: Operation,
    },
    /// The operation makes a call a different number of times.
    Repeated {
        /// Callee.
        what: Operation,
        /// Former number of calls.
        before: Repeats,
        /// New number of calls.
        after: Repeats,
    },
    /// The operation ends after this call, and no longer makes the calls that followed.
    BreaksOff(Operation),
    /// The operation fails, and did not before.
    Fails,
    /// The operation no longer fails.
    Succeeds,
    /// The operation makes the same calls in another order.
    Reordered,
}

/// An operation in a structure, and the difference at that operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Divergence {
    /// Operations from the root to the one that differs.
    pub path: Vec<Operation>,
    /// Difference at the last operation of the path.
    pub difference: PathDifference,
}

impl Divergence {
    /// Returns the operation that differs.
    pub fn operation(&self) -> Option<&Operation> {
        self.path.last()
    }
}

/// Returns the first difference of `after` from `before`, or `None` if they are equal.
///
/// A new failure takes precedence, and one inside a call over that of the caller: the callers of a
/// failing operation often fail too, and omit their later calls. A failure inside a call that
/// already contained a failure does not count as new. Otherwise, the function returns the
/// difference that comes first in order of execution. If an operation no longer fails, that comes
/// before the differences of its calls, unless a changed call contained a failure.
pub fn divergence(before: &Shape, after: &Shape) -> Option<Divergence> {
    let mut path = Vec::new();
    let difference = find(before, after, &mut path)?;
    Some(Divergence { path, difference })
}

/// Finds the difference, and appends the operations that lead to it to `path`.
fn find(before: &Shape, after: &Shape, path: &mut Vec<Operation>) -> Option<PathDifference> {
    if before.digest == after.digest {
        return None;
    }
    path.push(after.operation.clone());
    let (gone, new) = (unmatched(before, after), unmatched(after, before));
    let partner = |part: &Part, among: &[(usize, &Part)]| -> Option<Arc<Shape>> {
        let others = among.iter().map(|(_, other)| &other.shape);
        let alike = others.filter(|other| other.operation == part.shape.operation);
        // Of several candidates, take the one closest in size.
        let size = part.shape.len();
        let closest = alike.min_by_key(|other| (other.len().abs_diff(size), other.digest));
        closest.cloned()
    };
    for (_, part) in new.iter().filter(|(_, part)| part.shape.has_error()) {
        match partner(part, &gone) {
            Some(other) if other.has_error() => {}
            Some(other) => {
                if let Some(difference) = find(&other, &part.shape, path) {
                    return Some(difference);
                }
            }
            None => {
                descend_to_failure(&part.shape, path);
                return Some(PathDifference::Fails);
            }
        }
    }
    if after.is_error && !before.is_error {
        return Some(PathDifference::Fails);
    }
    if before.is_error && !after.is_error && !gone.iter().any(|(_, part)| part.shape.has_error()) {
        return Some(PathDifference::Succeeds);
    }
    // The first difference in either structure, in order of execution.
    let (first_gone, first_new) = (gone.first().copied(), new.first().copied());
    let same_in = |part: &Part, among: &[(usize, &Part)]| -> Option<Repeats> {
        let mut others = among.iter().map(|(_, other)| other);
        let same = others.find(|other| other.shape.digest == part.shape.digest);
        same.map(|same| same.repeats)
    };
    let repeated = |part: &Part, before: Repeats, after: Repeats| PathDifference::Repeated {
        what: part.shape.operation.clone(),
        before,
        after,
    };
    if let Some((at_new, part)) = first_new
        && first_gone.is_none_or(|(at_gone, _)| at_new < at_gone)
    {
        if let Some(before) = same_in(part, &gone) {
            return Some(repeated(part, before, part.repeats));
        }
        return match partner(part, &gone) {
            Some(other) => find(&other, &part.shape, path),
            None => Some(PathDifference::Added(part.shape.operation.clone())),
        };
    }
    let Some((at_gone, part)) = first_gone else {
        return Some(PathDifference::Reordered);
    };
    if let Some(after) = same_in(part, &new) {
        return Some(repeated(part, part.repeats, after));
    }
    if let Some(other) = partner(part, &new) {
        return find(&part.shape, &other, path);
    }
    let is_other = |(at, other): &(usize, &Part)| *at == at_gone && partner(other, &gone).is_none();
    let before = part.shape.operation.clone();
    Some(match first_new.filter(is_other) {
        Some((_, other)) => PathDifference::Replaced {
            before,
            after: other.shape.operation.clone(),
        },
        None => PathDifference::Removed(before),
    })
}

/// Returns the parts of one structure that the other lacks, each with the index of its stage.
fn unmatched<'a>(one: &'a Shape, other: &Shape) -> Vec<(usize, &'a Part)> {
    let mut left: Vec<&Part> = other.parts().collect();
    let mut found = Vec::new();
    for (at, stage) in one.stages.iter().enumerate() {
        for part in stage {
            let same = left.iter().position(|other| {
                other.shape.digest == part.shape.digest && other.repeats == part.repeats
            });
            match same {
                Some(place) => {
                    left.swap_remove(place);
                }
                None => found.push((at, part)),
            }
        }
    }
    found
}

fn descend_to_failure(shape: &Shape, path: &mut Vec<Operation>) {
    path.push(shape.operation.clone());
    if let Some(inner) = shape.parts().find(|part| part.shape.has_error()) {
        descend_to_failure(&inner.shape, path);
    }
}
