//! Tests of the burst samplers for OpenTelemetry's SDKs in Python and JavaScript: they have the
//! same schedule as our SDK, and requests are whole across all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use stroboscope::propagation::{self, IncomingContext};
use stroboscope::span;
use stroboscope_burst::BurstConfig;
use stroboscope_tests::Program;

use crate::clients::{node_modules, python};
use crate::store::{collect_with, number, rows, text};

fn samplers(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../sdk/otel")
        .join(language)
}

fn client(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(name)
}

/// Runs a program that prints nothing if all vectors hold.
fn check_vectors(command: &mut Command) {
    let vectors = samplers("vectors.json");
    let output = command.arg(vectors).output().expect("it starts");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    assert!(output.status.success() && printed.is_empty(), "{printed}");
}

#[test]
fn python_has_the_same_schedule() {
    let Some(python) = python("python_has_the_same_schedule") else {
        return;
    };
    let script = "import json, sys\nfrom stroboscope_otel import BurstConfig\n\
        vectors = json.load(open(sys.argv[1]))\n\
        def mask(text):\n    try:\n        return hex(BurstConfig.parse(text).mask)\n    except ValueError:\n        return None\n\
        print(*(case for case in vectors['parse'] if mask(case['text']) != case['mask']), end='')\n\
        print(*(case for case in vectors['contains']\n\
        \x20   if BurstConfig(int(case['mask'], 16)).contains_ms(int(case['ms'])) != case['open']), end='')\n";
    let mut command = Command::new(python);
    command
        .env("PYTHONPATH", samplers("python"))
        .args(["-c", script]);
    check_vectors(&mut command);
}

#[test]
fn javascript_has_the_same_schedule() {
    let Some(modules) = node_modules("javascript_has_the_same_schedule") else {
        return;
    };
    let script = "const { BurstConfig } = require(process.argv[1]); const vectors = require(process.argv[2])\n\
        for (const c of vectors.parse) {\n\
        let mask = null; try { mask = '0x' + BurstConfig.parse(c.text).mask.toString(16) } catch {}\n\
        if (mask !== c.mask) console.log(c) }\n\
        for (const c of vectors.contains) {\n\
        if (new BurstConfig(BigInt(c.mask)).containsMs(BigInt(c.ms)) !== c.open) console.log(c) }";
    let mut command = Command::new("node");
    command
        .env("NODE_PATH", modules)
        .args(["-e", script])
        .arg(samplers("javascript"));
    check_vectors(&mut command);
}

/// A service that answers until its input ends, and then exports the rest of its spans.
struct Service {
    child: Child,
    printed: BufReader<ChildStdout>,
    port: u16,
}

