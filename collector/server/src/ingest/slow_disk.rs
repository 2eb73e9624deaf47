//! Disk whose file syncs take as long as a test wants: senders wait or are rejected for now, and
//! nothing is lost afterwards.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use stroboscope_fixtures::batches::{EPOCH_NS, batch};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::decode::{CheckedBatch, OtlpTaken};
use stroboscope_store::disk::{Disk, DiskFile, IfThere, LocalDisk};
use stroboscope_store::limits::{IN_FLIGHT_BYTES_MAX, Limits};
use stroboscope_store::tables::Store;
use stroboscope_store::wal::PayloadKind;

use super::{CommitOutcome, Intake, IntakeError, Options, Stop};
use crate::pool::Peer;

/// Gate that holds back syncs until it opens.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let is_open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(is_open, |is_open| !*is_open).unwrap());
    }
}

#[derive(Debug)]
struct SlowDisk(Gate);

struct SlowFile(Box<dyn DiskFile>, Gate);

impl Disk for SlowDisk {
    fn create(&self, path: &Path, if_there: IfThere) -> io::Result<Box<dyn DiskFile>> {
        let file = LocalDisk.create(path, if_there)?;
        Ok(Box::new(SlowFile(file, self.0.clone())))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        LocalDisk.read(path)
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        LocalDisk.names(directory)
    }

    fn create_directories(&self, directory: &Path) -> io::Result<()> {
        LocalDisk.create_directories(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        LocalDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        LocalDisk.remove(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        LocalDisk.sync(path)
    }
}

impl DiskFile for SlowFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.pass();
        self.0.sync()
    }

    fn cut(&mut self, len_bytes: u64) -> io::Result<()> {
        self.0.cut(len_bytes)
    }
}

/// Builds an OTLP request without spans, slightly longer than `bytes` bytes.
fn request(bytes: usize) -> Vec<u8> {
    // Unknown field 15, of type bytes.
    let mut request = vec![0x7a];
    let mut length = bytes;
    while length >= 0x80 {
        request.push(length as u8 | 0x80);
        length >>= 7;
    }
    request.push(length as u8);
    request.resize(request.len() + bytes, 0);
    request
}

#[test]
fn a_slow_disk_pushes_back_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let gate = Gate::default();
    let data = DataDir::create_on(Arc::new(SlowDisk(gate.clone())), directory.path()).unwrap();
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    let options = Options {
        flush_interval: Duration::from_secs(3_600),
        live_quiet: None,
        ..Options::default()
    };
    let intake = Intake::open_in(&data, store, &options).unwrap();
    let bytes = 16 << 20;
    let send = || {
        let spans = OtlpTaken::default();
        runtime.block_on(intake.submit_otlp(
            Peer::default(),
            PayloadKind::OtlpProtobuf,
            request(bytes),
            EPOCH_NS,
            spans,
            None,
        ))
    };
    // The bytes that are received but not written are bounded; further OTLP requests are rejected
    // for now.
    let mut taken = Vec::new();
    let busy = loop {
        match send() {
            Ok(submission) => taken.push(submission),
            Err(error) => break error,
        }
        assert!(
            taken.len() <= IN_FLIGHT_BYTES_MAX / bytes,
            "{} taken",
            taken.len()
        );
    };
    assert!(matches!(busy, IntakeError::Busy { .. }), "{busy}");
    // A single sender may use half of the bytes in flight.
    assert!(
        taken.len() >= IN_FLIGHT_BYTES_MAX / 2 / bytes - 1,
        "{} taken",
        taken.len()
    );
    // A stream of batches waits.
    let checked = |sequence| {
        let large = batch(7, sequence, 20_000);
        CheckedBatch::check(large, &Limits::default()).unwrap()
    };
    let waiting = runtime.spawn({
        let intake = intake.clone();
        let batches: Vec<CheckedBatch> = (0..24).map(checked).collect();
        async move {
            let mut outcomes = Vec::new();
            for batch in batches {
                outcomes.push(intake.submit(batch, EPOCH_NS).await.unwrap());
            }
            outcomes
        }
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(
        !waiting.is_finished(),
        "24 batches of a megabyte each fit beside all that waits"
    );
    gate.open();
    for submission in taken {
        assert_eq!(
            runtime.block_on(submission.outcome()).unwrap(),
            CommitOutcome::Stored
        );
    }
    for submission in runtime.block_on(waiting).unwrap() {
        assert_eq!(
            runtime.block_on(submission.outcome()).unwrap(),
            CommitOutcome::Stored
        );
    }
    // A rejected request succeeds on retry.
    let again = send().unwrap();
    assert_eq!(
        runtime.block_on(again.outcome()).unwrap(),
        CommitOutcome::Stored
    );
    intake.health().unwrap();
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
}
