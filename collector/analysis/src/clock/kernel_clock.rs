//! Status of a host's clock, as its kernel reports it.

/// Worst status of a host's clock that its kernel reported (`adjtimex`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KernelClock {
    /// True if a service such as NTP or PTP keeps the clock synchronised.
    pub synchronised: bool,
    /// Maximum error in nanoseconds, by the kernel's own reckoning.
    pub max_error_ns: u64,
    /// Estimated error in nanoseconds.
    pub estimated_error_ns: u64,
}

impl KernelClock {
    /// Returns a report with the worse value of each field, which holds for both reports.
    #[must_use]
    pub fn worse(self, other: KernelClock) -> KernelClock {
        KernelClock {
            synchronised: self.synchronised && other.synchronised,
            max_error_ns: self.max_error_ns.max(other.max_error_ns),
            estimated_error_ns: self.estimated_error_ns.max(other.estimated_error_ns),
        }
    }
}
