//! `top` in a terminal, with a real collector to which a real process ships.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use stroboscope_tests::{Program, Server};

use crate::pty::{Terminal, set_size};

const LEFT: &str = "\u{1b}[?1049l";

fn collector(program: &Program, more: &[&str]) -> (Server, String, String) {
    let mut command = program.command(&["collect", "--listen", "127.0.0.1:0"]);
    command.args(["--otlp-http", "none", "--http", "127.0.0.1:0"]);
    command.args(["--flush-interval", "100ms", "--live-quiet", "100ms"]);
    command.args(more).env("STROBOSCOPE_BURST_CONFIG", "always");
    let mut server = Server::start(command);
    let grpc = server.collector_address();
    let pages = server.after("page on http://");
    (server, grpc, pages)
}

/// Makes the collector at `pages` do something, which it records and ships.
fn make_work(pages: &str) {
    for _ in 0..20 {
        let mut stream = TcpStream::connect(pages).expect("it listens");
        let request = "GET /api/processes HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
    }
}

#[test]
fn it_shows_what_arrives_and_puts_the_terminal_back() {
    let (watched, traced) = (Program::new(), Program::new());
    let (collector_of_it, grpc, pages) = collector(&watched, &[]);
    let to = format!("http://{grpc}");
    let (_traced, _, works) = collector(&traced, &["--own-traces", &to]);

    let mut top = Terminal::start(&["top", "--http", &pages, "--interval", "0.2"]);
    let before = top.modes();
    top.shows("stroboscope top");
    make_work(&works);
    top.shows("…cesses");
    // A wider terminal has room for all of the name.
    set_size(&top.master, 130, 30);
    top.shows("stroboscope-collector:GET /api/processes");
    assert_ne!(top.modes(), before, "it reads keys one by one");
    top.press("s");
    top.shows("WAITv");
    top.press("?");
    top.shows("any key goes back");
    top.press("x/nothing-is-called-so\r");
    top.shows("No operation has this in its name");
    // The collector is gone, and the last picture stays.
    collector_of_it.kill();
    top.shows("STALE");
    top.shows("no collector answers at");
    top.press("q");
    top.shows(LEFT);
    assert_eq!(top.ends().code(), Some(0));
    assert_eq!(top.modes(), before, "the modes are as they were");
}

#[test]
fn a_signal_puts_the_terminal_back() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound").to_string();
    drop(free);
    let mut top = Terminal::start(&["top", "--http", &address, "--interval", "0.1"]);
    let before = top.modes();
    // No collector answers: `top` reports this, and tries again.
    top.shows("waiting: no collector answers at");
    // SAFETY: a plain system call on a child that was not waited for yet, so the id is still the
    // child's.
    #[allow(unsafe_code)]
    unsafe {
        libc::kill(top.child.id().cast_signed(), libc::SIGTERM)
    };
    top.shows(LEFT);
    assert_eq!(top.ends().code(), Some(0));
    assert_eq!(top.modes(), before);
}

/// `top` ends if its terminal is gone, with or without a signal.
#[test]
fn a_terminal_that_is_gone_ends_it() {
    for is_own in [true, false] {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("bound").to_string();
        drop(free);
        let arguments = ["top", "--http", &address, "--interval", "0.1"];
        let mut top = Terminal::start_as(&arguments, is_own);
        top.shows("waiting: no collector answers at");
        top.hang_up();
        top.ends();
    }
}

#[test]
fn one_picture_is_text_or_says_why_there_is_none() {
    let (watched, traced) = (Program::new(), Program::new());
    let (_server, grpc, pages) = collector(&watched, &[]);
    let to = format!("http://{grpc}");
    let (_traced, _, works) = collector(&traced, &["--own-traces", &to]);
    let deadline = Instant::now() + Duration::from_secs(30);
    let name = "stroboscope-collector:GET /api/processes";
    let text = loop {
        make_work(&works);
        let arguments = ["top", "--once", "--http", &pages, "--interval", "0.3"];
        let text = Program::run_plain(&arguments).succeeds().stdout;
        if text.contains(name) {
            break text;
        }
        assert!(Instant::now() < deadline, "no {name} in {text}");
    };
    for words in [
        "processes: 1 of 1 sent in the last minute, on 1 host",
        "requests/s",
        "1 live process: always",
        "SHAREv",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    assert!(!text.contains('\u{1b}'), "{text:?}");

    // `top` shows the same of the store, without what only a running collector knows.
    let stored = watched.run(&["top", "--once"]).succeeds().stdout;
    assert!(stored.contains(name), "{stored}");
    assert!(stored.contains("processes: 1 recorded"), "{stored}");
    assert!(!stored.contains("bursts:"), "{stored}");

    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = free.local_addr().expect("bound").to_string();
    drop(free);
    let words = ["no collector answers at", &*nobody];
    Program::run_plain(&["top", "--once", "--http", &nobody]).fails_with(2, &words);
    let words = ["--interval", "0.1 to 3600"];
    Program::run_plain(&["top", "--interval", "0"]).fails_with(2, &words);
}
