//! What a host's kernel says of its own clock.

/// What a kernel says of its host's clock (`adjtimex`), over some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KernelClock {
    /// Whether something keeps the clock right (NTP, PTP).
    pub synchronised: bool,
    /// How far it is off at most, by the kernel's own reckoning.
    pub max_error_ns: u64,
    /// How far it is off presumably.
    pub estimated_error_ns: u64,
}

impl KernelClock {
    /// The worse of both, in each respect: what holds whenever either was said.
    #[must_use]
    pub fn worse(self, other: KernelClock) -> KernelClock {
        KernelClock {
            synchronised: self.synchronised && other.synchronised,
            max_error_ns: self.max_error_ns.max(other.max_error_ns),
            estimated_error_ns: self.estimated_error_ns.max(other.estimated_error_ns),
        }
    }
}
