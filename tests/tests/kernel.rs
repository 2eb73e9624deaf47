//! Recordings of the kernel and services, by the subcommands. Tests that this machine does not
//! allow are skipped with a message.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use stroboscope_tests::{Program, Server};

/// Reports whether the kernel can be recorded here. Panics if recording fails on a machine that
/// should support it.
fn is_allowed(test: &str) -> bool {
    let tried = Program::new().run(&["kernel", "record", "--seconds", "0.05"]);
    if tried.status.success() {
        return true;
    }
    let is_refused = ["CAP_BPF", "CAP_PERFMON", "not permitted"]
        .iter()
        .any(|word| tried.stderr.contains(word));
    assert!(
        is_refused || !Path::new("/sys/kernel/btf/vmlinux").exists(),
        "{tried:#?}"
    );
    eprintln!("SKIPPED: {test}: {}", tried.stderr.trim());
    false
}

fn operation<'a>(overview: &'a Value, name: &str) -> &'a Value {
    let all = overview["operations"].as_array().expect("operations");
    all.iter()
        .find(|one| one["operation"] == name)
        .unwrap_or_else(|| panic!("no {name}: {overview:#}"))
}

fn per_request(operation: &Value, call: &str) -> f64 {
    operation["calls"][call]["per_request"]
        .as_f64()
        .unwrap_or_else(|| panic!("no {call}: {operation:#}"))
}

/// The newsfeed's web server reads five properties, one call each (Ardelean et al., NSDI 2018,
/// §3.3.2).
#[test]
fn one_call_per_property_jumps_out() {
    const TEST: &str = "one_call_per_property_jumps_out";
    if !is_allowed(TEST) {
        return;
    }
    let program = Program::new();
    // At this rate, requests seldom share a connection, even on a busy machine. Shared calls belong
    // to no request.
    let demo = [
        "demo",
        "--json",
        "--kernel",
        "--seconds",
        "12",
        "--rate",
        "3",
        "--burst-config",
        "always",
    ];
    let report = program.run(&demo).succeeds().json();
    let data = report["data"].as_str().expect("a directory").to_owned();
    let overview = Program::run_plain(&["timeline", "--json", "--data", &data])
        .succeeds()
        .json();
    assert_eq!(overview["lost"], 0, "{overview:#}");
    assert!(
        overview["whole_requests"].as_u64() >= Some(15),
        "{overview:#}"
    );
    let reads = operation(&overview, "web:newsfeed.v1.Store/Read");
    let spans = reads["spans_per_request"].as_f64().expect("a number");
    assert!(spans > 4.9 && reads["spans_max"] == 5, "{reads:#}");
    assert_eq!(
        reads["one_by_one_requests"], reads["requests"],
        "each waits for the one before: {reads:#}"
    );
    for call in ["writev", "recvfrom"] {
        assert!(per_request(reads, call) > 4.0, "each on its own: {reads:#}");
    }
    // The ranker's generators read at the same time.
    let parallel = operation(&overview, "ranker:newsfeed.v1.Store/Read");
    assert!(
        parallel["one_by_one_requests"].as_u64() < parallel["requests"].as_u64(),
        "{parallel:#}"
    );
    let text = Program::run_plain(&["timeline", "--data", &data])
        .succeeds()
        .stdout;
    let row = text
        .lines()
        .find(|line| line.starts_with("web:newsfeed.v1.Store/Read "))
        .expect("a row");
    println!("{TEST}: {row}");
    assert!(
        row.contains("writev") && row.contains("recvfrom") && row.contains("100.0%"),
        "{row}"
    );
    look_at_one_request(&data);
}

