//! Identifiers of categories.

/// Identifier of a category: the digest of its structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CategoryId(pub u128);

impl std::fmt::Display for CategoryId {
    /// Formats the first twelve hexadecimal digits. Collisions of these 48 bits among the
    /// categories of a store are improbable.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:012x}", self.0 >> 80)
    }
}
