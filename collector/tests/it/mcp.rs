//! Tools for agents: the protocol line by line over pipes.

use std::path::Path;

use serde_json::{Value, json};

use crate::agent::{Agent, PLANTED_US, names, names_of_registry, planted, remarks};
use crate::common::check;
use crate::snapshots::check_schema;
use crate::{attributes, failures, requests};

#[test]
fn tools_are_those_of_the_registry() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(directory.path(), &[]);
    let listed = agent.ask("tools/list", &json!({}));
    let tools = &listed["result"]["tools"];
    assert_eq!(names(tools), names_of_registry());
    for tool in tools.as_array().unwrap() {
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        for (name, property) in tool["inputSchema"]["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{name} of {tool}");
            assert!(
                !["data", "html", "parquet", "json", "tolerance"].contains(&&**name),
                "{tool}"
            );
        }
        // The schema of the output is that of the subcommand's JSON.
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!(
            "docs/schemas/{}.json",
            tool["name"].as_str().unwrap()
        ));
        let kept: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        for part in ["properties", "anyOf", "$defs"] {
            assert_eq!(tool["outputSchema"][part], kept[part], "{part} of {tool}");
        }
    }
    let find = |name: &str| {
        let mut all = tools.as_array().unwrap().iter();
        all.find(|tool| tool["name"] == name).unwrap()["inputSchema"].clone()
    };
    assert_eq!(find("search")["required"], json!(["formula"]));
    let compare = &find("compare")["properties"];
    assert_eq!(
        compare["zoom"]["enum"],
        json!(["service", "operation", "full"])
    );
    assert_eq!(compare["top"]["default"], 10);
    assert_eq!(compare["request"]["type"], "array");
    // Agents pass these texts to their models.
    let of_models: usize = tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["inputSchema"].to_string().len() + tool["description"].to_string().len())
        .sum();
    assert!(of_models < 48 << 10, "{of_models}");
    assert!(
        listed.to_string().len() < 256 << 10,
        "{}",
        listed.to_string().len()
    );
    agent.end();
}

