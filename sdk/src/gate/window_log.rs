//! Windows that were actually recorded: the drain trims by them, and batches carry them.

use std::collections::VecDeque;

use stroboscope_burst::BurstConfig;

use crate::loss::{LOSSES, LossCause};

/// Interval [open, close) of wall time in which recording was on, in ns since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First nanosecond inside the window, since the Unix epoch.
    pub open_ns: i64,
    /// First nanosecond after the window, since the Unix epoch.
    pub close_ns: i64,
    /// Config that defines the window.
    pub config: BurstConfig,
}

impl Window {
    pub(crate) fn contains(&self, time_ns: i64) -> bool {
        self.open_ns <= time_ns && time_ns < self.close_ns
    }
}

/// Maximum number of closed windows kept for records that the drain has yet to process, and of
/// unreported windows.
const KEPT: usize = 256;
/// Minimum length, in ns, of the pieces in which an open window is reported, except the last.
const PIECE_NS: i64 = 1_000_000_000;

/// Recent windows of this process.
#[derive(Debug, Default)]
pub(crate) struct WindowLog {
    closed: VecDeque<Window>,
    /// Open window; its `close_ns` is the planned one.
    current: Option<Window>,
    reported_to_ns: i64,
    unreported: VecDeque<Window>,
    count: u64,
}

impl WindowLog {
    pub(crate) fn opened(&mut self, window: Window) {
        self.current = Some(window);
        self.count += 1;
    }

    /// Returns the open window, with its planned close; `None` if no window is open.
    pub(crate) fn current(&self) -> Option<Window> {
        self.current
    }

    /// Closes the current window at `close_ns` or at its planned close, if that is earlier.
    /// Discards a window that would be empty.
    pub(crate) fn closed(&mut self, close_ns: i64) {
        let Some(mut window) = self.current.take() else {
            return;
        };
        window.close_ns = window.close_ns.min(close_ns);
        if window.close_ns <= window.open_ns {
            return;
        }
        self.report(window, window.close_ns);
        if self.closed.len() == KEPT {
            self.closed.pop_front();
        }
        self.closed.push_back(window);
    }

    fn report(&mut self, window: Window, to_ns: i64) {
        let open_ns = if window.contains(self.reported_to_ns) {
            self.reported_to_ns
        } else {
            window.open_ns
        };
        if open_ns < to_ns {
            if self.unreported.len() == KEPT {
                self.unreported.pop_front();
                LOSSES.add(LossCause::NotesDropped, 1);
            }
            self.unreported.push_back(Window {
                open_ns,
                close_ns: to_ns,
                ..window
            });
            self.reported_to_ns = to_ns;
        }
    }

    /// Returns the windows not yet reported. An open window is reported in pieces of at least one
    /// second; if `finally` is true, also in a shorter piece.
    pub(crate) fn take_unreported(&mut self, now_ns: i64, finally: bool) -> Vec<Window> {
        if let Some(current) = self.current {
            let from_ns = current
                .open_ns
                .max(if current.contains(self.reported_to_ns) {
                    self.reported_to_ns
                } else {
                    current.open_ns
                });
            if finally || now_ns - from_ns >= PIECE_NS {
                self.report(current, now_ns.min(current.close_ns));
            }
        }
        self.unreported.drain(..).collect()
    }

    /// Returns the number of closed windows kept, plus that of unreported ones.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.closed.len() + self.unreported.len()
    }

    /// Returns the number of windows opened since the start.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the windows that a drain needs to trim its records.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            windows: self.closed.iter().chain(&self.current).copied().collect(),
        }
    }
}

/// Recent windows in the order in which they were recorded. Their times may overlap if the wall
/// clock was set back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    windows: Vec<Window>,
}

impl Snapshot {
    /// Returns the window that contains an instant, or the newest one if a clock step made two
    /// contain it. Returns `None` if no recent window contains it.
    pub(crate) fn find(&self, time_ns: i64) -> Option<Window> {
        self.windows
            .iter()
            .rev()
            .find(|window| window.contains(time_ns))
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(open_ns: i64, close_ns: i64) -> Window {
        Window {
            open_ns,
            close_ns,
            config: BurstConfig::DEFAULT,
        }
    }

    #[test]
    fn windows_are_reported_once() {
        let mut log = WindowLog::default();
        log.opened(window(10, 20));
        assert!(
            log.take_unreported(15, false).is_empty(),
            "still open, and short"
        );
        log.closed(20);
        assert_eq!(log.take_unreported(21, false), [window(10, 20)]);
        assert!(log.take_unreported(22, false).is_empty());
        log.opened(window(30, 40));
        log.closed(35);
        assert_eq!(
            log.take_unreported(41, false),
            [window(30, 35)],
            "closed early"
        );
    }

    #[test]
    fn a_long_window_is_reported_in_adjacent_pieces() {
        let mut log = WindowLog::default();
        log.opened(window(0, i64::MAX));
        let s = 1_000_000_000;
        assert_eq!(log.take_unreported(s, false), [window(0, s)]);
        assert!(log.take_unreported(s + 5, false).is_empty());
        assert_eq!(log.take_unreported(s + 5, true), [window(s, s + 5)]);
        log.closed(2 * s);
        assert_eq!(log.take_unreported(2 * s, false), [window(s + 5, 2 * s)]);
    }

    #[test]
    fn the_newest_window_wins() {
        let mut log = WindowLog::default();
        log.opened(window(0, 100));
        log.closed(100);
        log.opened(window(50, 150));
        let snapshot = log.snapshot();
        assert_eq!(snapshot.find(70), Some(window(50, 150)));
        assert_eq!(snapshot.find(20), Some(window(0, 100)));
        assert_eq!(snapshot.find(150), None);
    }
}
