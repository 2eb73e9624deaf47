//! One run: hosts, faults at their times, then a time without faults, in which everything must come
//! to rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, UNIX_EPOCH};

use stroboscope::simulation::Clock as _;
use stroboscope_testkit::disk::{Faults, SimDisk};
use stroboscope_testkit::random::Random;
use stroboscope_testkit::stored::Stored;

use crate::check;
use crate::clock::{self, EPOCH_NS};
use crate::collector::{Machine, set_commit_ms};
use crate::fleet::{Fleet, host_name};
use crate::log::Log;
use crate::objects::SimObjects;
use crate::plan::{Fault, Plan, Planted};
use crate::publishing::Publishing;

const COLLECTOR: &str = "collector";
const TICK: Duration = Duration::from_millis(10);
/// Maximum time until everything is acknowledged once nothing fails any more, in ms: the SDK waits
/// 20 s for an answer, and 5 s before it retries.
const REST_MS: u64 = 60_000;
/// Time after a switch for which windows are checked, in ms.
const WINDOWS_MS: u64 = 4_000;
/// Time that processes may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a seed. The first line of the answer is `OK` or `FAILED`, the second is the reason, and the
/// others are the log.
pub(crate) fn run(seed: u64, planted: Planted, directory: &Path) -> String {
    clock::simulate(seed);
    let log = Log::default();
    let plan = Arc::new(Plan::of(seed));
    let done = World::new(seed, plan.clone(), planted, directory, log.clone()).run();
    let (verdict, why) = match done {
        Ok(()) => ("OK", String::new()),
        Err(why) => ("FAILED", why),
    };
    format!("{verdict}\n{why}\n{plan}{}\n", log.text())
}

struct World {
    sim: turmoil::Sim<'static>,
    plan: Arc<Plan>,
    random: Random,
    log: Log,
    fleet: Fleet,
    machine: Machine,
    publishing: Publishing,
    is_up: bool,
}

/// Rows of the store, losses by service as the ledger knows them, and counters of the flusher.
type Settled = (
    Stored,
    BTreeMap<String, u64>,
    Arc<stroboscope_store::flush::Counters>,
);

