//! Measures the cost of recording one `getpid`, and compares it with other tools and with no
//! recording: `cargo bench -p stroboscope-kernel`.
//!
//! Each round runs the cases in turn (other tools only in the first rounds), and measures without
//! recording before and after each case. So a drift of the machine's speed affects a case and its
//! comparison alike. The output has the median and the quartiles of the differences. Virtual
//! machines share processors with others, so at times everything is slower. The column "alone"
//! therefore covers only the rounds whose measurements without recording were nearly as fast as the
//! fastest. The bench needs root. It reports tools that are not installed, and skips them.

#![allow(missing_docs, unsafe_code)]

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use stroboscope::BurstConfig;
use stroboscope_kernel::Recorder;
use stroboscope_kernel_model::{Processes, Settings};

/// Number of calls per loop. A loop is so short that it usually lies entirely inside or outside a
/// window.
const CALLS: u32 = 200;
const WARM_UP: Duration = Duration::from_millis(10);
const MEASURED: Duration = Duration::from_millis(20);
const MEASURED_BURSTS: Duration = Duration::from_millis(200);
const ROUNDS: usize = 60;
/// Number of times per round that a recorder is started and stopped, to measure without recording
/// afterwards.
const PAIRS: usize = 3;
/// Number of rounds of the other tools, which take seconds to start.
const ROUNDS_OF_TOOLS: usize = 5;
/// Maximum ratio of a time to the fastest time that counts as equally fast.
const ALONE: f64 = 1.06;
const NS_PER_MS: u64 = 1_000_000;

fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

fn getpid_ns() -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        // SAFETY: getpid has no arguments.
        unsafe { libc::syscall(libc::SYS_getpid) };
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

/// Wall time of a loop's begin and end, in ns, and the time of one call in ns.
struct Loop {
    from_ns: u64,
    to_ns: u64,
    call_ns: f64,
}

/// Runs the measured loop, in a process of its own, because the recorder does not record its own
/// process.
fn be_measured() {
    for line in std::io::stdin().lines() {
        let measured = Duration::from_millis(line.ok().and_then(|ms| ms.parse().ok()).unwrap_or(0));
        // Some cases begin after a pause. This loop excludes the wake-up of the processor from the
        // measurement.
        let start = Instant::now();
        while start.elapsed() < WARM_UP {
            getpid_ns();
        }
        let mut said = String::new();
        while start.elapsed() < WARM_UP + measured {
            let from_ns = wall_ns();
            let call_ns = getpid_ns();
            said.push_str(&format!("{from_ns} {} {call_ns:.1};", wall_ns()));
        }
        println!("{said}");
    }
}

fn main() {
    if std::env::var_os("GETPID_LOOP").is_some() {
        return be_measured();
    }
    let mut subject = Subject::start();
    // Measures before this program has recorded anything.
    let first: Vec<f64> = (0..ROUNDS).map(|_| subject.nothing()).collect();
    let cases = cases(subject.child.id());
    let mut rows: BTreeMap<(usize, &str), Vec<Sample>> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut before = subject.nothing();
        for (number, case) in cases
            .iter()
            .enumerate()
            .filter(|(_, case)| round < case.rounds)
        {
            let Some(mut running) = (case.start)() else {
                if round == 0 {
                    eprintln!("LEFT OUT: {}: it cannot be run here", case.name);
                }
                continue;
            };
            let loops = subject.measure(case.measured, &mut running);
            drop(running);
            let after = subject.nothing();
            let phases = match case.in_bursts {
                Some(config) => loops.by_phase(config),
                None => vec![(case.name, loops.all())],
            };
            for (name, ns) in phases {
                rows.entry((number, name)).or_default().push(Sample {
                    ns,
                    nothing: [before, after],
                });
            }
            before = after;
        }
        // Measures without recording: immediately after a recorder has stopped, after a pause, and
        // after another pause.
        let rest = || std::thread::sleep(Duration::from_millis(50));
        let mut untraced = before;
        for _ in 0..PAIRS {
            drop(recorder(BurstConfig::ALWAYS_ON, Processes::All, true));
            let at_once = subject.nothing();
            rest();
            let later = subject.nothing();
            rest();
            let nothing = [untraced, subject.nothing()];
            for (number, name, ns) in [(0, "gone, at once", at_once), (1, "gone for 0.1 s", later)]
            {
                rows.entry((cases.len() + number, name))
                    .or_default()
                    .push(Sample { ns, nothing });
            }
            untraced = nothing[1];
        }
    }
    print(&first, &rows);
}

