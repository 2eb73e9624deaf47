//! Notes of the process, which wait for the next batch: its windows, loads and clock steps.

use std::collections::VecDeque;

use stroboscope_proto::v1;

use crate::gate::window_log::Window;

/// Maximum number of waiting load measurements: two minutes, longer than the interval between the
/// batches of a process that records nothing.
const LOADS_MAX: usize = 120;
/// Number of waiting windows at which a batch without records is closed. Also the maximum number of
/// windows, and of clock steps, kept from a discarded batch: two minutes of 4 ms every 32 ms.
pub(super) const IDLE_WINDOWS_MAX: usize = 4_096;
/// Assumed length of a note in a batch, in bytes: a window with three numbers of 10 bytes each
/// fits, and so does a usual load.
const NOTE_BYTES: usize = 40;

/// Notes in order of time.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    windows: VecDeque<v1::Window>,
    loads: VecDeque<v1::Load>,
    clock_steps: VecDeque<v1::ClockStep>,
}

impl Notes {
    /// Adds windows. Joins adjacent ones of the same config, such as pieces of one window.
    pub(crate) fn add_windows(&mut self, windows: Vec<Window>) {
        let ns = |time_ns: i64| time_ns.max(0).cast_unsigned();
        for window in windows {
            let window = v1::Window {
                open_ns: ns(window.open_ns),
                close_ns: ns(window.close_ns),
                burst_config: window.config.bits(),
            };
            match self.windows.back_mut() {
                Some(last)
                    if last.close_ns == window.open_ns
                        && last.burst_config == window.burst_config =>
                {
                    last.close_ns = window.close_ns;
                }
                _ => self.windows.push_back(window),
            }
        }
    }

    /// Adds a load measurement, and drops the oldest one if there are too many. Returns the number
    /// dropped.
    #[must_use]
    pub(crate) fn add_load(&mut self, load: v1::Load) -> u64 {
        self.loads.push_back(load);
        limit(&mut self.loads, LOADS_MAX)
    }

    /// Returns the number of windows.
    pub(crate) fn windows(&self) -> usize {
        self.windows.len()
    }

    /// Moves the notes into a batch, whose own clock steps follow those of the notes.
    pub(crate) fn move_into(&mut self, batch: &mut v1::Batch) {
        batch.windows = std::mem::take(&mut self.windows).into();
        batch.loads = std::mem::take(&mut self.loads).into();
        let steps = std::mem::take(&mut self.clock_steps);
        batch.clock_steps.splice(0..0, steps);
    }

    /// Takes the notes back from a batch that found the buffer full. Drops the oldest ones of each
    /// kind beyond its maximum number or beyond a quarter of `buffer_bytes_max`, and returns the
    /// number dropped.
    #[must_use]
    pub(crate) fn restore(&mut self, batch: v1::Batch, buffer_bytes_max: usize) -> u64 {
        self.windows = batch.windows.into();
        self.loads = batch.loads.into();
        self.clock_steps = batch.clock_steps.into();
        // Each kind takes a quarter of the buffer at most, so that the next batch can fit into an
        // empty buffer.
        let fitting = buffer_bytes_max / 4 / NOTE_BYTES;
        limit(&mut self.windows, fitting.min(IDLE_WINDOWS_MAX))
            + limit(&mut self.loads, fitting.min(LOADS_MAX))
            + limit(&mut self.clock_steps, fitting.min(IDLE_WINDOWS_MAX))
    }
}

/// Drops the oldest notes above a maximum, and returns their number.
fn limit<T>(notes: &mut VecDeque<T>, max: usize) -> u64 {
    let surplus = notes.len().saturating_sub(max);
    notes.drain(..surplus);
    surplus as u64
}

#[cfg(test)]
mod tests {
    use stroboscope_burst::BurstConfig;

    use super::*;

    fn window(open_ns: i64, close_ns: i64) -> Window {
        Window {
            open_ns,
            close_ns,
            config: BurstConfig::DEFAULT,
        }
    }

    #[test]
    fn pieces_of_a_window_become_one() {
        let mut notes = Notes::default();
        notes.add_windows(vec![window(0, 5), window(5, 9)]);
        notes.add_windows(vec![window(9, 12), window(20, 24)]);
        let other = Window {
            config: BurstConfig::ALWAYS_ON,
            ..window(24, 30)
        };
        notes.add_windows(vec![other]);
        assert_eq!(notes.windows(), 3);
        let mut batch = v1::Batch::default();
        notes.move_into(&mut batch);
        let times = batch.windows.iter().map(|of| (of.open_ns, of.close_ns));
        assert!(times.eq([(0, 12), (20, 24), (24, 30)]));
        assert_eq!(notes.windows(), 0);
    }

    #[test]
    fn notes_of_a_discarded_batch_are_in_the_next_one() {
        let mut notes = Notes::default();
        let step = |at_ns| v1::ClockStep { at_ns, step_ns: 1 };
        let load = |from_ns| v1::Load {
            from_ns,
            ..v1::Load::default()
        };
        notes.add_windows(vec![window(0, 5)]);
        assert_eq!(notes.add_load(load(1)), 0);
        let mut batch = v1::Batch {
            clock_steps: vec![step(1)],
            ..v1::Batch::default()
        };
        notes.move_into(&mut batch);
        assert_eq!(notes.restore(batch, 1 << 20), 0);
        notes.add_windows(vec![window(5, 9), window(20, 24)]);
        assert_eq!(notes.add_load(load(2)), 0);
        let mut batch = v1::Batch {
            clock_steps: vec![step(2)],
            ..v1::Batch::default()
        };
        notes.move_into(&mut batch);
        let times = batch.windows.iter().map(|of| (of.open_ns, of.close_ns));
        assert!(times.eq([(0, 9), (20, 24)]));
        assert_eq!(batch.loads, [load(1), load(2)]);
        assert_eq!(batch.clock_steps, [step(1), step(2)]);

        // A buffer of 400 bytes takes two notes of each kind.
        batch.loads.push(load(3));
        assert_eq!(notes.restore(batch, 400), 1);
        let mut batch = v1::Batch::default();
        notes.move_into(&mut batch);
        assert_eq!(batch.loads, [load(2), load(3)]);
        for at in 0..LOADS_MAX as u64 {
            assert_eq!(notes.add_load(load(at)), 0);
        }
        assert_eq!(notes.add_load(load(0)), 1);
    }
}
