//! What recording costs one `getpid`, beside other tools and beside nothing: `cargo bench -p stroboscope-kernel`.
//!
//! All cases in turn, round after round, in one run, so that a machine whose speed drifts drifts for all alike; the median
//! of many short loops each. Root is needed; tools that are not installed are left out aloud.

#![allow(missing_docs, unsafe_code)]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stroboscope::BurstConfig;
use stroboscope_kernel::{Processes, Recorder, Settings};

const CALLS: u32 = 2_000;
const LOOPS: usize = 60;
const WARM_UP: Duration = Duration::from_millis(300);
const ROUNDS: usize = 5;

fn getpid_ns() -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        // SAFETY: getpid has no arguments.
        unsafe { libc::syscall(libc::SYS_getpid) };
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

/// The measured loop runs in a process of its own, because the recorder does not record its own process.
fn main() {
    if std::env::var_os("GETPID_LOOP").is_some() {
        for line in std::io::stdin().lines() {
            let _ = line;
            // Some cases begin after a pause: without this, that of the processor would be measured, too.
            let until = Instant::now() + WARM_UP;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            let all: Vec<String> = (0..LOOPS).map(|_| format!("{:.1}", getpid_ns())).collect();
            println!("{}", all.join(" "));
        }
        return;
    }
    let mut subject = Subject::start();
    let own = subject.child.id();
    let cases: Vec<(&str, Start)> = vec![
        ("nothing", Box::new(|| Some(Running::Nothing))),
        (
            "recording enter+exit, all processes",
            Box::new(|| recorder(BurstConfig::ALWAYS_ON, Processes::All, true)),
        ),
        (
            "recording enter+exit, one tree",
            Box::new(move || recorder(BurstConfig::ALWAYS_ON, Processes::Trees(vec![own]), true)),
        ),
        (
            "recording enter only, one tree",
            Box::new(move || recorder(BurstConfig::ALWAYS_ON, Processes::Trees(vec![own]), false)),
        ),
        (
            "gate shut, enter+exit",
            Box::new(move || recorder(BurstConfig::NEVER, Processes::Trees(vec![own]), true)),
        ),
        (
            "gate open, another process chosen",
            Box::new(|| recorder(BurstConfig::ALWAYS_ON, Processes::Trees(vec![2]), true)),
        ),
        (
            "detached",
            Box::new(|| {
                drop(recorder(BurstConfig::ALWAYS_ON, Processes::All, true));
                // The kernel frees them a little later.
                std::thread::sleep(Duration::from_millis(1_500));
                Some(Running::Nothing)
            }),
        ),
        (
            "perf record -e raw_syscalls:*",
            Box::new(|| tool("perf", &["record", "-q", "-a", "-e", "raw_syscalls:*", "-o", "/dev/null"])),
        ),
        ("perf trace", Box::new(|| tool("perf", &["trace", "-a", "-o", "/dev/null"]))),
        (
            "bpftrace, two empty programs",
            Box::new(|| {
                tool(
                    "bpftrace",
                    &[
                        "-e",
                        "tracepoint:raw_syscalls:sys_enter { @a = count(); } tracepoint:raw_syscalls:sys_exit { @b = count(); }",
                    ],
                )
            }),
        ),
    ];
    let mut figures: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    for round in 0..ROUNDS {
        for (figure, (name, start)) in figures.iter_mut().zip(&cases) {
            let Some(mut running) = start() else {
                if round == 0 {
                    eprintln!("LEFT OUT: {name}: it cannot be run here");
                }
                continue;
            };
            figure.extend(subject.measure(&mut running));
        }
    }
    let median = |values: &[f64]| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let nothing = median(&figures[0]);
    println!("{:40} {:>10} {:>10}", "getpid with", "ns", "added");
    for (figure, (name, _)) in figures.iter().zip(&cases).filter(|(figure, _)| !figure.is_empty()) {
        let ns = median(figure);
        println!("{name:40} {ns:10.0} {:+10.0}", ns - nothing);
    }
}

type Start = Box<dyn Fn() -> Option<Running>>;

enum Running {
    Nothing,
    Recorder(Box<Recorder>),
    Tool(Child),
}

fn recorder(config: BurstConfig, processes: Processes, exits: bool) -> Option<Running> {
    let settings =
        Settings { burst_config: config, processes, exits, events_per_cpu: 1 << 20, ..Settings::default() };
    Recorder::start(&settings).ok().map(|recorder| Running::Recorder(Box::new(recorder)))
}

fn tool(name: &str, arguments: &[&str]) -> Option<Running> {
    let null = Stdio::null;
    let child =
        Command::new(name).args(arguments).stdin(null()).stdout(null()).stderr(null()).spawn().ok()?;
    std::thread::sleep(Duration::from_millis(1_500));
    Some(Running::Tool(child))
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Tool(child) = self {
            // SAFETY: a signal to a child that is not waited for yet, so its number is still its own.
            unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) };
            let _ = child.wait();
        }
    }
}

struct Subject {
    child: Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Subject {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a program knows its file"))
            .env("GETPID_LOOP", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the measured process starts");
        let output = child.stdout.take().expect("it is piped");
        Self { child, lines: std::io::BufRead::lines(std::io::BufReader::new(output)) }
    }

    fn measure(&mut self, running: &mut Running) -> Vec<f64> {
        use std::io::Write;
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(b"go\n").expect("the measured process listens");
        let line = self.lines.next().expect("it answers").expect("in text");
        if let Running::Recorder(recorder) = running {
            recorder.drain(&mut Vec::new());
            let lost: u64 = recorder.losses().iter().map(|lost| lost.total()).sum();
            assert_eq!(lost, 0, "losing is cheaper than recording: the figure would not be true");
        }
        line.split(' ').map(|number| number.parse().expect("a number")).collect()
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
