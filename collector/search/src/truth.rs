//! Three values: what a trace that may be cut, of hosts whose clocks may err, can say.

/// Kleene's strong logic of three values. `Unknown`: cut off, or too close in time, before it could be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Truth {
    /// Certainly not.
    False,
    /// Perhaps.
    #[default]
    Unknown,
    /// Certainly.
    True,
}

impl Truth {
    /// True where both are.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.min(other)
    }

    /// True where either is.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.max(other)
    }

    /// True where it may be, and false where it may not.
    #[must_use]
    pub fn from_bounds(surely: bool, possibly: bool) -> Self {
        match (surely, possibly) {
            (true, _) => Self::True,
            (false, true) => Self::Unknown,
            (false, false) => Self::False,
        }
    }

    /// Whether it is not false.
    #[must_use]
    pub fn is_possible(self) -> bool {
        self != Self::False
    }

    /// Whether it is true.
    #[must_use]
    pub fn is_sure(self) -> bool {
        self == Self::True
    }
}

impl std::ops::Not for Truth {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
            Self::True => Self::False,
        }
    }
}

impl From<bool> for Truth {
    fn from(is_so: bool) -> Self {
        if is_so { Self::True } else { Self::False }
    }
}
