//! Source that records with an instance of tracefs, for kernels that refuse the eBPF programs.
//!
//! The kernel records all the time, and the recorder drops the events outside windows. So windows
//! are as exact as with eBPF, but recording costs as much between windows as in them. An instance
//! of tracefs outlives a killed recorder, and slows down every system call of the machine. So each
//! recorder of root first removes the instances of recorders that are gone.

mod format;
mod page;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use stroboscope_analysis::kernel::event::{Body, Event, LossCounts};
use stroboscope_kernel_model::{ClockLog, ConfigLog, Processes, Settings};

use crate::clock;
use crate::event_filter::EventFilter;
use crate::start_error::StartError;
use format::{EVENTS, Formats};
use page::Item;

pub(crate) const ROOT: &str = "/sys/kernel/tracing";
const PREFIX: &str = "stroboscope-";
const PAGE_BYTES: usize = 4096;
/// Approximate size of a record in the kernel's buffer, in bytes.
const RECORD_BYTES: u64 = 64;

/// Source that owns an instance of tracefs, and removes it when dropped.
pub(crate) struct TracefsSource {
    directory: PathBuf,
    /// Numbers of the online processors, with their pipes.
    pipes: Vec<(u16, File)>,
    formats: Formats,
    sieve: EventFilter,
    /// Events that have been read, but may be newer than events still in other processors' buffers.
    held: Vec<Event>,
    last_ns: Vec<u64>,
    losses: Vec<LossCounts>,
    unknown_records: u64,
    memory_bytes: u64,
}

fn failed(action: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    let action = action.into();
    move |source| StartError::Tracefs { action, source }
}

fn write(path: &Path, text: &str) -> Result<(), StartError> {
    fs::write(path, text).map_err(failed(format!("writing {text:?} to {}", path.display())))
}

impl TracefsSource {
    pub(crate) fn open(settings: &Settings) -> Result<Self, StartError> {
        let online = aya::util::online_cpus()
            .map_err(|(path, source)| StartError::system(format!("reading {path}"), source))?;
        let cpu_count = online.len();
        let kib = (u64::from(settings.slots_per_cpu()) * RECORD_BYTES).div_ceil(1024);
        let own = std::process::id();
        let directory = Path::new(ROOT)
            .join("instances")
            .join(format!("{PREFIX}{own}-{}", started_at(own)));
        fs::create_dir(&directory).map_err(failed(format!("making {}", directory.display())))?;
        // From here on an error drops the source, which removes the directory.
        let mut source = Self {
            directory,
            pipes: Vec::new(),
            formats: Formats::default(),
            sieve: EventFilter::new(),
            held: Vec::new(),
            last_ns: vec![clock::now_ns(); cpu_count],
            losses: vec![LossCounts::default(); cpu_count],
            unknown_records: 0,
            memory_bytes: kib * 1024 * cpu_count as u64,
        };
        source.configure(settings, kib)?;
        for cpu in online {
            let path = source
                .directory
                .join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let pipe = File::options()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(&path);
            let pipe = pipe.map_err(failed(format!("opening {}", path.display())))?;
            source.pipes.push((cpu as u16, pipe));
        }
        write(&source.directory.join("tracing_on"), "1")?;
        Ok(source)
    }

    fn configure(&mut self, settings: &Settings, kib: u64) -> Result<(), StartError> {
        let directory = &self.directory;
        write(&directory.join("tracing_on"), "0")?;
        write(&directory.join("trace_clock"), "mono")?;
        write(&directory.join("buffer_size_kb"), &kib.to_string())?;
        write(&directory.join("options/event-fork"), "1")?;
        // Without this, each read by the recorder would produce new events to read.
        write_threads(&directory.join("set_event_notrace_pid"), std::process::id())?;
        if settings.processes != Processes::All {
            for process in crate::processes::running(&settings.processes)? {
                write_threads(&directory.join("set_event_pid"), process)?;
            }
        }
        for (place, event) in EVENTS.iter().enumerate() {
            let path = directory.join("events").join(event);
            let text = fs::read_to_string(path.join("format"))
                .map_err(failed(format!("reading the format of {event}")))?;
            self.formats.add(place, &text);
            if settings.exits || !event.ends_with("sys_exit") {
                write(&path.join("enable"), "1")?;
            }
        }
        Ok(())
    }

