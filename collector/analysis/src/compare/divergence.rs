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
        let alike = among
            .iter()
            .filter(|(_, other)| other.shape.operation == part.shape.operation);
        // Of several candidates, take the one closest in size.
        let size = part.shape.len();
        alike
            .min_by_key(|(_, other)| (other.shape.len().abs_diff(size), other.shape.digest))
            .map(|(_, other)| other.shape.clone())
    };
    for (_, part) in new.iter().filter(|(_, part)| part.shape.has_error()) {
        let failed_before = partner(part, &gone).is_some_and(|other| other.has_error());
        if !failed_before {
            match partner(part, &gone) {
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
    }
    if after.is_error && !before.is_error {
        return Some(PathDifference::Fails);
    }
    if before.is_error && !after.is_error && !gone.iter().any(|(_, part)| part.shape.has_error()) {
        return Some(PathDifference::Succeeds);
    }
    // The first difference in either structure, in order of execution.
    let first_new = new.first().map(|(at, part)| (*at, *part));
    let first_gone = gone.first().map(|(at, part)| (*at, *part));
    match (first_gone, first_new) {
        (None, None) => Some(PathDifference::Reordered),
        (Some((at_gone, part)), new_first)
            if new_first.is_none_or(|(at_new, _)| at_gone <= at_new) =>
        {
            if let Some(same) = new
                .iter()
                .find(|(_, other)| other.shape.digest == part.shape.digest)
            {
                return Some(PathDifference::Repeated {
                    what: part.shape.operation.clone(),
                    before: part.repeats,
                    after: same.1.repeats,
                });
            }
            match partner(part, &new) {
                Some(other) => find(&part.shape, &other, path),
                None => Some(match new_first {
                    Some((at_new, other))
                        if at_new == at_gone && partner(other, &gone).is_none() =>
                    {
                        PathDifference::Replaced {
                            before: part.shape.operation.clone(),
                            after: other.shape.operation.clone(),
                        }
                    }
                    _ => PathDifference::Removed(part.shape.operation.clone()),
                }),
            }
        }
        (_, Some((_, part))) => {
            if let Some(same) = gone
                .iter()
                .find(|(_, other)| other.shape.digest == part.shape.digest)
            {
                return Some(PathDifference::Repeated {
                    what: part.shape.operation.clone(),
                    before: same.1.repeats,
                    after: part.repeats,
                });
            }
            match partner(part, &gone) {
                Some(other) => find(&other, &part.shape, path),
                None => Some(PathDifference::Added(part.shape.operation.clone())),
            }
        }
        // Unreachable, as the guard above accepts this case.
        (Some((_, part)), None) => Some(PathDifference::Removed(part.shape.operation.clone())),
    }
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
