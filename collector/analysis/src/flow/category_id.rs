//! Names of categories.

/// A category's name: the digest of its structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CategoryId(pub u128);

impl std::fmt::Display for CategoryId {
    /// Its first twelve digits are enough to tell the categories of a store apart.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:012x}", self.0 >> 80)
    }
}
