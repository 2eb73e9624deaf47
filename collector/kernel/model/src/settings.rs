//! What to record.

use std::path::PathBuf;

use stroboscope_burst::BurstConfig;
use stroboscope_burst::marker::recorder_path;

/// Whose events are recorded. The recorder's own never are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Processes {
    /// Every process of the machine.
    #[default]
    All,
    /// These processes and all that they start from now on.
    Trees(Vec<u32>),
    /// Processes of these names (of the program's file, up to 15 bytes), running or started later, and all that they
    /// start.
    Named(Vec<String>),
    /// The processes of a control group (its directory below `/sys/fs/cgroup`) and of those below it, and all that they
    /// start.
    Cgroup(PathBuf),
}

/// By which of the kernel's facilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Facility {
    /// eBPF, or tracefs where the kernel does not take the programs.
    #[default]
    Best,
    /// eBPF only.
    Ebpf,
    /// tracefs only. It needs root, costs its full price also between windows, and does not find processes by name that
    /// start later.
    Tracefs,
}

/// How to record.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When.
    pub burst_config: BurstConfig,
    /// Whom.
    pub processes: Processes,
    /// Events each processor's buffer holds; rounded up to a power of two, at least 64. One takes 64 bytes.
    pub events_per_cpu: u32,
    /// Also the ends of system calls: how long they took and what they returned. Without, recording costs about half.
    pub exits: bool,
    /// By what.
    pub facility: Facility,
    /// The file by whose lock services see that somebody records; see [`recorder_path`].
    pub announced_by: PathBuf,
}

impl Default for Settings {
    /// 32,768 events (2 MiB) per processor.
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
    /// [`events_per_cpu`](Self::events_per_cpu), as a recorder takes it: a power of two within bounds.
    #[must_use]
    pub fn slots_per_cpu(&self) -> u32 {
        self.events_per_cpu.clamp(64, 1 << 24).next_power_of_two()
    }
}
