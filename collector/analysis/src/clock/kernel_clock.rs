//! Kernel reports on the host's own clock.

/// Status of a host's clock as reported by its kernel (`adjtimex`), over some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KernelClock {
    /// True if something keeps the clock synchronised (NTP, PTP).
    pub synchronised: bool,
    /// Maximum error in nanoseconds, by the kernel's own reckoning.
    pub max_error_ns: u64,
    /// Estimated error in nanoseconds.
    pub estimated_error_ns: u64,
}

impl KernelClock {
    /// Combines the worse value of each field: the result holds for both reports.
    #[must_use]
    pub fn worse(self, other: KernelClock) -> KernelClock {
        KernelClock {
            synchronised: self.synchronised && other.synchronised,
            max_error_ns: self.max_error_ns.max(other.max_error_ns),
            estimated_error_ns: self.estimated_error_ns.max(other.estimated_error_ns),
        }
    }
}
