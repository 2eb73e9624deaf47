//! `view`: the program serves a store, and most subcommands that read are pages.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use super::common::check;
use super::viewing::Viewing;

const HOSTILE: &str = "<script>alert(1)</script>";

/// A directory with a store of forty requests, whose names are markup.
fn imported() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for request in 0..40_u64 {
        for (at_us, event) in [(0, "sent"), (700 + request * 10, "done")] {
            let ts_ns = 1_700_000_000_000_000_000 + (request * 1_000_000 + at_us) * 1_000;
            let line = serde_json::json!({
                "trace": format!("r{request}"), "host": "h", "ts_ns": ts_ns, "event": event,
                "task": format!("page {HOSTILE}"), "attrs": {"side": if request % 2 == 0 { "a" } else { "b" }},
            });
            log += &format!("{line}\n");
        }
    }
    std::fs::write(directory.path().join("log.jsonl"), log).unwrap();
    check(
        directory.path(),
        &["import", "log.jsonl", "--data", "data"],
        0,
    );
    directory
}

#[test]
fn each_link_of_the_header_is_a_page() {
    let directory = imported();
    let viewing = Viewing::start(directory.path(), &[]);
    let links = viewing.links();
    for verb in [
        "/critical-path",
        "/slack",
        "/what-if",
        "/search",
        "/clocks",
        "/timeline",
    ] {
        assert!(links.iter().any(|link| link == verb), "{verb}: {links:?}");
    }
    assert!(links.iter().all(|link| link != "/fleet"), "{links:?}");
    // Traces have tests of their own.
    for link in links.iter().filter(|link| *link != "/traces") {
        let page = viewing.page(link, 200);
        assert!(
            page.contains(&format!("href=\"{link}\" aria-current=\"page\"")),
            "{link}"
        );
    }
}

#[test]
fn addresses_are_what_the_command_line_is() {
    let directory = imported();
    let viewing = Viewing::start(directory.path(), &[]);
    let (told, _) = check(
        directory.path(),
        &[
            "critical-path",
            "--data",
            "data",
            "--by",
            "recorded:side",
            "--json",
        ],
        0,
    );
    assert!(told.contains("\"a\""), "{told}");
    let page = viewing.page("/critical-path?by=recorded%3Aside&top=3", 200);
    assert!(
        page.contains("stroboscope critical-path --data data --by recorded:side --top 3"),
        "{page}"
    );
    let page = viewing.page("/what-if?segment=page&scale=0.5", 200);
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    assert!(page.contains("--segment page --scale 0.5"), "{page}");
    let page = viewing.page("/search?formula=%7B%20duration%20%3E%201ms%20%7D", 200);
    assert!(page.contains("It holds of 0 of 40 requests"), "{page}");
    // Requests of a log have no spans, but have links as well.
    let page = viewing.page("/critical-path", 200);
    assert!(page.contains("<a href=\"/traces/"), "{page}");
    for wrong in [
        "/critical-path?top=many",
        "/critical-path?no-such=1",
        "/critical-path?data=elsewhere",
        "/model?load=%2Fetc%2Fpasswd",
        "/slack?html=written.html",
        "/search?formula=%7B%20%3Cscript%3E",
    ] {
        let page = viewing.page(wrong, 400);
        assert!(page.contains("role=\"alert\""), "{wrong}: {page}");
    }
    assert!(!directory.path().join("written.html").exists());
    viewing.page("/no-such-verb", 404);
    for (name, path) in [("/requests?root=a", "/traces?root=a"), ("/overview", "/")] {
        let (head, _) = viewing.ask(&format!("GET {name}"), "");
        assert!(head.contains(&format!("location: {path}\r\n")), "{head}");
    }
    let (_, page) = viewing.ask("GET /critical-path?trace=no-such-request", "");
    assert!(
        page.contains("role=\"alert\"") && page.contains("no-such-request"),
        "{page}"
    );
}

#[test]
fn who_comes_by_another_name_is_turned_away() {
    let directory = imported();
    let viewing = Viewing::start(directory.path(), &[]);
    let mut stream = TcpStream::connect(&viewing.address).unwrap();
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 4") && answer.contains("--allowed-host"),
        "{answer}"
    );
    let (head, body) = viewing.ask("GET /healthz", "");
    assert!(
        head.starts_with("HTTP/1.1 200") && body.contains("ok"),
        "{head}"
    );
}

/// While a store is compacted, and after it, its pages say the same.
#[test]
fn a_store_that_is_compacted_is_read_as_before() {
    let directory = imported();
    let more = std::fs::read_to_string(directory.path().join("log.jsonl")).unwrap();
    for part in 1..4 {
        let renamed = more.replace("\"r", &format!("\"p{part}r"));
        std::fs::write(directory.path().join("more.jsonl"), renamed).unwrap();
        check(
            directory.path(),
            &["import", "more.jsonl", "--data", "data"],
            0,
        );
    }
    let viewing = Viewing::start(directory.path(), &[]);
    let requests = |page: &str| -> String {
        let (_, after) = page.split_once("<dt>complete requests</dt><dd>").unwrap();
        after.split('<').next().unwrap().to_owned()
    };
    assert_eq!(requests(&viewing.page("/", 200)), "160");
    let mut compacting = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(["compact", "--data", "data"])
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut looked = 0;
    while compacting.try_wait().unwrap().is_none() || looked < 3 {
        assert_eq!(requests(&viewing.page("/", 200)), "160");
        looked += 1;
    }
    assert!(compacting.wait().unwrap().success());
}

#[test]
fn a_directory_that_is_not_there_is_said_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (_, said) = check(
        directory.path(),
        &["view", "--data", "no-such", "--http", "127.0.0.1:0"],
        2,
    );
    assert!(said.contains("no-such"), "{said}");
}
