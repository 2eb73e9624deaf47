//! Tests of the write-ahead log against a model, with random groups, random faults and random
//! damage.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::disk::{Disk, DiskFile, IfThere, LocalDisk};
use stroboscope_store::wal::{
    HEADER_BYTES, Payload, PayloadKind, ScanNote, WalError, Writer, list_segments, read_segment,
    segment_path,
};

fn payload(seed: u64, length: usize) -> Payload {
    Payload {
        received_ns: seed,
        kind: [
            PayloadKind::Batch,
            PayloadKind::OtlpProtobuf,
            PayloadKind::OtlpJson,
            PayloadKind::OtlpLogsProtobuf,
            PayloadKind::OtlpLogsJson,
        ][seed as usize % 5],
        bytes: (0..length)
            .map(|i| (seed as usize * 31 + i * 7) as u8)
            .collect(),
    }
}

/// Returns all payloads of the log, in order, and the notes of the scans.
fn read_all(directory: &Path) -> (Vec<Payload>, Vec<ScanNote>) {
    let (mut payloads, mut notes) = (Vec::new(), Vec::new());
    for number in list_segments(directory).unwrap() {
        let scan = read_segment(&segment_path(directory, number)).unwrap();
        payloads.extend(scan.payloads);
        notes.extend(scan.notes);
    }
    (payloads, notes)
}

/// Writes a segment of `payloads`. Returns its path, and the offsets at which its records begin,
/// followed by that of its end.
fn one_segment(directory: &Path, payloads: &[Payload]) -> (PathBuf, Vec<u64>) {
    let mut writer = Writer::new(directory, 0);
    let mut offsets = vec![HEADER_BYTES as u64];
    for payload in payloads {
        writer.append_group(std::slice::from_ref(payload)).unwrap();
        offsets.push(writer.open_bytes());
    }
    (segment_path(directory, 0), offsets)
}

#[test]
fn an_idle_log_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(directory.path(), 3);
    assert!(writer.rotate().is_empty());
    assert!(list_segments(directory.path()).unwrap().is_empty());
    writer.append_group(&[payload(1, 10)]).unwrap();
    assert_eq!(writer.rotate(), [3]);
    assert!(writer.rotate().is_empty());
    assert_eq!(list_segments(directory.path()).unwrap(), [3]);
}

#[test]
fn other_names_are_no_segments() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "+000000001.wal",
        "000000001.wal",
        "0000000002.wal",
        "0000000003.wal.new",
    ] {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    assert_eq!(list_segments(directory.path()).unwrap(), [2]);
}

