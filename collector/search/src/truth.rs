//! Three-valued logic, for traces that may be cut and hosts whose clocks may err.

/// Truth value of Kleene's strong three-valued logic. `Unknown` may result, for example, if a part
/// of the trace was not recorded, or if two instants are too close to order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Truth {
    /// Certainly false.
    False,
    /// Neither certainly true nor certainly false.
    #[default]
    Unknown,
    /// Certainly true.
    True,
}

impl Truth {
    /// Returns the conjunction (logical and) of both values.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.min(other)
    }

    /// Returns the disjunction (logical or) of both values.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.max(other)
    }

    /// Returns `True` for a fact that surely holds, `False` if it is not even possible, and
    /// `Unknown` otherwise.
    #[must_use]
    pub fn from_bounds(surely: bool, possibly: bool) -> Self {
        match (surely, possibly) {
            (true, _) => Self::True,
            (false, true) => Self::Unknown,
            (false, false) => Self::False,
        }
    }

    /// Reports whether the value is `True` or `Unknown`.
    #[must_use]
    pub fn is_possible(self) -> bool {
        self != Self::False
    }

    /// Reports whether the value is `True`.
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
