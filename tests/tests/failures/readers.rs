//! A collector, and everything that reads failures from it or from its store.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;
use stroboscope_tests::{Program, Server};

use crate::load::Seen;
use crate::metrics::{Counted, Metrics};

const ROOT: &str = "front:GET /order";

pub(crate) struct Collector {
    program: Program,
    server: Server,
    /// Addresses for our SDK and for OpenTelemetry's.
    pub(crate) grpc: String,
    pub(crate) otlp: String,
    pages: String,
}

/// Origin of failures: the status that the client saw, and the origin's operation, kind and
/// message.
pub(crate) type Start<'a> = (Option<u16>, &'a str, &'a str, &'a str);

impl Collector {
    pub(crate) fn start() -> Self {
        let program = Program::new();
        let mut command = program.command(&["collect", "--listen", "127.0.0.1:0"]);
        command.args(["--otlp-http", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        command.args(["--live-quiet", "5s"]);
        let mut server = Server::start(command);
        Self {
            grpc: format!("http://{}", server.collector_address()),
            otlp: server.after("collecting OTLP on "),
            pages: server.after("page on http://"),
            program,
            server,
        }
    }

    /// Compares the output of each reader with the client's counts.
    pub(crate) fn check(mut self, seen: &Seen, starts: &[Start<'_>], counted: &Counted<'_>) {
        let operations = self.check_top(seen);
        // The live model has counted all requests by now.
        let metrics = Metrics(get_text(&self.pages, "/metrics/requests"));
        metrics.check_requests(seen);
        metrics.check_counts(counted);
        metrics.check_shares(&operations);
        metrics.check_by_prometheus();
        assert!(self.server.stop(libc::SIGTERM).success());
        metrics.check_shares(&self.json(&["critical-path", "--json"])["operations"]);
        self.check_map(counted);
        self.check_reports(seen, starts);
        self.check_doors(seen, starts);
    }

    fn json(&self, args: &[&str]) -> Value {
        self.program.run(args).succeeds().json()
    }

    /// Checks the figures that `top` takes from the live model. Returns the operations.
    fn check_top(&self, seen: &Seen) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        let latest = loop {
            let latest = get(&self.pages, "/api/critical-path");
            if latest["requests"] == seen.requests {
                break latest;
            }
            assert!(Instant::now() < deadline, "{latest:#}");
            std::thread::sleep(Duration::from_millis(50));
        };
        let operations = latest["operations"].as_array().expect("a list");
        let mut named = operations.iter();
        let of_root = named.find(|of| of["operation"] == ROOT).expect("the root");
        assert_eq!(of_root["spans"], seen.requests, "{of_root}");
        assert_eq!(of_root["failed"], seen.all_failed(), "{of_root}");
        latest["operations"].clone()
    }

    fn check_map(&self, counted: &Counted<'_>) {
        let found = self.json(&["map", "--json"]);
        let edges = found["edges"].as_array().expect("a list").iter();
        let edges = edges.map(|edge| {
            let [caller, callee] = ["caller", "callee"].map(|key| edge[key].as_str());
            let [calls, failed] = ["calls", "failed"].map(|key| edge[key].as_u64());
            (caller, callee, calls, failed)
        });
        let expected = counted.calls.iter();
        let expected = expected.map(|&(client, server, _, all, failed)| {
            (Some(client), Some(server), Some(all), Some(failed))
        });
        assert_eq!(edges.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    fn check_reports(&self, seen: &Seen, starts: &[Start<'_>]) {
        let failed = seen.all_failed();
        for verb in ["overview", "failures"] {
            let found = self.json(&[verb, "--json"]);
            assert_eq!(found["failed"], failed, "{verb}: {found:#}");
            let roots = found["roots"].as_array().expect("a list");
            let [root] = &roots[..] else {
                panic!("{verb}: {roots:#?}");
            };
            assert_eq!(
                (&root["root"], &root["failed"]),
                (&ROOT.into(), &failed.into())
            );
        }
        let found = self.json(&["failures", "--json"]);
        assert_eq!(
            (&found["requests"], &found["recovered"]),
            (&seen.requests.into(), &0.into())
        );
        let rows = found["origins"].as_array().expect("a list");
        let text = |row: &Value, key: &str| row[key].as_str().expect("a text").to_owned();
        let rows = rows.iter().map(|row| {
            let texts = ["origin", "kind", "message"].map(|key| text(row, key));
            (texts, row["requests"].as_u64().expect("a number"))
        });
        let expected = starts.iter().map(|(status, origin, kind, message)| {
            (
                [origin, kind, message].map(|text| (*text).to_owned()),
                seen.failed[status],
            )
        });
        let [found_starts, expected]: [BTreeSet<_>; 2] = [rows.collect(), expected.collect()];
        assert_eq!(found_starts, expected);

        let listed = self.json(&["requests", "--failed", "--json"]);
        assert_eq!(
            (&listed["searched"], &listed["matched"]),
            (&seen.requests.into(), &failed.into())
        );
        let searched = self.json(&["search", "--json", "--top", "1000", "{ status = error }"]);
        let requests = searched["requests"].as_array().expect("a list");
        assert_eq!(requests.len() as u64, failed);
    }

    /// Checks the APIs of Jaeger and Tempo, and the page of one request of each way.
    fn check_doors(&self, seen: &Seen, starts: &[Start<'_>]) {
        let view = self.program.command(&["view", "--http", "127.0.0.1:0"]);
        let mut view = Server::start(view);
        let pages = view.wait_for("its pages", |said| {
            let rest = said
                .lines()
                .find_map(|line| line.strip_prefix("pages on http://"))?;
            Some(rest.trim_end_matches('/').to_owned())
        });
        let failed = seen.all_failed() as usize;
        // {"error":"true"} and {status=error}
        let tags = "%7B%22error%22%3A%22true%22%7D";
        let path = format!("/api/traces?service=front&limit=1000&tags={tags}");
        let jaeger = get(&pages, &path);
        let traces = jaeger["data"].as_array().expect("a list");
        assert_eq!(traces.len(), failed, "by Jaeger's door");
        // Jaeger's pages mark failed spans by this tag.
        let is_error = |tag: &Value| tag["key"] == "error" && tag["value"] == true;
        let has_error = |span: &Value| {
            span["tags"]
                .as_array()
                .is_some_and(|tags| tags.iter().any(is_error))
        };
        let is_marked = |trace: &&Value| {
            let mut spans = trace["spans"].as_array().expect("a list").iter();
            spans.any(|span| span["operationName"] == "GET /order" && has_error(span))
        };
        assert_eq!(traces.iter().filter(is_marked).count(), failed);
        let tempo = get(
            &pages,
            "/tempo/api/search?limit=1000&q=%7Bstatus%3Derror%7D",
        );
        let traces = tempo["traces"].as_array().expect("a list");
        assert_eq!(traces.len(), failed, "by Tempo's door");
        // The page of an example of each way marks the failed spans, and has their kinds and
        // messages.
        let found = self.json(&["failures", "--json"]);
        for (_, origin, kind, message) in starts {
            let mut rows = found["origins"].as_array().expect("a list").iter();
            let is_it = |row: &&Value| row["origin"] == *origin && row["kind"] == *kind;
            let row = rows.find(is_it).expect("an origin");
            let example = row["example"].as_str().expect("an id");
            let page = get_text(&pages, &format!("/traces/{example}"));
            let marked = [format!("✕ {origin}"), format!("✕ {ROOT}")];
            for text in ["Why it failed", kind, message, &marked[0], &marked[1]] {
                assert!(
                    page.contains(text),
                    "{text} is not on the page of {example}"
                );
            }
            let has_stack = page.contains("Traceback (most recent call last)");
            assert_eq!(has_stack, kind.ends_with("OutOfStock"), "{page}");
        }
    }
}

fn get(address: &str, path: &str) -> Value {
    let body = get_text(address, path);
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

fn get_text(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains(" 200 "), "{path}: {answer}");
    body.to_owned()
}
