//! What the kernel said, whoever recorded it.

use std::fmt;

/// A thread's name as the kernel keeps it: up to 15 bytes and a zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Name(pub [u8; 16]);

impl Name {
    /// A name from text; what does not fit is cut off.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; 16];
        for (place, byte) in bytes[..15].iter_mut().zip(text.bytes()) {
            *place = byte;
        }
        Self(bytes)
    }

    /// Nothing is known.
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
    /// The processor it happened on.
    pub cpu: u16,
    /// The thread it happened to, by the kernel's own number (not that of a pid namespace).
    pub tid: u32,
    /// What happened.
    pub body: Body,
}

/// What happened.
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
        /// What it returns.
        result: i64,
    },
    /// The thread leaves the processor to another one.
    Switch {
        /// Why: the kernel's task state, masked; 0 when it could go on running.
        state: u8,
        /// Its process.
        process: u32,
        /// Its name.
        name: Name,
        /// The thread that comes.
        next: u32,
        /// The process of that thread.
        next_process: u32,
        /// The name of that thread.
        next_name: Name,
    },
    /// The thread, or an interrupt while it ran, wakes another one.
    Waking {
        /// The thread that can run again.
        woken: u32,
        /// Its process.
        woken_process: u32,
    },
    /// The thread starts another one.
    NewTask {
        /// The new thread.
        child: u32,
        /// Its process.
        child_process: u32,
        /// Its name.
        name: Name,
    },
    /// The thread has a name from now on.
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
    /// The recorder introduces a thread, at its first event of a burst or after a gap: what it works for *before* this
    /// instant, since the window opened or the gap began to close.
    Thread {
        /// Low half of the request's trace id; 0: no request.
        trace: u64,
        /// The span's id.
        span: u64,
        /// Was any marker of this thread seen yet? Without one, the two above mean nothing.
        known: bool,
        /// Its process.
        process: u32,
        /// Its number as its process sees it; 0: not known.
        tid_in_process: u32,
        /// Its name.
        name: Name,
    },
    /// Events of this processor are missing, from `first_ns` to this event's time.
    Lost {
        /// When the first one was lost, monotonic ns.
        first_ns: u64,
        /// How many.
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
    /// All others.
    pub others: u64,
}

impl LossCounts {
    /// All of them.
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
    /// All of time.
    pub const ALWAYS: Self = Self {
        open_ns: 0,
        close_ns: u64::MAX,
    };
}
