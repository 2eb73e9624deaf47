//! What the kernel did for a request, as formulas see it.

use std::sync::Arc;

/// Which kind of event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelKind {
    /// A system call.
    SystemCall,
    /// A thread off the processor.
    OffCpu,
    /// A wait for a lock.
    LockWait,
}

impl KernelKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::SystemCall, Self::OffCpu, Self::LockWait];

    /// As it is written in formulas.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SystemCall => "syscall",
            Self::OffCpu => "off_cpu",
            Self::LockWait => "lock_wait",
        }
    }
}

/// One event of the kernel that belongs to a request. Times are ns since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelEvent {
    /// Which kind.
    pub kind: KernelKind,
    /// The system call; why a thread was off the processor; what was waited for.
    pub name: Arc<str>,
    /// Whose kernel it is.
    pub host: Arc<str>,
    /// The span that it was done for; 0: not said.
    pub span_id: u64,
    /// When it began.
    pub start_ns: i64,
    /// When it ended.
    pub end_ns: i64,
    /// It began before the kernel was recorded.
    pub is_cut_open: bool,
    /// Its end was not recorded.
    pub is_cut_close: bool,
    /// What else is known of it.
    pub attributes: Vec<(&'static str, Arc<str>)>,
}

impl KernelEvent {
    /// Bytes that it takes, at most.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let texts = self.attributes.iter().map(|(_, value)| value.len() + 16);
        let own = size_of::<Self>() + self.attributes.capacity() * size_of::<(&str, Arc<str>)>();
        (own + texts.sum::<usize>()) as u64
    }
}
