//! Flushes that fail or are interrupted at chosen steps. The server's simulation interrupts them at
//! random.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use stroboscope_fixtures::batches::{EPOCH_NS, batch};
use stroboscope_fixtures::disk::{Faults, SimDisk};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::disk::IfThere;
use stroboscope_store::flush::{Counters, Flusher, Forwarder, Upstream};
use stroboscope_store::ledger::Verdict;
use stroboscope_store::tables::{Store, StoreTable};
use stroboscope_store::wal::{Payload, PayloadKind, Writer, list_segments_on};
use tokio::runtime::Runtime;

const ROOT: &str = "/sim/data";

struct Simulated {
    disk: SimDisk,
    runtime: Runtime,
}

impl Simulated {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        Self {
            disk,
            runtime: runtime.unwrap(),
        }
    }

    fn data(&self) -> DataDir {
        DataDir::create_on(Arc::new(self.disk.clone()), Path::new(ROOT)).unwrap()
    }

    fn store(&self) -> Store {
        let handle = self.runtime.handle().clone();
        self.disk.store(&PathBuf::from(ROOT), handle)
    }

    fn flusher(&self) -> Flusher {
        Flusher::load(&self.data(), self.store(), Arc::new(Counters::default())).unwrap()
    }

    /// Writes one closed segment per group. The first segment has the number `first`.
    fn log(&self, first: u64, segments: &[Vec<Payload>]) {
        let data = self.data();
        let mut writer = Writer::on(data.disk().clone(), &data.wal(), first);
        for group in segments {
            writer.append_group(group).unwrap();
            writer.rotate();
        }
    }

    fn objects(&self) -> Vec<(String, u64)> {
        let store = self.store();
        let tables = StoreTable::OF_SEGMENTS;
        let listed = tables.map(|table| store.list(table).unwrap());
        let objects = listed.into_iter().flatten();
        objects
            .map(|(path, bytes)| (path.to_string(), bytes))
            .collect()
    }
}

/// Collector that an agent cannot reach.
#[derive(Debug)]
struct Away;

impl Upstream for Away {
    fn deliver(&mut self, _: u64, _: &[Payload], _: Instant) -> Result<(), String> {
        Err("it is away".to_owned())
    }
}

/// Collector that rejects the first delivery, and accepts all later ones.
#[derive(Debug, Default)]
struct Late(u64);

impl Upstream for Late {
    fn deliver(&mut self, _: u64, _: &[Payload], _: Instant) -> Result<(), String> {
        self.0 += 1;
        let is_accepted = self.0 > 1;
        is_accepted
            .then_some(())
            .ok_or_else(|| "it is late".to_owned())
    }
}

/// Collector that accepts everything.
#[derive(Debug)]
struct Near;

impl Upstream for Near {
    fn deliver(&mut self, _: u64, _: &[Payload], _: Instant) -> Result<(), String> {
        Ok(())
    }
}

fn of_batch(sequence: u64) -> Payload {
    Payload::of(EPOCH_NS, &batch(1, sequence, 3))
}

fn of_otlp(span: u8) -> Payload {
    let request = format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{span:032x}","spanId":"{span:016x}",
        "name":"pay","startTimeUnixNano":"{EPOCH_NS}","endTimeUnixNano":"{EPOCH_NS}"}}]}}]}}]}}"#
    );
    Payload {
        received_ns: EPOCH_NS,
        kind: PayloadKind::OtlpJson,
        bytes: request.into_bytes(),
    }
}

