//! Markers that a program writes into the kernel's trace by `getpid` with arguments (Ardelean et
//! al., NSDI 2018, §3.3.2).

/// Upper 48 bits of a marker's first argument: `STROBE` in ASCII. The lower 16 bits are its kind.
pub const MARK: u64 = 0x5354_524f_4245_0000;

/// Bit of a marker's kind that announces a pair of calls, as in the paper: the trace id follows as
/// the first argument of the thread's next `getpid`.
pub const PAIR: u16 = 0x8000;

/// Kind by which a recorder identifies itself. Markers of lower kinds state the thread's number.
pub const HELLO: u16 = 0x7f;

/// Trace and span that a thread works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// Low 64 bits of the trace id; never 0.
    pub trace: u64,
    /// Id of the span; 0 if unknown.
    pub span: u64,
}

impl RequestId {
    /// Creates the id of a request. Returns `None` for trace id 0, which means "no request".
    #[must_use]
    pub fn new(trace: u64, span: u64) -> Option<Self> {
        (trace != 0).then_some(Self { trace, span })
    }
}

/// A decoded marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// The thread works for `request` from now on.
    Begin {
        /// Request that the thread works for; `None` for no request.
        request: Option<RequestId>,
        /// True if the thread changed to this request or span, for example to poll a task. False if
        /// the marker states that the request or span starts here.
        polled: bool,
    },
    /// The thread stops working for `request`.
    End {
        /// Request that the thread worked for; `None` if the marker states none.
        request: Option<RequestId>,
        /// Request that the thread continues with; `None` for no request.
        outer: Option<RequestId>,
        /// True if the thread changed to `outer`, for example because a task left it. False if the
        /// marker states that the request or span ends here.
        polled: bool,
    },
    /// The thread, or the task on it, begins to wait for a lock.
    LockWait {
        /// Number of the lock within the process.
        lock: u64,
    },
    /// The thread, or the task on it, has acquired the lock.
    LockAcquired {
        /// Number of the lock within the process.
        lock: u64,
    },
    /// The thread, or the task on it, releases a lock that another waits for.
    LockReleased {
        /// Number of the lock within the process.
        lock: u64,
    },
    /// The first call of a pair. The second call has the trace id.
    PairFirst {
        /// True if the request starts, false if it ends.
        start: bool,
    },
    /// A marker of a kind without a meaning here, such as [`HELLO`]. It is an ordinary call, but
    /// not the second call of a pair.
    Other {
        /// The kind; never 0.
        kind: u16,
    },
}

impl Marker {
    /// Decodes the arguments of a `getpid` call. Returns `None` for an ordinary call. Kind 0 is no
    /// marker.
    #[must_use]
    pub fn decode(args: &[u64; 6]) -> Option<Self> {
        if args[0] & !0xffff != MARK {
            return None;
        }
        let kind = (args[0] & 0xffff) as u16;
        let request = RequestId::new(args[1], args[2]);
        let outer = RequestId::new(args[4], args[5]);
        Some(match kind {
            1 => Self::Begin {
                request,
                polled: false,
            },
            2 => Self::End {
                request,
                outer,
                polled: false,
            },
            3 => Self::Begin {
                request,
                polled: true,
            },
            4 => Self::End {
                request,
                outer,
                polled: true,
            },
            5 => Self::LockWait { lock: args[4] },
            6 => Self::LockAcquired { lock: args[4] },
            7 => Self::LockReleased { lock: args[4] },
            _ if kind == PAIR | 1 => Self::PairFirst { start: true },
            _ if kind == PAIR | 2 => Self::PairFirst { start: false },
            0 => return None,
            _ => Self::Other { kind },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: [u64; 6], expected: Option<Marker>) {
        assert_eq!(Marker::decode(&args), expected, "{args:x?}");
    }

    #[test]
    fn decodes() {
        let (r, o) = (RequestId::new(7, 8), RequestId::new(1, 2));
        check(
            [MARK | 1, 7, 8, 3, 0, 0],
            Some(Marker::Begin {
                request: r,
                polled: false,
            }),
        );
        check(
            [MARK | 4, 7, 8, 3, 1, 2],
            Some(Marker::End {
                request: r,
                outer: o,
                polled: true,
            }),
        );
        check(
            [MARK | 2, 7, 8, 3, 0, 2],
            Some(Marker::End {
                request: r,
                outer: None,
                polled: false,
            }),
        );
        check(
            [MARK | 5, 7, 8, 3, 9, 0],
            Some(Marker::LockWait { lock: 9 }),
        );
        check(
            [MARK | 0x8002, 0, 0, 0, 0, 0],
            Some(Marker::PairFirst { start: false }),
        );
        check(
            [MARK | 0x7f, 7, 8, 3, 9, 0],
            Some(Marker::Other { kind: HELLO }),
        );
        check([MARK, 7, 8, 3, 9, 0], None);
        check([MARK ^ (1 << 20), 7, 8, 3, 9, 0], None);
        check([0; 6], None);
    }
}
