//! Tests attribution with committed events and the recorded program's own log, also on machines
//! that do not allow recording.
//!
//! To record them again, as root:
//! `cargo test -p stroboscope-kernel --test kernel -- --ignored replay::record_again`.

use std::path::PathBuf;

use serde_json::{Value, json};
use stroboscope::BurstConfig;
use stroboscope_analysis::kernel::attribute;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event, LossCounts, Name, Window};
use stroboscope_kernel_model::{Facility, Recording};

use crate::ground_truth::{Score, record};
use crate::machine;
use crate::workload::{Line, Plan};

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/recorded.jsonl")
}

fn words(event: &Event) -> Value {
    let body = match event.body {
        Body::Enter { call, args } => json!(["enter", call, args]),
        Body::Exit { call, result } => json!(["exit", call, result]),
        Body::Switch {
            state,
            process,
            name,
            next,
            next_process,
            next_name,
        } => {
            json!([
                "switch",
                state,
                process,
                name.to_string(),
                next,
                next_process,
                next_name.to_string()
            ])
        }
        Body::Waking {
            woken,
            woken_process,
        } => json!(["waking", woken, woken_process]),
        Body::NewTask {
            child,
            child_process,
            name,
        } => {
            json!(["new", child, child_process, name.to_string()])
        }
        Body::Named { process, name } => json!(["named", process, name.to_string()]),
        Body::TaskExit { process } => json!(["ends", process]),
        Body::Thread {
            trace,
            span,
            known,
            process,
            tid_in_process,
            name,
        } => {
            json!([
                "thread",
                trace,
                span,
                known,
                process,
                tid_in_process,
                name.to_string()
            ])
        }
        Body::Lost {
            first_ns,
            counts:
                LossCounts {
                    enters,
                    exits,
                    switches,
                    others,
                },
        } => {
            json!(["lost", first_ns, enters, exits, switches, others])
        }
    };
    json!([event.ts_ns, event.cpu, event.tid, body])
}

fn event(value: &Value) -> Event {
    let number = |value: &Value| value.as_u64().unwrap();
    let body = |place: usize| number(&value[3][place]);
    let small = |place: usize| body(place) as u32;
    let name = |place: usize| Name::new(value[3][place].as_str().unwrap());
    let body = match value[3][0].as_str().unwrap() {
        "enter" => Body::Enter {
            call: small(1),
            args: std::array::from_fn(|place| number(&value[3][2][place])),
        },
        "exit" => Body::Exit {
            call: small(1),
            result: value[3][2].as_i64().unwrap(),
        },
        "switch" => Body::Switch {
            state: small(1) as u8,
            process: small(2),
            name: name(3),
            next: small(4),
            next_process: small(5),
            next_name: name(6),
        },
        "waking" => Body::Waking {
            woken: small(1),
            woken_process: small(2),
        },
        "new" => Body::NewTask {
            child: small(1),
            child_process: small(2),
            name: name(3),
        },
        "named" => Body::Named {
            process: small(1),
            name: name(2),
        },
        "ends" => Body::TaskExit { process: small(1) },
        "thread" => Body::Thread {
            trace: body(1),
            span: body(2),
            known: value[3][3].as_bool().unwrap(),
            process: small(4),
            tid_in_process: small(5),
            name: name(6),
        },
        "lost" => {
            let counts = LossCounts {
                enters: body(2),
                exits: body(3),
                switches: body(4),
                others: body(5),
            };
            Body::Lost {
                first_ns: body(1),
                counts,
            }
        }
        other => panic!("{other}"),
    };
    let (ts_ns, cpu, tid) = (
        number(&value[0]),
        number(&value[1]) as u16,
        number(&value[2]) as u32,
    );
    Event {
        ts_ns,
        cpu,
        tid,
        body,
    }
}

/// Not a test: records the input of the test below again.
#[test]
#[ignore = "writes into the source tree"]
fn record_again() {
    let _alone = machine::alone();
    let plan = Plan {
        threads: 3,
        request_us: 4_000,
        run_ms: 150,
        pairs: false,
    };
    let Some((recording, truth)) =
        record("record_again", BurstConfig::DEFAULT, Facility::Ebpf, plan)
    else {
        return;
    };
    let Recording {
        events, windows, ..
    } = recording;
    let mut text = String::new();
    for window in &windows {
        text.push_str(&format!(
            "{}\n",
            json!({"window": [window.open_ns, window.close_ns]})
        ));
    }
    // What the program did outside the windows was not recorded and cannot be compared.
    let is_seen = |line: &&Line| {
        windows
            .iter()
            .any(|w| line.from_ns < w.close_ns && w.open_ns <= line.to_ns)
    };
    for line in truth.iter().filter(is_seen) {
        text.push_str(&format!("{}\n", json!({"truth": line.text()})));
    }
    for event in &events {
        text.push_str(&format!("{}\n", json!({"event": words(event)})));
    }
    std::fs::write(file(), text).unwrap();
}

#[test]
fn recorded_events_are_owned_as_the_program_says() {
    let (mut events, mut windows, mut truth) = (Vec::new(), Vec::new(), Vec::new());
    for line in std::fs::read_to_string(file()).unwrap().lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        if let Some(window) = value.get("window") {
            let [open_ns, close_ns] = [0, 1].map(|place| window[place].as_u64().unwrap());
            windows.push(Window { open_ns, close_ns });
        } else if let Some(text) = value.get("truth") {
            truth.push(Line::parse(text.as_str().unwrap()));
        } else {
            let read = event(&value["event"]);
            assert_eq!(words(&read), value["event"]);
            events.push(read);
        }
    }
    // The events were recorded on x86-64.
    let timeline = attribute(&events, &windows, Architecture::X86_64);
    let score = Score::of(&timeline, &truth);
    println!("{score:?}");
    assert!(
        windows.len() >= 4 && score.calls > 200 && score.waits > 3,
        "{score:#?}"
    );
    score.check();
}
