//! Reports with `--cluster` whose workers fail: the result is right, or the error is clear.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::Signal;
use stroboscope_cluster::{TaskRunner, worker_routes};
use stroboscope_fixtures::random::Random;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::cluster::{Worker, cluster, forget, run};
use crate::common::check;
use crate::shards::{REPORTS, imported, otlp};

/// Number of rounds of each fault; `STROBOSCOPE_CLUSTER_ROUNDS` sets it for long runs.
fn rounds(default: u64) -> u64 {
    let asked = std::env::var("STROBOSCOPE_CLUSTER_ROUNDS").ok();
    asked.map_or(default, |text| text.parse().expect("a number of rounds"))
}

/// Adds requests to the store in `data`.
fn stored(directory: &Path, seed: u64) {
    imported(directory, &otlp(seed, 40, 0));
}

fn report_of(at: &Path, report: &str, more: &[&str]) -> (Option<i32>, String, String) {
    run(at, &[&[report, "--data", "data", "--json"], more].concat())
}

/// Runs a report while `harm` harms one of two workers after a random time, and compares the
/// result.
fn check_harmed(name: &str, more: &[&str], harm: impl Fn(&Worker) + Sync) {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    stored(at, 3);
    let expected = REPORTS.map(|report| report_of(at, report, &[]));
    for round in 0..rounds(3) {
        let mut random = Random(round * 31 + name.len() as u64);
        let which = random.below(REPORTS.len());
        let after = Duration::from_millis(random.below(400) as u64);
        forget(at);
        let workers: Vec<Worker> = (0..2).map(|_| Worker::start(at, "data", &[])).collect();
        let workers_asked = cluster(&workers);
        let asked = [&["--cluster", &workers_asked], more].concat();
        let found = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(after);
                harm(&workers[0]);
            });
            report_of(at, REPORTS[which], &asked)
        });
        let (status, out, said) = &found;
        let case = format!("{name} {round}: {} after {after:?}", REPORTS[which]);
        println!("{case}: {status:?} {said}");
        assert_eq!(
            (status, out),
            (&expected[which].0, &expected[which].1),
            "{case} {said}"
        );
        let rest = said.replace(&expected[which].2, "");
        let is_named = rest.contains(&format!("worker {} is left out", workers[0].address));
        assert!(rest.is_empty() || is_named, "{case} {said}");
    }
}

#[test]
fn a_killed_workers_shards_go_to_another() {
    check_harmed("killed", &[], |worker| worker.signal(Signal::KILL));
}

#[test]
fn a_stopped_workers_shards_go_to_another() {
    let deadline = ["--cluster-deadline", "2s"];
    check_harmed("stopped", &deadline, |worker| worker.signal(Signal::STOP));
}

/// A worker that comes back gets shards again.
#[test]
fn a_restarted_worker_is_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    stored(at, 3);
    let expected = report_of(at, "slack", &[]);
    for round in 0..rounds(2) {
        forget(at);
        let worker = Worker::start(at, "data", &[]);
        let address = worker.address.clone();
        let after = Duration::from_millis(Random(round).below(1_000) as u64);
        let (found, _worker) = thread::scope(|scope| {
            let restarting = scope.spawn(|| {
                thread::sleep(after);
                worker.signal(Signal::KILL);
                drop(worker);
                Worker::start_at(at, "data", &address, &[])
            });
            let found = report_of(at, "slack", &["--cluster", &address]);
            (found, restarting.join().unwrap())
        });
        assert_eq!(found, expected, "{round} after {after:?}");
    }
}

/// Checks that a report fails with the bad worker alone, and is right with a second worker.
fn check_refused(at: &Path, bad: &str, more: &[&str], reasons: &[&str]) {
    let expected = report_of(at, "operations", &[]);
    for round in 0..rounds(1) {
        forget(at);
        let alone = [&["--cluster", bad], more].concat();
        let (status, out, said) = report_of(at, "operations", &alone);
        assert_eq!((status, &*out), (Some(2), ""), "{round} {said}");
        for reason in reasons {
            assert!(said.contains(reason), "{reason:?} is not in {said}");
        }
        let good = Worker::start(at, "data", &[]);
        let both = format!("{bad},{}", good.address);
        let (status, out, said) = report_of(at, "operations", &["--cluster", &both]);
        assert_eq!((status, out), (expected.0, expected.1.clone()), "{said}");
        // If the worker could recover, the other one may be faster.
        let address = bad.trim_start_matches("https://");
        let is_named = said.contains(&format!("worker {address} is left out"));
        assert!(is_named || said == expected.2, "{said}");
    }
}

#[test]
fn a_worker_with_another_snapshot_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    stored(at, 3);
    let other = tempfile::tempdir().unwrap();
    stored(other.path(), 3);
    stored(other.path(), 4);
    let worker = Worker::start(other.path(), "data", &[]);
    let reasons = ["is at snapshot", "and the driver's at", "same store"];
    check_refused(at, &worker.address, &[], &reasons);
}