fn look_at_one_request(data: &str) {
    let paths =
        Program::run_plain(&["critical-path", "--json", "--each", "--data", data]).succeeds();
    let first: Value =
        serde_json::from_str(paths.stdout.lines().next().expect("a request")).expect("JSON");
    let trace = first["trace_id"].as_str().expect("an id");
    let timeline = |more: &[&str]| {
        let arguments = [&["timeline", "--trace", trace, "--data", data], more].concat();
        Program::run_plain(&arguments).succeeds()
    };
    let view = timeline(&["--json"]).json();
    let kernel = &view["kernel"][0];
    let calls = kernel["calls"].as_array().expect("calls");
    assert!(
        calls.len() > 20 && kernel["on_cpu"].as_array().is_some_and(|on| on.len() > 5),
        "{view:#}"
    );
    // At least nine of ten calls belong to a span in the store, and begin within it, up to 100 µs.
    let spans = view["requests"][0]["spans"].as_array().expect("spans");
    let of = |call: &Value| spans.iter().find(|span| span["span"] == call["span"]);
    let within = calls.iter().filter(|call| {
        let (Some(span), Some(at_ns)) = (of(call), call["start_ns"].as_i64()) else {
            return false;
        };
        let ns = |key: &str| span[key].as_i64().expect("a time");
        (ns("start_ns") - 100_000..=ns("end_ns") + 100_000).contains(&at_ns)
    });
    assert!(within.count() * 10 >= calls.len() * 9, "{view:#}");
    let text = timeline(&[]).stdout;
    for expected in [
        "on CPU by",
        "runnable but waiting",
        "[start … ",
        "off CPU: ",
        "writev(",
    ] {
        assert!(text.contains(expected), "no {expected:?}: {text}");
    }
    let out = Path::new(data).join("trace.pftrace");
    let out = out.to_str().expect("UTF-8");
    let _ = timeline(&["--format", "perfetto", "--out", out]);
    assert!(std::fs::metadata(out).expect("a file").len() > 10_000);
    let at_ns = calls[0]["start_ns"].as_i64().expect("a time").to_string();
    let burst = Program::run_plain(&["timeline", "--json", "--burst", &at_ns, "--data", data])
        .succeeds()
        .json();
    let requests = burst["requests"].as_array().expect("requests");
    assert!(
        requests.iter().any(|request| request["trace_id"] == trace),
        "{burst:#}"
    );
}

/// The store's index has a plain lock of `std` for each shard, which no marker mentions.
#[test]
fn the_lock_that_makes_requests_wait_has_the_first_row() {
    const TEST: &str = "the_lock_that_makes_requests_wait_has_the_first_row";
    if !is_allowed(TEST) {
        return;
    }
    let program = Program::new();
    let demo = [
        "demo",
        "--json",
        "--kernel",
        "--seconds",
        "8",
        "--rate",
        "4",
        "--burst-config",
        "always",
        "--fault",
        "store.lock=+10ms",
    ];
    let report = program.run(&demo).succeeds().json();
    let data = report["data"].as_str().expect("a directory").to_owned();
    let timeline = |more: &[&str]| {
        let arguments = [&["timeline", "--data", &data], more].concat();
        Program::run_plain(&arguments).succeeds()
    };
    let overview = timeline(&["--json"]).json();
    let lock = &overview["locks"][0];
    println!("{TEST}: {lock:#}");
    assert_eq!(
        (&lock["kind"], &lock["service"]),
        (&"futex".into(), &"store".into())
    );
    assert_eq!(lock["waiting"][0]["operation"], "store:read", "{lock:#}");
    let ns = |value: &Value| value["total_ns"].as_u64().expect("a sum");
    // Reads wait for reads: the holder of the lock sleeps for 10 ms.
    let by_store: u64 = lock["holding"]
        .as_array()
        .expect("holders")
        .iter()
        .filter(|by| {
            by["operation"]
                .as_str()
                .is_some_and(|of| of.starts_with("store:"))
        })
        .map(ns)
        .sum();
    assert!(by_store * 10 > ns(lock) * 8, "{lock:#}");
    assert!(lock["p50_ns"].as_u64() > Some(4_000_000), "{lock:#}");
    // The longest wait leads to the two requests, which the store has.
    let longest = &lock["longest"][0];
    let request = longest["trace_id"].as_str().expect("an id");
    assert!(request.len() == 32 && longest["holder_trace_id"].is_string());
    let text = timeline(&["--trace", request]).stdout;
    let address = lock["address"].as_str().expect("an address");
    assert!(text.contains(&format!("futex wait at {address}")), "{text}");
    let near = timeline(&["--lock", lock["lock"].as_str().expect("a name")]).stdout;
    assert!(near.contains("Wakers of the waiters"), "{near}");
}

#[test]
fn what_a_killed_recorder_had_stored_is_kept_and_the_next_one_starts() {
    const TEST: &str = "what_a_killed_recorder_had_stored_is_kept_and_the_next_one_starts";
    if !is_allowed(TEST) {
        return;
    }
    let program = Program::new();
    let arguments = [
        "kernel",
        "record",
        "--burst-config",
        "always",
        "--name",
        "stroboscope-und",
    ];
    let mut first = Server::start(program.command(&arguments));
    first.wait_for("recording", |said| {
        said.contains("recording the kernel").then_some(())
    });
    first.kill();
    let next = program
        .run(&[
            "kernel",
            "record",
            "--burst-config",
            "always",
            "--seconds",
            "0.3",
        ])
        .succeeds();
    assert!(
        next.stdout.contains("stored") && next.stdout.contains(" 0 lost"),
        "{next:#?}"
    );
    let overview = program.run(&["timeline", "--json"]).succeeds().json();
    assert_eq!(overview["recordings"], 1, "{overview:#}");
    assert!(overview["events"].as_u64() > Some(0), "{overview:#}");
}

