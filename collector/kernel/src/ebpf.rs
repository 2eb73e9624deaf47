//! Source that records with eBPF programs on BTF tracepoints.

mod introduction;
mod layout;
mod mapping;

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use aya::maps::{HashMap, Map, MapData};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};
use stroboscope_analysis::kernel::event::{Body, Event, LossCounts};
use stroboscope_burst::BurstConfig;
use stroboscope_kernel_model::{Processes, Settings};

use crate::start_error::StartError;
use crate::{clock, marker_call};
use introduction::LastIntroduction;
use layout::{control, cpu, slot};
use mapping::MapMemory;

#[cfg(target_arch = "x86_64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/recorder.x86_64.o");
#[cfg(target_arch = "aarch64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/recorder.aarch64.o");
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static OBJECT: &[u8] = &[];

/// Programs in order of attachment, scheduling before system calls: a system call of a thread whose
/// switches are not recorded yet would look like a missed switch.
const PROGRAMS: [&str; 8] = [
    "sched_process_exec",
    "task_rename",
    "sched_process_exit",
    "task_newtask",
    "sched_waking",
    "sched_switch",
    "sys_exit",
    "sys_enter",
];

/// The loaded programs and their memory. The kernel unloads them when this value is dropped or the
/// process ends.
pub(crate) struct EbpfSource {
    ebpf: Ebpf,
    control: Arc<MapMemory>,
    cpus: MapMemory,
    slots: MapMemory,
    slots_per_cpu: u64,
    cpu_count: usize,
    tails: Vec<u64>,
    introductions: Vec<LastIntroduction>,
    /// Number of slots of an unknown kind; 0 unless the programs and the recorder do not match.
    unknown_slots: u64,
}