#[test]
fn a_worker_that_is_gone_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    stored(at, 3);
    let worker = Worker::start(at, "data", &[]);
    let address = worker.address.clone();
    drop(worker);
    check_refused(at, &address, &[], &["cannot be reached", "refused"]);
}

struct NoTasks;

impl TaskRunner for NoTasks {
    fn run(&self, _: &[u8]) -> Result<Vec<u8>, String> {
        Ok(b"wrong".to_vec())
    }
}

/// Serves a worker that claims the version `build`, and answers with nonsense.
fn other_version(build: &str) -> (tokio::runtime::Runtime, String) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let routes = worker_routes(Arc::new(NoTasks), build).unwrap();
    let address = runtime.block_on(async {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let server = Server::builder().add_routes(routes);
        tokio::spawn(server.serve_with_incoming(incoming));
        address
    });
    (runtime, address.to_string())
}

#[test]
fn a_worker_of_another_version_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    stored(at, 3);
    let (_runtime, address) = other_version("stroboscope 0.0.1");
    check_refused(
        at,
        &address,
        &[],
        &["it is stroboscope 0.0.1", "and this is"],
    );
    // The next worker claims the right version, but its answers are not parts.
    let (_runtime, address) = other_version(&stroboscope_query::task_version());
    let (status, out, said) = report_of(at, "infer", &["--cluster", &address]);
    assert_eq!((status, &*out), (Some(2), ""), "{said}");
    assert!(said.contains("is no part"), "{said}");
}

#[test]
fn drivers_need_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    stored(at, 3);
    let token = "0123456789abcdefghij";
    let tokens = format!("read {token}\nwrite another-token-for-writing\n");
    std::fs::write(at.join("tokens"), tokens).unwrap();
    std::fs::write(at.join("good"), format!("{token}\n")).unwrap();
    std::fs::write(at.join("wrong"), "not-one-of-the-tokens").unwrap();
    std::fs::write(at.join("write"), "another-token-for-writing").unwrap();
    let worker = Worker::start(at, "data", &["--token-file", "tokens"]);
    for (more, reason) in [
        (&[][..], "requires a token"),
        (&["--cluster-token-file", "wrong"], "not one of"),
        (&["--cluster-token-file", "write"], "lacks the role read"),
    ] {
        check_refused(at, &worker.address, more, &["rejects this driver", reason]);
    }
    let expected = report_of(at, "slack", &[]);
    let asked = ["--cluster", &worker.address, "--cluster-token-file", "good"];
    assert_eq!(report_of(at, "slack", &asked), expected);
}

/// Writes an authority and certificates of a worker and of a driver that it signed.
fn certificates(at: &Path) {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    std::fs::write(at.join("ca.pem"), authority.pem()).unwrap();
    let issuer = Issuer::new(params, authority_key);
    for name in ["worker", "driver"] {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(at.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(at.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[test]
fn drivers_need_a_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    stored(at, 3);
    certificates(at);
    let tls = [
        "--tls-cert",
        "worker.pem",
        "--tls-key",
        "worker.key",
        "--tls-client-ca",
        "ca.pem",
    ];
    let worker = Worker::start(at, "data", &tls);
    let address = format!("https://{}", worker.address);
    let ca = ["--cluster-ca", "ca.pem"];
    check_refused(at, &address, &ca, &["--cluster-cert names one"]);
    check_refused(at, &worker.address, &[], &["https://HOST:PORT"]);
    let own = [
        "--cluster-cert",
        "driver.pem",
        "--cluster-key",
        "driver.key",
    ];
    check_refused(at, &address, &own, &["UnknownIssuer"]);
    let expected = report_of(at, "slack", &[]);
    let asked = [&["--cluster", &address], &ca[..], &own].concat();
    assert_eq!(report_of(at, "slack", &asked), expected);
}

#[test]
fn mistakes_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    stored(at, 3);
    let check_said = |arguments: &[&str], said: &str| {
        let (out, error) = check(at, arguments, 2);
        assert!(out.is_empty() && error.contains(said), "{error}");
    };
    let data = ["--data", "data"];
    let slack = [&["slack"], &data[..], &["--cluster"]].concat();
    check_said(&[&slack[..], &["here"]].concat(), "expected HOST:PORT");
    let shard = ["a:1", "--shard", "1/2", "--save", "p"];
    check_said(&[&slack[..], &shard].concat(), "cannot be used with");
    let validate = ["a:1", "--validate"];
    check_said(&[&slack[..], &validate].concat(), "cannot be used with");
    let token = ["a:1", "--cluster-token-file", "no-such"];
    check_said(&[&slack[..], &token].concat(), "no-such");
    let worker = ["worker", "--data", "data", "--listen"];
    check_said(&[&worker[..], &["0.0.0.0:0"]].concat(), "--token-file");
    check_said(&["worker", "--data", "no-such"], "no-such");
}