#[test]
fn a_missing_directory_holds_no_segments() {
    assert!(
        list_segments(Path::new("/nonexistent/wal"))
            .unwrap()
            .is_empty()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_appended_is_read_back(groups in prop::collection::vec((prop::collection::vec(0usize..300, 0..6), any::<bool>()), 0..12)) {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(directory.path(), 0);
        let mut model = Vec::new();
        for (lengths, rotate) in groups {
            let group: Vec<_> = lengths.iter().map(|&length| payload(model.len() as u64, length)).collect();
            writer.append_group(&group).unwrap();
            model.extend(group);
            if rotate { writer.rotate(); }
        }
        let (read, notes) = read_all(directory.path());
        prop_assert_eq!(read, model);
        prop_assert!(notes.is_empty());
    }

    #[test]
    fn a_torn_tail_loses_only_itself(lengths in prop::collection::vec(0usize..200, 1..8), cut in any::<prop::sample::Index>()) {
        let directory = tempfile::tempdir().unwrap();
        let payloads: Vec<_> = lengths.iter().enumerate().map(|(i, &length)| payload(i as u64, length)).collect();
        let (path, offsets) = one_segment(directory.path(), &payloads);
        let cut = cut.index(*offsets.last().unwrap() as usize) as u64;
        std::fs::File::options().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let whole = offsets.iter().skip(1).filter(|&&end| end <= cut).count();
        let scan = read_segment(&path).unwrap();
        prop_assert_eq!(&scan.payloads[..], &payloads[..whole]);
        let at_an_edge = cut == 0 || offsets.contains(&cut);
        prop_assert_eq!(scan.notes.len(), usize::from(!at_an_edge));
        prop_assert!(scan.notes.iter().all(|note| !note.is_damage()));
    }

    #[test]
    fn damage_loses_only_the_records_it_touches(lengths in prop::collection::vec(1usize..200, 2..8), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let directory = tempfile::tempdir().unwrap();
        let payloads: Vec<_> = lengths.iter().enumerate().map(|(i, &length)| payload(i as u64, length)).collect();
        let (path, offsets) = one_segment(directory.path(), &payloads);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = HEADER_BYTES + at.index(bytes.len() - HEADER_BYTES);
        bytes[at] ^= 1 << bit;
        std::fs::write(&path, &bytes).unwrap();
        let hit = offsets.iter().filter(|&&start| start <= at as u64).count() - 1;
        let mut model = payloads.clone();
        model.remove(hit);
        let scan = read_segment(&path).unwrap();
        prop_assert_eq!(scan.payloads, model);
        let expected_offset = offsets[hit];
        match &scan.notes[..] {
            [ScanNote::Damaged { offset, .. }] => { prop_assert_eq!(*offset, expected_offset); prop_assert!(hit + 1 < lengths.len()); }
            [ScanNote::TornTail { offset, .. }] => { prop_assert_eq!(*offset, expected_offset); prop_assert_eq!(hit + 1, lengths.len()); }
            other => prop_assert!(false, "notes: {other:?}"),
        }
    }

    #[test]
    fn a_damaged_header_loses_no_record(at in 0usize..HEADER_BYTES, bit in 0u8..8) {
        let directory = tempfile::tempdir().unwrap();
        let payloads = [payload(1, 50), payload(2, 60)];
        let (path, _) = one_segment(directory.path(), &payloads);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 1 << bit;
        std::fs::write(&path, &bytes).unwrap();
        let scan = read_segment(&path).unwrap();
        prop_assert_eq!(&scan.payloads[..], &payloads[..]);
        let told = matches!(scan.notes[..], [ScanNote::BadHeader { .. }]);
        prop_assert!(told);
    }

    #[test]
    fn garbage_is_never_a_record(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let directory = tempfile::tempdir().unwrap();
        let path = segment_path(directory.path(), 0);
        std::fs::write(&path, &bytes).unwrap();
        prop_assert!(read_segment(&path).unwrap().payloads.is_empty());
    }

    #[test]
    fn faults_lose_nothing_acknowledged(script in prop::collection::vec((1usize..4, 0u8..8), 1..24)) {
        let directory = tempfile::tempdir().unwrap();
        let faults = Arc::new(Mutex::new(Fault::None));
        let mut writer = Writer::on(Arc::new(FaultyDisk(faults.clone())), directory.path(), 0);
        let (mut acknowledged, mut refused, mut next) = (Vec::new(), Vec::new(), 0);
        for (count, fault) in script {
            *faults.lock().unwrap() = match fault { 0 => Fault::Write, 1 => Fault::WriteAndCut, 2 => Fault::Sync, 3 => Fault::Create, _ => Fault::None };
            let group: Vec<_> = (0..count).map(|_| { next += 1; payload(next, 40) }).collect();
            match writer.append_group(&group) {
                Ok(()) => acknowledged.extend(group),
                Err(error) => {
                    let full = matches!(error, WalError::Full { .. });
                    prop_assert!(full, "{error}");
                    refused.extend(group);
                }
            }
        }
        let (read, notes) = read_all(directory.path());
        let kept: Vec<_> = read.iter().filter(|payload| acknowledged.contains(payload)).cloned().collect();
        prop_assert_eq!(kept, acknowledged.clone());
        prop_assert!(read.iter().all(|payload| acknowledged.contains(payload) || refused.contains(payload)));
        prop_assert!(notes.iter().all(|note| !note.is_damage()), "{notes:?}");
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    None,
    Create,
    Write,
    WriteAndCut,
    Sync,
    /// Directories of this name cannot be synced.
    SyncOf(&'static str),
}

/// Checks that a data directory is not used if the name of a directory above it may be lost.
#[test]
fn all_directories_above_the_data_are_durable() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("above/between/data");
    let faults = Arc::new(Mutex::new(Fault::None));
    for above in ["above", "between"] {
        *faults.lock().unwrap() = Fault::SyncOf(above);
        DataDir::create_on(Arc::new(FaultyDisk(faults.clone())), &root).unwrap_err();
    }
    *faults.lock().unwrap() = Fault::None;
    DataDir::create_on(Arc::new(FaultyDisk(faults)), &root).unwrap();
}

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

#[derive(Debug)]
struct FaultyDisk(Arc<Mutex<Fault>>);
struct FaultyFile(std::fs::File, Arc<Mutex<Fault>>);

impl Disk for FaultyDisk {
    fn create(&self, path: &Path, _: IfThere) -> io::Result<Box<dyn DiskFile>> {
        if *self.0.lock().unwrap() == Fault::Create {
            return Err(full());
        }
        let file = std::fs::File::options()
            .write(true)
            .create_new(true)
            .open(path)?;
        Ok(Box::new(FaultyFile(file, self.0.clone())))
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
        match *self.0.lock().unwrap() {
            Fault::SyncOf(name) if path.ends_with(name) => Err(full()),
            _ => LocalDisk.sync(path),
        }
    }
}

impl DiskFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        use std::io::Write as _;
        let fault = *self.1.lock().unwrap();
        if matches!(fault, Fault::Write | Fault::WriteAndCut) {
            self.0.write_all(&bytes[..bytes.len() / 2])?;
            return Err(full());
        }
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        if *self.1.lock().unwrap() == Fault::Sync {
            Err(full())
        } else {
            Ok(())
        }
    }

    fn cut(&mut self, len_bytes: u64) -> io::Result<()> {
        use std::io::Seek as _;
        if *self.1.lock().unwrap() == Fault::WriteAndCut {
            return Err(full());
        }
        self.0.set_len(len_bytes)?;
        self.0.seek(io::SeekFrom::Start(len_bytes)).map(|_| ())
    }
}

