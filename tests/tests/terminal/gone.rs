//! Subcommands whose terminal, pipes or parent are gone: each comes to its end, without a panic.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use stroboscope_tests::{Line, Program, event_lines};
use tempfile::TempDir;

use crate::pty::{self, Terminal};

/// Every subcommand that ends by itself, with arguments by which it does something: DATA is a
/// store, OUT a directory of its own.
const SUBCOMMANDS: &[(&str, &str)] = &[
    ("demo", "--seconds 1 --rate 4 --data OUT/demo"),
    ("store check", "--data DATA"),
    ("store compact", "--data DATA"),
    ("store delta", "--data DATA"),
    ("store set-requests", "--data DATA"),
    ("completions", "bash"),
    ("man", "--dir OUT"),
    ("collect config", "--data DATA"),
    ("collect ready", "--http 127.0.0.1:9"),
    ("top", "--data DATA"),
    ("import", "DATA/../log.jsonl --data OUT/data"),
    ("infer", "--data DATA"),
    ("mcp", "--data DATA"),
    ("merge", "DATA/../policy.json"),
    ("operations", "--data DATA"),
    ("overview", "--data DATA"),
    ("failures", "--data DATA"),
    ("requests", "--data DATA"),
    ("map", "--data DATA"),
    ("model", "--data DATA"),
    ("critical-path", "--data DATA"),
    ("slack", "--data DATA"),
    ("anomalies", "--data DATA"),
    ("what-if", "--data DATA --segment server --scale 0.5"),
    ("compare", "--data DATA --before-data DATA"),
    ("experiment", "--data DATA --by side --control a --test b"),
    ("pool", "--data DATA"),
    ("explain", "--data DATA --before-data DATA"),
    ("flows", "--data DATA"),
    ("kernel record", "--data OUT/data --seconds 0.2"),
    ("timeline", "--data DATA"),
    ("predict", "--data DATA"),
    ("search", "--data DATA {duration>1ns}"),
    ("report", "--data DATA --html OUT/report.html"),
    ("clocks", "--data DATA"),
    ("burst", "--config 4ms/32ms"),
    ("burst plan", "--data DATA"),
    ("burst set", "--config always --http 127.0.0.1:9"),
    ("tradeoffs learn", "--data DATA --out OUT/policy.json"),
    ("tradeoffs show", "DATA/../policy.json"),
    ("tradeoffs plan", "DATA/../policy.json"),
    ("tradeoffs log", "--data DATA"),
    ("provenance why", "1 DATA/../policy.json"),
    ("provenance of", "1 DATA/../policy.json"),
    ("provenance show", "DATA/../policy.json"),
    ("provenance map", "DATA/../policy.json"),
    ("sql", "--data DATA SELECT(1)"),
    ("worker", "--data OUT/none"),
];

/// Subcommands that serve until they are stopped, with the text that they print when they are
/// ready.
const SERVING: &[(&str, &str, &str)] = &[
    (
        "collect",
        "--data OUT/data --listen 127.0.0.1:0 --http 127.0.0.1:0 --otlp-http none",
        "data in ",
    ),
    ("view", "--data DATA --http 127.0.0.1:0", "pages on "),
];

const DEADLINE: Duration = Duration::from_secs(60);

/// Closed end of the program's streams. The other streams lead to /dev/null or to a file.
#[derive(Clone, Copy, Debug)]
enum Gone {
    /// The reader of standard output is gone: `| head`.
    Output,
    /// `2>&1 | head`.
    OutputAndErrors,
    /// The terminal is gone, and standard error goes to a file.
    Terminal,
    TerminalAndErrors,
}

impl Gone {
    const ALL: [Self; 4] = [
        Self::Output,
        Self::OutputAndErrors,
        Self::Terminal,
        Self::TerminalAndErrors,
    ];

    fn apply(self, command: &mut Command, errors: &File) {
        let pipe = || Stdio::from(std::io::pipe().expect("a pipe").1);
        let terminal = || Stdio::from(pty::open().1);
        let errors = || Stdio::from(errors.try_clone().expect("a descriptor"));
        let [input, output, errors] = match self {
            Self::Output => [Stdio::null(), pipe(), errors()],
            Self::OutputAndErrors => [Stdio::null(), pipe(), pipe()],
            Self::Terminal => [terminal(), terminal(), errors()],
            Self::TerminalAndErrors => [terminal(), terminal(), terminal()],
        };
        command.stdin(input).stdout(output).stderr(errors);
    }
}

/// Creates a store of two requests.
fn store() -> Program {
    let program = Program::new();
    let line = |trace: &str, event: &str, ts_ns| Line {
        trace: trace.into(),
        host: "web1".into(),
        ts_ns,
        event: event.into(),
        task: "server".into(),
    };
    let lines = [("r1", 1_000), ("r2", 3_000)]
        .map(|(trace, ts_ns)| [line(trace, "begin", ts_ns), line(trace, "end", ts_ns + 900)]);
    let log = program.file("log.jsonl", event_lines(&lines.concat()));
    let _ = program.run(&["import", &log]).succeeds();
    let _ = program.file("policy.json", "{}");
    program
}

fn command(program: &Program, out: &Path, words: &str, arguments: &str) -> Command {
    let mut command = Command::new(Program::path());
    let data = program.data().display().to_string();
    let path = |word: &str| {
        word.replace("DATA", &data)
            .replace("OUT", &out.display().to_string())
    };
    command.args(words.split(' '));
    command
        .args(arguments.split(' ').map(path))
        .env("TERM", "xterm");
    command
}

