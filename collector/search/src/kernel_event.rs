//! Kernel activity of a request, as formulas see it.

use std::sync::Arc;

/// Kind of a kernel event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelKind {
    /// System call.
    SystemCall,
    /// Thread off the processor.
    OffCpu,
    /// Wait for a lock.
    LockWait,
}

impl KernelKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::SystemCall, Self::OffCpu, Self::LockWait];

    /// Returns the name of the kind in formulas.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SystemCall => "syscall",
            Self::OffCpu => "off_cpu",
            Self::LockWait => "lock_wait",
        }
    }
}

/// One kernel event that belongs to a request. Times are in ns since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelEvent {
    /// Kind of the event.
    pub kind: KernelKind,
    /// Name of the system call, reason why the thread was off the processor, or object of the wait.
    pub name: Arc<str>,
    /// Host of the kernel.
    pub host: Arc<str>,
    /// Span that caused the event; 0 if unknown.
    pub span_id: u64,
    /// Start, in ns since the Unix epoch.
    pub start_ns: i64,
    /// End, in ns since the Unix epoch.
    pub end_ns: i64,
    /// True if the event began before the kernel was recorded.
    pub is_cut_open: bool,
    /// True if the end of the event was not recorded.
    pub is_cut_close: bool,
    /// Further properties of the event.
    pub attributes: Vec<(&'static str, Arc<str>)>,
}

impl KernelEvent {
    /// Returns the maximum number of bytes that the event occupies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let texts = self.attributes.iter().map(|(_, value)| value.len() + 16);
        let own = size_of::<Self>() + self.attributes.capacity() * size_of::<(&str, Arc<str>)>();
        (own + texts.sum::<usize>()) as u64
    }
}
