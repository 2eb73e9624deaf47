//! An agent that uses the tools over pipes, and a store with a planted change.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::common::check;

/// Time of the planted change: 2026-11-21T10:20, UTC. Requests begin every 3 s for 20 minutes
/// before and after.
pub(crate) const PLANTED_US: u64 = 1_795_256_400_000_000;
const EVERY_US: u64 = 3_000_000;
const OF_EACH: u64 = 400;

/// `mcp` over a store, as a client starts it.
pub(crate) struct Agent {
    program: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Number of requests so far.
    pub(crate) asked: u64,
}

impl Agent {
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut agent = Self::silent(directory, arguments);
        let begun = agent.ask(
            "initialize",
            &json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }),
        );
        assert_eq!(
            begun["result"]["serverInfo"]["name"], "stroboscope",
            "{begun}"
        );
        assert!(
            begun["result"]["capabilities"]["tools"].is_object(),
            "{begun}"
        );
        agent.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        agent
    }

    /// Starts the program without a handshake.
    fn silent(directory: &Path, arguments: &[&str]) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
            .arg("mcp")
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: program.stdin.take().unwrap(),
            output: BufReader::new(program.stdout.take().unwrap()),
            program,
            asked: 0,
        }
    }

    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Reads a line, which must be a message of the protocol.
    pub(crate) fn message(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        message
    }

    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        );
        let answer = self.message();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Calls a tool, and returns the result of the protocol.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        assert!(answer["error"].is_null(), "{tool} {arguments}: {answer}");
        answer["result"].clone()
    }

    /// Calls a tool that has to answer, and returns the report.
    #[track_caller]
    pub(crate) fn answer(&mut self, tool: &str, arguments: &Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{tool} {arguments}: {result}");
        let value = &result["structuredContent"];
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), *value);
        value.clone()
    }

    /// Calls a tool that has to fail, and returns code, cause and remedy.
    #[track_caller]
    pub(crate) fn failure(&mut self, tool: &str, arguments: &Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap()
    }

    /// Closes the input, and expects the program to end well without another line.
    pub(crate) fn end(mut self) {
        drop(self.input);
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        assert!(self.program.wait().unwrap().success());
    }
}

/// Sentences and remarks of a result, in its second content.
pub(crate) fn remarks(result: &Value) -> &str {
    result["content"][1]["text"].as_str().unwrap_or_default()
}

/// Names of tools, as listed.
pub(crate) fn names(tools: &Value) -> Vec<String> {
    let tools = tools.as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Names of the reports that are tools.
pub(crate) fn names_of_registry() -> Vec<String> {
    stroboscope_reports::registry::tools()
        .map(|entry| entry.name.to_owned())
        .collect()
}

/// A shop's requests; from the planted change on, the stock's replica `b` takes 5 ms longer.
pub(crate) fn planted() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut spans = Vec::new();
    for request in 0..2 * OF_EACH {
        let noise = request.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) % 1_000;
        let replica = if noise % 10 < 7 { "b" } else { "a" };
        let is_slow = request >= OF_EACH && replica == "b";
        let takes = 2_000 + noise / 4 + if is_slow { 5_000 } else { 0 };
        let start = PLANTED_US - OF_EACH * EVERY_US + request * EVERY_US + noise;
        let mut span = |id: u64, service: &str, name: &str, from: u64, to: u64, tags: Value| {
            spans.push(json!({
                "traceId": format!("{:032x}", request + 1),
                "id": format!("{:016x}", request * 10 + id),
                "parentId": (id > 1).then(|| format!("{:016x}", request * 10 + 1)),
                "kind": if id == 2 { "" } else { "SERVER" },
                "name": name, "timestamp": start + from, "duration": to - from,
                "localEndpoint": {"serviceName": service}, "tags": tags,
            }));
        };
        span(1, "shop", "checkout", 0, 1_500 + takes, json!({}));
        span(2, "shop", "price", 100, 600, json!({}));
        span(
            3,
            "stock",
            "reserve",
            800,
            800 + takes,
            json!({"replica": replica}),
        );
    }
    for span in &mut spans {
        let span = span.as_object_mut().unwrap();
        span.retain(|_, value| !value.is_null() && *value != "");
    }
    std::fs::write(
        directory.path().join("spans.json"),
        Value::from(spans).to_string(),
    )
    .unwrap();
    check(directory.path(), &["import", "spans.json"], 0);
    directory
}
