//! Kernel events, independent of the recorder.

use std::fmt;

/// Name of a thread as the kernel keeps it: up to 15 bytes and a zero.
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

    /// Reports whether the name is unknown.
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

/// One event of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Monotonic time, ns.
    pub ts_ns: u64,
    /// Processor that it happened on.
    pub cpu: u16,
    /// Thread that it happened to, by the kernel's own number (not that of a pid namespace).
    pub tid: u32,
    /// Kind and details of the event.
    pub body: Body,
}

/// Kind and details of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A system call begins.
    Enter {
        /// Its number.
        call: u32,
        /// Its arguments.
        args: [u64; 6],
    },
    /// A system call ends.
    Exit {
        /// Its number.
        call: u32,
        /// Its return value.
        result: i64,
    },
    /// The thread leaves the processor to another one.
    Switch {
        /// Reason: the kernel's task state, masked; 0 if the thread could have continued.
        state: u8,
        /// Its process.
        process: u32,
        /// Its name.
        name: Name,
        /// Thread that takes the processor.
        next: u32,
        /// Process of that thread.
        next_process: u32,
        /// Name of that thread.
        next_name: Name,
    },
    /// The thread, or an interrupt while it ran, wakes another one.
    Waking {
        /// Thread that can run again.
        woken: u32,
        /// Its process.
        woken_process: u32,
    },
    /// The thread starts another one.
    NewTask {
        /// New thread.
        child: u32,
        /// Its process.
        child_process: u32,
        /// Its name.
        name: Name,
    },
    /// The thread gets a name.
    Named {
        /// Its process.
        process: u32,
        /// Its new name.
        name: Name,
    },
    /// The thread ends.
    TaskExit {
        /// Its process.
        process: u32,
    },
    /// The recorder introduces a thread, at its first event of a burst or after a gap, with its
    /// owner *before* this instant: since the window opened or the gap began to close.
    Thread {
        /// Low half of the request's trace id; 0 for no request.
        trace: u64,
        /// Id of the span.
        span: u64,
        /// True if a marker of this thread has been seen; otherwise `trace` and `span` mean
        /// nothing.
        known: bool,
        /// Its process.
        process: u32,
        /// Its number in its process's pid namespace; 0 if unknown.
        tid_in_process: u32,
        /// Its name.
        name: Name,
    },
    /// Events of this processor are missing, from `first_ns` to this event's time.
    Lost {
        /// Time of the first lost event, monotonic ns.
        first_ns: u64,
        /// Numbers of lost events.
        counts: LossCounts,
    },
}

/// Lost events by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LossCounts {
    /// Beginnings of system calls.
    pub enters: u64,
    /// Ends of system calls.
    pub exits: u64,
    /// Context switches.
    pub switches: u64,
    /// Other events.
    pub others: u64,
}

impl LossCounts {
    /// Sum over all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.enters + self.exits + self.switches + self.others
    }
}

/// An interval in which the kernel was recorded, monotonic ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First nanosecond inside.
    pub open_ns: u64,
    /// First nanosecond after.
    pub close_ns: u64,
}

impl Window {
    /// A window without bounds.
    pub const ALWAYS: Self = Self {
        open_ns: 0,
        close_ns: u64::MAX,
    };
}
