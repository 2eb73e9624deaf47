//! One schedule: several runs of a collector on one disk, each but the last ended by a kill or a
//! power cut.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;

use stroboscope_fixtures::batches::EPOCH_NS;
use stroboscope_fixtures::disk::{Faults, Lie, SimDisk};
use stroboscope_fixtures::random::Random;
use stroboscope_fixtures::stored::Stored;
use stroboscope_store::data_dir::{DataDir, Lock};
use stroboscope_store::disk::Disk as _;
use stroboscope_store::flush::FlushError;
use stroboscope_store::ledger::Verdict;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use super::senders::Senders;
use crate::ingest::committer::{Append, Committer, IntakeState};
use crate::ingest::flushing::{FlushThread, SegmentSink};
use crate::ingest::recovery::recovered;
use crate::ingest::{CommitOutcome, IntakeError};
use crate::pool::{Peer, Pool};

const ROOT: &str = "/sim/data";

/// A step of the product that is omitted or done too early, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    None,
    /// Syncs of this target only pretend to succeed.
    Unsynced(SyncTarget),
    /// The segment is deleted before the checkpoint is saved.
    DeletedFirst,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncTarget {
    Segment,
    LogDirectory,
    Checkpoint,
    DataDirectory,
    AboveDataDirectory,
    Object,
    ObjectDirectories,
}

impl Mutation {
    pub(super) const ALL: [Self; 8] = [
        Self::Unsynced(SyncTarget::Segment),
        Self::Unsynced(SyncTarget::LogDirectory),
        Self::Unsynced(SyncTarget::Checkpoint),
        Self::Unsynced(SyncTarget::DataDirectory),
        Self::Unsynced(SyncTarget::AboveDataDirectory),
        Self::Unsynced(SyncTarget::Object),
        Self::Unsynced(SyncTarget::ObjectDirectories),
        Self::DeletedFirst,
    ];

    fn lie(self) -> Option<Lie> {
        fn ends(path: &Path, end: &str) -> bool {
            path.to_string_lossy().ends_with(end)
        }
        let Self::Unsynced(which) = self else {
            return None;
        };
        Some(match which {
            SyncTarget::Segment => |path| ends(path, ".wal"),
            SyncTarget::LogDirectory => |path| ends(path, "/wal"),
            SyncTarget::Checkpoint => |path| ends(path, "checkpoint.json.new"),
            SyncTarget::DataDirectory => |path| path == Path::new(ROOT),
            SyncTarget::AboveDataDirectory => |path| path == Path::new("/sim"),
            SyncTarget::Object => |path| ends(path, ".parquet.new"),
            SyncTarget::ObjectDirectories => |path| {
                let is_table = |directory: &&str| path.starts_with(Path::new(ROOT).join(directory));
                ["spans", "events", "batches"].iter().any(is_table) && !ends(path, ".new")
            },
        })
    }
}

/// Counts of events in schedules.
#[derive(Clone, Debug, Default)]
pub(super) struct ScheduleTotals {
    pub(super) operations: u64,
    pub(super) power_cuts: u64,
    pub(super) kills: u64,
    /// Starts that a crash or a failure of the disk ended.
    pub(super) cut_recoveries: u64,
    pub(super) acknowledged: u64,
    pub(super) pushed_back: u64,
    pub(super) flushes: u64,
    pub(super) failed_flushes: u64,
    pub(super) objects: u64,
}

impl ScheduleTotals {
    pub(super) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.cut_recoveries += other.cut_recoveries;
        self.acknowledged += other.acknowledged;
        self.pushed_back += other.pushed_back;
        self.flushes += other.flushes;
        self.failed_flushes += other.failed_flushes;
        self.objects += other.objects;
    }
}

/// A collector between its start and its end.
struct Life {
    committer: Committer,
    flushing: FlushThread,
    state: Arc<IntakeState>,
}

pub(super) struct Schedule {
    pub(super) disk: SimDisk,
    random: Random,
    senders: Senders,
    mutation: Mutation,
    runtime: Runtime,
    /// Directory of the lock file: the simulated disk has no locks.
    real: tempfile::TempDir,
    pool: Pool,
    now_ns: u64,
    /// True if the checkpoint was removed. Retries may then be stored again.
    has_lost_checkpoint: bool,
    seen: ScheduleTotals,
}

impl Schedule {
    pub(super) fn new(seed: u64, mutation: Mutation) -> Self {
        let disk = SimDisk::new(seed);
        let above = Path::new(ROOT).parent().unwrap_or(Path::new("/"));
        disk.create_directories(above).unwrap();
        above
            .ancestors()
            .for_each(|directory| disk.sync(directory).unwrap());
        disk.set_lie(mutation.lie());
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        Self {
            disk,
            random: Random(seed ^ 0x5eed),
            senders: Senders::new(seed ^ 0xca11),
            mutation,
            runtime: runtime.unwrap(),
            real: tempfile::tempdir().unwrap(),
            pool: Pool::new(1_000),
            now_ns: EPOCH_NS,
            has_lost_checkpoint: false,
            seen: ScheduleTotals::default(),
        }
    }

