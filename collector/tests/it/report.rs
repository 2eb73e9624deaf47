//! The page that `report` writes.

use std::path::Path;
use std::process::{Command, Output};

use roxmltree::{Document, Node, ParsingOptions};

/// Text that a browser would execute, or display wrongly, if it were not escaped.
const HOSTILE: &str = "</svg><script>alert('x')</script> & \"quoted\" \u{1b}[2J";

fn stroboscope(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn check(directory: &Path, arguments: &[&str], status: i32) -> String {
    let output = stroboscope(directory, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(
        output.status.code(),
        Some(status),
        "{arguments:?}\n{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout) + &text(&output.stderr)
}

/// Requests of a server, a page after it, and a parallel logger with a hostile name.
fn imported() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for request in 0..40_u64 {
        let sent_us = 1_000 + request * 10;
        let (hostile, sent) = (HOSTILE, "sent");
        for (at_us, task, event) in [
            (0, "server", "begin"),
            (sent_us, "server", sent),
            (sent_us + 5, "page", "begin"),
            (sent_us + 500, "page", "shown"),
            (100, hostile, hostile),
            (300 + request, hostile, "close"),
        ] {
            let ts_ns = (request * 10_000 + at_us) * 1_000;
            let kind = if request % 3 == 0 { HOSTILE } else { "tame" };
            let line = serde_json::json!({
                "trace": format!("r{request}"), "host": "h", "ts_ns": ts_ns, "event": event, "task": task,
                "attrs": {"kind": kind},
            });
            log += &format!("{line}\n");
        }
    }
    std::fs::write(directory.path().join("log.jsonl"), log).unwrap();
    check(directory.path(), &["import", "log.jsonl"], 0);
    directory
}

fn text_of(node: Node<'_, '_>) -> String {
    node.descendants()
        .filter_map(|node| node.text().filter(|_| node.is_text()))
        .collect()
}

/// Parses a page as strictly as XML, and checks that it does not access the network.
fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(page, options)
        .unwrap_or_else(|error| panic!("{error}\n{page}"));
    assert!(
        !page.contains("http:") && !page.contains("https:") && !page.contains("url("),
        "{page}"
    );
    let fetching = ["href", "src", "srcset", "data", "action", "xlink:href"];
    for node in document.descendants().filter(Node::is_element) {
        assert!(
            !["link", "iframe", "img", "object", "image", "use"].contains(&node.tag_name().name())
        );
        for attribute in node.attributes() {
            // The link leads to a place on the page itself.
            if attribute.name() == "href" && attribute.value().starts_with('#') {
                continue;
            }
            assert!(
                !fetching.contains(&attribute.name()),
                "{}",
                attribute.name()
            );
            assert!(!attribute.name().starts_with("on"), "{}", attribute.name());
        }
    }
    only_its_own_script(&document);
    document
}

/// Checks that the page has one script, and that its policy allows scripts by hash only.
fn only_its_own_script(document: &Document<'_>) {
    let named = |name: &'static str| {
        document
            .descendants()
            .filter(move |node| node.has_tag_name(name))
    };
    assert_eq!(named("script").count(), 1);
    let policy = named("meta").find_map(|meta| {
        let is_policy = meta.attribute("http-equiv") == Some("Content-Security-Policy");
        meta.attribute("content").filter(|_| is_policy)
    });
    let policy = policy.expect("a policy");
    let (_, scripts) = policy.split_once("script-src ").expect("of scripts");
    assert!(
        scripts.starts_with("'sha256-") && !scripts.contains("unsafe"),
        "{policy}"
    );
}

#[test]
fn pages_of_verbs_have_their_pictures() {
    let directory = imported();
    for (arguments, pictures) in [
        (&["critical-path"][..], 2),
        (&["critical-path", "--cdf", "--by", "recorded:kind"], 3),
        (&["critical-path", "--trace", "r3"], 1),
        (&["model"], 1),
        (&["slack"], 0),
        (&["slack", "--cdf"], 1),
        (&["anomalies"], 0),
        (&["infer", "--convergence-every", "10"], 2),
    ] {
        check(
            directory.path(),
            &[arguments, &["--html", "page.html"]].concat(),
            0,
        );
        let page = std::fs::read_to_string(directory.path().join("page.html")).unwrap();
        let document = parsed(&page);
        let drawn = document
            .descendants()
            .filter(|node| node.has_tag_name("svg") && node.attribute("role").is_some())
            .count();
        assert_eq!(drawn, pictures, "{arguments:?}: {page}");
    }
    // The text of a timeline has the names, with control characters replaced.
    let text = check(directory.path(), &["critical-path", "--trace", "r3"], 0);
    let picture = text.split_once("What ran when\n").unwrap().1;
    assert!(
        picture.contains("</svg><script>alert('x')</script> & \"quoted\" \u{fffd}[2J"),
        "{picture}"
    );
    assert!(picture.contains('█') && picture.contains('▒'), "{picture}");
}

