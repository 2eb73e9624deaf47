//! Number of threads that read a store.

/// Number of parts that a store is cut into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartsWanted {
    /// One part for each core, and fewer for a small store.
    #[default]
    Cores,
    /// This number of parts, however small the store.
    Exactly(usize),
}

impl PartsWanted {
    /// Returns the number of reading threads.
    pub(super) fn threads(self) -> usize {
        match self {
            Self::Cores => std::thread::available_parallelism().map_or(1, usize::from),
            Self::Exactly(parts) => parts.max(1),
        }
    }
}