/// Time of a getpid in ns, and the times without recording before and after.
struct Sample {
    ns: f64,
    nothing: [f64; 2],
}

impl Sample {
    fn added(&self) -> f64 {
        self.ns - f64::midpoint(self.nothing[0], self.nothing[1])
    }
}

fn print(first: &[f64], rows: &BTreeMap<(usize, &str), Vec<Sample>>) {
    let nothings = || {
        rows.values()
            .flatten()
            .flat_map(|sample| sample.nothing)
            .chain(first.iter().copied())
    };
    let fastest = nothings().fold(f64::INFINITY, f64::min);
    let all: Vec<f64> = nothings().collect();
    let [low, middle, high] = [1, 2, 3].map(|number| quartile(&all, number));
    println!(
        "a getpid with nothing: {middle:.0} ns (quartiles {low:.0} … {high:.0}), alone {fastest:.0};"
    );
    println!("before anything was recorded: {:.0} ns", quartile(first, 2));
    println!(
        "{:44} {:>6} {:>16} {:>6} {:>7} {:>14} {:>6}",
        "added by", "ns", "quartiles", "rounds", "alone", "quartiles", "rounds"
    );
    for ((_, name), samples) in rows {
        let is_alone = |sample: &&Sample| sample.nothing.iter().all(|&ns| ns <= fastest * ALONE);
        let added: Vec<f64> = samples.iter().map(Sample::added).collect();
        let alone: Vec<f64> = samples.iter().filter(is_alone).map(Sample::added).collect();
        let [of_all, of_alone] = [&added, &alone].map(|values| {
            let [low, middle, high] = [1, 2, 3].map(|number| quartile(values, number));
            if values.is_empty() {
                return ("-".to_owned(), String::new());
            }
            (format!("{middle:+.0}"), format!("{low:+.0} … {high:+.0}"))
        });
        println!(
            "{name:44} {:>6} {:>16} {:6} {:>7} {:>14} {:6}",
            of_all.0,
            of_all.1,
            added.len(),
            of_alone.0,
            of_alone.1,
            alone.len()
        );
    }
}