/// Each tool gives what the subcommand prints as JSON.
#[test]
fn each_tool_gives_the_report_of_its_subcommand() {
    let after = json!({"after": "2026-11-21T10:20.."});
    let calls = [
        ("shop", "overview", json!({})),
        ("shop", "requests", json!({"top": 5, "min": "1us"})),
        ("failing", "failures", json!({})),
        ("shop", "critical-path", json!({"root": "shop:checkout"})),
        ("shop", "critical-path", json!({"trace": "1"})),
        ("users", "critical-path", json!({"by": "browser"})),
        ("shop", "slack", json!({})),
        ("shop", "anomalies", json!({"slowest": 0.2})),
        ("shop", "operations", json!({})),
        ("failing", "map", json!({})),
        (
            "shop",
            "what-if",
            json!({"operation": "shop:charge", "scale": 0.5}),
        ),
        ("planted", "compare", after.clone()),
        (
            "users",
            "experiment",
            json!({"by": "browser", "control": "hare", "test": "tortoise"}),
        ),
        ("planted", "explain", after),
        ("shop", "flows", json!({})),
        ("shop", "timeline", json!({"trace": "1"})),
        (
            "shop",
            "search",
            json!({"formula": "{name=\"charge\"}", "include-incomplete": true}),
        ),
    ];
    let stores = [
        ("shop", requests::imported()),
        ("failing", failures::imported()),
        ("users", attributes::imported()),
        ("planted", planted()),
    ];
    let mut called: Vec<&str> = calls.iter().map(|(_, tool, _)| *tool).collect();
    called.dedup();
    assert_eq!(called, names_of_registry());
    for (name, store) in &stores {
        let mut agent = Agent::start(store.path(), &["--answer-max", "100MiB"]);
        for (_, tool, arguments) in calls.iter().filter(|(of, _, _)| of == name) {
            let value = agent.answer(tool, arguments);
            check_schema(tool, &value);
            let mut words = vec![(*tool).to_owned(), "--json".to_owned()];
            for (name, value) in arguments.as_object().unwrap() {
                let texts = match value {
                    Value::Array(items) => items.clone(),
                    one => vec![one.clone()],
                };
                words.extend(texts.iter().map(|text| match text {
                    Value::Bool(_) => format!("--{name}"),
                    Value::String(text) if name == "formula" => text.clone(),
                    Value::String(text) => format!("--{name}={text}"),
                    other => format!("--{name}={other}"),
                }));
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            // Nothing of the kernel was recorded.
            let status = i32::from(*tool == "timeline");
            let (printed, _) = check(store.path(), &words, status);
            let printed: Value = serde_json::from_str(&printed).unwrap();
            assert_eq!(value, printed, "{tool} {arguments}");
        }
        agent.end();
    }
}

/// Finds why the shop is slow since 10:20: because of replica `b` of the stock, the planted change.
#[test]
fn four_calls_lead_to_the_planted_cause() {
    let store = planted();
    let mut agent = Agent::start(store.path(), &["--page", "http://127.0.0.1:4319/"]);
    let overview = agent.call("overview", &json!({}));
    let words = remarks(&overview);
    assert!(
        words.starts_with("Since about 10:19:5") && words.contains("compare --before "),
        "{words}"
    );
    let step = &overview["structuredContent"]["step"];
    assert_eq!(step["root"], "shop:checkout", "{step}");
    let at_ns = step["at_ns"].as_i64().unwrap();
    let late_ns = at_ns - (PLANTED_US * 1_000) as i64;
    assert!(late_ns.abs() < 60_000_000_000, "{step}");
    let both = json!({
        "before": "2026-11-21T10:00..2026-11-21T10:20",
        "after": "2026-11-21T10:20..2026-11-21T10:40",
        "root": step["root"],
    });
    let compared = agent.call("compare", &both);
    let address =
        "page: http://127.0.0.1:4319/compare?before=2026-11-21T10%3A00..2026-11-21T10%3A20";
    assert!(
        remarks(&compared).contains(address),
        "{}",
        remarks(&compared)
    );
    let cause = &compared["structuredContent"]["causes"][0];
    assert_eq!(
        (&cause["service"], &cause["operation"]),
        (&json!("stock"), &json!("reserve")),
        "{cause}"
    );
    let slow = cause["example"]["after"].as_str().unwrap();
    let request = agent.answer("critical-path", &json!({"trace": slow}));
    let segments = request["segments"].as_array().unwrap().iter();
    let longest = segments
        .filter(|segment| segment["critical"] == true)
        .max_by_key(|of| of["end_ns"].as_i64().unwrap() - of["start_ns"].as_i64().unwrap());
    assert!(
        longest.unwrap().to_string().contains("reserve"),
        "{request}"
    );
    let explained = agent.answer("explain", &both);
    let conditions = explained["leaves"][0]["conditions"].to_string();
    assert!(
        conditions.contains("replica") && conditions.contains("reserve"),
        "{explained}"
    );
    assert!(agent.asked <= 1 + 5, "{} with the handshake", agent.asked);
    agent.end();
}

#[test]
fn bad_calls_fail_with_a_remedy() {
    let store = requests::imported();
    let mut agent = Agent::start(store.path(), &[]);
    let unknown = agent.ask("tools/call", &json!({"name": "delete", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let words = unknown["error"]["message"].as_str().unwrap();
    assert!(
        words.contains("\"delete\"") && words.contains("critical-path"),
        "{words}"
    );
    let unknown = agent.ask("tools/break", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    // Lines that are no messages do not end the connection. Text that is not JSON gets no answer.
    agent.send("{nonsense");
    agent.send("{\"jsonrpc\":\"2.0\",\"id\":{}}");
    let wrong = agent.message();
    assert_eq!(wrong["error"]["code"], -32600, "{wrong}");
    let checks = [
        (
            "overview",
            json!({"until": 3, "sinse": "1h"}),
            "wrong_arguments",
            "sinse",
        ),
        (
            "overview",
            json!({"data": "/etc"}),
            "wrong_arguments",
            "data",
        ),
        (
            "overview",
            json!({"since": "yesterday-ish"}),
            "wrong_arguments",
            "--since",
        ),
        (
            "operations",
            json!({"top": "many"}),
            "wrong_arguments",
            "a whole number",
        ),
        (
            "operations",
            json!({"include-incomplete": 1}),
            "wrong_arguments",
            "true or false",
        ),
        ("search", json!({}), "wrong_arguments", "FORMULA"),
        (
            "search",
            json!({"formula": "{ name = "}),
            "wrong_arguments",
            "{ name =",
        ),
        (
            "search",
            json!({"formula": "--help"}),
            "wrong_arguments",
            "--help",
        ),
        ("compare", json!({}), "missing_arguments", "--before"),
        (
            "compare",
            json!({"before": "1h"}),
            "wrong_arguments",
            "expected a range",
        ),
        (
            "compare",
            json!({"before": "2h..1h", "after": "2h..30m"}),
            "wrong_arguments",
            "overlap",
        ),
        (
            "what-if",
            json!({"operation": "shop:chekout", "scale": 2}),
            "unknown_name",
            "(is it shop:checkout?)",
        ),
        (
            "overview",
            json!({"root": "shop:chekout"}),
            "unknown_name",
            "(is it shop:checkout?)",
        ),
        (
            "critical-path",
            json!({"trace": "77777"}),
            "unknown_name",
            "77777",
        ),
    ];
    for (tool, arguments, code, words) in checks {
        let failure = agent.failure(tool, &arguments);
        let is_code = code.is_empty() || failure["code"] == code;
        assert!(is_code, "{tool} {arguments}: {failure}");
        let said = format!("{} {}", failure["cause"], failure["remedy"]);
        assert!(said.contains(words), "{tool} {arguments}: {failure}");
    }
    agent.answer("overview", &json!({}));
    agent.end();
}

/// Cuts the first file below a directory in half.
fn damage(directory: &Path) {
    let entries = std::fs::read_dir(directory).unwrap();
    let path = entries.map(|entry| entry.unwrap().path()).min().unwrap();
    if path.is_dir() {
        return damage(&path);
    }
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
}

#[test]
fn a_store_may_be_missing_come_later_and_be_damaged() {
    let store = requests::imported();
    let mut agent = Agent::start(store.path(), &["--data", "later"]);
    let failure = agent.failure("overview", &json!({}));
    assert_eq!(failure["cause"], "there is no data directory later");
    assert!(
        failure["remedy"].as_str().unwrap().contains("--data"),
        "{failure}"
    );
    check(
        store.path(),
        &["import", "--data", "later", "spans.json"],
        0,
    );
    agent.answer("overview", &json!({}));
    agent.end();
    // With a damaged file, the answer is of the others.
    let more = planted();
    let spans = more.path().join("spans.json").display().to_string();
    check(store.path(), &["import", "--data", "later", &spans], 0);
    damage(&store.path().join("later/spans"));
    let mut agent = Agent::start(store.path(), &["--data", "later"]);
    let result = agent.call("operations", &json!({}));
    let damaged = result["structuredContent"]["damaged_files"].as_array();
    assert_eq!(damaged.map(Vec::len), Some(1), "{result}");
    assert!(remarks(&result).contains("damaged"), "{result}");
    agent.end();
}

#[test]
fn large_answers_are_cut_and_say_so() {
    let store = planted();
    let mut agent = Agent::start(store.path(), &["--answer-max", "20KiB"]);
    let result = agent.call("requests", &json!({"top": 1000}));
    let (text, said) = (
        result["content"][0]["text"].as_str().unwrap(),
        remarks(&result),
    );
    assert!(text.len() <= 20 << 10, "{}", text.len());
    let shown = result["structuredContent"]["requests"]
        .as_array()
        .unwrap()
        .len();
    assert!(shown > 50 && shown < 800, "{shown}");
    assert!(
        said.contains(&format!("requests has {shown} of 800 items")),
        "{said}"
    );
    assert!(
        said.contains("20480 bytes") && said.contains("top, "),
        "{said}"
    );
    check_schema("requests", &result["structuredContent"]);
    agent.end();
    let mut agent = Agent::start(store.path(), &["--answer-max", "100B"]);
    let failure = agent.failure("requests", &json!({}));
    assert_eq!(failure["code"], "too_large", "{failure}");
    assert!(
        failure["remedy"].as_str().unwrap().contains("top, "),
        "{failure}"
    );
    agent.end();
}