fn failed(what: &str, error: &dyn std::error::Error) -> StartError {
    let mut text = format!("{what}: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    StartError::Ebpf(text)
}

impl EbpfSource {
    pub(crate) fn open(settings: &Settings) -> Result<Self, StartError> {
        if OBJECT.is_empty() {
            return Err(StartError::Ebpf(
                "there is no program for this processor architecture".into(),
            ));
        }
        let btf = Btf::from_sys_fs()
            .map_err(|error| failed("reading /sys/kernel/btf/vmlinux", &error))?;
        let slots_per_cpu = settings.slots_per_cpu();
        let cpu_count = aya::util::nr_cpus()
            .map_err(|(path, source)| StartError::system(format!("reading {path}"), source))?;
        let slot_count = u32::try_from(cpu_count as u64 * u64::from(slots_per_cpu))
            .map_err(|_| StartError::Ebpf("the buffers of all processors are too large".into()))?;
        let shift = slots_per_cpu.trailing_zeros();
        let choose = u32::from(settings.processes != Processes::All);
        let mut ebpf = EbpfLoader::new()
            .btf(Some(&btf))
            .override_global("SLOTS_PER_CPU", &slots_per_cpu, true)
            .override_global("SLOTS_SHIFT", &shift, true)
            .override_global("CHOOSE", &choose, true)
            .map_max_entries("cpus", cpu_count as u32)
            .map_max_entries("slots", slot_count)
            .allow_unsupported_maps() // task storage: only the programs use it
            .load(OBJECT)
            .map_err(|error| failed("loading", &error))?;
        let control = Arc::new(map(&ebpf, "control", control::WORDS)?);
        let cpus = map(&ebpf, "cpus", cpu_count * cpu::WORDS)?;
        let slots = map(&ebpf, "slots", slot_count as usize * slot::WORDS)?;
        choose_processes(&mut ebpf, &settings.processes)?;
        attach(&mut ebpf, &btf, settings.exits)?;
        let mut source = Self {
            ebpf,
            control,
            cpus,
            slots,
            slots_per_cpu: u64::from(slots_per_cpu),
            cpu_count,
            tails: vec![0; cpu_count],
            introductions: vec![LastIntroduction::default(); cpu_count],
            unknown_slots: 0,
        };
        source.introduce(settings.burst_config, &settings.processes)?;
        Ok(source)
    }

    /// Registers the recorder with its programs, and configures the processes and bursts to record.
    fn introduce(&mut self, config: BurstConfig, processes: &Processes) -> Result<(), StartError> {
        let words = self.control.words();
        let nonce = clock::now_ns() ^ u64::from(std::process::id()) << 48 | 1;
        words[control::HELLO].store(nonce, Relaxed);
        marker_call::hello(nonce);
        let own = words[control::MODE_SELF].load(Acquire) >> 32;
        if own == 0 {
            return Err(StartError::Ebpf(
                "the programs are loaded, but do not observe system calls".into(),
            ));
        }
        self.set_config(config);
        let by_name = u64::from(matches!(processes, Processes::Named(_)));
        words[control::PAIRS_NAMES].fetch_or(by_name << 32, Relaxed);
        words[control::GENERATION_BIRTHS].fetch_add(1, Relaxed);
        Ok(())
    }

    fn set_config(&self, config: BurstConfig) {
        let words = self.control.words();
        words[control::CONFIG].store(config.bits(), Relaxed);
        let shift = u64::from(config.bits().trailing_zeros() & 63);
        // The closure always returns a value, so the update cannot fail.
        let _ = words[control::SHIFT_EPOCH]
            .fetch_update(Relaxed, Relaxed, |word| Some(word >> 32 << 32 | shift));
    }

    /// Makes the programs record by another config, and introduces each thread again at its first
    /// event after the returned monotonic time, in ns. While this runs, programs may record by
    /// either config or by a mixture.
    pub(crate) fn switch(&self, config: BurstConfig) -> u64 {
        let switches = self.switches();
        self.set_config(config);
        if config == BurstConfig::ALWAYS_ON {
            switches.change_mode(control::MODE_DOZE, control::MODE_ALWAYS);
            switches.change_mode(control::MODE_BURSTS, control::MODE_ALWAYS);
        } else {
            switches.change_mode(control::MODE_ALWAYS, control::MODE_BURSTS);
        }
        self.introduce_again()
    }

    /// Makes the programs record. Returns a monotonic time in ns at which they already record.
    pub(crate) fn begin(&mut self) -> u64 {
        let words = self.control.words();
        let always = words[control::CONFIG].load(Relaxed) == BurstConfig::ALWAYS_ON.bits();
        let mode = if always {
            control::MODE_ALWAYS
        } else {
            control::MODE_BURSTS
        };
        words[control::MODE_SELF].fetch_or(u64::from(mode), AcqRel);
        // Introduces all threads again, as some may have been introduced before the returned time.
        self.introduce_again()
    }

    /// Introduces each thread again at its first event after the returned monotonic time, in ns.
    pub(crate) fn introduce_again(&self) -> u64 {
        let from_ns = clock::now_ns();
        self.control.words()[control::SHIFT_EPOCH].fetch_add(1 << 32, Relaxed);
        from_ns
    }

    pub(crate) fn switches(&self) -> Switches {
        Switches(Arc::clone(&self.control))
    }

    /// Ends recording; the buffers can still be read.
    pub(crate) fn stop(&self) {
        self.control.words()[control::MODE_SELF].fetch_and(!u64::from(u32::MAX), AcqRel);
    }

    pub(crate) fn choose(&mut self, process: u32) -> Result<(), StartError> {
        insert_chosen(&mut self.ebpf, process)?;
        // Even if the programs increment the number at the same time, it changes, and only the
        // change matters.
        self.control.words()[control::GENERATION_BIRTHS].fetch_add(1, Relaxed);
        Ok(())
    }

    /// Returns the size of the buffers, in bytes; the kernel holds them and this process maps them.
    pub(crate) fn memory_bytes(&self) -> u64 {
        8 * (self.slots.words().len() + self.cpus.words().len() + self.control.words().len()) as u64
    }

    pub(crate) fn unknown_events(&self) -> u64 {
        self.unknown_slots
    }

    /// Moves complete events to `events`, and returns their number. Those of each processor are in
    /// order of time, except that an interrupt's events may precede the event that it interrupted.
    pub(crate) fn drain(&mut self, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        for number in 0..self.cpu_count {
            self.drain_cpu(number, events);
        }
        events.len() - before
    }

    fn drain_cpu(&mut self, number: usize, events: &mut Vec<Event>) {
        let slots = self.slots.words();
        let first = number * self.slots_per_cpu as usize;
        let mut tail = self.tails[number];
        // Reads at most as many slots as the ring has, so that a busy processor cannot keep the
        // reader busy forever.
        let end = tail + self.slots_per_cpu;
        while tail < end {
            let place = (first + (tail % self.slots_per_cpu) as usize) * slot::WORDS;
            let words = &slots[place..place + slot::WORDS];
            let head = words[0].load(Acquire);
            let lap = (tail / self.slots_per_cpu + 1) as u8;
            if slot::lap(head) != lap {
                break;
            }
            let mut copy = [head; slot::WORDS];
            for (to, from) in copy.iter_mut().zip(words).skip(1) {
                *to = from.load(Relaxed);
            }
            match layout::decode(copy, number as u16) {
                Some(event) => events.push(self.introductions[number].in_order(event)),
                None => self.unknown_slots += 1,
            }
            tail += 1;
        }
        self.tails[number] = tail;
        self.cpus.words()[number * cpu::WORDS + cpu::TAIL].store(tail, Release);
    }

    /// Adds an event for each processor's losses that no LOST event reports, because no later event
    /// ended their gap. The added events have the time `until_ns` or later. The caller calls
    /// [`stop`](Self::stop) before.
    pub(crate) fn drain_losses(&mut self, until_ns: u64, events: &mut Vec<Event>) {
        for number in 0..self.cpu_count {
            let words = &self.cpus.words()[number * cpu::WORDS..(number + 1) * cpu::WORDS];
            let counts = counts_at(words, cpu::GAP_KINDS);
            if counts.total() > 0 {
                let first_ns = words[cpu::GAP_FIRST_NS].load(Relaxed);
                let ts_ns = until_ns.max(first_ns);
                let body = Body::Lost { first_ns, counts };
                events.push(Event {
                    ts_ns,
                    cpu: number as u16,
                    tid: 0,
                    body,
                });
            }
        }
    }

    /// Returns the number of program runs that the kernel has skipped since the start, because the
    /// same program was still running on the same processor. The kernel counts them as
    /// `recursion_misses` of each program. No event in the rings reports them.
    pub(crate) fn skipped(&self) -> LossCounts {
        let mut counts = LossCounts::default();
        for (name, program) in self.ebpf.programs() {
            // A program that is not loaded has no runs.
            let Ok(fd) = program.fd() else { continue };
            let about =
                std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd()));
            let runs = about
                .ok()
                .and_then(|about| recursion_misses(&about))
                .unwrap_or_default();
            match name {
                "sys_enter" => counts.enters += runs,
                "sys_exit" => counts.exits += runs,
                "sched_switch" => counts.switches += runs,
                _ => counts.others += runs,
            }
        }
        counts
    }

    pub(crate) fn losses(&self) -> Vec<LossCounts> {
        self.cpus
            .words()
            .chunks_exact(cpu::WORDS)
            .map(|words| counts_at(words, cpu::LOST))
            .collect()
    }
}