impl World {
    fn new(seed: u64, plan: Arc<Plan>, planted: Planted, directory: &Path, log: Log) -> Self {
        let settings = &plan.settings;
        let disk = SimDisk::new(seed ^ 0xd15c);
        if planted == Planted::AcknowledgedBeforeSync {
            disk.set_lie(Some(|path| {
                path.extension().is_some_and(|end| end == "wal")
            }));
        }
        let flush_interval = Duration::from_millis(settings.flush_interval_ms);
        let machine = Machine::new(
            disk,
            log.clone(),
            flush_interval,
            settings.burst_config,
            &directory.join("lock"),
        );
        let fleet = Fleet::new(plan.clone(), planted, seed, log.clone());
        let mut sim = turmoil::Builder::new()
            .epoch(UNIX_EPOCH + Duration::from_nanos(EPOCH_NS as u64))
            .simulation_duration(Duration::from_secs(3_600))
            .tick_duration(TICK)
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(settings.latency_ms_max))
            .tcp_capacity(4_096)
            .rng_seed(seed)
            .build();
        let of_host = machine.clone();
        sim.host(COLLECTOR, move || of_host.clone().run());
        for host in 0..settings.processes {
            let fleet = fleet.clone();
            sim.host(host_name(host), move || fleet.clone().run(host));
        }
        let objects = SimObjects::new(seed ^ 0x0b1e, log.clone());
        objects.set_faults(settings.objects);
        Self {
            sim,
            random: Random(seed ^ 0x3013),
            fleet,
            publishing: Publishing::new(objects, machine.clone(), directory, planted),
            machine,
            plan,
            log,
            is_up: true,
        }
    }

    fn run(mut self) -> Result<(), String> {
        let plan = self.plan.clone();
        for &(at_ms, fault) in &plan.faults {
            while self.now_ms() < at_ms {
                self.step()?;
            }
            self.log.add("fault", format_args!("{fault:?}"));
            self.apply(fault)?;
        }
        self.log.add("world", "nothing fails any more");
        self.mend();
        self.for_ms(1_000)?;
        for incarnation in self.fleet.alive() {
            incarnation.known().is_quiet = true;
        }
        self.for_ms(500)?;
        self.until("all batches are acknowledged", |world| {
            world
                .fleet
                .alive()
                .iter()
                .all(|incarnation| incarnation.waiting() == 0)
        })?;
        let switched_ns = self.machine.switch(plan.settings.next_burst_config);
        let switched_ns = switched_ns.ok_or("no collector runs")?;
        self.for_ms(1_000 + WINDOWS_MS + 1_000)?;
        for host in 0..plan.settings.processes {
            self.fleet.stop(host, PATIENCE);
        }
        let last = self.fleet.alive();
        self.until("all processes have ended", |world| {
            world.fleet.alive().is_empty()
        })?;
        self.log.add("world", "all processes have ended");
        let (stored, told, flushed) = self.settle()?;
        self.check(&stored, &told)?;
        self.check_windows(&stored, &last, switched_ns)?;
        self.check_published(&stored, &flushed)
    }

    fn now_ms(&self) -> u64 {
        self.sim.elapsed().as_millis() as u64
    }

    fn wall_of_collector_ns(&self) -> i64 {
        let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| now.as_nanos() as i64)
    }

    fn step(&mut self) -> Result<(), String> {
        self.sim
            .step()
            .map_err(|error| format!("a host ended: {error}"))?;
        clock::set_now(self.sim.elapsed().as_nanos() as i64);
        if self.is_up && self.machine.disk.has_ended() {
            let is_power_cut = self.random.happens(500);
            self.end_collector(is_power_cut);
        }
        Ok(())
    }

    fn for_ms(&mut self, ms: u64) -> Result<(), String> {
        let end_ms = self.now_ms() + ms;
        while self.now_ms() < end_ms {
            self.step()?;
        }
        Ok(())
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), String> {
        let end_ms = self.now_ms() + REST_MS;
        while !is_so(self) {
            if self.now_ms() > end_ms {
                let waiting: Vec<(String, usize)> = self
                    .fleet
                    .alive()
                    .iter()
                    .map(|of| (of.name.clone(), of.waiting()))
                    .collect();
                return Err(format!(
                    "not so after {REST_MS} ms without faults: {what}; {waiting:?} batches wait"
                ));
            }
            self.for_ms(100)?;
        }
        Ok(())
    }

    fn apply(&mut self, fault: Fault) -> Result<(), String> {
        let disk = self.machine.disk.clone();
        let name = host_name;
        match fault {
            Fault::Partition { host } => self.sim.partition(name(host), COLLECTOR),
            Fault::LoseAnswers { host } => self.sim.partition_oneway(COLLECTOR, name(host)),
            Fault::LoseBatches { host } => self.sim.partition_oneway(name(host), COLLECTOR),
            Fault::Hold { host } => self.sim.hold(name(host), COLLECTOR),
            Fault::Repair { host } => self.repair(host),
            Fault::Latency { host, ms } => {
                self.sim
                    .set_link_latency(name(host), COLLECTOR, Duration::from_millis(ms));
            }
            Fault::KillProcess { host } => {
                self.fleet.note_killed(host);
                self.sim.crash(name(host));
            }
            Fault::StopProcess { host } => self.fleet.stop(host, Duration::from_secs(2)),
            Fault::StartProcess { host } => self.start_process(host),
            Fault::KillCollector if self.is_up => self.end_collector(false),
            Fault::CutPower if self.is_up => self.end_collector(true),
            Fault::KillCollector | Fault::CutPower => {}
            Fault::EndInDisk { operations } => disk.end_after(Some(operations)),
            Fault::StartCollector => self.start_collector(),
            Fault::DiskErrors { per_mille } => disk.set_faults(Faults {
                errors_per_mille: per_mille,
                ..Faults::default()
            }),
            Fault::DiskFull => disk.set_faults(Faults {
                is_full: true,
                ..Faults::default()
            }),
            Fault::DiskReadOnly => disk.set_faults(Faults {
                is_read_only: true,
                ..Faults::default()
            }),
            Fault::MendDisk => {
                disk.set_faults(Faults::default());
                set_commit_ms(0);
            }
            Fault::SlowDisk { ms } => set_commit_ms(ms),
            Fault::StepClock { host, ms } => {
                self.fleet.clocks[host]
                    .skew_ns
                    .fetch_add(ms * 1_000_000, Relaxed);
            }
            Fault::StepCollectorClock { ms } => clock::step_collector(ms * 1_000_000),
            Fault::Switch { config } => drop(self.machine.switch(config)),
            Fault::Publish => {
                if let Some(live) = self.machine.live() {
                    self.publishing.round(live.intake.counters());
                }
            }
            Fault::PublishCopy { after } => {
                if let Some(live) = self.machine.live() {
                    self.publishing.set_copy(after, live.intake.counters());
                }
            }
            Fault::Read => {
                if let Some(seen) = self.publishing.read(self.plan.settings.objects) {
                    check::snapshot(&seen, &self.fleet.incarnations())
                        .map_err(|why| format!("a reader: {why}"))?;
                }
            }
        }
        Ok(())
    }

    fn repair(&mut self, host: usize) {
        let latency = Duration::from_millis(self.plan.settings.latency_ms_max);
        self.sim.release(host_name(host), COLLECTOR);
        self.sim
            .set_link_latency(host_name(host), COLLECTOR, latency);
    }

    fn start_process(&mut self, host: usize) {
        if !self.sim.is_host_running(host_name(host)) {
            self.sim.bounce(host_name(host));
        }
    }

    fn end_collector(&mut self, is_power_cut: bool) {
        let how = if is_power_cut {
            "the power is cut"
        } else {
            "it is killed"
        };
        self.log.add(COLLECTOR, how);
        for host in 0..self.plan.settings.processes {
            // A power cut closes no connection: those of the processes stay half open.
            if is_power_cut {
                self.sim.partition(host_name(host), COLLECTOR);
            }
        }
        self.sim.crash(COLLECTOR);
        self.machine.forget_live();
        self.publishing.forget();
        if is_power_cut {
            self.machine.disk.restart_machine();
            (0..self.plan.settings.processes).for_each(|host| self.repair(host));
        } else {
            self.machine.disk.restart_process();
        }
        self.is_up = false;
    }

    fn start_collector(&mut self) {
        if !self.is_up {
            self.sim.bounce(COLLECTOR);
            self.is_up = true;
        }
    }

    /// Ends all faults.
    fn mend(&mut self) {
        self.machine.disk.set_faults(Faults::default());
        self.machine.disk.end_after(None);
        set_commit_ms(0);
        self.publishing.objects.mend();
        self.start_collector();
        for host in 0..self.plan.settings.processes {
            self.repair(host);
            self.start_process(host);
        }
    }

    /// Cuts the power once more and moves the log into the store. Returns the rows, the losses that
    /// the ledger knows, and the counters for a publisher.
    fn settle(&mut self) -> Result<Settled, String> {
        self.end_collector(true);
        let (intake, _) = self
            .machine
            .open()
            .map_err(|error| format!("the collector does not start: {error}"))?;
        let counters = intake.counters().clone();
        match counters.wal_undecodable.load(Relaxed) {
            0 => {}
            lost => return Err(format!("{lost} records of the log cannot be read")),
        }
        let mut told = BTreeMap::new();
        for ((service, _), records) in intake.with_ledger(stroboscope_store::ledger::Ledger::losses)
        {
            *told.entry(service).or_default() += records;
        }
        let (store, mut stored) = (self.machine.store(), Err(String::new()));
        clock::apart(&mut || stored = Stored::read(&store));
        let stored = stored?;
        Ok((stored, told, counters))
    }

    fn check(&self, stored: &Stored, told: &BTreeMap<String, u64>) -> Result<(), String> {
        let incarnations = self.fleet.incarnations();
        for incarnation in &incarnations {
            check::stored(stored, told, incarnation)?;
        }
        check::snapshot(stored, &incarnations)?;
        let recorded: u64 = incarnations.iter().map(|of| of.known().recorded).sum();
        let (batches, spans) = (stored.batches.len(), stored.spans.len());
        self.log.add(
            "world",
            format_args!(
                "{recorded} spans were recorded; {spans} are stored, in {batches} batches"
            ),
        );
        Ok(())
    }

    fn check_windows(
        &self,
        stored: &Stored,
        last: &[Arc<crate::service::Incarnation>],
        switched_ns: u64,
    ) -> Result<(), String> {
        let none = Vec::new();
        for incarnation in self.fleet.incarnations() {
            let windows = stored.windows.get(&incarnation.id).unwrap_or(&none);
            check::windows_are_of_their_config(&incarnation.name, windows)?;
        }
        for incarnation in last {
            let clock = &self.fleet.clocks[incarnation.host];
            let ahead_ns = clock.wall_ns() - self.wall_of_collector_ns();
            // A host ahead by more learns of a switch when it is over, and a host behind has not
            // reached it.
            if ahead_ns.abs() > 600_000_000 {
                continue;
            }
            let windows = stored.windows.get(&incarnation.id).unwrap_or(&none);
            let at_ms = switched_ns / 1_000_000;
            let config = self.plan.settings.next_burst_config;
            check::windows_are_whole(
                &incarnation.name,
                windows,
                config,
                &(at_ms + 20..at_ms + WINDOWS_MS),
            )?;
        }
        Ok(())
    }

    /// Checks that a reader sees the whole store in the end, and that a copy of the directory has
    /// stopped the original, or was stopped.
    fn check_published(
        &mut self,
        stored: &Stored,
        flushed: &Arc<stroboscope_store::flush::Counters>,
    ) -> Result<(), String> {
        let mut is_complete = false;
        for _ in 0..4 {
            is_complete = self.publishing.round(flushed);
            if is_complete || self.publishing.is_fenced {
                break;
            }
        }
        let manifests = self.publishing.objects.check()?;
        self.log
            .add("world", format_args!("{manifests} manifests were written"));
        if !is_complete && !self.publishing.is_fenced {
            return Err("not all is published after four rounds without faults".to_owned());
        }
        let seen = match self.publishing.read(Default::default()) {
            Some(seen) => seen,
            // A copy that stopped the original may have published no file.
            None if self.publishing.is_fenced => return Ok(()),
            None => return Err("a reader cannot read".to_owned()),
        };
        check::snapshot(&seen, &self.fleet.incarnations())
            .map_err(|why| format!("a reader: {why}"))?;
        if is_complete && seen.batches != stored.batches {
            let (seen, stored) = (seen.batches.len(), stored.batches.len());
            return Err(format!(
                "a reader sees {seen} batches, of {stored} that are stored"
            ));
        }
        Ok(())
    }
}
