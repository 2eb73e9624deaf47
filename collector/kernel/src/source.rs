//! Sources of kernel events.

use std::path::Path;

use stroboscope_analysis::kernel::event::{Event, LossCounts};
use stroboscope_burst::BurstConfig;
use stroboscope_kernel_model::{Facility, Settings};

use crate::clock;
use crate::doze::Gate;
use crate::ebpf::{EbpfSource, Switches};
use crate::privilege;
use crate::start_error::StartError;
use crate::tracefs::{ROOT, TracefsSource, remove_orphans};

pub(crate) enum Source {
    Ebpf(Box<EbpfSource>),
    Tracefs(Box<TracefsSource>),
}

impl Source {
    pub(crate) fn open(settings: &Settings) -> Result<Self, StartError> {
        // Tracefs instances of killed recorders slow system calls, even if this recorder uses eBPF.
        remove_orphans(Path::new(ROOT));
        let ebpf = || {
            privilege::check_ebpf()?;
            EbpfSource::open(settings).map(|source| Self::Ebpf(Box::new(source)))
        };
        let tracefs =
            || TracefsSource::open(settings).map(|source| Self::Tracefs(Box::new(source)));
        match settings.facility {
            Facility::Ebpf => ebpf(),
            Facility::Tracefs => tracefs(),
            Facility::Best => match ebpf() {
                // The error of the preferred source is the more useful one.
                Err(error @ StartError::Ebpf(_)) => tracefs().map_err(|_| error),
                other => other,
            },
        }
    }

    pub(crate) fn facility(&self) -> Facility {
        match self {
            Self::Ebpf(_) => Facility::Ebpf,
            Self::Tracefs(_) => Facility::Tracefs,
        }
    }

    pub(crate) fn switches(&self) -> Option<Switches> {
        match self {
            Self::Ebpf(source) => Some(source.switches()),
            Self::Tracefs(_) => None,
        }
    }

    /// Starts recording, and returns a monotonic time in ns at which the source already records.
    pub(crate) fn begin(&mut self) -> u64 {
        match self {
            Self::Ebpf(source) => source.begin(),
            Self::Tracefs(_) => clock::now_ns(),
        }
    }

    /// Records by another config, and introduces each thread again at its first event from the
    /// returned instant on (monotonic ns). Tracefs ignores `config`: draining it uses the gate's
    /// configs.
    pub(crate) fn switch(&mut self, config: BurstConfig) -> u64 {
        match self {
            Self::Ebpf(source) => source.switch(config),
            Self::Tracefs(source) => source.introduce_again(),
        }
    }

    /// Introduces each thread again at its first event from the returned instant on (monotonic ns).
    pub(crate) fn introduce_again(&mut self) -> u64 {
        match self {
            Self::Ebpf(source) => source.introduce_again(),
            Self::Tracefs(source) => source.introduce_again(),
        }
    }

    pub(crate) fn drain(&mut self, gate: &Gate, finally: bool, events: &mut Vec<Event>) -> usize {
        match self {
            Self::Ebpf(source) => source.drain(events),
            Self::Tracefs(source) => {
                gate.with_logs(|clocks, configs| source.drain(clocks, configs, finally, events))
            }
        }
    }

    pub(crate) fn drain_losses(&mut self, until_ns: u64, events: &mut Vec<Event>) {
        if let Self::Ebpf(source) = self {
            source.drain_losses(until_ns, events);
        }
    }

    pub(crate) fn stop(&self) {
        match self {
            Self::Ebpf(source) => source.stop(),
            Self::Tracefs(source) => source.stop(),
        }
    }

    pub(crate) fn choose(&mut self, process: u32) -> Result<(), StartError> {
        match self {
            Self::Ebpf(source) => source.choose(process),
            Self::Tracefs(source) => source.choose(process),
        }
    }

    pub(crate) fn losses(&self) -> Vec<LossCounts> {
        match self {
            Self::Ebpf(source) => source.losses(),
            Self::Tracefs(source) => source.losses(),
        }
    }

    pub(crate) fn skipped(&self) -> LossCounts {
        match self {
            Self::Ebpf(source) => source.skipped(),
            Self::Tracefs(_) => LossCounts::default(),
        }
    }

    pub(crate) fn unknown_events(&self) -> u64 {
        match self {
            Self::Ebpf(source) => source.unknown_events(),
            Self::Tracefs(source) => source.unknown_events(),
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Ebpf(source) => source.memory_bytes(),
            Self::Tracefs(source) => source.memory_bytes(),
        }
    }
}
