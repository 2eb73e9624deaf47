//! One run: hosts, faults at their times, then a time without faults, in which everything must come
//! to rest.

mod faults;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, UNIX_EPOCH};

use stroboscope::simulation::Clock as _;
use stroboscope_fixtures::disk::SimDisk;
use stroboscope_fixtures::random::Random;
use stroboscope_fixtures::stored::Stored;

use crate::check;
use crate::clock::{self, EPOCH_NS};
use crate::collector::Machine;
use crate::fleet::{Fleet, host_name};
use crate::log::Log;
use crate::objects::SimObjects;
use crate::plan::{Node, Plan, Planted};
use crate::publishing::Publishing;

const TICK: Duration = Duration::from_millis(10);
/// Maximum time until everything is acknowledged once nothing fails any more, in ms: the SDK waits
/// 20 s for an answer, and 5 s before it retries.
const REST_MS: u64 = 60_000;
/// Time in ms until all connections that faults broke are noticed, without any traffic: the SDK and
/// agents send a keepalive every 10 s, and wait 5 s for its answer.
const NOTICED_MS: u64 = 16_000;
/// Time after a switch for which windows are checked, in ms.
const WINDOWS_MS: u64 = 4_000;
/// Time that processes may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a seed. The first line of the answer is `OK` or `FAILED`, the second is the reason, and the
/// others are the plan and the log.
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
    /// Machine of each node, and whether its program runs; the collector's is the first.
    machines: Vec<(Machine, bool)>,
    publishing: Publishing,
}

/// Rows of the store, losses by service in the ledger, and counters of the flusher.
type Settled = (
    Stored,
    BTreeMap<String, u64>,
    Arc<stroboscope_store::flush::Counters>,
);

impl World {
    fn new(seed: u64, plan: Arc<Plan>, planted: Planted, directory: &Path, log: Log) -> Self {
        let settings = &plan.settings;
        let flush_interval = Duration::from_millis(settings.flush_interval_ms);
        let machines = settings.nodes().iter().map(|&node| {
            let disk = SimDisk::new(seed ^ 0xd15c ^ (node as u64) << 32);
            if planted == Planted::AcknowledgedBeforeSync {
                disk.set_lie(Some(|path| {
                    path.extension().is_some_and(|end| end == "wal")
                }));
            }
            let machine = Machine::new(
                node,
                planted,
                disk,
                log.clone(),
                flush_interval,
                settings.burst_config,
                &directory.join(node.host()),
            );
            (machine, true)
        });
        let machines: Vec<(Machine, bool)> = machines.collect();
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
        for (machine, _) in &machines {
            let of_host = machine.clone();
            sim.host(machine.node.host(), move || of_host.clone().run());
        }
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
            publishing: Publishing::new(objects, machines[0].0.clone(), directory, planted),
            machines,
            plan,
            log,
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
        // Processes that start again are alive only then.
        self.for_ms(500)?;
        for incarnation in self.fleet.alive() {
            incarnation.known().is_quiet = true;
        }
        self.for_ms(NOTICED_MS)?;
        self.until("all batches are acknowledged", |world| {
            world
                .fleet
                .alive()
                .iter()
                .all(|incarnation| incarnation.waiting() == 0)
        })?;
        self.until("the agent is connected to the collector", |world| {
            let live = world.machine(Node::Collector).live();
            let agents = live.map_or(0, |live| live.control.agents().count());
            agents == world.machines.len() - 1
        })?;
        let config = plan.settings.next_burst_config;
        let switched_ns = self.machine(Node::Collector).switch(config);
        let switched_ns = switched_ns.ok_or("no collector runs")?;
        let lead_ns = switched_ns.cast_signed() - self.wall_of_collector_ns();
        self.for_ms(lead_ns.max(0).unsigned_abs() / 1_000_000 + WINDOWS_MS + 1_000)?;
        for host in 0..plan.settings.processes {
            self.fleet.stop(host, PATIENCE);
        }
        let last = self.fleet.alive();
        self.until("all processes have ended", |world| {
            world.fleet.alive().is_empty()
        })?;
        self.log.add("world", "all processes have ended");
        self.until("the agent has forwarded its log", |world| {
            let machines = world.machines.iter().skip(1);
            let mut lives = machines.map(|(machine, _)| machine.live());
            lives.all(|live| live.is_some_and(|live| live.waiting_bytes() == 0))
        })?;
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
        for at in 0..self.machines.len() {
            let (machine, is_up) = &self.machines[at];
            if *is_up && machine.disk.has_ended() {
                let node = machine.node;
                let is_power_cut = self.random.happens(500);
                self.end_node(node, is_power_cut);
            }
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

    fn machine(&self, node: Node) -> &Machine {
        &self.machines[node as usize].0
    }

    /// Cuts the power once more and moves the log into the store. Returns the rows, the losses in
    /// the ledger, and the counters for a publisher.
    fn settle(&mut self) -> Result<Settled, String> {
        self.end_node(Node::Collector, true);
        let (intake, _) = self
            .machine(Node::Collector)
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
        let store = self.machine(Node::Collector).store();
        let mut stored = Err(String::new());
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
            // A host whose clock is ahead by more may receive the switch after its instant, and one
            // whose clock is behind by more may end before the checked windows do.
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

    /// Checks that four rounds of the publisher suffice, and that a reader then sees the whole
    /// store. If a copy of the data directory has fenced the publisher, only checks that a reader
    /// that can read sees one snapshot.
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
