//! Kernel events of a request, in the form in which formulas search them.

use std::sync::Arc;

/// Kind of a kernel event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelKind {
    /// A system call.
    SystemCall,
    /// An interval in which a thread was off the processor.
    OffCpu,
    /// A wait for a lock.
    LockWait,
}

impl KernelKind {
    /// List of all kinds.
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
    /// Name of the system call, or reason why the thread was off the processor. For a lock wait,
    /// `lock` if markers name the lock, otherwise `futex`.
    pub name: Arc<str>,
    /// Host on which the kernel ran.
    pub host: Arc<str>,
    /// Span that caused the event; 0 if unknown.
    pub span_id: u64,
    /// Start, in ns since the Unix epoch.
    pub start_ns: i64,
    /// End, in ns since the Unix epoch. If it was not recorded: the end of the recorded window, or
    /// the event's start if no window ends later.
    pub end_ns: i64,
    /// True if the event starts with a window of the recording, so that it may have begun before.
    pub is_cut_open: bool,
    /// True if the end of the event was not recorded.
    pub is_cut_close: bool,
    /// Further properties of the event, as names and values.
    pub attributes: Vec<(&'static str, Arc<str>)>,
}

impl KernelEvent {
    /// Returns the approximate memory of the event, in bytes, without its shared name and host.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let texts = self.attributes.iter().map(|(_, value)| value.len() + 16);
        let own = size_of::<Self>() + self.attributes.capacity() * size_of::<(&str, Arc<str>)>();
        (own + texts.sum::<usize>()) as u64
    }
}
