//! The program under test, run as users run it.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The program with a data directory of its own.
#[derive(Debug)]
pub struct Program {
    directory: TempDir,
}

/// A run that ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The command line.
    pub command: String,
}

impl Program {
    /// Creates a temporary directory, in which the program may create its data directory.
    ///
    /// # Panics
    /// Panics if no temporary directory can be created.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// Returns the binary of this package that has the program's command line.
    ///
    /// # Panics
    /// Panics if the path of the test's executable is unknown or too short.
    #[must_use]
    pub fn path() -> PathBuf {
        Self::binary("stroboscope-under-test")
    }

    /// Returns the binary of this package that has the newsfeed's command line.
    ///
    /// # Panics
    /// Panics if the path of the test's executable is unknown or too short.
    #[must_use]
    pub fn newsfeed() -> PathBuf {
        Self::binary("newsfeed-under-test")
    }

    fn binary(name: &str) -> PathBuf {
        let test = std::env::current_exe().expect("a test has a path");
        let profile = test
            .parent()
            .and_then(Path::parent)
            .expect("tests lie in target/PROFILE/deps");
        profile.join(name)
    }

    /// Returns the data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Writes a file next to the data directory and returns its path.
    ///
    /// # Panics
    /// Panics if it cannot be written.
    #[must_use]
    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, contents).expect("the file is written");
        path.to_string_lossy().into_owned()
    }

    /// Returns a command with `--data` that is not running yet.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(Self::path());
        command
            .args(args)
            .arg("--data")
            .arg(self.data())
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to the end.
    ///
    /// # Panics
    /// Panics if the program cannot be started.
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Finished {
        finish(self.command(args), None)
    }

    /// Runs the program to the end with something on standard input.
    ///
    /// # Panics
    /// Panics if the program cannot be started.
    #[must_use]
    pub fn run_with_input(&self, args: &[&str], input: &[u8]) -> Finished {
        finish(self.command(args), Some(input))
    }

    /// Runs the program without a data directory.
    ///
    /// # Panics
    /// Panics if the program cannot be started.
    #[must_use]
    pub fn run_plain(args: &[&str]) -> Finished {
        let mut command = Command::new(Self::path());
        command.args(args).stdin(Stdio::null());
        finish(command, None)
    }
}

fn finish(mut command: Command, input: Option<&[u8]>) -> Finished {
    let text = format!("{command:?}");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().expect("the program starts");
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // The program may stop reading early; its output then is the subject of the test.
        let _ = stdin.write_all(input);
    }
    let output = child.wait_with_output().expect("the program ends");
    Finished {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        command: text,
    }
}

impl Finished {
    /// Expects status 0.
    ///
    /// # Panics
    /// Panics if the status was another.
    #[must_use = "or `let _ =` it"]
    pub fn succeeds(self) -> Self {
        assert!(self.status.success(), "{self:#?}");
        self
    }

    /// Expects this status, all these words on standard error, and no panic.
    ///
    /// # Panics
    /// Panics otherwise.
    pub fn fails_with(self, status: i32, words: &[&str]) -> Self {
        assert_eq!(self.status.code(), Some(status), "{self:#?}");
        for word in words {
            assert!(
                self.stderr.contains(word),
                "{word:?} is not in the complaint: {self:#?}"
            );
        }
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// Parses standard output as JSON.
    ///
    /// # Panics
    /// Panics if it is not JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// A program that runs until it is stopped; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    said: Arc<Mutex<String>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Starts the program.
    ///
    /// # Panics
    /// Panics if it cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let said = Arc::new(Mutex::new(String::new()));
        let outputs: [Option<Box<dyn std::io::Read + Send>>; 2] = [
            child.stdout.take().map(|out| Box::new(out) as _),
            child.stderr.take().map(|out| Box::new(out) as _),
        ];
        let mut readers = Vec::new();
        for output in outputs.into_iter().flatten() {
            let said = Arc::clone(&said);
            let reader = std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let mut said = said.lock().expect("no test panics while it holds this");
                    said.push_str(&line);
                    said.push('\n');
                }
            });
            readers.push(reader);
        }
        Self {
            child,
            said,
            readers,
        }
    }

    /// Returns the output so far.
    ///
    /// # Panics
    /// Panics if a reader panicked.
    #[must_use]
    pub fn said(&self) -> String {
        self.said.lock().expect("readers do not panic").clone()
    }

    /// Waits until `find` finds something in the output.
    ///
    /// # Panics
    /// Panics if the program ends before that, or if nothing is found within 30 seconds.
    pub fn wait_for<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(found) = find(&self.said()) {
                return found;
            }
            let ended = self.child.try_wait().expect("a child can be waited for");
            assert!(
                ended.is_none(),
                "it ended ({ended:?}) before {what}: {}",
                self.said()
            );
            assert!(
                Instant::now() < deadline,
                "waited in vain for {what}: {}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for a line of the output that begins with `mark`. Returns the rest of the line,
    /// without spaces around it and slashes at its end.
    ///
    /// # Panics
    /// Panics like [`Self::wait_for`].
    pub fn after(&mut self, mark: &str) -> String {
        self.wait_for(mark, |said| {
            let rest = said.lines().find_map(|line| line.strip_prefix(mark))?;
            Some(rest.trim().trim_end_matches('/').to_owned())
        })
    }

    /// Waits until a collector accepts batches, and returns its address for gRPC, as `HOST:PORT`.
    ///
    /// # Panics
    /// Panics like [`Self::wait_for`].
    pub fn collector_address(&mut self) -> String {
        self.after("collecting on grpc ")
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGKILL and returns the output so far.
    pub fn killed(mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let readers = std::mem::take(&mut self.readers);
        readers.into_iter().for_each(|reader| drop(reader.join()));
        self.said()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: this is a plain system call on a child that was not waited for yet, so the id is
        // still the child's.
        #[allow(unsafe_code)]
        unsafe {
            libc::kill(self.child.id().cast_signed(), signal)
        };
    }

    /// Waits until the output of an ended process is read, for at most 5 seconds. A child process
    /// that outlives the process may keep the pipe open.
    fn read_to_the_end(&self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        let is_read = || {
            self.readers
                .iter()
                .all(std::thread::JoinHandle::is_finished)
        };
        while !is_read() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends a signal, waits at most 30 seconds for the end, and reads the output.
    ///
    /// # Panics
    /// Panics if the process does not end.
    pub fn stop(&mut self, signal: i32) -> ExitStatus {
        self.signal(signal);
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                self.read_to_the_end();
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "it does not stop: {}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Program {
    /// Keeps the directory of a failed test for inspection, because its recording cannot be
    /// repeated.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.directory.disable_cleanup(true);
            eprintln!(
                "the test's directory was kept: {}",
                self.directory.path().display()
            );
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
