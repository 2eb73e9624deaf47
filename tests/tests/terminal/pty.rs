//! Pseudo-terminals.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use stroboscope_tests::Program;

/// Opens a pseudo-terminal: the side of its user, and that of programs.
pub(crate) fn open() -> (File, File) {
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
    (master, slave)
}

/// A pseudo-terminal, with the program in it.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    pub(crate) master: File,
    /// Kept open, so that its modes can be read when the program is gone.
    slave: File,
    shown: Arc<Mutex<String>>,
    /// True if the thread no longer reads the terminal's output.
    is_left: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

/// Modes in which a raw terminal differs from others.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Modes(libc::tcflag_t, libc::tcflag_t, libc::tcflag_t);

pub(crate) fn set_size(terminal: &File, columns: u16, rows: u16) {
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
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_as(arguments, true)
    }

    /// Starts the program in a new terminal. If `is_own`, it is the program's controlling terminal,
    /// whose loss is a signal.
    pub(crate) fn start_as(arguments: &[&str], is_own: bool) -> Self {
        let (master, slave) = open();
        set_size(&master, 70, 30);
        let another = || slave.try_clone().expect("a descriptor is left");
        let mut command = Command::new(Program::path());
        command
            .args(arguments)
            .env("TERM", "xterm")
            .env_remove("COLUMNS");
        command.stdin(another()).stdout(another()).stderr(another());
        // SAFETY: two system calls between fork and exec, which are safe there. The terminal
        // becomes the process's own.
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

    /// Closes the user's side of the terminal, as the end of a window or of a connection does.
    pub(crate) fn hang_up(&mut self) {
        self.is_left.store(true, SeqCst);
        // Something to read ends the reader's waiting.
        self.slave.write_all(b"\n").expect("it is read");
        let reader = self.reader.take().expect("it hangs up once");
        reader.join().expect("no panic");
        self.master = File::open("/dev/null").expect("a null device");
    }

    pub(crate) fn modes(&self) -> Modes {
        // SAFETY: zeros are a valid value, which the kernel fills in. The descriptor is open.
        #[allow(unsafe_code)]
        let modes = unsafe {
            let mut modes: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(self.slave.as_raw_fd(), &raw mut modes), 0);
            modes
        };
        Modes(modes.c_iflag, modes.c_oflag, modes.c_lflag)
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("it is read");
    }

    /// Waits until the program has shown this text since the last call.
    pub(crate) fn shows(&mut self, text: &str) {
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

    pub(crate) fn ends(&mut self) -> ExitStatus {
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