/// Mode and clock offset of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Switches(Arc<MapMemory>);

impl Switches {
    /// Changes the mode if it is `from`. So this has no effect before recording begins and after it
    /// ends.
    fn change_mode(&self, from: u32, to: u32) {
        let change = |word: u64| (word as u32 == from).then_some(word >> 32 << 32 | u64::from(to));
        // A failed update means that there is nothing to change.
        let _ = self.0.words()[control::MODE_SELF].fetch_update(AcqRel, Acquire, change);
    }

    /// Sets the offset that the programs add to monotonic time to get wall time.
    pub(crate) fn set_wall_offset_ns(&self, offset_ns: i64) {
        self.0.words()[control::WALL_OFFSET_NS].store(offset_ns.cast_unsigned(), Relaxed);
    }

    /// Makes the programs doze if they record in bursts: no window is near, so they need not read
    /// the clock. They still follow markers.
    pub(crate) fn doze(&self) {
        self.change_mode(control::MODE_BURSTS, control::MODE_DOZE);
    }

    /// Wakes the programs if they doze. They find the edges of windows themselves.
    pub(crate) fn wake(&self) {
        self.change_mode(control::MODE_DOZE, control::MODE_BURSTS);
    }
}

/// Parses the skipped runs from the kernel's information about a program, in /proc/*/fdinfo.
/// Returns `None` on kernels before Linux 5.12, which do not count them.
fn recursion_misses(about: &str) -> Option<u64> {
    about
        .lines()
        .find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse().ok())
}

