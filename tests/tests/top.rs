//! `top` in a terminal, beside a real collector that a real process ships to.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use stroboscope_tests::{Program, Server};

/// A pseudo-terminal, with the program in it.
struct Terminal {
    child: Child,
    master: File,
    /// Kept open, so that its modes can be read when the program is gone.
    slave: File,
    shown: Arc<Mutex<String>>,
    /// Whether what it shows is read no longer, by the thread that does.
    is_left: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

/// The modes that a raw terminal has otherwise.
#[derive(Debug, PartialEq, Eq)]
struct Modes(libc::tcflag_t, libc::tcflag_t, libc::tcflag_t);

fn set_size(terminal: &File, columns: u16, rows: u16) {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the descriptor is open, and the kernel only reads the size.
    #[allow(unsafe_code)]
    let set = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

impl Terminal {
    fn start(arguments: &[&str]) -> Self {
        Self::start_as(arguments, true)
    }

    /// `is_own`: it is the program's controlling terminal, whose loss is a signal.
    fn start_as(arguments: &[&str], is_own: bool) -> Self {
        // No other program may inherit it: it would keep a terminal alive that is hung up.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = File::from(openpt(flags).expect("a pseudo-terminal"));
        grantpt(&master).expect("it is this process's");
        unlockpt(&master).expect("it is this process's");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let slave = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(name.to_str().expect("plain text"))
            .expect("its other side");
        set_size(&master, 70, 30);
        let another = || slave.try_clone().expect("a descriptor is left");
        let mut command = Command::new(Program::path());
        command
            .args(arguments)
            .env("TERM", "xterm")
            .env_remove("COLUMNS");
        command.stdin(another()).stdout(another()).stderr(another());
        // SAFETY: two system calls between fork and exec, which are safe there: the terminal becomes the process's own.
        #[allow(unsafe_code)]
        unsafe {
            use std::os::unix::process::CommandExt as _;
            command.pre_exec(move || {
                if libc::setsid() < 0 || is_own && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut reading, into) = (master.try_clone().expect("a descriptor"), shown.clone());
        let is_left = Arc::new(AtomicBool::new(false));
        let left = is_left.clone();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read) = reading.read(&mut bytes)
                && !left.load(SeqCst)
            {
                let text = String::from_utf8_lossy(&bytes[..read]);
                into.lock().expect("no panic").push_str(&text);
            }
        });
        Self {
            child: command.spawn().expect("the program starts"),
            master,
            slave,
            shown,
            is_left,
            reader: Some(reader),
        }
    }

    /// Closes all of the terminal's other side, as the end of a window or of a connection does.
    fn hang_up(&mut self) {
        self.is_left.store(true, SeqCst);
        // A new size is a new picture, which ends the reader's waiting.
        set_size(&self.master, 90, 30);
        let reader = self.reader.take().expect("it hangs up once");
        reader.join().expect("no panic");
        self.master = File::open("/dev/null").expect("a null device");
    }

    fn modes(&self) -> Modes {
        // SAFETY: of zeros, and filled by the kernel; the descriptor is open.
        #[allow(unsafe_code)]
        let modes = unsafe {
            let mut modes: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(self.slave.as_raw_fd(), &raw mut modes), 0);
            modes
        };
        Modes(modes.c_iflag, modes.c_oflag, modes.c_lflag)
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("it is read");
    }

    /// Waits until it has shown this since the last time.
    fn shows(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let mut shown = self.shown.lock().expect("no panic");
            if let Some(at) = shown.find(text) {
                *shown = shown.split_off(at + text.len());
                return;
            }
            assert!(Instant::now() < deadline, "no {text:?} in {shown:?}");
            drop(shown);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn ends(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const LEFT: &str = "\u{1b}[?1049l";

fn collector(program: &Program, more: &[&str]) -> (Server, String, String) {
    let mut command = program.command(&["collect", "--listen", "127.0.0.1:0"]);
    command.args(["--otlp-http", "none", "--http", "127.0.0.1:0"]);
    command.args(["--flush-interval", "100ms", "--live-quiet", "100ms"]);
    command.args(more).env("STROBOSCOPE_BURST_CONFIG", "always");
    let mut server = Server::start(command);
    let after = |said: &str, mark: &str| {
        let rest = said.lines().find_map(|line| line.strip_prefix(mark))?;
        Some(rest.trim_end_matches('/').to_owned())
    };
    let grpc = server.wait_for("its address", |said| after(said, "collecting on grpc "));
    let pages = server.wait_for("its pages", |said| after(said, "page on http://"));
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
    top.shows("…pi/processes");
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
    // A collector that is gone, and the last picture stays.
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
    // There is nobody: it says so, and tries again.
    top.shows("waiting: no collector answers at");
    // SAFETY: a plain system call on a child that was not waited for yet, so the id is still its.
    #[allow(unsafe_code)]
    unsafe {
        libc::kill(top.child.id().cast_signed(), libc::SIGTERM)
    };
    top.shows(LEFT);
    assert_eq!(top.ends().code(), Some(0));
    assert_eq!(top.modes(), before);
}

/// Whether the loss of the terminal is a signal or not, and whatever reads keys does at its end.
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
        "always, 100.0% of the time, in 1 process",
        "SHAREv",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    assert!(!text.contains('\u{1b}'), "{text:?}");

    // The same of the store that it writes, of which nothing is heard but what is in the files.
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