fn quartile(values: &[f64], number: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get((sorted.len() * number / 4).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

struct Case {
    name: &'static str,
    rounds: usize,
    measured: Duration,
    /// Burst-config by which the loops are divided into phases; `None` for one phase.
    in_bursts: Option<BurstConfig>,
    start: Box<dyn Fn() -> Option<Running>>,
}

fn cases(own: u32) -> Vec<Case> {
    let tree = move || Processes::Trees(vec![own]);
    let case = |name, start: Box<dyn Fn() -> Option<Running>>| Case {
        name,
        rounds: ROUNDS,
        measured: MEASURED,
        in_bursts: None,
        start,
    };
    let of_tool = |name, program: &'static str, arguments: &'static [&'static str]| Case {
        rounds: ROUNDS_OF_TOOLS,
        ..case(name, Box::new(move || tool(program, arguments)))
    };
    vec![
        case(
            "recording enter+exit, all processes",
            Box::new(|| recorder(BurstConfig::ALWAYS_ON, Processes::All, true)),
        ),
        case(
            "recording enter+exit, one tree",
            Box::new(move || recorder(BurstConfig::ALWAYS_ON, tree(), true)),
        ),
        case(
            "recording enter only, one tree",
            Box::new(move || recorder(BurstConfig::ALWAYS_ON, tree(), false)),
        ),
        case(
            "gate shut, enter+exit",
            Box::new(move || recorder(BurstConfig::NEVER, tree(), true)),
        ),
        case(
            "gate open, another process chosen",
            Box::new(|| recorder(BurstConfig::ALWAYS_ON, Processes::Trees(vec![2]), true)),
        ),
        Case {
            measured: MEASURED_BURSTS,
            in_bursts: Some(BurstConfig::DEFAULT),
            ..case(
                "",
                Box::new(move || recorder(BurstConfig::DEFAULT, tree(), true)),
            )
        },
        of_tool(
            "perf record -e raw_syscalls:*",
            "perf",
            &[
                "record",
                "-q",
                "-a",
                "-e",
                "raw_syscalls:*",
                "-o",
                "/dev/null",
            ],
        ),
        of_tool("perf trace", "perf", &["trace", "-a", "-o", "/dev/null"]),
        of_tool(
            "bpftrace, two programs that count",
            "bpftrace",
            &[
                "-e",
                "tracepoint:raw_syscalls:sys_enter { @a = count(); } tracepoint:raw_syscalls:sys_exit { @b = count(); }",
            ],
        ),
    ]
}

struct Loops(Vec<Loop>);

impl Loops {
    fn all(&self) -> f64 {
        quartile(&self.0.iter().map(|one| one.call_ns).collect::<Vec<_>>(), 2)
    }

    /// Returns the time of a call in loops within a burst, between bursts, and in the last
    /// milliseconds before one, when the programs read the clock. Each time is the mean of the
    /// medians per millisecond before the opening, so that all parts of a pause have equal weight.
    fn by_phase(&self, config: BurstConfig) -> Vec<(&'static str, f64)> {
        let mut by_ms: BTreeMap<(bool, u64), Vec<f64>> = BTreeMap::new();
        for one in &self.0 {
            let (from_ms, to_ms) = (one.from_ns / NS_PER_MS, one.to_ns / NS_PER_MS);
            let (opens_ms, later_ms) = (config.next_open_ms(from_ms), config.next_open_ms(to_ms));
            let is_open = opens_ms == from_ms && later_ms == to_ms;
            if is_open || opens_ms > to_ms {
                by_ms
                    .entry((is_open, opens_ms - from_ms))
                    .or_default()
                    .push(one.call_ns);
            }
        }
        let mean = |is_in: &dyn Fn(bool, u64) -> bool| {
            let all = by_ms
                .iter()
                .filter(|((is_open, ms), _)| is_in(*is_open, *ms));
            let medians: Vec<f64> = all.map(|(_, values)| quartile(values, 2)).collect();
            medians.iter().sum::<f64>() / medians.len() as f64
        };
        vec![
            (
                "bursts of 4 ms every 32 ms: in one",
                mean(&|is_open, _| is_open),
            ),
            (
                "bursts of 4 ms every 32 ms: between them",
                mean(&|is_open, _| !is_open),
            ),
            (
                "bursts of 4 ms every 32 ms: 2 ms before one",
                mean(&|is_open, ms| !is_open && ms <= 2),
            ),
        ]
    }
}

enum Running {
    Nothing,
    Recorder(Box<Recorder>),
    Tool(Child),
}

fn recorder(config: BurstConfig, processes: Processes, exits: bool) -> Option<Running> {
    let settings = Settings {
        burst_config: config,
        processes,
        exits,
        events_per_cpu: 1 << 20,
        ..Settings::default()
    };
    Recorder::start(&settings)
        .ok()
        .map(|recorder| Running::Recorder(Box::new(recorder)))
}

fn tool(name: &str, arguments: &[&str]) -> Option<Running> {
    let null = Stdio::null;
    let child = Command::new(name)
        .args(arguments)
        .stdin(null())
        .stdout(null())
        .stderr(null())
        .spawn()
        .ok()?;
    std::thread::sleep(Duration::from_millis(1_500));
    Some(Running::Tool(child))
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Tool(child) = self {
            // SAFETY: a signal to a child that has not been waited for, so its process id is still
            // its own.
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
        Self {
            child,
            lines: std::io::BufRead::lines(std::io::BufReader::new(output)),
        }
    }

    fn nothing(&mut self) -> f64 {
        self.measure(MEASURED, &mut Running::Nothing).all()
    }

    fn measure(&mut self, measured: Duration, running: &mut Running) -> Loops {
        use std::io::Write;
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{}", measured.as_millis()).expect("the measured process listens");
        let line = self.lines.next().expect("it answers").expect("in text");
        if let Running::Recorder(recorder) = running {
            recorder.drain(&mut Vec::new());
            let lost: u64 = recorder.losses().iter().map(|lost| lost.total()).sum();
            assert_eq!(
                lost, 0,
                "losing is cheaper than recording: the figure would not be true"
            );
        }
        let parse = |text: &str| -> Option<Loop> {
            let mut words = text.split(' ');
            let mut next = || words.next();
            let (from_ns, to_ns) = (next()?.parse().ok()?, next()?.parse().ok()?);
            Some(Loop {
                from_ns,
                to_ns,
                call_ns: next()?.parse().ok()?,
            })
        };
        Loops(
            line.split_terminator(';')
                .map(|text| parse(text).expect("three numbers"))
                .collect(),
        )
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
