//! Number of parts of a store that are read in parallel.

/// Number of parts that a store is cut into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartsWanted {
    /// One part for each core; fewer for a small store, if single traces have a large share of the
    /// rows, or if the memory or the number of open files allows only fewer.
    #[default]
    Cores,
    /// This number of parts, at least one; fewer only if the store has fewer rows or traces, if
    /// single traces have a large share of the rows, or if the memory or the number of open files
    /// allows only fewer.
    Exactly(usize),
}

impl PartsWanted {
    /// Returns the number of reading threads, which the memory may limit further.
    pub(super) fn threads(self) -> usize {
        match self {
            Self::Cores => std::thread::available_parallelism().map_or(1, usize::from),
            Self::Exactly(parts) => parts.max(1),
        }
    }
}