impl Service {
    /// Starts a program that prints its port first.
    fn start(command: &mut Command, config: &str) -> Self {
        let mut child = command
            .env("STROBOSCOPE_BURST_CONFIG", config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut printed = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut port = String::new();
        printed.read_line(&mut port).expect("its port");
        Self {
            child,
            printed,
            port: port.trim().parse().expect("a port"),
        }
    }

    /// Starts the back service in JavaScript.
    fn back(modules: &str, http: &str, config: &str) -> Self {
        let mut command = Command::new("node");
        command
            .env("NODE_PATH", modules)
            .arg(client("burst_back.cjs"))
            .arg(http)
            .arg(samplers("javascript"));
        Self::start(&mut command, config)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Ends the service. Returns what it printed after its port.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.printed.read_to_string(&mut rest).expect("its output");
        assert!(self.child.wait().expect("it ends").success());
        rest
    }
}

/// Requests one page over a new connection, with the headers of the current request.
fn get(port: u16) {
    let mut headers = http::HeaderMap::new();
    propagation::inject(&mut headers);
    let mut request = "GET / HTTP/1.1\r\nhost: middle\r\nconnection: close\r\n".to_owned();
    for (name, value) in &headers {
        let value = value.to_str().expect("text");
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    connection.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// A front service with our SDK calls a middle service in Python, which calls a back service in
/// JavaScript. All three record each request that begins in a burst, and the middle and the back
/// service record nothing of the others.
#[test]
fn requests_of_rust_python_and_javascript_are_whole() {
    let test = "requests_of_rust_python_and_javascript_are_whole";
    let (Some(python), Some(modules)) = (python(test), node_modules(test)) else {
        return;
    };
    const CONFIG: &str = "4ms/32ms";
    let program = Program::new();
    let (mut collector, grpc, http, _) = collect_with(&program, &[]);
    let back = Service::back(&modules, &http, CONFIG);
    let mut middle = Command::new(python);
    middle
        .env("PYTHONPATH", samplers("python"))
        .arg(client("burst_middle.py"))
        .args([&http, &back.url()]);
    let middle = Service::start(&mut middle, CONFIG);
    let config: BurstConfig = CONFIG.parse().expect("a config");
    let guard = stroboscope::builder()
        .service("front")
        .collector(format!("http://{grpc}"))
        .burst_config(config)
        .init()
        .expect("it records");
    let (begun, mut requests) = (Instant::now(), 0u64);
    while begun.elapsed() < Duration::from_secs(4) {
        IncomingContext::default()
            .scope("/page", || span!("call middle").scope(|| get(middle.port)));
        requests += 1;
    }
    drop(guard);
    let counted = middle.end();
    back.end();
    assert!(collector.stop(libc::SIGTERM).success());

    // Traces with the names of their spans. Spans of the front service that a burst's end cut
    // belong to requests that began before the burst, and have no root in the store.
    let mut spans: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for span in rows(&program.data(), "spans") {
        let name = text(&span["name"]);
        spans
            .entry(text(&span["trace_id"]))
            .or_default()
            .insert(name);
    }
    let exported =
        |names: &BTreeSet<String>| names.contains("GET /middle") || names.contains("GET /");
    let whole = BTreeSet::from(
        ["page", "call middle", "GET /middle", "call back", "GET /"].map(String::from),
    );
    let (mut entered, mut overlapping) = (0u64, 0u64);
    for span in rows(&program.data(), "spans") {
        if text(&span["name"]) != "page" {
            continue;
        }
        let names = &spans[&text(&span["trace_id"])];
        assert_eq!(names, &whole, "{span}");
        entered += 1;
        let ms = u64::try_from(number(&span["start_ns"]) / 1_000_000).expect("after 1970");
        overlapping += u64::from(config.contains_ms(ms));
    }
    let of_others = spans
        .values()
        .filter(|names| !names.contains("page") && exported(names));
    assert_eq!(of_others.count(), 0, "between bursts, nothing is exported");
    let share = entered as f64 / requests as f64;
    println!(
        "{entered} of {requests} requests entered in bursts ({share:.3}), all whole; {overlapping} began in the schedule's bursts; \
         the middle service had {}",
        counted.trim()
    );
    assert_eq!(counted.trim(), format!("{requests} {entered}"));
    assert!(entered > 20 && overlapping as f64 >= 0.99 * entered as f64);
}

/// A front service in Python calls a back service in JavaScript for 3 s, with bursts in a quarter
/// of the time.
#[test]
fn requests_of_python_and_javascript_are_whole_and_begin_in_bursts() {
    let test = "requests_of_python_and_javascript_are_whole_and_begin_in_bursts";
    let (Some(python), Some(modules)) = (python(test), node_modules(test)) else {
        return;
    };
    const CONFIG: &str = "64ms/256ms";
    let program = Program::new();
    let (mut collector, _, http, _) = collect_with(&program, &[]);
    let back = Service::back(&modules, &http, CONFIG);
    let front = Command::new(python)
        .env("PYTHONPATH", samplers("python"))
        .env("STROBOSCOPE_BURST_CONFIG", CONFIG)
        .arg(client("burst_front.py"))
        .args([&http, &back.url(), "3"])
        .output()
        .expect("python starts");
    let errors = String::from_utf8_lossy(&front.stderr);
    assert!(front.status.success(), "{errors}");
    let requests = String::from_utf8_lossy(&front.stdout);
    let requests: f64 = requests.trim().parse().expect("a number");
    back.end();
    assert!(collector.stop(libc::SIGTERM).success());

    let config: BurstConfig = CONFIG.parse().expect("a config");
    let mut spans: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for span in rows(&program.data(), "spans") {
        let name = text(&span["name"]);
        if name == "GET /page" {
            let ms = number(&span["start_ns"]) / 1_000_000;
            // The sampler reads the clock a moment before the span does.
            let is_open = |ms: i128| config.contains_ms(u64::try_from(ms).expect("after 1970"));
            assert!((0..4).any(|before| is_open(ms - before)), "{span}");
        }
        spans
            .entry(text(&span["trace_id"]))
            .or_default()
            .insert(name);
    }
    let whole = BTreeSet::from(["GET /", "GET /page", "call back"].map(String::from));
    for (trace, names) in &spans {
        assert_eq!(names, &whole, "{trace}");
    }
    let paths = program.run(&["critical-path", "--json"]).succeeds().json();
    let bursts = &paths["sampling"]["bursts"];
    assert_eq!(bursts[0]["requests"], spans.len(), "{paths}");
    assert_eq!(bursts[0]["duty"], 0.25, "{paths}");
    let share = spans.len() as f64 / requests;
    println!(
        "{} of {requests} requests recorded, all whole: {share:.3}",
        spans.len()
    );
    assert!(
        requests > 100.0 && (0.1..0.45).contains(&share),
        "{requests} {share}"
    );
}
