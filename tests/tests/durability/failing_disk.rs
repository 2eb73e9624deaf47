//! A disk that is full, or becomes read-only: the collector rejects data for now, loses no
//! acknowledged data, and continues when the disk works again. The tests of full and read-only
//! disks mount file systems of their own, which requires root.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stroboscope_proto::v1::{ShipOutcome, ShipRequest, collector_client::CollectorClient};
use stroboscope_tests::{Program, Server};
use tonic::Code;
use tonic::transport::Endpoint;

use crate::acknowledgements::{Acknowledgements, check};
use crate::senders::{self, Fleet, Role};
use crate::stored::Stored;
use crate::{Ports, ask};

/// An ext4 file system in a file, for one test.
struct FileSystem {
    directory: tempfile::TempDir,
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

impl FileSystem {
    /// Mounts a file system. If this is impossible, prints the reason and returns `None`.
    fn new(test: &str, mebibytes: u64) -> Option<Self> {
        let made = Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        };
        let image = std::fs::File::create(made.image()).expect("an image");
        image.set_len(mebibytes << 20).expect("an image");
        std::fs::create_dir(made.root()).expect("a directory");
        let path = made.image();
        let made_and_mounted = run("mkfs.ext4", &["-q", "-m", "0", &path.to_string_lossy()])
            .and_then(|()| made.mount());
        if let Err(why) = made_and_mounted {
            eprintln!(
                "SKIPPED: {test}: no file system of its own ({why}): run as root, with loop devices"
            );
            return None;
        }
        Some(made)
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    fn data(&self) -> PathBuf {
        self.root().join("data")
    }

    fn mount(&self) -> Result<(), String> {
        let (image, root) = (self.image(), self.root());
        run(
            "mount",
            &[
                "-o",
                "loop",
                &image.to_string_lossy(),
                &root.to_string_lossy(),
            ],
        )
    }

    fn unmount(&self) -> Result<(), String> {
        run("umount", &[&self.root().to_string_lossy()])
    }

    /// Fills the file system.
    fn fill(&self) {
        let mut filler = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.root().join("filler"))
            .expect("a filler");
        for size in [1 << 16, 1 << 12, 1] {
            while filler.write_all(&vec![b'x'; size]).is_ok() {}
        }
        // Delayed writes get their blocks now.
        let _ = filler.sync_all();
    }

    fn free(&self) {
        std::fs::remove_file(self.root().join("filler")).expect("the filler goes");
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        if self.unmount().is_err() {
            let _ = run("umount", &["-l", &self.root().to_string_lossy()]);
        }
    }
}

/// Requests of OTLP of one span each, by hand.
#[derive(Default)]
struct Requests {
    next: u64,
    waiting: Vec<u64>,
    acknowledged: Vec<u64>,
    /// Batches of our protocol, by sequence.
    stored_batches: Vec<u64>,
}

/// Incarnation of the sender of the batches in [`Requests::stored_batches`].
const SHIPPER: u128 = 0xf011;

const TRACE: u128 = 0xfeed;
const START_NS: i64 = 1_700_000_000_000_000_000;

impl Requests {
    /// Sends one request. Returns whether it was accepted. A rejection must contain a retry delay.
    fn send(&mut self, doors: &Ports, id: u64) -> bool {
        let padding = "p".repeat(20_000);
        let request = format!(
            r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{TRACE:032x}","spanId":"{id:016x}",
            "name":"pay","startTimeUnixNano":"{START_NS}","endTimeUnixNano":"{START_NS}",
            "attributes":[{{"key":"padding","value":{{"stringValue":"{padding}"}}}}]}}]}}]}}]}}"#
        );
        let json = ["Content-Type: application/json"];
        let answer = ask(doors.otlp, "POST /v1/traces", &json, request.as_bytes());
        let (head, body) = answer.expect("the collector answers");
        let is_taken = head.starts_with("HTTP/1.1 200");
        if is_taken {
            self.acknowledged.push(id);
        } else {
            assert!(head.starts_with("HTTP/1.1 503"), "{head}\n{body}");
            assert!(head.to_lowercase().contains("retry-after: "), "{head}");
            self.waiting.push(id);
        }
        is_taken
    }

    /// Sends new requests until one is rejected for now.
    fn send_until_pushed_back(&mut self, doors: &Ports) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            self.next += 1;
            if !self.send(doors, self.next) {
                return;
            }
            assert!(Instant::now() < deadline, "never pushed back");
        }
    }

    /// Sends the waiting requests again. All of them must be accepted.
    fn send_again(&mut self, doors: &Ports) {
        for id in std::mem::take(&mut self.waiting) {
            assert!(self.send(doors, id), "{id} is not taken");
        }
    }
}

