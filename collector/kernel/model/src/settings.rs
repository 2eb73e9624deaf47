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
    /// These processes and all that they start from now on.
    Trees(Vec<u32>),
    /// Processes of these names (of the program's file, up to 15 bytes), running or started later,
    /// and all that they start.
    Named(Vec<String>),
    /// The processes of a control group (its directory below `/sys/fs/cgroup`) and of those below
    /// it, and all that they start.
    Cgroup(PathBuf),
}

/// Facility of the kernel that records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Facility {
    /// eBPF, or tracefs if the kernel rejects the programs.
    #[default]
    Best,
    /// eBPF only.
    Ebpf,
    /// tracefs only. It needs root, costs its full price between windows as well, and does not find
    /// by name processes that start later.
    Tracefs,
}

/// Settings of a recording.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Windows in which to record.
    pub burst_config: BurstConfig,
    /// Processes to record.
    pub processes: Processes,
    /// Events per processor's buffer; rounded up to a power of two, at least 64. One event takes 64
    /// bytes.
    pub events_per_cpu: u32,
    /// True to record the ends of system calls as well: their lengths and results. Without them,
    /// recording costs about half.
    pub exits: bool,
    /// Facility that records.
    pub facility: Facility,
    /// File whose lock shows services that a recorder runs; see [`recorder_path`].
    pub announced_by: PathBuf,
}

impl Default for Settings {
    /// Records 32,768 events (2 MiB) per processor.
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
    /// Returns [`events_per_cpu`](Self::events_per_cpu) as a recorder takes it: a power of two
    /// within bounds.
    #[must_use]
    pub fn slots_per_cpu(&self) -> u32 {
        self.events_per_cpu.clamp(64, 1 << 24).next_power_of_two()
    }
}
