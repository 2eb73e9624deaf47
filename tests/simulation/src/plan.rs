//! Plan of a seed: settings, and faults with their times.

use std::fmt;

use stroboscope_burst::BurstConfig;
use stroboscope_fixtures::random::Random;

use crate::objects::ObjectFaults;

/// Defect that is planted in the product, and that the simulation must find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Planted {
    #[default]
    Nothing,
    /// The log is acknowledged before it is synced.
    AcknowledgedBeforeSync,
    /// A batch that is sent again has a new sequence.
    RetryRenumbered,
    /// The publisher replaces any manifest.
    ConditionIgnored,
    /// An agent deletes its log without delivering it.
    ForwardedBeforeDelivery,
}

/// A machine with a disk that stores received batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Collector,
    /// Agent between the processes and the collector.
    Agent,
}

impl Node {
    pub(crate) fn host(self) -> &'static str {
        match self {
            Self::Collector => "collector",
            Self::Agent => "agent",
        }
    }
}

/// Drawn settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) processes: usize,
    /// True if the processes ship to an agent, which forwards to the collector.
    pub(crate) has_agent: bool,
    pub(crate) burst_config: BurstConfig,
    pub(crate) next_burst_config: BurstConfig,
    /// Number of the SDK's passes in which the service has recorded spans, per thousand.
    pub(crate) busy_per_mille: usize,
    pub(crate) buffer_bytes_max: usize,
    pub(crate) latency_ms_max: u64,
    pub(crate) flush_interval_ms: u64,
    /// Offset of each host's clock from the true time, in ms.
    pub(crate) skews_ms: Vec<i64>,
    pub(crate) drifts_ppm: Vec<i64>,
    pub(crate) objects: ObjectFaults,
    pub(crate) faulty_ms: u64,
}

impl Settings {
    /// Returns the node that the processes ship to.
    pub(crate) fn front(&self) -> Node {
        match self.has_agent {
            true => Node::Agent,
            false => Node::Collector,
        }
    }

    /// Returns all nodes.
    pub(crate) fn nodes(&self) -> &'static [Node] {
        match self.has_agent {
            true => &[Node::Collector, Node::Agent],
            false => &[Node::Collector],
        }
    }
}

/// Fault, or other action, that a plan applies to a run. A link has the number of the process's
/// host. The number after the last host is the agent's link to the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Partition {
        link: usize,
    },
    /// Loses messages to the sender of batches, and so acknowledgements.
    LoseAnswers {
        link: usize,
    },
    /// Loses messages from the sender of batches.
    LoseBatches {
        link: usize,
    },
    /// Holds all messages for a while, and then delivers them.
    Hold {
        link: usize,
    },
    Repair {
        link: usize,
    },
    Latency {
        link: usize,
        ms: u64,
    },
    KillProcess {
        host: usize,
    },
    StopProcess {
        host: usize,
    },
    StartProcess {
        host: usize,
    },
    KillNode {
        node: Node,
    },
    CutPower {
        node: Node,
    },
    /// Ends the node's program in the midst of a later operation on its disk.
    EndInDisk {
        node: Node,
        operations: u64,
    },
    StartNode {
        node: Node,
    },
    DiskErrors {
        node: Node,
        per_mille: usize,
    },
    DiskFull {
        node: Node,
    },
    DiskReadOnly {
        node: Node,
    },
    MendDisk {
        node: Node,
    },
    SlowDisk {
        node: Node,
        ms: u64,
    },
    StepClock {
        host: usize,
        ms: i64,
    },
    StepCollectorClock {
        ms: i64,
    },
    Switch {
        config: BurstConfig,
    },
    Publish,
    /// Has a copy of the data directory publish in the midst of the original's next rounds.
    PublishCopy {
        after: usize,
    },
    Read,
}

/// Settings of a run, and its faults, each with the simulated time in ms at which it is due.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) faults: Vec<(u64, Fault)>,
}

const CONFIGS: [&str; 4] = ["64ms/512ms", "128ms/1024ms", "32ms/256ms", "256ms/512ms"];

