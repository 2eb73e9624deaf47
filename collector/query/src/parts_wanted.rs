//! The number of threads that read a store.

/// The number of parts that a store is cut into, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartsWanted {
    /// One for each core, and fewer of a small store.
    #[default]
    Cores,
    /// This number, however small the store.
    Exactly(usize),
}

impl PartsWanted {
    /// Threads to read with.
    pub(super) fn threads(self) -> usize {
        match self {
            Self::Cores => std::thread::available_parallelism().map_or(1, usize::from),
            Self::Exactly(parts) => parts.max(1),
        }
    }
}
