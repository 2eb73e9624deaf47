//! Maps numbers of system calls to their names and back.

mod aarch64;
mod x86_64;

/// Processor architecture, which determines the numbers of system calls in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Architecture {
    /// 64-bit x86.
    #[default]
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

/// Kind of a futex system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexOperation {
    /// Sleeps until a wake-up, a timeout or a signal, unless the futex's value makes it return
    /// immediately.
    Wait,
    /// Wakes threads that sleep on the futex.
    Wake,
}

/// Number of `futex_waitv`. This and the next two numbers are the same on both architectures.
const FUTEX_WAITV: u32 = 449;
const FUTEX_WAKE: u32 = 454;
const FUTEX_WAIT: u32 = 455;

impl Architecture {
    /// Architecture of this build. Returns x86-64 on architectures that cannot make recordings.
    #[must_use]
    pub fn native() -> Self {
        if cfg!(target_arch = "aarch64") {
            Self::Aarch64
        } else {
            Self::X86_64
        }
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => x86_64::NAMES,
            Self::Aarch64 => aarch64::NAMES,
        }
    }

    /// Name of a system call; `None` for an unused or unknown number.
    #[must_use]
    pub fn call_name(self, number: u32) -> Option<&'static str> {
        let name = self.names().get(number as usize)?;
        (!name.is_empty()).then_some(name)
    }

    /// Number of the system call with this name; `None` for an unknown name.
    #[must_use]
    pub fn call_number(self, name: &str) -> Option<u32> {
        let place = self.names().iter().position(|known| *known == name);
        // Unused numbers have an empty name.
        let place = place.filter(|_| !name.is_empty())?;
        u32::try_from(place).ok()
    }

    /// Number of `getpid`, the system call that carries markers.
    pub(super) fn getpid(self) -> u32 {
        match self {
            Self::X86_64 => 39,
            Self::Aarch64 => 172,
        }
    }

    fn futex_number(self) -> u32 {
        match self {
            Self::X86_64 => 202,
            Self::Aarch64 => 98,
        }
    }

    /// Kind of a futex call, and the futex's address in the process (0 if the arguments do not
    /// contain it). Returns `None` if the system call neither waits for a futex nor wakes its
    /// waiters, and for `futex_requeue`.
    #[must_use]
    pub fn futex(self, number: u32, args: &[u64; 6]) -> Option<(FutexOperation, u64)> {
        let operation = match number {
            _ if number == self.futex_number() => match args[1] & 127 {
                0 | 6 | 9 | 11 | 13 => FutexOperation::Wait,
                1 | 3 | 4 | 5 | 7 | 10 | 12 => FutexOperation::Wake,
                _ => return None,
            },
            FUTEX_WAKE => FutexOperation::Wake,
            FUTEX_WAIT => FutexOperation::Wait,
            // `futex_waitv` waits for one of several futexes; its arguments only point to their
            // list.
            FUTEX_WAITV => return Some((FutexOperation::Wait, 0)),
            _ => return None,
        };
        Some((operation, args[0]))
    }

    /// Reports whether a system call is `futex_wake`, or `futex` with `FUTEX_WAKE` or
    /// `FUTEX_WAKE_BITSET`. These return the number of threads that they woke.
    pub(super) fn returns_woken(self, number: u32, args: &[u64; 6]) -> bool {
        let is_futex = number == self.futex_number();
        number == FUTEX_WAKE || (is_futex && matches!(args[1] & 127, 1 | 10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_agree() {
        for (architecture, name, number) in [
            (Architecture::X86_64, "getpid", 39),
            (Architecture::X86_64, "futex", 202),
            (Architecture::X86_64, "openat", 257),
            (Architecture::Aarch64, "getpid", 172),
            (Architecture::Aarch64, "futex", 98),
            (Architecture::Aarch64, "read", 63),
            (Architecture::X86_64, "futex_wait", 455),
            (Architecture::Aarch64, "futex_wake", 454),
        ] {
            assert_eq!(architecture.call_number(name), Some(number), "{name}");
            assert_eq!(architecture.call_name(number), Some(name));
        }
        assert_eq!(Architecture::X86_64.call_name(400), None);
        assert_eq!(Architecture::X86_64.call_number("no_such_call"), None);
        assert_eq!(Architecture::X86_64.getpid(), 39);
        assert_eq!(Architecture::Aarch64.getpid(), 172);
    }
}
