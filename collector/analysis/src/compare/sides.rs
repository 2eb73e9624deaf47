//! Categories of requests before and after a change.

use crate::flow::CategoryId;
use std::collections::BTreeSet;

/// Categories of one root operation's requests before and after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    /// Root operation.
    pub root: String,
    /// Categories of requests after the change.
    pub changed: BTreeSet<CategoryId>,
    /// Categories of these requests before the change; equal to `changed` if only times changed.
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