#[test]
fn a_timeline_is_a_page_and_a_table_too() {
    let directory = crate::requests::imported();
    let arguments = [
        "timeline",
        "--trace",
        "1",
        "--html",
        "page.html",
        "--parquet",
        "tables",
        "--out",
        "text",
    ];
    // The exit status is 1, because nothing of the kernel was recorded.
    check(directory.path(), &arguments, 1);
    let page = std::fs::read_to_string(directory.path().join("page.html")).unwrap();
    let document = parsed(&page);
    let picture = document
        .descendants()
        .find(|node| node.has_tag_name("svg") && node.attribute("role").is_some())
        .unwrap();
    assert!(text_of(picture).contains("worker:render"), "{page}");
    assert!(
        page.contains("data-value=\"worker:render\">    worker:<wbr/>render</td>"),
        "inside the mail, inside the checkout: {page}"
    );
    assert!(directory.path().join("tables/timeline.parquet").exists());
    let text = std::fs::read_to_string(directory.path().join("text")).unwrap();
    assert!(
        text.contains("    worker:render\n") && !text.contains("What ran when"),
        "{text}"
    );
}

#[test]
fn the_page_stands_alone_and_has_every_picture() {
    let directory = imported();
    check(
        directory.path(),
        &["report", "--html", "report.html", "--by", "recorded:kind"],
        0,
    );
    let page = std::fs::read_to_string(directory.path().join("report.html")).unwrap();
    let document = parsed(&page);
    let titles: Vec<String> = document
        .descendants()
        .filter(|node| node.has_tag_name("figcaption"))
        .map(text_of)
        .collect();
    for picture in [
        "Latency of requests",
        "Slack of a request's last server segment",
        "Critical path, as part of the time of all requests together",
        "Critical path and summed delay",
        "Categories' shares of the critical path",
        "Mean critical path by recorded:kind",
        "at p50 of latency",
        "at p95 of latency",
        "segments with the largest shares",
        "Relations of the model as requests came in",
        "New and removed relations",
    ] {
        assert!(
            titles.iter().any(|title| title.contains(picture)),
            "{picture}: {titles:?}"
        );
    }
    let pictures: Vec<Node<'_, '_>> = document
        .descendants()
        .filter(|node| node.has_tag_name("svg") && node.attribute("role").is_some())
        .collect();
    assert_eq!(pictures.len(), titles.len());
    for picture in &pictures {
        let shapes = picture.descendants().filter(|node| {
            ["rect", "polyline", "polygon", "line", "path"].contains(&node.tag_name().name())
        });
        assert!(
            shapes.count() > 2,
            "{:?} is empty",
            picture.attribute("aria-label")
        );
        assert!(
            picture
                .attribute("aria-label")
                .is_some_and(|label| label.len() > 20)
        );
    }
    // The graph names its segments.
    let graph = pictures
        .iter()
        .find(|svg| {
            svg.attribute("aria-label")
                .unwrap()
                .contains("largest shares")
        })
        .unwrap();
    let graph = text_of(*graph);
    assert!(
        graph.contains("begin … sent") && graph.contains("begin … shown"),
        "{graph}"
    );
    let table = text_of(
        document
            .descendants()
            .find(|node| node.attribute("id") == Some("segments"))
            .unwrap(),
    );
    let sections: Vec<&str> = document
        .descendants()
        .filter(|n| n.has_tag_name("section"))
        .filter_map(|n| n.attribute("id"))
        .collect();
    let expected = [
        "summary",
        "roots",
        "latency",
        "critical-path",
        "examples",
        "anomalies",
        "slack",
        "model",
        "segments",
        "clocks",
        "quality",
    ];
    assert_eq!(sections, expected);
    // The table shows the hostile name as text, without its control character.
    assert!(
        table.contains("</svg><script>alert('x')</script> & \"quoted\" \u{fffd}[2J"),
        "{table}"
    );
}

#[test]
fn where_it_cannot_be_written_is_said() {
    let directory = imported();
    let said = check(
        directory.path(),
        &["report", "--html", "no/such/report.html"],
        2,
    );
    assert!(said.contains("no/such/report.html"), "{said}");
    let said = check(
        directory.path(),
        &["report", "--html", "r.html", "--json"],
        0,
    );
    assert!(
        said.contains(r#""used_traces":40"#) && directory.path().join("r.html").exists(),
        "{said}"
    );
}
