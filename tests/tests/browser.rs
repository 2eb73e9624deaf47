//! The pages of a store in a real browser. `tests/browser/pages.mjs` contains the checks, and
//! prints measurements.
//!
//! The tests need Debian's `chromium`, and the npm packages `playwright-core`, `axe-core` and
//! `typescript` in the directory that `STROBOSCOPE_TEST_NODE_MODULES` names. They write pictures
//! for people to the directory that `STROBOSCOPE_TEST_PICTURES` names, if it is set.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stroboscope_tests::{Program, Server};

/// Number of spans of the large request.
const SPANS: &str = "100000";

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the directory with these packages. If they are missing, prints the reason and returns
/// `None`.
fn node_modules(test: &str, packages: &[&str]) -> Option<PathBuf> {
    let directory = std::env::var("STROBOSCOPE_TEST_NODE_MODULES").unwrap_or_default();
    let directory = PathBuf::from(directory);
    let is_there = |package: &&str| directory.join(package).join("package.json").is_file();
    if packages.iter().all(is_there) {
        return Some(directory);
    }
    eprintln!(
        "SKIPPED: {test}: npm install {}, and name its node_modules by STROBOSCOPE_TEST_NODE_MODULES",
        packages.join(" ")
    );
    None
}

fn chromium(test: &str) -> Option<&'static str> {
    let known = ["chromium", "/usr/bin/chromium"];
    let runs = |program: &&&str| {
        let mut command = Command::new(program);
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = known.iter().find(runs).copied();
    if found.is_none() {
        eprintln!("SKIPPED: {test}: there is no chromium (Debian: chromium)");
    }
    // The package wants a path.
    found.map(|_| "/usr/bin/chromium")
}

/// Serves a store with the output of `recorded.mjs`.
fn served(program: &Program, arguments: &[&str]) -> (Server, String) {
    let file = program.file("recorded.json", "");
    let script = repository().join("tests/browser/recorded.mjs");
    let written = Command::new("node")
        .arg(script)
        .arg(&file)
        .args(arguments)
        .status();
    assert!(written.expect("node runs").success());
    let _ = program.run(&["import", &file]).succeeds();
    let mut view = Server::start(program.command(&["view", "--http", "127.0.0.1:0"]));
    let address = view.wait_for("the address of the pages", |said| {
        let (_, rest) = said.split_once("pages on ")?;
        let (address, _) = rest.split_once("/\n")?;
        Some(address.to_owned())
    });
    (view, address)
}

#[test]
fn pages_in_a_browser() {
    let test = "pages_in_a_browser";
    let packages = node_modules(test, &["playwright-core", "axe-core"]);
    let (Some(packages), Some(chromium)) = (packages, chromium(test)) else {
        return;
    };
    let pictures = std::env::var("STROBOSCOPE_TEST_PICTURES").ok();
    let (small, large) = (Program::new(), Program::new());
    let (_view_of_small, small) = served(&small, &[]);
    let (_view_of_large, large) = served(&large, &[SPANS]);
    let asked = serde_json::json!({
        "small": small,
        "smallId": format!("{:032x}", 0xab_c003),
        "large": large,
        "largeId": format!("{:032x}", 0xb16),
        "pictures": pictures,
        "chromium": chromium,
    });
    let looked = Command::new("node")
        .arg(repository().join("tests/browser/pages.mjs"))
        .arg(asked.to_string())
        .env("STROBOSCOPE_TEST_NODE_MODULES", packages)
        .output()
        .expect("node runs");
    let (said, complained) = (
        String::from_utf8_lossy(&looked.stdout),
        String::from_utf8_lossy(&looked.stderr),
    );
    println!("{said}");
    assert!(looked.status.success(), "{said}\n{complained}");
}

/// Serves an empty page at an origin of its own. Returns the origin.
fn empty_page() -> String {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(head.as_bytes());
        }
    });
    format!("http://localhost:{port}")
}

#[test]
fn pages_of_allowed_origins_send() {
    let test = "pages_of_allowed_origins_send";
    let packages = node_modules(test, &["playwright-core"]);
    let (Some(packages), Some(chromium)) = (packages, chromium(test)) else {
        return;
    };
    let page = empty_page();
    let programs = [Program::new(), Program::new()];
    let origins = [&["--cors-origin", &*page][..], &[]];
    let [(mut allowing, allowing_at), (mut others, others_at)] = [0, 1].map(|at| {
        let mut command = programs[at].command(&["collect", "--listen", "127.0.0.1:0"]);
        command.args(["--otlp-http", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        command.args(origins[at]);
        let mut server = Server::start(command);
        let url = server.after("collecting OTLP on ");
        let url = url.trim_end_matches("/v1/traces").to_owned();
        (server, url)
    });
    let asked = serde_json::json!({
        "page": page, "allowing": allowing_at, "others": others_at, "chromium": chromium,
    });
    let sent = Command::new("node")
        .arg(repository().join("tests/browser/cors.mjs"))
        .arg(asked.to_string())
        .env("STROBOSCOPE_TEST_NODE_MODULES", packages)
        .output()
        .expect("node runs");
    let complained = String::from_utf8_lossy(&sent.stderr);
    assert!(sent.status.success(), "{complained}");
    for (server, stored) in [(&mut allowing, 1), (&mut others, 0)] {
        assert!(server.stop(libc::SIGTERM).success());
        let said = server.said();
        let summary = format!("stored {stored} record");
        assert!(said.contains(&summary), "{summary}: {said}");
    }
}

/// Checks the rows of a request's timeline with its modules in node, without a browser.
#[test]
fn spans_come_before_what_the_kernel_did() {
    let version = Command::new("node").arg("--version").output();
    if version.is_err() {
        eprintln!("SKIPPED: spans_come_before_what_the_kernel_did: there is no node");
        return;
    }
    // Outside of browsers a package says that its scripts are modules.
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules");
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("package.json"), r#"{"type":"module"}"#).expect("a file");
    for name in ["columns", "rows", "state"] {
        let name = format!("timeline-{name}.js");
        let module = repository().join("collector/render/assets").join(&name);
        std::fs::copy(module, directory.join(&name)).expect("a module");
    }
    let checked = Command::new("node")
        .arg(repository().join("tests/browser/rows.mjs"))
        .arg(&directory)
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
}

#[test]
fn modules_are_typed() {
    let Some(packages) = node_modules("modules_are_typed", &["typescript"]) else {
        return;
    };
    let checked = Command::new("node")
        .arg(packages.join("typescript/bin/tsc"))
        .arg("--project")
        .arg(repository().join("collector/render/assets/tsconfig.json"))
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{said}");
}

/// All scripts together stay small, so that pages load fast and people can read the scripts.
#[test]
fn scripts_are_small() {
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;
    let directory = repository().join("collector/render/assets");
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory).expect("the directory of modules") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "js") {
            let mut packing = GzEncoder::new(Vec::new(), Compression::best());
            packing
                .write_all(&std::fs::read(path).expect("a module"))
                .expect("memory");
            bytes += packing.finish().expect("memory").len();
        }
    }
    assert!(bytes > 0 && bytes < 40_000, "{bytes} bytes packed");
}
