//! 1,536 small bodies that unpack to 22 GiB together, at every port that unpacks: memory stays
//! within the limit, and a good client is served.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use stroboscope_tests::Program;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::Code;

use crate::bad::{from_elsewhere, is_elsewhere_possible};
use crate::client::{EXPORT, ask, ask_over, call_over, metrics};
use crate::{Collector, collect, turned_away};

const SHIP: &str = "/stroboscope.v1.Collector/Ship";
const LIMIT_BYTES: u64 = 1 << 30;
/// Less than a request may have with that limit, so that nothing but the pool ends it.
const UNPACKED_BYTES: usize = 15 << 20;
/// Fewer than the connections that one address may have at a door, with that limit.
const AT_A_TIME: usize = 64;
const OF_A_KIND: usize = 256;
const SPAN: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c",
    "spanId":"eee19b7ec3c1b174","name":"pay","startTimeUnixNano":"1","endTimeUnixNano":"2","attributes":[]}]}]}]}"#;

fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .expect("a number")
        << 10
}

fn packed() -> [(&'static str, Vec<u8>); 2] {
    let zeros = vec![0; UNPACKED_BYTES];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&zeros).expect("memory");
    [
        ("gzip", gzip.finish().expect("memory")),
        ("zstd", zstd::encode_all(&zeros[..], 19).expect("memory")),
    ]
}

/// Sends all decompression bombs, at most [`AT_A_TIME`] at a time over HTTP and over gRPC. Returns
/// the number that were rejected for now.
async fn thrown(at: &Collector) -> usize {
    let mut bombs = JoinSet::new();
    let [of_http, of_grpc] = [(); 2].map(|()| Arc::new(Semaphore::new(AT_A_TIME)));
    for (name, bomb) in packed() {
        assert!(bomb.len() < 16 << 10, "{name} {}", bomb.len());
        let bomb: Arc<[u8]> = bomb.into();
        for _ in 0..OF_A_KIND {
            let (address, bomb) = (at.otlp.clone(), bomb.clone());
            let turn = of_http.clone();
            bombs.spawn(async move {
                let _turn = turn.acquire().await;
                let stream = from_elsewhere(&address).await.expect("it listens");
                let coding = format!("Content-Encoding: {name}");
                let headers = ["Content-Type: application/x-protobuf", &coding];
                let answer = ask_over(stream, "POST /v1/traces", &headers, &bomb).await;
                let is_full = answer.starts_with("HTTP/1.1 503 ");
                assert!(is_full || answer.starts_with("HTTP/1.1 400 "), "{answer}");
                assert!(!is_full || answer.to_lowercase().contains("retry-after: "));
                is_full
            });
        }
        for path in [EXPORT, SHIP] {
            for _ in 0..OF_A_KIND {
                let (address, bomb) = (at.grpc.clone(), bomb.clone());
                let turn = of_grpc.clone();
                bombs.spawn(async move {
                    let _turn = turn.acquire().await;
                    let stream = from_elsewhere(&address).await.expect("it listens");
                    let headers = [("grpc-encoding", name)];
                    let status = call_over(stream, path, &headers, &bomb).await;
                    let status = status.expect("an answer");
                    let is_full = status.code() == Code::Unavailable;
                    let is_told =
                        is_full || matches!(status.code(), Code::InvalidArgument | Code::Internal);
                    assert!(
                        is_told && (!is_full || !status.details().is_empty()),
                        "{status:?}"
                    );
                    is_full
                });
            }
        }
    }
    let told = bombs.join_all().await;
    told.into_iter().filter(|is_full| *is_full).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_stay_within_the_limit_and_a_good_client_is_served() {
    if !is_elsewhere_possible() {
        return;
    }
    let program = Program::new();
    let mut at = collect(&program, &["--memory-limit", "1GiB"]);
    let is_over = Arc::new(AtomicBool::new(false));
    let good = tokio::spawn({
        let (otlp, is_over) = (at.otlp.clone(), is_over.clone());
        async move {
            let mut served = 0;
            while !is_over.load(Relaxed) {
                let headers = ["Content-Type: application/json"];
                let answer = ask(&otlp, "POST /v1/traces", &headers, SPAN.as_bytes()).await;
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                served += 1;
            }
            served
        }
    });
    let before = peak_bytes(at.server.pid());
    let full = thrown(&at).await;
    is_over.store(true, Relaxed);
    let served: usize = good.await.expect("each was stored");
    let peak = peak_bytes(at.server.pid());
    eprintln!(
        "{full} of {} bombs had no room; {served} good requests; peak {} MiB before, {} MiB after",
        6 * OF_A_KIND,
        before >> 20,
        peak >> 20
    );
    // They unpack to 22 GiB together.
    assert!(peak < LIMIT_BYTES, "{peak}");
    assert!(full > 0 && served > 0);
    let counted = metrics(&at.pages).await;
    for door in ["otlp_http", "grpc"] {
        let causes = ["bytes", "peer_bytes"];
        let refused = causes.map(|cause| turned_away(&counted, door, cause));
        assert!(refused.iter().sum::<u64>() > 0, "{door}: {counted}");
    }
    assert!(
        counted.contains("stroboscope_reading_bytes 0\n"),
        "{counted}"
    );
    assert!(at.server.stop(libc::SIGTERM).success());
    assert!(
        !at.server.said().contains("panicked"),
        "{}",
        at.server.said()
    );
}