/// Sends batches of our protocol until one is rejected for now, and returns the status. The first
/// ones may fit, because flushes delete parts of the log.
fn ship_until_pushed_back(doors: &Ports, requests: &mut Requests) -> Code {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let sequence = requests.stored_batches.len() as u64;
        if let Err(code) = ship(doors, sequence) {
            return code;
        }
        requests.stored_batches.push(sequence);
        assert!(Instant::now() < deadline, "never pushed back");
    }
}

fn ship(doors: &Ports, sequence: u64) -> Result<(), Code> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let address = format!("http://{}", doors.grpc);
    let ship = async {
        let endpoint = Endpoint::from_shared(address).expect("an address");
        let mut client = CollectorClient::new(endpoint.connect().await.expect("it listens"));
        let mut batch = senders::batch(SHIPPER, sequence);
        batch
            .strings
            .extend(["p", "q"].map(|text| text.repeat(50_000)));
        let batch = Some(batch);
        let requests = tokio_stream::iter([ShipRequest { batch }]);
        let mut replies = client.ship(requests).await?.into_inner();
        replies.message().await
    };
    match runtime.expect("a runtime").block_on(ship) {
        Err(status) => Err(status.code()),
        Ok(Some(reply)) if reply.outcome() == ShipOutcome::Stored => Ok(()),
        Ok(reply) => panic!("{reply:?}"),
    }
}

/// Starts senders of our protocol, of the SDK and, if Python has the packages, of OTLP, which run
/// until they are killed. Returns them, and true if Python has the packages.
fn senders(doors: &Ports, test: &str) -> (Fleet, bool) {
    let python = senders::python(test);
    let mut fleet = Fleet::default();
    for role in [
        Role::Protocol,
        Role::Sdk,
        Role::Otlp("grpc"),
        Role::Otlp("http"),
    ] {
        fleet.start(role, doors, python.as_deref());
    }
    (fleet, python.is_some())
}

fn check_all(mut fleet: Fleet, requests: &Requests, has_python: bool, data: &Path) {
    while !fleet.running.is_empty() {
        fleet.kill(0);
    }
    let mut told = Acknowledgements::default();
    fleet
        .said
        .iter()
        .for_each(|(role, said)| told.hear(*role, said));
    assert!(requests.waiting.is_empty());
    let key = |id: &u64| (TRACE, *id, START_NS, START_NS);
    told.otlp.extend(requests.acknowledged.iter().map(key));
    let shipped = requests.stored_batches.iter();
    let shipped = shipped.map(|sequence| ((SHIPPER, *sequence), true));
    told.batches.extend(shipped);
    let stored = Stored::read(data);
    for id in &requests.acknowledged {
        // Requests that were rejected and sent again are stored once, too.
        assert_eq!(stored.spans.get(&key(id)), Some(&1), "request {id}");
    }
    check(&told, &stored, if has_python { 2 } else { 0 });
}

const FLUSH: [&str; 2] = ["--flush-interval", "300ms"];

#[test]
fn a_full_disk_pushes_back_and_all_goes_on_when_there_is_space() {
    let test = "a_full_disk_pushes_back_and_all_goes_on_when_there_is_space";
    let Some(disk) = FileSystem::new(test, 48) else {
        return;
    };
    let doors = Ports::free();
    let mut collector = doors.collect(&disk.data(), &FLUSH);
    let (mut fleet, has_python) = senders(&doors, test);
    let mut requests = Requests::default();
    fleet.wait_for_acknowledgements();

    disk.fill();
    requests.send_until_pushed_back(&doors);
    let said = doors.wait_for_health("503");
    assert!(said.contains("o space left"), "{said}");
    let code = ship_until_pushed_back(&doors, &mut requests);
    assert!(
        [Code::ResourceExhausted, Code::Unavailable].contains(&code),
        "{code:?}"
    );
    disk.free();
    doors.wait_for_health("200");
    requests.send_again(&doors);
    fleet.wait_for_acknowledgements();

    // Without senders, the collector finds by itself that there is space.
    while !fleet.running.is_empty() {
        fleet.kill(0);
    }
    disk.fill();
    requests.send_until_pushed_back(&doors);
    doors.wait_for_health("503");
    disk.free();
    doors.wait_for_health("200");
    requests.send_again(&doors);

    // After a kill while the disk is full, the next collector reports the full disk, or has nothing
    // to write.
    disk.fill();
    requests.send_until_pushed_back(&doors);
    collector.kill();
    let mut command = Command::new(Program::path());
    command.args([
        "collect",
        "--http",
        "127.0.0.1:0",
        "--otlp-http",
        "none",
        "--listen",
        "127.0.0.1:0",
    ]);
    command.arg("--data").arg(disk.data()).stdin(Stdio::null());
    let ended = Command::new("timeout")
        .arg("10")
        .arg(command.get_program())
        .args(command.get_args())
        .output();
    let ended = ended.expect("it starts");
    let said = String::from_utf8_lossy(&ended.stderr);
    let is_running = ended.status.code() == Some(124) || ended.status.success();
    assert!(
        is_running || said.contains("o space left"),
        "{:?}: {said}",
        ended.status
    );
    disk.free();
    collector = doors.collect(&disk.data(), &FLUSH);
    requests.send_again(&doors);
    assert!(
        collector.stop(libc::SIGTERM).success(),
        "{}",
        collector.said()
    );
    check_all(fleet, &requests, has_python, &disk.data());
}