/// The records of a log from before an upgrade have no kind.
#[test]
fn a_segment_of_version_1_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = segment_path(directory.path(), 7);
    let (marker, body) = (0x1234_5678_u32.to_le_bytes(), [3, 1, 4, 1, 5]);
    let mut bytes = b"STRBWAL\0".to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(marker);
    bytes.extend(7_u64.to_le_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    let payload = [&42_u64.to_le_bytes()[..], &body].concat();
    bytes.extend(marker);
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(&payload).to_le_bytes());
    bytes.extend(payload);
    std::fs::write(&path, bytes).unwrap();
    let scan = read_segment(&path).unwrap();
    assert!(scan.notes.is_empty(), "{:?}", scan.notes);
    let expected = Payload {
        received_ns: 42,
        kind: PayloadKind::Batch,
        bytes: body.to_vec(),
    };
    assert_eq!(scan.payloads, [expected]);
}

/// Appends to a deleted segment are not acknowledged. The log continues when its directory exists
/// again.
#[test]
fn a_deleted_segment_is_noticed_at_once() {
    let above = tempfile::tempdir().unwrap();
    let directory = above.path().join("wal");
    std::fs::create_dir(&directory).unwrap();
    let mut writer = Writer::new(&directory, 0);
    writer.append_group(&[payload(1, 10)]).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let error = writer
        .append_group(&[payload(2, 10)])
        .unwrap_err()
        .to_string();
    assert!(error.contains("0000000000.wal"), "{error}");
    assert!(error.contains("deleted"), "{error}");
    writer.append_group(&[payload(3, 10)]).unwrap_err();
    std::fs::create_dir(&directory).unwrap();
    writer.append_group(&[payload(4, 10)]).unwrap();
    assert_eq!(read_all(&directory).0, [payload(4, 10)]);
}

/// A segment of the next number, such as a restored one, keeps its records and is flushed.
#[test]
fn a_segment_that_is_already_there_stays() {
    let directory = tempfile::tempdir().unwrap();
    one_segment(directory.path(), &[payload(1, 10)]);
    let mut writer = Writer::new(directory.path(), 0);
    let error = writer.append_group(&[payload(2, 10)]).unwrap_err();
    assert!(error.to_string().contains("0000000000.wal"), "{error}");
    writer.append_group(&[payload(3, 10)]).unwrap();
    let (payloads, _) = read_all(directory.path());
    assert_eq!(payloads, [payload(1, 10), payload(3, 10)]);
    assert_eq!(writer.rotate(), [0, 1]);
}
