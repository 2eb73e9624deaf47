//! Effects of faults on hosts, links and disks, and their end.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use stroboscope_fixtures::disk::Faults;

use super::World;
use crate::collector::set_commit_ms;
use crate::fleet::host_name;
use crate::plan::{Fault, Node};
use crate::{check, clock};

impl World {
    /// Returns the two hosts of a link: the one that sends data, and the one that receives it.
    pub(super) fn link(&self, link: usize) -> (String, &'static str) {
        let settings = &self.plan.settings;
        match link < settings.processes {
            true => (host_name(link), settings.front().host()),
            false => (Node::Agent.host().to_owned(), Node::Collector.host()),
        }
    }

    /// Returns all links.
    pub(super) fn links(&self) -> std::ops::Range<usize> {
        0..self.plan.settings.processes + self.machines.len() - 1
    }

    pub(super) fn apply(&mut self, fault: Fault) -> Result<(), String> {
        let set_faults = |node: Node, faults: Faults| self.machine(node).disk.set_faults(faults);
        match fault {
            Fault::Partition { link } => {
                let (from, to) = self.link(link);
                self.sim.partition(from, to);
            }
            Fault::LoseAnswers { link } => {
                let (from, to) = self.link(link);
                self.sim.partition_oneway(to, from);
            }
            Fault::LoseBatches { link } => {
                let (from, to) = self.link(link);
                self.sim.partition_oneway(from, to);
            }
            Fault::Hold { link } => {
                let (from, to) = self.link(link);
                self.sim.hold(from, to);
            }
            Fault::Repair { link } => self.repair(link),
            Fault::Latency { link, ms } => {
                let (from, to) = self.link(link);
                self.sim
                    .set_link_latency(from, to, Duration::from_millis(ms));
            }
            Fault::KillProcess { host } => {
                self.fleet.note_killed(host);
                self.sim.crash(host_name(host));
            }
            Fault::StopProcess { host } => self.fleet.stop(host, Duration::from_secs(2)),
            Fault::StartProcess { host } => self.start_process(host),
            Fault::KillNode { node } => self.end_node(node, false),
            Fault::CutPower { node } => self.end_node(node, true),
            Fault::EndInDisk { node, operations } => {
                self.machine(node).disk.end_after(Some(operations));
            }
            Fault::StartNode { node } => self.start_node(node),
            Fault::DiskErrors { node, per_mille } => set_faults(
                node,
                Faults {
                    errors_per_mille: per_mille,
                    ..Faults::default()
                },
            ),
            Fault::DiskFull { node } => set_faults(
                node,
                Faults {
                    is_full: true,
                    ..Faults::default()
                },
            ),
            Fault::DiskReadOnly { node } => set_faults(
                node,
                Faults {
                    is_read_only: true,
                    ..Faults::default()
                },
            ),
            Fault::MendDisk { node } => {
                set_faults(node, Faults::default());
                set_commit_ms(node, 0);
            }
            Fault::SlowDisk { node, ms } => set_commit_ms(node, ms),
            Fault::StepClock { host, ms } => {
                self.fleet.clocks[host]
                    .skew_ns
                    .fetch_add(ms * 1_000_000, Relaxed);
            }
            Fault::StepCollectorClock { ms } => clock::step_collector(ms * 1_000_000),
            Fault::Switch { config } => drop(self.machine(Node::Collector).switch(config)),
            Fault::Publish => {
                if let Some(live) = self.machine(Node::Collector).live() {
                    self.publishing.round(live.intake.counters());
                }
            }
            Fault::PublishCopy { after } => {
                if let Some(live) = self.machine(Node::Collector).live() {
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

    pub(super) fn repair(&mut self, link: usize) {
        let latency = Duration::from_millis(self.plan.settings.latency_ms_max);
        let (from, to) = self.link(link);
        self.sim.release(&*from, to);
        self.sim.set_link_latency(from, to, latency);
    }

    pub(super) fn start_process(&mut self, host: usize) {
        if !self.sim.is_host_running(host_name(host)) {
            self.sim.bounce(host_name(host));
        }
    }

    /// Ends the program of a node, if it runs.
    pub(super) fn end_node(&mut self, node: Node, is_power_cut: bool) {
        if !self.machines[node as usize].1 {
            return;
        }
        let how = if is_power_cut {
            "the power is cut"
        } else {
            "it is killed"
        };
        self.log.add(node.host(), how);
        let host = node.host();
        let mut links = Vec::from_iter(self.links());
        links.retain(|&link| {
            let (from, to) = self.link(link);
            from == host || to == host
        });
        if is_power_cut {
            // A power cut closes no connection: those of the peers stay half open.
            for &link in &links {
                let (from, to) = self.link(link);
                self.sim.partition(from, to);
            }
        }
        self.sim.crash(host);
        self.machine(node).forget_live();
        if node == Node::Collector {
            self.publishing.forget();
        }
        if is_power_cut {
            self.machine(node).disk.restart_machine();
            links.into_iter().for_each(|link| self.repair(link));
        } else {
            self.machine(node).disk.restart_process();
        }
        self.machines[node as usize].1 = false;
    }

    pub(super) fn start_node(&mut self, node: Node) {
        if !std::mem::replace(&mut self.machines[node as usize].1, true) {
            self.sim.bounce(node.host());
        }
    }

    /// Ends all faults except steps of clocks, and starts all programs that do not run.
    pub(super) fn mend(&mut self) {
        for &node in self.plan.clone().settings.nodes() {
            self.machine(node).disk.set_faults(Faults::default());
            self.machine(node).disk.end_after(None);
            if self.machine(node).disk.has_ended() {
                self.end_node(node, false);
            }
            set_commit_ms(node, 0);
            self.start_node(node);
        }
        self.publishing.objects.mend();
        self.links().for_each(|link| self.repair(link));
        for host in 0..self.plan.settings.processes {
            self.start_process(host);
        }
    }
}