#[test]
fn a_disk_that_turns_read_only_loses_nothing_acknowledged() {
    let test = "a_disk_that_turns_read_only_loses_nothing_acknowledged";
    let Some(disk) = FileSystem::new(test, 48) else {
        return;
    };
    let doors = Ports::free();
    let collector = doors.collect(&disk.data(), &["--flush-interval", "1h"]);
    let (mut fleet, has_python) = senders(&doors, test);
    let mut requests = Requests::default();
    fleet.wait_for_acknowledgements();
    // No sync may be in progress: if one is while the disk begins to fail, ext4 of Linux 6.18
    // reports success, and loses the data.
    fleet.signal(libc::SIGSTOP);
    let mut commits = -1.0;
    while commits < doors.metric("commits_total") {
        commits = doors.metric("commits_total");
        std::thread::sleep(Duration::from_millis(500));
    }
    // As ext4 does by itself when it cannot write its journal.
    let root = disk.root();
    if let Err(why) = run("mount", &["-o", "remount,abort", &root.to_string_lossy()]) {
        eprintln!("SKIPPED: {test}: ext4 cannot be made to fail ({why})");
        return;
    }
    fleet.signal(libc::SIGCONT);
    requests.send_until_pushed_back(&doors);
    let said = doors.wait_for_health("503");
    assert!(said.contains("ead-only"), "{said}");
    assert_eq!(ship(&doors, 0), Err(Code::Unavailable));
    collector.kill();
    disk.unmount().expect("nobody uses it");
    // Status 1: e2fsck repaired something.
    let image = disk.image();
    let checked = Command::new("e2fsck")
        .args(["-y", "-f"])
        .arg(&image)
        .output();
    let checked = checked.expect("e2fsck").status.code();
    assert!(matches!(checked, Some(0 | 1)), "{checked:?}");
    disk.mount().expect("it is whole");
    let mut collector: Server = doors.collect(&disk.data(), &FLUSH);
    requests.send_again(&doors);
    fleet.wait_for_acknowledgements();
    while !fleet.running.is_empty() {
        fleet.kill(0);
    }
    assert!(
        collector.stop(libc::SIGTERM).success(),
        "{}",
        collector.said()
    );
    check_all(fleet, &requests, has_python, &disk.data());
}

/// Clients that retry while the collector cannot write do not fill its log, and each rejection is
/// counted once.
#[test]
fn a_flood_of_retries_is_cut_in_the_log() {
    let program = Program::new();
    let doors = Ports::free();
    let collector = doors.collect(&program.data(), &[]);
    std::fs::remove_dir_all(program.data().join("wal")).expect("a directory");
    let mut requests = Requests::default();
    for id in 1..=100 {
        assert!(!requests.send(&doors, id), "it is stored nowhere");
    }
    let left_out = doors.metric("log_lines_left_out_total");
    assert!(left_out >= 50.0, "{left_out}");
    let outcome = |name: &str| doors.metric(&format!("batches_total{{outcome=\"{name}\"}}"));
    assert_eq!((outcome("pushed_back"), outcome("refused")), (100.0, 0.0));
    let said = collector.killed();
    let count = said.matches("check the disk").count();
    assert!((1..=40).contains(&count), "{count}: {said}");
}
