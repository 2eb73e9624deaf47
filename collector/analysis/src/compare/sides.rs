//! Categories that requests were of before a change, and are of after it.

use std::collections::BTreeSet;

use crate::flow::CategoryId;

/// Categories of one root operation, on both sides of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    /// The root operation.
    pub root: String,
    /// Categories of requests after the change.
    pub changed: BTreeSet<CategoryId>,
    /// Categories that they were of before; the same ones if only their times changed.
    pub former: BTreeSet<CategoryId>,
}

impl Sides {
    /// Returns the sides of a category whose times changed.
    pub(super) fn same(root: &str, category: CategoryId) -> Sides {
        Sides {
            root: root.to_owned(),
            changed: BTreeSet::from([category]),
            former: BTreeSet::from([category]),
        }
    }
}