    pub(super) fn run(mut self) -> Result<ScheduleTotals, String> {
        for _ in 0..2 + self.random.below(4) {
            self.disk_of_a_life();
            match self.open() {
                Ok(mut life) => {
                    self.check_ledger(&life)?;
                    self.live(&mut life)?;
                    self.seen.flushes += life.state.counters.flushes.load(Relaxed);
                    self.seen.failed_flushes += life.state.counters.flush_failures.load(Relaxed);
                }
                Err(_) => self.seen.cut_recoveries += 1,
            }
            self.end();
        }
        self.settle()?;
        self.seen.operations = self.disk.operations();
        Ok(self.seen)
    }

    /// Draws the maximum number of disk operations of this run, and the reliability of its disk.
    fn disk_of_a_life(&mut self) {
        let most = [30, 150, 600][self.random.below(3)];
        let operations = self.random.below(most) as u64;
        self.disk.end_after(Some(1 + operations));
        self.disk.set_faults(Faults {
            errors_per_mille: [0, 0, 5, 40][self.random.below(4)],
            ..Faults::default()
        });
    }

    fn open(&mut self) -> Result<Life, FlushError> {
        let root = PathBuf::from(ROOT);
        let data = DataDir::create_on(Arc::new(self.disk.clone()), &root)?;
        let store = self.disk.store(&root, self.runtime.handle().clone());
        let (writer, flusher, state) = recovered(&data, store)?;
        let (sender, commands) = mpsc::channel(1);
        let (flush_sender, flush_commands) = std_mpsc::channel();
        let committer = Committer::new(writer, state.clone(), commands, flush_sender, u64::MAX);
        let flushing = FlushThread {
            sink: SegmentSink::Store(flusher),
            state: state.clone(),
            committer: sender.downgrade(),
            commands: flush_commands,
            interval: Duration::MAX,
            quiet_flushes: 0,
            until: None,
            others_flushed: Arc::default(),
            _lock: std::sync::Arc::new(self.lock()?),
        };
        Ok(Life {
            committer,
            flushing,
            state,
        })
    }

    fn lock(&self) -> Result<Lock, FlushError> {
        Ok(DataDir::create(self.real.path())?.lock()?)
    }

    /// Runs random steps until the simulated process or machine ends, or a drawn number of steps is
    /// done.
    fn live(&mut self, life: &mut Life) -> Result<(), String> {
        for _ in 0..self.random.below(40) {
            match self.random.below(13) {
                0..=6 => {
                    let group = 1 + self.random.below(5);
                    let group = (0..group).map(|_| self.senders.next(self.now_ns)).collect();
                    self.commit(life, group)?;
                }
                7 => life.committer.rotate(),
                8 | 9 => self.flush(life),
                10 => self.flush_closed(life),
                11 => life.committer.probe_log(self.random.below(2_000)),
                _ => {
                    let toggled = Faults {
                        errors_per_mille: [0, 5][self.random.below(2)],
                        is_full: self.random.happens(300),
                        is_read_only: self.random.happens(150),
                    };
                    self.disk.set_faults(toggled);
                    self.disk.note(|| format!("-- {toggled:?}"));
                }
            }
            if self.disk.has_ended() {
                break;
            }
        }
        Ok(())
    }

    fn commit(&mut self, life: &mut Life, messages: Vec<usize>) -> Result<(), String> {
        let mut answers = Vec::new();
        let mut group = Vec::new();
        for at in messages {
            self.now_ns += self.random.below(150) as u64 * 1_000_000_000;
            let message = &mut self.senders.messages[at];
            message.sent += 1;
            let (incoming, payload) = message.incoming(self.now_ns);
            let (answer, answered) = oneshot::channel();
            group.push(Append {
                context: None,
                incoming,
                payload,
                answer,
                _share: self.pool.share(Peer::default()),
            });
            answers.push((at, answered));
        }
        life.committer.commit(group);
        for (at, mut answered) in answers {
            let message = &mut self.senders.messages[at];
            let name = message.key().map_or_else(
                || format!("request of spans {:?}", message.span_ids),
                |key| format!("batch {key:?}"),
            );
            let answer = answered
                .try_recv()
                .map_err(|_| format!("{name} got no answer"))?;
            self.disk.note(|| format!("-- {name}: {answer:?}"));
            match answer {
                Ok(CommitOutcome::Stored | CommitOutcome::Duplicate) => {
                    self.seen.acknowledged += u64::from(!message.is_acknowledged);
                    message.is_acknowledged = true;
                }
                Err(IntakeError::Wal(_)) => self.seen.pushed_back += 1,
                other => return Err(format!("{name}: {other:?}")),
            }
        }
        Ok(())
    }

    fn flush(&mut self, life: &mut Life) {
        life.committer.rotate();
        self.flush_closed(life);
    }