fn config(random: &mut Random) -> BurstConfig {
    CONFIGS[random.below(CONFIGS.len())]
        .parse()
        .expect("a burst-config")
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let random = &mut Random(seed ^ 0x0070_0a11);
        let processes = 1 + random.below(3);
        let mut per_host = |most: i64| -> Vec<i64> {
            let one = |_| random.below(2 * most as usize + 1) as i64 - most;
            (0..processes).map(one).collect()
        };
        let (skews_ms, drifts_ppm) = (per_host(300), per_host(200));
        let has_agent = random.happens(500);
        let settings = Settings {
            processes,
            has_agent,
            burst_config: config(random),
            next_burst_config: config(random),
            busy_per_mille: [50, 300, 900][random.below(3)],
            buffer_bytes_max: [24 << 10, 256 << 10, 4 << 20][random.below(3)],
            latency_ms_max: [2, 20, 150][random.below(3)],
            flush_interval_ms: [500, 2_000, 8_000][random.below(3)],
            skews_ms,
            drifts_ppm,
            objects: [
                ObjectFaults::default(),
                ObjectFaults {
                    fail: 100,
                    ambiguous: 100,
                    late: 0,
                },
                ObjectFaults {
                    fail: 50,
                    ambiguous: 150,
                    late: 150,
                },
            ][random.below(3)],
            faulty_ms: 3_000 + random.below(12_000) as u64,
        };
        let mut faults = Vec::new();
        for _ in 0..2 + random.below(14) {
            let at_ms = 500 + random.below(settings.faulty_ms as usize) as u64;
            let lasts_ms = [100, 700, 3_000, 18_000][random.below(4)];
            let times = (at_ms, at_ms + lasts_ms);
            Self::draw(random, processes, has_agent, times, &mut faults);
        }
        for _ in 0..random.below(6) {
            let at_ms = 1_000 + random.below(settings.faulty_ms as usize) as u64;
            faults.push((
                at_ms,
                [Fault::Publish, Fault::Publish, Fault::Read][random.below(3)],
            ));
        }
        if random.happens(600) {
            let at_ms = 2_000 + random.below(settings.faulty_ms as usize) as u64;
            let after = random.below(3);
            // The copy needs published files, and both need something new.
            let around = [
                (-500, Fault::Publish),
                (0, Fault::PublishCopy { after }),
                (700, Fault::Publish),
                (2_000, Fault::Publish),
            ];
            faults.extend(around.map(|(by, fault)| (at_ms.saturating_add_signed(by), fault)));
        }
        faults.sort_by_key(|(at_ms, _)| *at_ms);
        Self { settings, faults }
    }

    fn draw(
        random: &mut Random,
        processes: usize,
        has_agent: bool,
        (from, to): (u64, u64),
        faults: &mut Vec<(u64, Fault)>,
    ) {
        let link = random.below(processes + usize::from(has_agent));
        let host = link % processes;
        let node = match has_agent && random.happens(500) {
            true => Node::Agent,
            false => Node::Collector,
        };
        let mut add = |fault, end: Option<Fault>| {
            faults.push((from, fault));
            faults.extend(end.map(|end| (to, end)));
        };
        let repair = Some(Fault::Repair { link });
        match random.below(18) {
            0 => add(Fault::Partition { link }, repair),
            1 | 2 => add(Fault::LoseAnswers { link }, repair),
            3 => add(Fault::LoseBatches { link }, repair),
            4 => add(Fault::Hold { link }, repair),
            5 => add(
                Fault::Latency {
                    link,
                    ms: [300, 2_000][random.below(2)],
                },
                repair,
            ),
            6 => add(
                Fault::KillProcess { host },
                Some(Fault::StartProcess { host }),
            ),
            7 => add(
                Fault::StopProcess { host },
                Some(Fault::StartProcess { host }),
            ),
            8 => add(Fault::KillNode { node }, Some(Fault::StartNode { node })),
            9 => add(Fault::CutPower { node }, Some(Fault::StartNode { node })),
            10 | 11 => add(
                Fault::EndInDisk {
                    node,
                    operations: 1 + random.below(60) as u64,
                },
                Some(Fault::StartNode { node }),
            ),
            12 => add(
                Fault::DiskErrors {
                    node,
                    per_mille: [5, 40, 300][random.below(3)],
                },
                Some(Fault::MendDisk { node }),
            ),
            13 => add(
                [Fault::DiskFull { node }, Fault::DiskReadOnly { node }][random.below(2)],
                Some(Fault::MendDisk { node }),
            ),
            14 => add(
                Fault::SlowDisk {
                    node,
                    ms: [50, 900, 6_000][random.below(3)],
                },
                Some(Fault::MendDisk { node }),
            ),
            15 => add(
                Fault::StepClock {
                    host,
                    ms: step(random),
                },
                None,
            ),
            16 => add(Fault::StepCollectorClock { ms: step(random) }, None),
            _ => add(
                Fault::Switch {
                    config: config(random),
                },
                None,
            ),
        }
    }
}

/// Draws a step of a wall clock, in ms.
fn step(random: &mut Random) -> i64 {
    let ms = [30, 400, 5_000, 90_000][random.below(4)];
    if random.happens(500) { ms } else { -ms }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.settings)?;
        self.faults
            .iter()
            .try_for_each(|(at_ms, fault)| writeln!(f, "{at_ms:>6} planned: {fault:?}"))
    }
}