fn end(child: &mut Child, what: &str) -> ExitStatus {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("{what} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read(errors: &mut File) -> String {
    let mut said = String::new();
    errors.rewind().expect("a file");
    errors.read_to_string(&mut said).expect("text");
    said
}

/// Checks the exit status: one that the documents name, and not 101, which means a panic.
fn check_end(status: ExitStatus, errors: &mut File, what: &str) {
    let said = read(errors);
    assert!(!said.contains("panicked"), "{what}: {said}");
    assert!(
        matches!(status.code(), Some(0..=2)),
        "{what}: {status}: {said}"
    );
}

/// Returns the subcommands that the help lists below these words.
fn listed(words: &[&str]) -> BTreeSet<String> {
    let help = Program::run_plain(&[words, &["--help"]].concat())
        .succeeds()
        .stdout;
    // Below the usage, under the headings of their groups.
    let after_usage = help.lines().skip_while(|line| !line.starts_with("Usage:"));
    let list = after_usage.take_while(|line| *line != "Options:");
    let names = list.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let is_subcommand = |name: &&str| name.starts_with(char::is_alphabetic) && *name != "help";
    let mut all = BTreeSet::new();
    for name in names.filter(is_subcommand) {
        all.extend(listed(&[words, &[name]].concat()));
    }
    let usage = help.lines().find(|line| line.starts_with("Usage:"));
    if !usage.expect("a usage").ends_with("<COMMAND>") {
        all.insert(words.join(" "));
    }
    all
}

#[test]
fn every_subcommand_is_here() {
    let serving = SERVING.iter().map(|(words, ..)| *words);
    let here = SUBCOMMANDS.iter().map(|(words, _)| *words).chain(serving);
    let here: BTreeSet<String> = here.map(str::to_owned).collect();
    assert_eq!(listed(&[]), here);
}

#[test]
fn without_a_reader_or_a_terminal_each_ends() {
    let program = store();
    let check = |gone: Gone| {
        for (words, arguments) in SUBCOMMANDS {
            let out = TempDir::new().expect("a directory");
            let mut errors = tempfile::tempfile().expect("a file");
            let mut command = command(&program, out.path(), words, arguments);
            gone.apply(&mut command, &errors);
            let mut child = command.spawn().expect("it starts");
            let what = format!("{words} without {gone:?}");
            check_end(end(&mut child, &what), &mut errors, &what);
        }
    };
    std::thread::scope(|scope| {
        for gone in Gone::ALL {
            scope.spawn(move || check(gone));
        }
    });
}

/// Returns the CPU time of a process so far, in clock ticks.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let after_name = stat.rsplit_once(')').expect("a name").1;
    let fields: Vec<u64> = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse().expect("a number"))
        .collect();
    fields.iter().sum()
}

#[test]
fn without_a_terminal_servers_serve_and_end() {
    let program = store();
    for (words, arguments, said) in SERVING {
        let out = TempDir::new().expect("a directory");
        let command = command(&program, out.path(), words, arguments);
        let arguments: Vec<&str> = command
            .get_args()
            .map(|word| word.to_str().expect("UTF-8"))
            .collect();
        let mut server = Terminal::start_as(&arguments, false);
        server.shows(said);
        server.hang_up();
        let before = cpu_ticks(server.child.id());
        std::thread::sleep(Duration::from_secs(1));
        // A process that spins uses most of the 100 ticks of a second.
        let used = cpu_ticks(server.child.id()) - before;
        assert!(used < 30, "{words} uses {used} ticks in a second");
        // SAFETY: a plain system call on a child that was not waited for yet, so the id is still
        // the child's.
        #[allow(unsafe_code)]
        unsafe {
            libc::kill(server.child.id().cast_signed(), libc::SIGTERM)
        };
        let status = server.ends();
        assert!(status.success(), "{words}: {status}");
    }
}

/// Reports whether a process runs that is not a child of this one.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A process that ended may remain as a zombie if its parent never waits for it.
    stat.rsplit_once(") ")
        .is_some_and(|(_, after_name)| !after_name.starts_with('Z'))
}

#[test]
fn without_a_parent_and_a_reader_each_ends() {
    let program = store();
    for (words, arguments) in SUBCOMMANDS {
        let out = TempDir::new().expect("a directory");
        let mut errors = tempfile::tempfile().expect("a file");
        let orphan = command(&program, out.path(), words, arguments);
        let mut shell = Command::new("sh");
        // The shell's input is a pipe that nobody reads from.
        shell.args(["-c", "\"$@\" >&0 </dev/null & echo $!", "sh"]);
        shell.arg(orphan.get_program()).args(orphan.get_args());
        shell.stdin(std::io::pipe().expect("a pipe").1);
        shell.stderr(errors.try_clone().expect("a descriptor"));
        let said = shell.output().expect("a shell").stdout;
        let pid = String::from_utf8_lossy(&said).trim().to_owned();
        assert!(pid.parse::<u32>().is_ok(), "{pid:?}");
        let deadline = Instant::now() + DEADLINE;
        while is_running(&pid) {
            assert!(Instant::now() < deadline, "{words} does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = read(&mut errors);
        assert!(!said.contains("panicked"), "{words}: {said}");
    }
}