    pub(crate) fn stop(&self) {
        // If another process removed the instance, writing fails, but the instance has stopped.
        let _ = fs::write(self.directory.join("tracing_on"), "0");
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    pub(crate) fn losses(&self) -> Vec<LossCounts> {
        self.losses.clone()
    }

    pub(crate) fn unknown_events(&self) -> u64 {
        self.unknown_records
    }

    pub(crate) fn choose(&mut self, process: u32) -> Result<(), StartError> {
        write_threads(&self.directory.join("set_event_pid"), process)
    }

    /// Introduces each thread again at its first event from the returned instant on (monotonic ns).
    pub(crate) fn introduce_again(&mut self) -> u64 {
        let from_ns = clock::now_ns();
        self.sieve.introduce_again(from_ns);
        from_ns
    }

    /// Moves the events within windows, and those that report losses, to `events`. Returns the
    /// number of events added, with introductions. Unless `finally`, holds back events whose order
    /// is not known yet.
    pub(crate) fn drain(
        &mut self,
        clocks: &ClockLog,
        configs: &ConfigLog,
        finally: bool,
        events: &mut Vec<Event>,
    ) -> usize {
        let before = events.len();
        // Events before this time are in the buffers now, so once all buffers are read the order is
        // known up to here.
        let settled_ns = if finally { u64::MAX } else { clock::now_ns() };
        for at in 0..self.pipes.len() {
            self.read_pipe(at);
        }
        self.held.sort_by_key(|event| event.ts_ns);
        let settled = self.held.partition_point(|event| event.ts_ns < settled_ns);
        for event in self.held.drain(..settled) {
            let wall_ms = u64::try_from(clocks.wall_ns(event.ts_ns) / 1_000_000).unwrap_or(0);
            let config = configs.at(event.ts_ns);
            let is_open = config.is_some_and(|config| config.contains_ms(wall_ms));
            self.sieve.push(event, is_open, process_of, events);
        }
        events.len() - before
    }

    fn read_pipe(&mut self, at: usize) {
        let mut page = [0; PAGE_BYTES];
        // The loop is bounded, so that a busy processor cannot keep the reader busy forever.
        for _ in 0..self.memory_bytes / PAGE_BYTES as u64 + 1 {
            let (cpu, pipe) = &mut self.pipes[at];
            let cpu = *cpu;
            let Ok(length @ 1..) = pipe.read(&mut page) else {
                return;
            };
            page::parse(&page[..length], |item| match item {
                Item::Missed(count) => {
                    // The kernel does not report the kinds of missed events.
                    let counts = LossCounts {
                        others: count.max(1),
                        ..LossCounts::default()
                    };
                    self.losses[at].others += counts.others;
                    let ts_ns = u64::from_ne_bytes(page[..8].try_into().unwrap_or_default());
                    let body = Body::Lost {
                        first_ns: self.last_ns[at].min(ts_ns),
                        counts,
                    };
                    self.held.push(Event {
                        ts_ns,
                        cpu,
                        tid: 0,
                        body,
                    });
                }
                Item::Record(ts_ns, record) => {
                    self.last_ns[at] = ts_ns;
                    match self.formats.decode(record) {
                        Some((tid, body)) => self.held.push(Event {
                            ts_ns,
                            cpu,
                            tid,
                            body,
                        }),
                        None => self.unknown_records += 1,
                    }
                }
            });
        }
    }
}

impl Drop for TracefsSource {
    fn drop(&mut self) {
        self.pipes.clear();
        // If that fails, a later recorder removes the instance after this process has ended.
        let _ = fs::remove_dir(&self.directory);
    }
}

fn write_threads(path: &Path, process: u32) -> Result<(), StartError> {
    use std::io::Write;
    // A process that has just ended has no threads.
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Ok(());
    };
    let mut file = File::options()
        .append(true)
        .open(path)
        .map_err(failed(format!("opening {}", path.display())))?;
    for tid in threads
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
    {
        file.write_all(tid.as_bytes())
            .map_err(failed(format!("adding {tid} to {}", path.display())))?;
    }
    Ok(())
}

/// Returns the process of a thread; 0 if the thread is gone.
fn process_of(tid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

/// Returns the start time of a process, in clock ticks since boot; 0 if the process is gone. Start
/// time and number together identify a process.
fn started_at(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields
        .split_whitespace()
        .nth(19)
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Removes instances of recorders that are gone, and returns the number of removed instances.
pub(crate) fn remove_orphans(root: &Path) -> usize {
    let Ok(entries) = fs::read_dir(root.join("instances")) else {
        return 0;
    };
    let is_orphan = |name: &str| {
        let who = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('-'));
        who.and_then(|(process, started)| Some((process.parse().ok()?, started.parse().ok()?)))
            .is_some_and(|(process, started): (u32, u64)| started_at(process) != started)
    };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_orphan))
        .filter(|entry| fs::remove_dir(entry.path()).is_ok())
        .count()
}