fn counts_at(words: &[std::sync::atomic::AtomicU64], at: usize) -> LossCounts {
    let word = |offset: usize| words[at + offset].load(Relaxed);
    LossCounts {
        enters: word(0),
        exits: word(1),
        switches: word(2),
        others: word(3),
    }
}

fn map(ebpf: &Ebpf, name: &str, words: usize) -> Result<MapMemory, StartError> {
    match ebpf.map(name) {
        Some(Map::Array(data)) => MapMemory::new(data.fd().as_fd(), words)
            .map_err(|source| StartError::system(format!("mapping the programs' {name}"), source)),
        _ => Err(StartError::Ebpf(format!("the object has no map {name:?}"))),
    }
}

fn attach(ebpf: &mut Ebpf, btf: &Btf, exits: bool) -> Result<(), StartError> {
    for name in PROGRAMS {
        if name == "sys_exit" && !exits {
            continue;
        }
        let program: &mut BtfTracePoint = ebpf
            .program_mut(name)
            .ok_or_else(|| StartError::Ebpf(format!("the object has no program {name:?}")))?
            .try_into()
            .map_err(|error| failed(name, &error))?;
        program
            .load(name, btf)
            .map_err(|error| failed(name, &error))?;
    }
    for name in PROGRAMS {
        if let Some(program) = ebpf
            .program_mut(name)
            .filter(|_| exits || name != "sys_exit")
        {
            let program: &mut BtfTracePoint =
                program.try_into().map_err(|error| failed(name, &error))?;
            program.attach().map_err(|error| failed(name, &error))?;
        }
    }
    Ok(())
}

fn insert_chosen(ebpf: &mut Ebpf, process: u32) -> Result<(), StartError> {
    let map = ebpf
        .map_mut("chosen")
        .ok_or_else(|| StartError::Ebpf("the object has no map \"chosen\"".into()))?;
    let mut chosen: HashMap<&mut MapData, u32, u32> =
        HashMap::try_from(map).map_err(|error| failed("chosen", &error))?;
    chosen
        .insert(process, 1, 0)
        .map_err(|error| failed("choosing a process", &error))
}

fn choose_processes(ebpf: &mut Ebpf, processes: &Processes) -> Result<(), StartError> {
    if let Processes::Named(names) = processes {
        let map = ebpf
            .map_mut("names")
            .ok_or_else(|| StartError::Ebpf("the object has no map \"names\"".into()))?;
        let mut map: HashMap<&mut MapData, [u8; 16], u32> =
            HashMap::try_from(map).map_err(|error| failed("names", &error))?;
        for name in names {
            let key = stroboscope_analysis::kernel::event::Name::new(name).0;
            map.insert(key, 1, 0)
                .map_err(|error| failed("choosing a name", &error))?;
        }
    }
    for process in crate::processes::running(processes)? {
        insert_chosen(ebpf, process)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_runs_are_read() {
        let about = "prog_type:\t26\nrun_cnt:\t9\nrecursion_misses:\t12\nverified_insns:\t7\n";
        assert_eq!(recursion_misses(about), Some(12));
        assert_eq!(recursion_misses("prog_type:\t26\n"), None);
    }
}
