//! A server with a span for each connection and one for each command, as many servers have: its
//! commands are requests.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use stroboscope_tests::{Program, Server};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

const ROLE: &str = "STROBOSCOPE_TEST_ROLE";
const CLIENTS: usize = 4;
/// Number of commands of each client. They take more than ten seconds: a span that long is a
/// connection without further evidence.
const COMMANDS: usize = 24;
const PAUSE: Duration = Duration::from_millis(430);

mod get {
    #[tracing::instrument(skip_all)]
    pub(super) async fn apply() -> &'static str {
        "value\n"
    }
}

mod set {
    #[tracing::instrument(skip_all)]
    pub(super) async fn apply() -> &'static str {
        store().await;
        "stored\n"
    }

    #[tracing::instrument]
    async fn store() {
        tokio::task::yield_now().await;
    }
}

#[tracing::instrument(skip_all)]
async fn run(stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
        let answer = match line.as_str() {
            "get\n" => get::apply().await,
            _ => set::apply().await,
        };
        stream
            .write_all(answer.as_bytes())
            .await
            .expect("the client listens");
        line.clear();
    }
}

/// Runs the server in a process of its own, if `STROBOSCOPE_TEST_ROLE` is set. Does nothing without
/// the variable.
#[test]
fn service() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let recorder = stroboscope::builder().service(&role).flush_on_sigterm();
    let recorder = recorder.env().expect("variables are as they should be");
    let _tracing = recorder.init().expect("recording starts");
    tracing_subscriber::registry()
        .with(stroboscope::layer())
        .init();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        while stroboscope::stats().windows == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!(
            "\nserving on {}",
            listener.local_addr().expect("it listens")
        );
        loop {
            let (stream, _) = listener.accept().await.expect("a client");
            tokio::spawn(run(stream));
        }
    });
}

async fn client(address: String) {
    let stream = TcpStream::connect(address)
        .await
        .expect("the server listens");
    let mut stream = BufReader::new(stream);
    let mut answer = String::new();
    for number in 0..COMMANDS {
        let command = ["get\n", "set\n"][number % 2];
        stream
            .write_all(command.as_bytes())
            .await
            .expect("the server reads");
        stream
            .read_line(&mut answer)
            .await
            .expect("the server answers");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns the number of requests by root operation.
fn count(answer: &Value) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for request in answer["requests"].as_array().expect("a list") {
        *counts
            .entry(request["root"].as_str().expect("a name"))
            .or_default() += 1;
    }
    counts
}

#[test]
fn commands_inside_of_connections_are_requests() {
    let program = Program::new();
    let mut collect = program.command(&["collect", "--listen", "127.0.0.1:0"]);
    collect.args(["--http", "127.0.0.1:0", "--otlp-http", "none"]);
    let mut collector = Server::start(collect);
    let collecting = collector.collector_address();
    let mut service = Command::new(std::env::current_exe().expect("this program has a path"));
    service
        .args(["--exact", "service", "--nocapture"])
        .env(ROLE, "kv")
        .env("STROBOSCOPE_COLLECTOR", format!("http://{collecting}"))
        .env("STROBOSCOPE_BURST_CONFIG", "always");
    let mut service = Server::start(service);
    let address = service.after("serving on ");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| tokio::spawn(client(address.clone())))
            .collect();
        for client in clients {
            client.await.expect("it ends");
        }
        // Gives the server time to notice that the clients have gone.
        tokio::time::sleep(Duration::from_millis(100)).await;
    });
    for server in [&mut service, &mut collector] {
        server.stop(libc::SIGTERM);
    }

    let all = ["requests", "--json", "--top", "1000"];
    let found = program.run(&all).succeeds();
    let each = CLIENTS * COMMANDS / 2;
    let answer = found.json();
    assert_eq!(
        count(&answer),
        BTreeMap::from([("kv:get::apply", each), ("kv:set::apply", each)])
    );
    assert_eq!(answer["traces"], answer["complete_traces"], "{answer:#}");
    let note = "each child of kv:run counts as a request, because its spans (4 here) outlast many children";
    assert!(found.stderr.contains(note), "{}", found.stderr);

    // A request is found by its own id, and its critical path takes its whole latency.
    let requests = answer["requests"].as_array().expect("a list");
    let set = requests
        .iter()
        .find(|one| one["root"] == "kv:set::apply")
        .expect("one");
    assert_eq!(set["spans"], 2);
    let id = set["trace"].as_str().expect("an id");
    let path = program
        .run(&["critical-path", "--json", "--trace", id])
        .succeeds()
        .json();
    assert_eq!(path["latency_ns"], path["critical_path_ns"], "{path:#}");
    assert_eq!(path["trace"], id);

    // Connections, or any operation, are requests if `--request` says so.
    let whole = program
        .run(&[&all[..], &["--request", "none"]].concat())
        .succeeds()
        .json();
    assert_eq!(count(&whole), BTreeMap::from([("kv:run", CLIENTS)]));
    let store = ["--request", "none", "--request", "kv:set::store"];
    let stored = program.run(&[&all[..], &store].concat()).succeeds().json();
    assert_eq!(count(&stored), BTreeMap::from([("kv:set::store", each)]));

    // A setting of the data directory has the same effect, and an option takes precedence.
    let set = |arguments: &[&str]| {
        let words = [&["store", "set-requests"], arguments].concat();
        let _ = program.run(&words).succeeds();
    };
    let counted = |options: &[&str]| {
        let found = program.run(&[&all[..], options].concat()).succeeds();
        let answer = found.json();
        let counts = count(&answer).into_iter();
        counts
            .map(|(root, requests)| (root.to_owned(), requests))
            .collect::<Vec<_>>()
    };
    let commands = counted(&[]);
    set(&["none", "kv:set::store"]);
    assert_eq!(counted(&[]), [("kv:set::store".to_owned(), each)]);
    assert_eq!(counted(&["--request", "kv:get::apply"]), commands);
    set(&["--clear"]);
    assert_eq!(counted(&[]), commands);

    // A cached model covers the same requests.
    let roots = |options: &[&str]| {
        let report = program
            .run(&[&["overview", "--json"], options].concat())
            .succeeds()
            .json();
        let rows = report["roots"].as_array().expect("rows").len();
        (rows, report["used_traces"].as_u64().expect("a number"))
    };
    for _ in 0..2 {
        assert_eq!(roots(&[]), (2, (2 * CLIENTS * COMMANDS / 2) as u64));
        assert_eq!(roots(&["--request", "none"]), (1, CLIENTS as u64));
    }

    // Pages lead from a request to its connection, and back.
    let mut view = Server::start(program.command(&["view", "--http", "127.0.0.1:0"]));
    let site = view.after("pages on ");
    let page = |path: &str| {
        let address = format!("{site}{path}");
        runtime.block_on(async {
            let answer = reqwest::get(address).await.expect("a page");
            answer.text().await.expect("its text")
        })
    };
    let of_request = page(&format!("/traces/{id}"));
    let (_, link) = of_request
        .split_once("Inside of the connection <a href=\"")
        .unwrap_or_else(|| panic!("no connection: {of_request}"));
    let of_connection = page(link.split('"').next().expect("an address"));
    let caption = format!("<caption>{COMMANDS} requests</caption>");
    assert!(of_connection.contains(&caption), "{of_connection}");
    let back = format!("<a href=\"/traces/{id}\">");
    assert!(of_connection.contains(&back), "{of_connection}");
    assert!(!of_connection.contains("Inside of the connection"));
}
