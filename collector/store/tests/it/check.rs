//! `check` finds every kind of damage and repairs the repairable kinds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use stroboscope_fixtures::batches::{EPOCH_NS, batch};
use stroboscope_fixtures::disk::{Faults, SimDisk};
use stroboscope_store::check::{Check, CheckReport, FindingKind};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::disk::{Disk as _, IfThere};
use stroboscope_store::flush::{Counters, Flusher};
use stroboscope_store::maintenance::{Care, MaintenanceCounters, MaintenanceSettings};
use stroboscope_store::tables::{Store, StoreTable, TraceReader, read_batches};
use stroboscope_store::wal::{Payload, Writer, segment_path};

struct Directory {
    runtime: tokio::runtime::Runtime,
    _directory: tempfile::TempDir,
    data: DataDir,
}

impl Directory {
    /// Creates a data directory with `segments` flushed segments of the log, each with one batch of
    /// each of two processes.
    fn flushed(segments: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::create(directory.path()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let found = Self {
            runtime,
            _directory: directory,
            data,
        };
        found.append(0..segments);
        found.flush();
        found
    }

    fn append(&self, segments: std::ops::Range<u64>) {
        let mut writer = Writer::new(&self.data.wal(), segments.start);
        for segment in segments {
            let of = |process| Payload::of(EPOCH_NS, &batch(process, segment, 4));
            writer.append_group(&[of(1), of(2)]).unwrap();
            writer.rotate();
        }
    }

    fn flush(&self) {
        Flusher::load(&self.data, self.store(), Arc::new(Counters::default()))
            .unwrap()
            .recover()
            .unwrap();
    }

    fn store(&self) -> Store {
        Store::local(self.data.root(), self.runtime.handle().clone()).unwrap()
    }

    fn compact(&self, next_segment: u64) {
        let settings = MaintenanceSettings {
            is_at_rest: true,
            ..MaintenanceSettings::default()
        };
        let mut care = Care::of(
            self.store(),
            settings,
            Arc::new(MaintenanceCounters::default()),
        );
        care.round(next_segment, EPOCH_NS as i64, &|| true).unwrap();
    }

    fn path(&self, table: &str, name: &str) -> PathBuf {
        self.data
            .root()
            .join(format!("{table}/date=2026-01-02/hour=03/{name}"))
    }

    fn rows(&self) -> (usize, Vec<(u128, u64)>) {
        let spans = TraceReader::open(&self.store())
            .unwrap()
            .map(|trace| trace.spans.len())
            .sum();
        let batches = read_batches(&self.store()).unwrap();
        (
            spans,
            batches.map(|row| (row.process, row.sequence)).collect(),
        )
    }

    fn check(&self) -> CheckReport {
        Check::run(&self.data, &self.store(), false)
            .unwrap()
            .report()
            .clone()
    }

    fn repair(&self) -> CheckReport {
        Check::run(&self.data, &self.store(), false)
            .unwrap()
            .repair()
            .unwrap()
    }
}

fn kinds(report: &CheckReport) -> Vec<FindingKind> {
    let mut kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
    kinds.sort_unstable();
    kinds
}

#[test]
fn a_store_in_order_has_no_findings() {
    let directory = Directory::flushed(5);
    let report = directory.check();
    assert_eq!(report.findings, []);
    let rows: Vec<_> = report
        .tables
        .iter()
        .map(|size| (size.table, size.files, size.rows))
        .collect();
    assert_eq!(
        rows,
        [
            (StoreTable::Spans, 5, 40),
            (StoreTable::Events, 5, 20),
            (StoreTable::Batches, 5, 10),
            (StoreTable::Kernel, 0, 0),
            (StoreTable::Provenance, 5, 10)
        ]
    );
    directory.compact(5);
    assert_eq!(directory.check().findings, []);
    // A segment that is not flushed yet is no finding.
    directory.append(5..6);
    let report = directory.check();
    assert_eq!((report.findings, report.log_segments), (vec![], 1));
}

#[test]
fn a_damaged_file_is_found_wherever_the_damage_is_and_moved_aside() {
    for at in [2, 40, 200, 400, usize::MAX] {
        let directory = Directory::flushed(2);
        let path = directory.path("spans", "seg-0000000001.parquet");
        let mut bytes = fs::read(&path).unwrap();
        let at = at.min(bytes.len() - 1);
        // Changes several bytes, because a single one may be unused, or may turn a value into
        // another valid value.
        let end = (at + 24).min(bytes.len());
        bytes[at.saturating_sub(24)..end]
            .iter_mut()
            .for_each(|byte| *byte ^= 0x5a);
        fs::write(&path, &bytes).unwrap();
        let report = directory.check();
        assert_eq!(
            kinds(&report),
            [FindingKind::DamagedFile],
            "at {at}: {:?}",
            report.findings
        );
        assert!(!report.is_clean());
        let report = directory.repair();
        assert!(report.is_clean(), "{:?}", report.findings);
        assert!(
            !path.exists()
                && directory
                    .path("damaged/spans", "seg-0000000001.parquet")
                    .exists()
        );
        assert_eq!(directory.rows().0, 8, "those of the other file");
        assert_eq!(
            kinds(&directory.check()),
            [FindingKind::SpanCount, FindingKind::SpanCount],
            "what was in it is missing"
        );
    }
}

#[test]
fn what_a_damaged_file_was_compacted_of_comes_back() {
    let directory = Directory::flushed(4);
    let before = directory.rows();
    directory.compact(4);
    let path = directory.path("spans", "seg-0000000000-0000000003.parquet");
    fs::write(&path, "PAR1").unwrap();
    assert_eq!(kinds(&directory.check()), [FindingKind::DamagedFile]);
    let report = directory.repair();
    let done = report.findings[0].repair.as_deref().unwrap();
    assert!(done.contains("4 input files"), "{done}");
    assert_eq!(directory.rows(), before);
    assert_eq!(directory.check().findings, []);
}

#[test]
fn strange_and_newer_files_are_named_and_left() {
    let directory = Directory::flushed(1);
    fs::write(directory.path("spans", "notes.txt"), "mine").unwrap();
    let newer = directory.path("events", "seg-0000000000.parquet");
    let text = fs::read(&newer).unwrap();
    // The version of the file is one digit in the footer.
    let key = b"stroboscope.schema_version";
    let at = text
        .windows(key.len())
        .position(|part| part == key)
        .unwrap()
        + key.len();
    let digit = at + text[at..].iter().position(u8::is_ascii_digit).unwrap();
    let mut bytes = text.clone();
    bytes[digit] = b'9';
    fs::write(&newer, &bytes).unwrap();
    assert_eq!(
        kinds(&directory.repair()),
        [FindingKind::NewerFile, FindingKind::StrangeFile]
    );
    assert!(newer.exists() && directory.path("spans", "notes.txt").exists());
    fs::write(&newer, &text).unwrap();
    fs::copy(
        &newer,
        directory.data.root().join("events/seg-0000000000.parquet"),
    )
    .unwrap();
    let report = directory.check();
    assert!(
        kinds(&report).contains(&FindingKind::StrangeFile),
        "{:?}",
        report.findings
    );
}

#[test]
fn a_parquet_file_of_another_program_is_left_where_it_is() {
    let directory = Directory::flushed(1);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let batch = RecordBatch::try_from_iter([("mine", column)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::<u8>::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let path = directory.path("spans", "mine.parquet");
    fs::write(&path, writer.into_inner().unwrap()).unwrap();
    let report = directory.repair();
    assert_eq!(kinds(&report), [FindingKind::StrangeFile]);
    assert!(path.exists() && !report.is_clean());
}

#[test]
fn an_interrupted_compaction_is_ended() {
    let directory = Directory::flushed(3);
    let before = directory.rows();
    let inputs: Vec<_> = (0..3)
        .map(|n| directory.path("spans", &format!("seg-{n:010}.parquet")))
        .collect();
    let kept: Vec<_> = inputs.iter().map(|path| fs::read(path).unwrap()).collect();
    directory.compact(3);
    fs::write(&inputs[1], &kept[1]).unwrap();
    fs::write(
        directory.path("events", "seg-0000000000-0000000002.parquet.part"),
        "PAR1",
    )
    .unwrap();
    assert_eq!(directory.rows(), before);
    assert_eq!(
        kinds(&directory.check()),
        [FindingKind::InterruptedCompaction; 2]
    );
    assert!(directory.repair().is_clean());
    assert_eq!(directory.check().findings, []);
    assert_eq!(directory.rows(), before);
}

#[test]
fn the_file_of_an_interrupted_write_is_removed() {
    let directory = Directory::flushed(1);
    let path = directory.path("spans", ".seg-0000000001.parquet.new");
    fs::write(&path, "PAR1").unwrap();
    // An import that still writes it does not hold the lock.
    assert_eq!(directory.repair().findings, []);
    assert!(path.exists());
    let file = fs::File::options().write(true).open(&path).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3_600);
    file.set_modified(long_ago).unwrap();
    let report = directory.check();
    assert_eq!(kinds(&report), [FindingKind::InterruptedWrite]);
    assert!(directory.repair().is_clean());
    assert!(!path.exists());
    assert_eq!(directory.check().findings, []);
}

#[test]
fn a_damaged_log_is_told() {
    let directory = Directory::flushed(1);
    directory.append(1..2);
    let path = segment_path(&directory.data.wal(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 0xff;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(kinds(&directory.check()), [FindingKind::DamagedLog]);
}

#[test]
fn a_checkpoint_is_made_anew_and_knows_what_the_old_one_knew() {
    for compacted in [false, true] {
        for damage in [
            None,
            Some("{"),
            Some(r#"{"version":1,"next_segment":3,"processes":{},"past_losses":[]}"#),
        ] {
            let directory = Directory::flushed(6);
            if compacted {
                directory.compact(6);
            }
            let before = directory.rows();
            let path = directory.data.root().join("checkpoint.json");
            match damage {
                None => fs::remove_file(&path).unwrap(),
                Some(text) => fs::write(&path, text).unwrap(),
            }
            let expected = match damage {
                None => FindingKind::MissingCheckpoint,
                Some("{") => FindingKind::DamagedCheckpoint,
                Some(_) => FindingKind::CheckpointBehind,
            };
            let report = directory.repair();
            assert!(kinds(&report).contains(&expected), "{:?}", report.findings);
            assert!(report.is_clean(), "{:?}", report.findings);
            assert_eq!(directory.check().findings, []);
            // The rebuilt ledger recognises a retry of a stored batch, and accepts a new batch.
            let mut writer = Writer::new(&directory.data.wal(), 6);
            let of = |sequence| Payload::of(EPOCH_NS, &batch(1, sequence, 4));
            writer.append_group(&[of(3), of(6)]).unwrap();
            directory.flush();
            let after = directory.rows();
            assert_eq!((after.0, after.1.len()), (before.0 + 4, before.1.len() + 1));
            assert_eq!(directory.check().findings, []);
        }
    }
}

/// The log is read from the disk of the directory, as the checkpoint is.
#[test]
fn a_damaged_log_on_the_disk_of_the_directory_is_told() {
    let disk = SimDisk::new(3);
    let root = Path::new("/sim/data");
    let data = DataDir::create_on(Arc::new(disk.clone()), root).unwrap();
    let mut writer = Writer::on(Arc::new(disk.clone()), &data.wal(), 1);
    for sequence in 0..2 {
        let payload = Payload::of(EPOCH_NS, &batch(1, sequence, 4));
        writer.append_group(&[payload]).unwrap();
    }
    writer.rotate();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let store = disk.store(root, runtime.handle().clone());
    let report = |data| {
        let check = Check::run(data, &store, false).unwrap();
        (check.report().log_segments, kinds(check.report()))
    };
    assert_eq!(report(&data), (1, vec![]));
    let path = segment_path(&data.wal(), 1);
    let mut bytes = disk.read(&path).unwrap();
    bytes[100] ^= 0xff;
    let mut file = disk.create(&path, IfThere::Empty).unwrap();
    file.append(&bytes).unwrap();
    drop(file);
    assert_eq!(report(&data), (1, vec![FindingKind::DamagedLog]));
}

/// A disk that fails leaves the damaged checkpoint, and another repair succeeds.
#[test]
fn a_damaged_checkpoint_is_moved_on_the_disk_of_the_directory() {
    let disk = SimDisk::new(3);
    let root = Path::new("/sim/data");
    let data = DataDir::create_on(Arc::new(disk.clone()), root).unwrap();
    let path = root.join("checkpoint.json");
    let mut file = disk.create(&path, IfThere::Fail).unwrap();
    file.append(b"{").unwrap();
    drop(file);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let store = disk.store(root, runtime.handle().clone());
    let checked = || Check::run(&data, &store, false).unwrap();
    let check = checked();
    disk.set_faults(Faults {
        is_read_only: true,
        ..Faults::default()
    });
    check.repair().unwrap_err();
    disk.set_faults(Faults::default());
    assert_eq!(disk.read(&path).unwrap(), b"{");
    let report = checked().repair().unwrap();
    assert_eq!(kinds(&report), [FindingKind::DamagedCheckpoint]);
    assert!(report.is_clean(), "{:?}", report.findings);
    let aside = root.join("checkpoint.json.damaged");
    assert_eq!(disk.read(&aside).unwrap(), b"{");
    assert_eq!(checked().report().findings, []);
}

/// A crash came after a segment's files were written and before the checkpoint was saved. The
/// checkpoint was then lost.
#[test]
fn a_segment_that_is_still_in_the_log_is_flushed_again() {
    let directory = Directory::flushed(3);
    let checkpoint = directory.data.root().join("checkpoint.json");
    directory.append(3..4);
    directory.flush();
    let expected = directory.rows();
    directory.append(3..4);
    fs::remove_file(&checkpoint).unwrap();
    let report = directory.repair();
    assert!(report.is_clean(), "{:?}", report.findings);
    directory.flush();
    assert_eq!(directory.rows(), expected);
    assert_eq!(directory.check().findings, []);
}

#[test]
fn batches_that_are_missing_doubled_or_unknown_are_told() {
    let directory = Directory::flushed(4);
    let path = directory.path("batches", "seg-0000000002.parquet");
    let kept = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let report = directory.check();
    assert_eq!(
        kinds(&report),
        [
            FindingKind::MissingBatch,
            FindingKind::MissingBatch,
            FindingKind::SpanCount,
            FindingKind::SpanCount
        ]
    );
    assert!(
        report.findings[0].detail.contains("batch 2 "),
        "{:?}",
        report.findings
    );
    fs::write(&path, &kept).unwrap();
    fs::copy(&path, directory.path("batches", "import-1.parquet")).unwrap();
    assert!(kinds(&directory.check()).starts_with(&[FindingKind::DoubledBatch; 2]));
    fs::remove_file(directory.path("batches", "import-1.parquet")).unwrap();
    let list = |stored: serde_json::Value| {
        let checkpoint = directory.data.root().join("checkpoint.json");
        let text = fs::read_to_string(&checkpoint).unwrap();
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let processes = json["processes"].as_object_mut().unwrap();
        let first = processes.values_mut().next().unwrap();
        first["stored"] = stored;
        fs::write(&checkpoint, json.to_string()).unwrap();
    };
    // The ledger forgot an idle process, which came back.
    list(serde_json::json!([[2, 3]]));
    assert_eq!(directory.check().findings, []);
    // The ledger lacks one batch of a process.
    list(serde_json::json!([[0, 1], [3, 3]]));
    assert_eq!(kinds(&directory.check()), [FindingKind::UnknownBatch]);
    assert!(directory.repair().is_clean());
    assert_eq!(directory.check().findings, []);
}

/// Checks that a lost file of events is found by the number of events that the batches state.
#[test]
fn a_missing_file_of_events_is_found() {
    let directory = Directory::flushed(3);
    fs::remove_file(directory.path("events", "seg-0000000001.parquet")).unwrap();
    let report = directory.check();
    assert_eq!(kinds(&report), [FindingKind::EventCount]);
    let found = &report.findings[0];
    assert_eq!(found.at, "web on alpha");
    assert!(
        found.detail.contains("12 events") && found.detail.ends_with("has 8"),
        "{found:?}"
    );
}

/// Hours that retention deleted are not reported as missing.
#[test]
fn deleted_hours_are_no_findings() {
    let directory = Directory::flushed(3);
    let settings = MaintenanceSettings {
        keep: Some(std::time::Duration::from_secs(1)),
        ..MaintenanceSettings::default()
    };
    let mut care = Care::of(
        directory.store(),
        settings,
        Arc::new(MaintenanceCounters::default()),
    );
    care.round(3, EPOCH_NS as i64 + 48 * 3_600_000_000_000, &|| true)
        .unwrap();
    assert_eq!(directory.rows().0, 0);
    assert_eq!(directory.check().findings, []);
}