    fn flush_closed(&mut self, life: &mut Life) {
        if self.mutation != Mutation::DeletedFirst {
            // A failed segment is retried.
            let _ = life.flushing.flush_closed();
            return;
        }
        let segments: Vec<u64> = life.state.closed().keys().copied().collect();
        let SegmentSink::Store(flusher) = &mut life.flushing.sink else {
            return;
        };
        for segment in segments {
            let done = flusher.convert(segment).and_then(|converted| {
                flusher.remove(segment)?;
                flusher.make_durable(&converted)?;
                flusher.save(converted)
            });
            if done.is_err() {
                return;
            }
            life.state.closed().remove(&segment);
        }
    }

    fn end(&mut self) {
        if self.random.happens(650) {
            self.seen.power_cuts += 1;
            self.disk.restart_machine();
        } else {
            self.seen.kills += 1;
            self.disk.restart_process();
        }
        self.disk.set_faults(Faults::default());
        if self.random.happens(20) {
            let lost = self.disk.remove(&Path::new(ROOT).join("checkpoint.json"));
            self.has_lost_checkpoint |= lost.is_ok();
        }
    }

    /// Checks that a new run's ledger contains all acknowledged batches, unless the checkpoint was
    /// lost.
    fn check_ledger(&self, life: &Life) -> Result<(), String> {
        let ledger = life.state.ledger();
        let acknowledged = self.senders.messages.iter();
        let mut keys = acknowledged
            .filter(|message| message.is_acknowledged)
            .filter_map(|message| message.key());
        let is_unknown = |&(incarnation, sequence): &(u128, u64)| {
            ledger.verdict(incarnation, sequence) != Verdict::Duplicate
        };
        match keys.find(is_unknown) {
            Some(key) if !self.has_lost_checkpoint => {
                Err(format!("batch {key:?} was acknowledged, and is not known"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the final state with a working disk: unacknowledged batches and some unacknowledged
    /// OTLP requests are sent again, everything is flushed, and the power is cut once more. Then
    /// the store must have its expected content.
    fn settle(&mut self) -> Result<(), String> {
        let mut life = self
            .open()
            .map_err(|error| format!("does not start: {error}"))?;
        self.check_ledger(&life)?;
        let open = |at: &usize| !self.senders.messages[*at].is_acknowledged;
        let open: Vec<usize> = (0..self.senders.messages.len()).filter(open).collect();
        // Here, exporters may give up, and the SDK's processes do not.
        let open = open
            .into_iter()
            .filter(|&at| !self.senders.messages[at].is_otlp() || self.random.happens(500))
            .collect();
        self.commit(&mut life, open)?;
        self.flush(&mut life);
        let undecodable = life.state.counters.wal_undecodable.load(Relaxed);
        if undecodable > 0 {
            return Err(format!("{undecodable} records of the log cannot be read"));
        }
        drop(life);
        self.disk.restart_machine();
        let life = self
            .open()
            .map_err(|error| format!("does not start: {error}"))?;
        self.check_ledger(&life)?;
        self.check_losses(&life)?;
        let left: Vec<String> = self.disk.files(Path::new(ROOT)).into_keys().collect();
        self.seen.objects += left
            .iter()
            .filter(|name| name.ends_with(".parquet"))
            .count() as u64;
        let store = self
            .disk
            .store(Path::new(ROOT), self.runtime.handle().clone());
        self.check_stored(&Stored::read(&store)?)
    }

    /// Checks that the reported losses match the latest totals from the processes, unless the
    /// checkpoint was lost.
    fn check_losses(&self, life: &Life) -> Result<(), String> {
        let mut latest = std::collections::BTreeMap::new();
        for (incarnation, sequence) in self.senders.messages.iter().filter_map(|m| m.key()) {
            let most: &mut u64 = latest.entry(incarnation).or_default();
            *most = sequence.max(*most);
        }
        let expected: u64 = latest.values().sum();
        let told: u64 = life.state.ledger().losses().values().sum();
        if told != expected && !self.has_lost_checkpoint {
            return Err(format!("{told} lost records are told, of {expected}"));
        }
        Ok(())
    }

    fn check_stored(&self, stored: &Stored) -> Result<(), String> {
        for message in &self.senders.messages {
            let copies = |id: &u64| stored.spans.get(id).copied().unwrap_or(0);
            let counts: Vec<usize> = message.span_ids.iter().map(copies).collect();
            let (least, most) = match message.key() {
                Some(_) if self.has_lost_checkpoint => (1, message.sent),
                Some(_) => (1, 1),
                None => (usize::from(message.is_acknowledged), message.sent),
            };
            let rows = message
                .key()
                .map(|key| stored.batches.get(&key).copied().unwrap_or(0));
            let is_right = |count: &usize| (least..=most).contains(count);
            if !counts.iter().chain(&rows).all(is_right) {
                return Err(format!(
                    "{:?}, spans {:?}, acknowledged: {}, sent {} times, is stored {counts:?} times, its row {rows:?}",
                    message.key(),
                    message.span_ids,
                    message.is_acknowledged,
                    message.sent
                ));
            }
        }
        let known: usize = self.senders.messages.iter().map(|m| m.span_ids.len()).sum();
        match stored.spans.len() <= known {
            true => Ok(()),
            false => Err("spans are stored that nobody sent".to_owned()),
        }
    }
}