/// The batches of a segment that could not be deleted are duplicates later. The remaining segment
/// must not replace its objects.
#[test]
fn a_segment_that_could_not_be_deleted_keeps_its_objects() {
    let simulated = Simulated::new(1);
    simulated.log(0, &[vec![of_batch(0), of_otlp(1)]]);
    let mut flusher = simulated.flusher();
    let converted = flusher.convert(0).unwrap();
    flusher.make_durable(&converted).unwrap();
    flusher.save(converted).unwrap();
    let objects = simulated.objects();
    flusher.flush(0).unwrap();
    assert_eq!(simulated.objects(), objects);
    let data = simulated.data();
    let left = list_segments_on(&**data.disk(), &data.wal()).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

/// Requests of OTLP have no rows in the table of batches.
#[test]
fn a_lost_checkpoint_lets_no_segment_replace_one_of_otlp() {
    let simulated = Simulated::new(1);
    simulated.log(0, &[vec![of_otlp(1)], vec![of_otlp(2)]]);
    assert_eq!(simulated.flusher().recover().unwrap(), 2);
    let data = simulated.data();
    let checkpoint = data.root().join("checkpoint.json");
    data.disk().remove(&checkpoint).unwrap();
    assert_eq!(simulated.flusher().next_segment().unwrap(), 2);
}

/// A kill comes between the renaming of the checkpoint and the sync of its name. The next start
/// deletes the segment by this checkpoint, and a power cut follows. The checkpoint must survive.
#[test]
fn a_start_makes_the_checkpoint_durable_before_it_deletes() {
    for seed in 0..100 {
        let simulated = Simulated::new(seed);
        simulated.log(0, &[vec![of_batch(0)]]);
        let data = simulated.data();
        let mut flusher = simulated.flusher();
        let converted = flusher.convert(0).unwrap();
        flusher.make_durable(&converted).unwrap();
        // The save creates, appends to, syncs and renames the file. The kill comes at the sync of
        // the directory.
        simulated.disk.end_after(Some(5));
        assert!(flusher.save(converted).is_err());
        simulated.disk.restart_process();
        // Starts like a reader of the store. A collector would also sync all directories.
        let counters = Arc::new(Counters::default());
        let mut reader = Flusher::load(&data, simulated.store(), counters).unwrap();
        assert_eq!(reader.recover().unwrap(), 0, "seed {seed}");
        simulated.disk.restart_machine();
        let mut flusher = simulated.flusher();
        flusher.recover().unwrap();
        let known = flusher.ledger().verdict(1, 0);
        assert_eq!(known, Verdict::Duplicate, "seed {seed}");
    }
}

/// A kill comes between the write of a batch and its sync. The next start of the agent acknowledges
/// the batch as a duplicate, and a power cut follows. The batch must survive.
#[test]
fn the_start_of_an_agent_makes_its_log_durable() {
    let mut acknowledged = 0;
    for seed in 0..100 {
        let simulated = Simulated::new(seed);
        let data = simulated.data();
        let mut writer = Writer::on(data.disk().clone(), &data.wal(), 0);
        writer.append_group(&[of_batch(0)]).unwrap();
        simulated.disk.end_after(Some(2));
        assert!(writer.append_group(&[of_batch(1)]).is_err());
        simulated.disk.restart_process();
        let verdict = || {
            let counters = Arc::new(Counters::default());
            let mut forwarder =
                Forwarder::load(&simulated.data(), Box::new(Away), counters).unwrap();
            forwarder.recover().unwrap().ledger.verdict(1, 1)
        };
        let before = verdict();
        simulated.disk.restart_machine();
        assert_eq!(verdict(), before, "seed {seed}");
        acknowledged += u64::from(before == Verdict::Duplicate);
    }
    assert!(acknowledged > 20, "{acknowledged}");
}

/// A disk that cannot write the checkpoint recovers, and the agent saves it at the next attempt.
#[test]
fn an_agent_saves_a_checkpoint_that_failed_before() {
    let faults = |is_full| Faults {
        is_full,
        is_read_only: !is_full,
        ..Faults::default()
    };
    for is_full in [false, true] {
        let simulated = Simulated::new(1);
        simulated.log(0, &[vec![of_batch(0)]]);
        let load = || {
            let counters = Arc::new(Counters::default());
            Forwarder::load(&simulated.data(), Box::new(Near), counters).unwrap()
        };
        let mut forwarder = load();
        simulated.disk.set_faults(faults(is_full));
        assert!(forwarder.forward(0, Instant::now()).is_err());
        simulated.disk.set_faults(Faults::default());
        forwarder.forward(0, Instant::now()).unwrap();
        let waiting = load().recover().unwrap();
        assert_eq!(
            waiting.ledger.verdict(1, 0),
            Verdict::Duplicate,
            "{is_full}"
        );
        assert_eq!((waiting.segments.len(), waiting.next_segment), (0, 1));
    }
}

/// An agent reads a segment at its start and for each attempt to deliver it.
#[test]
fn an_agent_counts_damage_once() {
    for is_restarted in [true, false] {
        let simulated = Simulated::new(1);
        let invalid = Payload {
            bytes: vec![0xff],
            ..of_batch(0)
        };
        simulated.log(0, &[vec![invalid]]);
        let data = simulated.data();
        let path = data.wal().join("0000000000.wal");
        let mut bytes = data.disk().read(&path).unwrap();
        bytes[0] ^= 1;
        let mut file = data.disk().create(&path, IfThere::Empty).unwrap();
        file.append(&bytes).unwrap();
        let counters = Arc::new(Counters::default());
        let upstream = Box::new(Late::default());
        let mut forwarder = Forwarder::load(&data, upstream, counters.clone()).unwrap();
        if is_restarted {
            forwarder.recover().unwrap();
        }
        assert!(forwarder.forward(0, Instant::now()).is_err());
        forwarder.forward(0, Instant::now()).unwrap();
        let counted = [&counters.wal_damage, &counters.wal_undecodable];
        let counted = counted.map(|count| count.load(Relaxed));
        assert_eq!(counted, [1, 1], "{is_restarted}");
    }
}

/// Rows of a torn end that a power cut removed leave the store, because the sender sends them
/// again.
#[test]
fn what_is_not_in_the_segment_any_more_leaves_the_store() {
    let hour_ns = 3_600_000_000_000;
    let mut later = batch(1, 1, 3);
    later.spans.as_mut().unwrap().base_ns += hour_ns / 2 * 3;
    let later = Payload::of(EPOCH_NS + hour_ns, &later);
    let simulated = Simulated::new(1);
    simulated.log(0, &[vec![of_batch(0), later]]);
    let flusher = simulated.flusher();
    flusher.make_durable(&flusher.convert(0).unwrap()).unwrap();
    let with_both = simulated.objects().len();
    // The same segment, as if its end had never been written.
    let data = simulated.data();
    data.disk()
        .remove(&data.wal().join("0000000000.wal"))
        .unwrap();
    simulated.log(0, &[vec![of_batch(0)]]);
    simulated.flusher().recover().unwrap();
    assert!(simulated.objects().len() < with_both);
    let left = simulated.objects();
    assert!(
        left.iter().all(|(path, _)| path.contains("hour=03")),
        "{left:?}"
    );
}