/// Returns a command of the program without capabilities. If `setpriv` fails, prints this and
/// returns `None`.
fn without_rights(test: &str, program: &Program, arguments: &[&str]) -> Option<Command> {
    let drop_all = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"];
    let probe = Command::new("setpriv").args(drop_all).arg("true").output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: {test}: setpriv: {probe:?}");
        return None;
    }
    let own = program.command(arguments);
    let mut command = Command::new("setpriv");
    command
        .args(drop_all)
        .arg(own.get_program())
        .args(own.get_args())
        .stdin(Stdio::null());
    Some(command)
}

#[test]
fn without_rights_the_message_says_which_and_collecting_goes_on() {
    const TEST: &str = "without_rights_the_message_says_which_and_collecting_goes_on";
    let program = Program::new();
    let Some(mut record) = without_rights(TEST, &program, &["kernel", "record", "--seconds", "1"])
    else {
        return;
    };
    let output = record.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for word in [
        "CAP_BPF and CAP_PERFMON",
        "run as root",
        "setcap cap_bpf,cap_perfmon+ep",
    ] {
        assert!(said.contains(word), "no {word:?}: {said}");
    }
    let listen = [
        "--listen",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--otlp-http",
        "none",
    ];
    let collect = [&["collect", "--kernel"], listen.as_slice()].concat();
    let Some(collect) = without_rights(TEST, &program, &collect) else {
        return;
    };
    let mut collector = Server::start(collect);
    collector.wait_for("its refusal", |said| {
        said.contains("the kernel is not recorded: ").then_some(())
    });
    assert!(
        collector.said().contains("collecting on"),
        "{}",
        collector.said()
    );
    assert!(
        collector.stop(libc::SIGTERM).success(),
        "{}",
        collector.said()
    );
}

/// CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER and CAP_NET_BIND_SERVICE, which every
/// collector may need.
const KEPT: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 10;
const BPF: u64 = 1 << 39;

/// Checks that each thread of a collector has no capabilities but [`KEPT`] and, if it records the
/// kernel, `recorder`.
fn check_capabilities(server: &Server, recorder: u64) {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    let statuses = threads.flatten().map(|thread| thread.path().join("status"));
    // A thread may end meanwhile.
    let statuses: Vec<String> = statuses
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .collect();
    assert!(statuses.len() > 3, "{statuses:#?}");
    for status in &statuses {
        let field = |key: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(key));
            value.expect("a field of Linux").trim()
        };
        let is_recorder = field("Name:") == "kernel-drain";
        let allowed = if is_recorder { KEPT | recorder } else { KEPT };
        for (key, allowed) in [
            ("CapPrm:", allowed),
            ("CapEff:", allowed),
            ("CapInh:", 0),
            ("CapAmb:", 0),
        ] {
            let has = u64::from_str_radix(field(key), 16).expect("hexadecimal");
            assert_eq!(has & !allowed, 0, "{key} of {status}");
        }
        assert_eq!(field("NoNewPrivs:"), "1", "{status}");
    }
}

/// Starts a collector on free ports, which must print `said`.
fn collector(program: &Program, more: &[&str], said: &str) -> Server {
    let mut command = program.command(&["collect", "--listen", "127.0.0.1:0"]);
    command.args(["--http", "127.0.0.1:0", "--otlp-http", "none"]);
    command.args(more);
    let mut server = Server::start(command);
    server.wait_for(said, |all| all.contains(said).then_some(()));
    server
}

