//! Linkages: operations that carry labels from operands to results.

use core::fmt::Debug;

/// Operations by which an input influences a value. Moves and copies always carry labels.
pub trait Linkage: Copy + Debug + Default + 'static {
    /// True if the result of a calculation gets its operands' labels.
    const DATA: bool;
    /// True if a value loaded by an index or a key gets the index's label.
    const INDEX: bool;
}

/// Linkage of copies only: calculated values have no inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyLinkage;

/// Linkage of copies and calculations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataLinkage;

/// Linkage of copies, calculations and indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexLinkage;

impl Linkage for CopyLinkage {
    const DATA: bool = false;
    const INDEX: bool = false;
}

impl Linkage for DataLinkage {
    const DATA: bool = true;
    const INDEX: bool = false;
}

impl Linkage for IndexLinkage {
    const DATA: bool = true;
    const INDEX: bool = true;
}
