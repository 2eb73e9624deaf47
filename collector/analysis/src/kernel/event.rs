//! Kernel events, in a form that does not depend on the recorder that captured them.

use std::fmt;

/// Name of a thread as the kernel keeps it: up to 15 bytes and a zero byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Name(pub [u8; 16]);

impl Name {
    /// Creates a name from text; truncates it to 15 bytes.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; 16];
        for (place, byte) in bytes[..15].iter_mut().zip(text.bytes()) {
            *place = byte;
        }
        Self(bytes)
    }

    /// Reports whether the name is empty, which means that it is unknown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(16);
        f.write_str(&String::from_utf8_lossy(&self.0[..end]))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// An event that happened in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event, ns: monotonic, or as in the imported file.
    pub ts_ns: u64,
    /// Number of the processor on which the event happened; 0 if unknown.
    pub cpu: u16,
    /// Id of the thread that the event concerns. Our recorders give the kernel's global id, not
    /// that of a pid namespace.
    pub tid: u32,
    /// Kind and details of the event.
    pub body: Body,
}

/// Kind and details of an event. An unknown process is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A system call begins.
    Enter {
        /// Number of the system call.
        call: u32,
        /// Arguments of the system call.
        args: [u64; 6],
    },
    /// A system call ends.
    Exit {
        /// Number of the system call.
        call: u32,
        /// Return value of the system call; negative error numbers mean failure.
        result: i64,
    },
    /// The processor switches from this thread to another.
    Switch {
        /// Kernel's task state of the leaving thread, masked; 0 if it could run or is unknown.
        state: u8,
        /// Process of the leaving thread.
        process: u32,
        /// Name of the leaving thread.
        name: Name,
        /// Id of the thread that takes the processor.
        next: u32,
        /// Process of the next thread.
        next_process: u32,
        /// Name of the next thread.
        next_name: Name,
    },
    /// The thread, or an interrupt while it ran, wakes a thread.
    Waking {
        /// Id of the thread that can run again.
        woken: u32,
        /// Process of the woken thread.
        woken_process: u32,
    },
    /// The thread starts another thread.
    NewTask {
        /// Id of the new thread.
        child: u32,
        /// Process of the new thread.
        child_process: u32,
        /// Name of the new thread.
        name: Name,
    },
    /// The thread gets a name, or an import states its name.
    Named {
        /// Process of the thread.
        process: u32,
        /// New name of the thread.
        name: Name,
    },
    /// The thread ends.
    TaskExit {
        /// Process of the thread that ends.
        process: u32,
    },
    /// The recorder introduces a thread, for example at the thread's first event of a burst or
    /// after a gap. It states the owner of the thread just *before* this instant.
    Thread {
        /// Low half of the request's trace id; 0 for no request.
        trace: u64,
        /// Id of the span that the thread works for.
        span: u64,
        /// True if markers showed the thread's owner; otherwise `trace` and `span` have no meaning.
        known: bool,
        /// Process of the thread.
        process: u32,
        /// Thread id in the process's pid namespace; 0 if unknown.
        tid_in_process: u32,
        /// Name of the thread.
        name: Name,
    },
    /// Events of this processor are missing, from `first_ns` to this event's time.
    Lost {
        /// Beginning of the gap, ns: the first lost event, or the recorder's estimate.
        first_ns: u64,
        /// Numbers of lost events by kind.
        counts: LossCounts,
    },
}

/// Numbers of lost events by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LossCounts {
    /// Number of lost beginnings of system calls.
    pub enters: u64,
    /// Number of lost ends of system calls.
    pub exits: u64,
    /// Number of lost context switches.
    pub switches: u64,
    /// Number of lost events of another or an unknown kind.
    pub others: u64,
}

impl LossCounts {
    /// Returns the number of lost events of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.enters + self.exits + self.switches + self.others
    }
}

/// An interval in which the kernel was recorded, ns by the events' clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First nanosecond inside the window.
    pub open_ns: u64,
    /// First nanosecond after the window.
    pub close_ns: u64,
}

impl Window {
    /// A window without bounds.
    pub const ALWAYS: Self = Self {
        open_ns: 0,
        close_ns: u64::MAX,
    };
}
