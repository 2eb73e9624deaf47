//! Settings of a recording.

use std::path::PathBuf;

use stroboscope_burst::BurstConfig;
use stroboscope_burst::marker::recorder_path;

/// Processes whose events are recorded. The recorder's own events never are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Processes {
    /// Every process of the machine.
    #[default]
    All,
    /// The processes with these ids, their descendants, and all that they start later.
    Trees(Vec<u32>),
    /// Processes with these names (as in `/proc/PID/comm`, up to 15 bytes), running or started
    /// later, and all that they start.
    Named(Vec<String>),
    /// The processes of a control group (a directory below `/sys/fs/cgroup`) and of its subgroups,
    /// and all that they start.
    Cgroup(PathBuf),
}

/// Facility of the kernel that records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Facility {
    /// eBPF, or tracefs if the start of eBPF fails with the recorder's `StartError::Ebpf`.
    #[default]
    Best,
    /// eBPF only.
    Ebpf,
    /// tracefs only. It needs root, costs as much between windows as in them, and misses
    /// processes selected by name that start later.
    Tracefs,
}

/// Settings of a recording.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Windows in which to record.
    pub burst_config: BurstConfig,
    /// Processes to record.
    pub processes: Processes,
    /// Capacity of each processor's buffer, in events; rounded up to a power of two, and limited
    /// to 64 through 16,777,216. One event takes 64 bytes.
    pub events_per_cpu: u32,
    /// True to record the ends of system calls as well, and thus their durations and results.
    /// Without the ends, recording costs about half as much.
    pub exits: bool,
    /// Facility that records.
    pub facility: Facility,
    /// File whose lock shows services that a recorder is running; see [`recorder_path`].
    pub announced_by: PathBuf,
}

impl Default for Settings {
    /// Returns settings for all processes, with a buffer of 32,768 events (2 MiB) for each
    /// processor.
    fn default() -> Self {
        Self {
            burst_config: BurstConfig::DEFAULT,
            processes: Processes::All,
            events_per_cpu: 1 << 15,
            exits: true,
            facility: Facility::Best,
            announced_by: recorder_path(),
        }
    }
}

impl Settings {
    /// Returns [`events_per_cpu`](Self::events_per_cpu) limited to 64 through 16,777,216, and
    /// rounded up to a power of two.
    #[must_use]
    pub fn slots_per_cpu(&self) -> u32 {
        self.events_per_cpu.clamp(64, 1 << 24).next_power_of_two()
    }
}
