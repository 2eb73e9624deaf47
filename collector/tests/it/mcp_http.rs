//! Tools for agents over HTTP, and by the official SDK over both transports.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::agent::{names, names_of_registry, remarks};
use crate::common::json_of;
use crate::requests;
use crate::viewing::Viewing;

/// Status and body of the answer to a message over HTTP.
fn post(viewing: &Viewing, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(&viewing.address).unwrap();
    let host = match headers.contains("Host:") {
        true => String::new(),
        false => format!("Host: {}\r\n", viewing.address),
    };
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\n{host}{headers}Accept: application/json, text/event-stream\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// A view of the shop that requires tokens, which differ in their roles.
fn guarded(directory: &Path) -> Viewing {
    let tokens = "read reads-0123456789abcdef\nwrite writes-0123456789abcdef\ncontrol controls-0123456789abcdef\n";
    std::fs::write(directory.join("tokens"), tokens).unwrap();
    Viewing::of_default_data(directory, &["--token-file", "tokens"])
}

#[test]
fn http_serves_the_same_tools_to_readers_only() {
    let store = requests::imported();
    let viewing = guarded(store.path());
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "operations", "arguments": {"top": 3}}})
    .to_string();
    let sent = |headers: &str, body: &str, status: u16, words: &str| {
        let (found, answer) = post(&viewing, headers, body);
        assert_eq!(found, status, "{headers}: {answer}");
        assert!(answer.contains(words), "{headers}: {answer}");
        answer
    };
    sent("", &call, 401, "requires a token");
    sent(
        "Authorization: Bearer nonsense-0123456789\r\n",
        &call,
        401,
        "not one of",
    );
    for other in ["writes", "controls"] {
        let header = format!("Authorization: Bearer {other}-0123456789abcdef\r\n");
        sent(&header, &call, 403, "lacks the role read");
    }
    let reader = "Authorization: Bearer reads-0123456789abcdef\r\n";
    let answer: Value = serde_json::from_str(&sent(reader, &call, 200, "\"id\":7")).unwrap();
    let expected = json_of(store.path(), &["operations", "--json", "--top", "3"]);
    assert_eq!(answer["result"]["structuredContent"], expected);
    let page = format!("page: http://{}/operations?top=3", viewing.address);
    assert!(remarks(&answer["result"]).contains(&page), "{answer}");
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let listed: Value = serde_json::from_str(&sent(reader, list, 200, "")).unwrap();
    assert_eq!(names(&listed["result"]["tools"]), names_of_registry());
    // Foreign pages in a browser, by a foreign name or from a foreign origin.
    sent(
        &format!("{reader}Host: evil.example\r\n"),
        &call,
        403,
        "--allowed-host",
    );
    sent(
        &format!("{reader}Origin: http://evil.example\r\n"),
        &call,
        403,
        "another origin",
    );
    sent(reader, "{nonsense", 415, "");
    let large = call.replace(
        "\"top\":3",
        &format!("\"root\":\"{}\"", "x".repeat(70 << 10)),
    );
    sent(reader, &large, 413, "");
    let (head, _) = viewing.ask("GET /mcp", reader);
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    // The role for reading does not set the burst-config.
    let (head, _) = viewing.ask(
        "POST /burst-config",
        &format!("{reader}Content-Length: 0\r\n"),
    );
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
}

/// Both kinds of handshake and both transports, by the protocol's official SDK.
#[test]
fn the_official_sdk_understands_us() {
    let python = std::env::var("STROBOSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let packages = Command::new(&python)
        .args(["-c", "from mcp import Client"])
        .stderr(Stdio::null())
        .status();
    if !packages.is_ok_and(|status| status.success()) {
        eprintln!(
            "SKIPPED: the_official_sdk_understands_us: pip install mcp, and name its python by STROBOSCOPE_TEST_PYTHON"
        );
        return;
    }
    let store = requests::imported();
    let viewing = guarded(store.path());
    let url = format!("http://{}/mcp", viewing.address);
    let data = store.path().join("stroboscope-data").display().to_string();
    let pipe = [env!("CARGO_BIN_EXE_stroboscope"), "mcp", "--data", &data];
    let http = [&*url, "reads-0123456789abcdef"];
    let expected = json_of(store.path(), &["operations", "--json", "--top", "2"]);
    for (mode, target) in [
        ("auto", &pipe[..]),
        ("legacy", &pipe[..]),
        ("auto", &http[..]),
        ("legacy", &http[..]),
    ] {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mcp_client.py");
        let client = Command::new(&python)
            .arg(script)
            .arg(mode)
            .args(target)
            .output();
        let client = client.unwrap();
        let errors = String::from_utf8_lossy(&client.stderr);
        assert!(client.status.success(), "{mode} {target:?}: {errors}");
        let found: Value = serde_json::from_slice(&client.stdout).unwrap();
        assert_eq!(found["answer"], expected, "{mode} {target:?}");
        assert_eq!(found["is_error"], json!([false, true]));
        let tools = found["tools"].as_array().unwrap().iter();
        let tools: Vec<&str> = tools.filter_map(Value::as_str).collect();
        assert_eq!(tools, names_of_registry());
    }
}