#[test]
fn a_collector_drops_its_capabilities() {
    const TEST: &str = "a_collector_drops_its_capabilities";
    let program = Program::new();
    let mut plain = collector(&program, &[], "data in ");
    check_capabilities(&plain, 0);
    assert!(plain.stop(libc::SIGTERM).success(), "{}", plain.said());
    if !is_allowed(TEST) {
        return;
    }
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::"));
    let group = format!("/sys/fs/cgroup{}", own.unwrap_or_default());
    let has_group = Path::new(&group).join("cgroup.procs").exists();
    if !has_group {
        eprintln!("SKIPPED: {TEST}: of a control group: {group} is none of version 2");
    }
    let of_group = ["--cgroup", &group];
    let kinds = [(&[][..], 0), (&of_group, BPF)];
    for (processes, recorder) in kinds.into_iter().take(1 + usize::from(has_group)) {
        let arguments = [&["--kernel", "--burst-config", "always"], processes].concat();
        let mut server = collector(&program, &arguments, "recording the kernel by ");
        check_capabilities(&server, recorder);
        assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());
        let said = server.said();
        assert!(said.contains(" kernel events of "), "{said}");
        assert!(!said.contains("WARN"), "{said}");
    }
}

#[test]
fn what_strace_wrote_is_imported_and_owned() {
    let program = Program::new();
    let text = "12 1767322800.000000 write(-1, \"STROBE 1 c0ffee 7 0 0 0\", 23) = -1 EBADF <0.000001>\n\
                12 1767322800.000010 write(1, \"hello\\n\", 6) = 6 <0.000002>\n\
                12 1767322800.000020 write(-1, \"STROBE 2 c0ffee 7 0 0 0\", 23) = -1 EBADF <0.000001>\n";
    let file = program.file("strace.txt", text);
    let first = program.run(&["import", &file]).succeeds();
    assert!(first.stdout.contains("6 events"), "{first:#?}");
    let again = program.run(&["import", &file]).succeeds();
    assert!(again.stderr.contains("imported before"), "{again:#?}");
    let overview = program.run(&["timeline", "--json"]).succeeds().json();
    let request = &overview["requests"][0];
    assert_eq!(
        (&request["trace"], &overview["lost"]),
        (&"0000000000c0ffee".into(), &0.into()),
        "{overview:#}"
    );
    assert_eq!(request["calls"][0]["call"], "write", "{overview:#}");
    assert_eq!(
        (&request["calls"][0]["count"], &request["on_cpu_ns"]),
        (&1.into(), &0.into()),
        "{overview:#}"
    );
}

/// One request waits at a futex until another wakes it, as `strace -f -ttt -T` writes it.
#[test]
fn a_wait_that_strace_wrote_is_at_its_futex() {
    let program = Program::new();
    let text = "12 1767322800.000000 write(-1, \"STROBE 1 c0ffee 7 0 0 0\", 23) = -1 EBADF <0.000001>\n\
                13 1767322800.000005 write(-1, \"STROBE 1 beef 9 0 0 0\", 21) = -1 EBADF <0.000001>\n\
                12 1767322800.000010 futex(0x7f10, FUTEX_WAIT_PRIVATE, 2, NULL <unfinished ...>\n\
                13 1767322800.000050 futex(0x7f10, FUTEX_WAKE_PRIVATE, 1) = 1 <0.000002>\n\
                12 1767322800.000060 <... futex resumed>) = 0 <0.000050>\n\
                12 1767322800.000070 futex(0x7f10, FUTEX_WAIT_PRIVATE, 2, NULL) = -1 EAGAIN (Resource temporarily unavailable) <0.000003>\n\
                13 1767322800.000075 write(-1, \"STROBE 2 beef 9 0 0 0\", 21) = -1 EBADF <0.000001>\n\
                12 1767322800.000080 write(-1, \"STROBE 2 c0ffee 7 0 0 0\", 23) = -1 EBADF <0.000001>\n";
    let file = program.file("strace.txt", text);
    let _ = program.run(&["import", &file]).succeeds();
    let overview = program.run(&["timeline", "--json"]).succeeds().json();
    let locks = overview["locks"].as_array().expect("locks");
    assert_eq!(locks.len(), 1, "{locks:#?}");
    let lock = &locks[0];
    assert_eq!(
        ["waits", "total_ns", "requests"].map(|key| lock[key].as_u64()),
        [Some(1), Some(50_000), Some(1)],
        "{lock:#}"
    );
    assert_eq!(
        (&lock["address"], &lock["process"]),
        (&"0x7f10".into(), &Value::Null)
    );
    let longest = &lock["longest"][0];
    assert_eq!(longest["holder_trace_id"], "000000000000beef", "{lock:#}");
    assert_eq!(longest["evidence"], "call", "{lock:#}");
    let text = program
        .run(&["timeline", "--trace", "0000000000c0ffee"])
        .succeeds()
        .stdout;
    let expected = "futex wait at 0x7f10, most probably woken by request 000000000000beef";
    assert!(text.contains(expected), "{text}");
}
