//! The burst samplers for OpenTelemetry's SDKs in Python and JavaScript: the same schedule as ours, and requests that are
//! whole across both.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// A front service in Python calls a back service in JavaScript for some seconds, in bursts of a quarter of the time.
#[test]
fn requests_of_python_and_javascript_are_whole_and_begin_in_bursts() {
    let test = "requests_of_python_and_javascript_are_whole_and_begin_in_bursts";
    let (Some(python), Some(modules)) = (python(test), node_modules(test)) else {
        return;
    };
    const CONFIG: &str = "64ms/256ms";
    let program = Program::new();
    let (mut collector, _, http, _) = collect_with(&program, &[]);
    let mut back = Command::new("node")
        .env("NODE_PATH", modules)
        .env("STROBOSCOPE_BURST_CONFIG", CONFIG)
        .arg(client("burst_back.cjs"))
        .arg(&http)
        .arg(samplers("javascript"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node starts");
    let mut port = String::new();
    let printed = back.stdout.as_mut().expect("a pipe");
    BufReader::new(printed)
        .read_line(&mut port)
        .expect("its port");
    let front = Command::new(python)
        .env("PYTHONPATH", samplers("python"))
        .env("STROBOSCOPE_BURST_CONFIG", CONFIG)
        .arg(client("burst_front.py"))
        .args([&http, &format!("http://127.0.0.1:{}/", port.trim()), "3"])
        .output()
        .expect("python starts");
    let errors = String::from_utf8_lossy(&front.stderr);
    assert!(front.status.success(), "{errors}");
    let requests = String::from_utf8_lossy(&front.stdout);
    let requests: f64 = requests.trim().parse().expect("a number");
    // The end of its input has the back service export the rest.
    drop(back.stdin.take());
    assert!(back.wait().expect("it ends").success());
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
