//! The newsfeed's processes ship to three agents while their gateway is away: it stands still, or
//! the network to it is cut. `STROBOSCOPE_AWAY_SECONDS` sets for how long.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use stroboscope_analysis::record::TraceRecords;
use stroboscope_newsfeed::{Fleet as Newsfeed, FleetOptions};
use stroboscope_store::tables::{Store, TraceReader, read_batches};
use stroboscope_tests::{Program, Server};

use crate::Ports;
use crate::agents::{AGENT, GATEWAY, agent};

/// The loads' requests, and when the gateway was away.
struct Loads {
    sent: u64,
    /// Times at which the second load began, and the gateway went and came back, in ns since 1970.
    phases_ns: [i64; 3],
}

/// Runs the load twice, and calls `cut` and `mend` during the second.
async fn two_loads(collectors: String, cut: impl Fn(), mend: impl Fn()) -> Loads {
    let away_s: f64 = std::env::var("STROBOSCOPE_AWAY_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(4.0);
    let mut reports = Vec::new();
    let mut phases_ns = [0; 3];
    for is_away in [false, true] {
        let mut fleet = Newsfeed::start(FleetOptions {
            prefix_args: vec!["newsfeed".to_owned()],
            collector: Some(collectors.clone()),
            burst_config: Some("always".to_owned()),
            rate_per_s: 20.0,
            seconds: 1.0 + away_s * 1.25 + 1.0,
            ..FleetOptions::new(Program::path())
        })
        .await
        .expect("the newsfeed starts");
        phases_ns[0] = now_ns();
        let load = tokio::spawn(async move {
            let report = fleet.run_load().await;
            (report, fleet.stop().await)
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        if is_away {
            phases_ns[1] = now_ns();
            cut();
        }
        tokio::time::sleep(Duration::from_secs_f64(away_s)).await;
        if is_away {
            phases_ns[2] = now_ns();
            mend();
        }
        let (report, stopped) = load.await.expect("the load runs");
        let report = report.expect("the newsfeed lives");
        assert!(stopped.iter().all(|stopped| stopped.clean), "{stopped:?}");
        assert_eq!((report.failed, report.ok), (0, report.sent), "{report}");
        reports.push(report);
    }
    println!("with the gateway: {}\nwithout: {}", reports[0], reports[1]);
    Loads {
        sent: reports.iter().map(|report| report.sent).sum(),
        phases_ns,
    }
}

fn now_ns() -> i64 {
    let since_1970 = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
    i64::try_from(since_1970.as_nanos()).expect("a clock before 2262")
}

/// Stops agents and gateway, and checks that each request of the loads is whole in the gateway's
/// store.
async fn check_whole(agents: &mut [Server], gateway: &mut Server, data: PathBuf, loads: Loads) {
    for agent in agents {
        assert!(agent.stop(libc::SIGTERM).success(), "{}", agent.said());
    }
    assert!(gateway.stop(libc::SIGTERM).success(), "{}", gateway.said());
    let runtime = tokio::runtime::Handle::current();
    let whole = tokio::task::spawn_blocking(move || {
        let store = Store::local(&data, runtime).expect("the store opens");
        for batch in read_batches(&store).expect("batches") {
            let (service, losses) = (&batch.service, &batch.losses);
            assert!(losses.is_empty(), "{service}: {losses:?}");
        }
        let is_whole = |trace: &TraceRecords| {
            let ids: BTreeSet<u64> = trace.spans.iter().map(|span| span.span_id).collect();
            let services: BTreeSet<&str> = trace.spans.iter().map(|span| &*span.service).collect();
            let mut parents = trace.spans.iter().map(|span| span.parent_id);
            services.contains("client")
                && services.contains("store")
                && parents.all(|id| id == 0 || ids.contains(&id))
        };
        let mut latencies_ns: [Vec<i64>; 4] = Default::default();
        for trace in TraceReader::open(&store).expect("traces").filter(is_whole) {
            let root = trace.spans.iter().find(|span| span.parent_id == 0);
            let root = root.expect("a request has a root");
            let phase = loads
                .phases_ns
                .partition_point(|&begin| begin <= root.start_ns);
            latencies_ns[phase].push(root.end_ns - root.start_ns);
        }
        let names = ["with the gateway", "second load", "away", "back"];
        for (name, latencies_ns) in names.iter().zip(&mut latencies_ns) {
            latencies_ns.sort_unstable();
            let at = |percent: usize| {
                let rank = latencies_ns.len().saturating_sub(1) * percent / 100;
                latencies_ns.get(rank).map_or(0, |ns| ns / 1_000_000)
            };
            let count = latencies_ns.len();
            println!(
                "{name}: {count} requests, p50 {} ms, p99 {} ms",
                at(50),
                at(99)
            );
        }
        latencies_ns.iter().map(Vec::len).sum::<usize>() as u64
    });
    assert_eq!(whole.await.expect("the store is readable"), loads.sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_across_agents_are_whole_and_services_do_not_notice_an_absent_gateway() {
    let program = Program::new();
    let gateway_doors = Ports::free();
    let mut gateway = gateway_doors.collect(&program.data(), &GATEWAY);
    let mut agents = Vec::new();
    let mut urls = Vec::new();
    for number in 0..3 {
        let doors = Ports::free();
        let data = program.data().with_extension(format!("agent{number}"));
        agents.push(agent(&doors, &data, &gateway_doors, &[]));
        urls.push(format!("http://{}", doors.grpc));
    }
    let loads = two_loads(
        urls.join(","),
        || gateway.signal(libc::SIGSTOP),
        || gateway.signal(libc::SIGCONT),
    )
    .await;
    check_whole(&mut agents, &mut gateway, program.data(), loads).await;
}

/// Network namespaces of three pods, each connected to a bridge by a link of its own. Dropping the
/// value removes them.
struct Pods {
    /// Part of all names, and of the addresses.
    id: u32,
}

impl Pods {
    /// Creates the namespaces. Returns the reason, as text for people, if that fails.
    fn new() -> Result<Self, String> {
        let pods = Self {
            id: std::process::id() % 100_000,
        };
        let bridge = pods.bridge();
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("addr add {}/24 dev {bridge}", pods.address(0)))?;
        ip(&format!("link set {bridge} up"))?;
        for pod in 1..=3 {
            let (name, link) = (pods.name(pod), pods.link(pod));
            ip(&format!("netns add {name}"))?;
            ip(&format!(
                "link add {link} type veth peer name eth0 netns {name}"
            ))?;
            ip(&format!("link set {link} master {bridge} up"))?;
            ip(&format!(
                "-n {name} addr add {}/24 dev eth0",
                pods.address(pod)
            ))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(pods)
    }

    fn bridge(&self) -> String {
        format!("sb{}", self.id)
    }

    fn name(&self, pod: u32) -> String {
        format!("strobe{}-{pod}", self.id)
    }

    fn link(&self, pod: u32) -> String {
        format!("sv{}-{pod}", self.id)
    }

    /// Returns the address of a pod, or that of the bridge for 0.
    fn address(&self, pod: u32) -> String {
        format!(
            "10.{}.{}.{}",
            100 + self.id / 256 % 100,
            self.id % 256,
            pod + 1
        )
    }

    /// Cuts or restores the links of all pods. Packets of a cut link vanish.
    fn set_links(&self, state: &str) {
        for pod in 1..=3 {
            ip(&format!("-n {} link set eth0 {state}", self.name(pod))).expect("the link");
        }
    }

    /// Starts an agent in a pod, which services reach by a unix socket.
    fn agent(&self, pod: u32, data: &Path, socket: &Path) -> Server {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(pod)]);
        command
            .arg(Program::path())
            .args(["collect", "--data"])
            .arg(data);
        command.args(["--listen", "127.0.0.1:0", "--otlp-http", "none"]);
        command
            .args(["--http", "127.0.0.1:0", "--unix"])
            .arg(socket);
        command.args(["--forward", &format!("http://{}:4317", self.address(0))]);
        command.args(AGENT).stdin(Stdio::null());
        let mut agent = Server::start(command);
        agent.wait_for("its start", |said| {
            said.contains("page on http://").then_some(())
        });
        agent
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        for pod in 1..=3 {
            let _ = ip(&format!("netns del {}", self.name(pod)));
        }
        let _ = ip(&format!("link del {}", self.bridge()));
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {arguments}: {}", said.trim())),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_across_pods_are_whole_after_the_network_was_cut() {
    let pods = match Pods::new() {
        Ok(pods) => pods,
        Err(reason) => {
            eprintln!(
                "SKIPPED: requests_across_pods_are_whole_after_the_network_was_cut: {reason}"
            );
            return;
        }
    };
    let program = Program::new();
    let gateway_doors = Ports {
        grpc: format!("{}:4317", pods.address(0))
            .parse()
            .expect("an address"),
        ..Ports::free()
    };
    let arguments = [&GATEWAY[..], &["--insecure-listen"]].concat();
    let mut gateway = gateway_doors.collect(&program.data(), &arguments);
    let mut agents = Vec::new();
    let mut urls = Vec::new();
    for pod in 1..=3 {
        let data = program.data().with_extension(format!("pod{pod}"));
        let socket = program.data().with_extension(format!("socket{pod}"));
        agents.push(pods.agent(pod, &data, &socket));
        urls.push(format!("unix:{}", socket.display()));
    }
    let loads = two_loads(
        urls.join(","),
        || pods.set_links("down"),
        || pods.set_links("up"),
    )
    .await;
    check_whole(&mut agents, &mut gateway, program.data(), loads).await;
}
