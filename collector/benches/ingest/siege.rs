//! Besieges a collector with decompression bombs, readers of a request of a million spans (as a
//! page, and by the APIs of Jaeger and Tempo), a hundred heavy pages, and as much ingest as
//! possible. Measures the peak memory, and the acknowledgement times of a well-behaved client
//! without and during the siege.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use stroboscope_fixtures::poisoned::{LARGE, Poison};
use stroboscope_store::tables::{PartitionRule, Store, write_rows};

use crate::load::{Load, Sent, Target};
use crate::process::CollectorProcess;
use crate::{Arguments, Failure};

/// Spans per second of the well-behaved client.
const GOOD_SPANS_PER_S: f64 = 2_000.0;
const BOMBS: usize = 16;
const BOMB_BYTES: usize = 15 << 20;
const HEAVY_PAGES: usize = 100;
const READERS_OF_EACH: usize = 2;
/// Pause before a client whose connection failed connects again.
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum time that a besieger waits for the next bytes of an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Number of answers by client and status.
type Answers = Mutex<BTreeMap<(&'static str, String), u64>>;

pub(crate) fn run(
    duration: Duration,
    poison: Poison,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let limit = &arguments.memory_limit;
    let mut collector =
        CollectorProcess::start_with(limit, |directory| poisoned(directory, poison))?;
    let quiet = good(&collector, duration / 2)?;
    println!(
        "alone: {quiet}, peak memory {:.0} MiB",
        collector.peak_mib()?
    );
    let (answers, bomb) = (
        Answers::default(),
        zstd::encode_all(&vec![0; BOMB_BYTES][..], 19)?,
    );
    let until = Instant::now() + duration;
    let (target, pages) = (&collector.target, collector.pages());
    let is_asked = |who: &str| arguments.only.as_ref().is_none_or(|only| only == who);
    let count = |who, count| if is_asked(who) { count } else { 0 };
    let besieged = std::thread::scope(|scope| {
        let (answers, bomb) = (&answers, &bomb);
        for _ in 0..count("bombs", BOMBS) {
            let head = "POST /v1/traces HTTP/1.1\r\nContent-Type: application/x-protobuf\r\nContent-Encoding: zstd\r\n";
            scope.spawn(move || {
                again(until, "bombs", &target.otlp, answers, |_| {
                    (head.to_owned(), bomb.clone())
                });
            });
        }
        for (who, path) in [
            ("Jaeger's readers", format!("/api/traces/{LARGE:032x}")),
            ("Tempo's readers", format!("/tempo/api/traces/{LARGE:032x}")),
            ("its page", format!("/traces/{LARGE:032x}")),
        ] {
            for _ in 0..count(who, READERS_OF_EACH) {
                let path = path.clone();
                scope.spawn(move || again(until, who, pages, answers, |_| get(&path)));
            }
        }
        for number in 0..count("heavy pages", HEAVY_PAGES) {
            let verb = [
                "/operations?top=",
                "/critical-path?top=",
                "/slack?top=",
                "/traces?min=",
            ][number % 4];
            scope.spawn(move || {
                let path = |turn: usize| format!("{verb}{}", 1 + number + HEAVY_PAGES * turn);
                again(until, "heavy pages", pages, answers, |turn| {
                    get(&path(turn))
                });
            });
        }
        for load in [Load::Native, Load::OtlpHttp]
            .into_iter()
            .filter(|load| is_asked(load.name()))
        {
            scope.spawn(move || {
                let (prepared, sent) = (load.prepare(), Sent::default());
                let left = || until.saturating_duration_since(Instant::now());
                while !left().is_zero() {
                    // The collector rejects many of these connections; the client then tries again.
                    let _ = load.send(
                        target,
                        &prepared,
                        arguments.connections,
                        left(),
                        None,
                        &sent,
                    );
                    std::thread::sleep(PAUSE);
                }
            });
        }
        good(&collector, duration)
    })?;
    let peak_mib = collector.peak_mib()?;
    println!("besieged: {besieged}, peak memory {peak_mib:.0} MiB with --memory-limit {limit}");
    let counted = answers.into_inner().map_err(|_| "a thread panicked")?;
    for ((who, status), count) in counted {
        println!("  {who}: {count} × {status}");
    }
    collector.stop()?;
    Ok(())
}

fn poisoned(directory: &Path, poison: Poison) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let store = Store::local(directory, runtime.handle().clone())?;
    let rows = poison.rows();
    let at_ns = rows.batches.first().ok_or("no batches")?.received_ns;
    write_rows(
        &store,
        "seg-0000000001",
        rows,
        &PartitionRule::received(at_ns, at_ns),
    )?;
    Ok(())
}

/// Measures the acknowledgement times of a client that sends little.
fn good(collector: &CollectorProcess, duration: Duration) -> Result<String, Failure> {
    let sent = Sent::default();
    let rate = Some(GOOD_SPANS_PER_S);
    // The besiegers reach the limits of their address, so the well-behaved client uses another.
    let target = Target {
        from: Ipv4Addr::new(127, 0, 0, 2).into(),
        ..collector.target.clone()
    };
    let until = Instant::now() + duration;
    let left = || until.saturating_duration_since(Instant::now());
    let mut turned_away = 0;
    while !left().is_zero() {
        if Load::Native
            .send(&target, &[], 1, left(), rate, &sent)
            .is_err()
        {
            turned_away += 1;
            std::thread::sleep(PAUSE);
        }
    }
    let mut times = sent
        .acknowledged_us
        .into_inner()
        .map_err(|_| "a sender panicked")?;
    times.sort_unstable();
    let ms = |share: f64| {
        let at = (times.len() as f64 * share) as usize;
        times.get(at).map_or(f64::NAN, |us| f64::from(*us) / 1e3)
    };
    Ok(format!(
        "{} acknowledgements, half within {:.1} ms, 99 % within {:.1} ms, turned away {turned_away} times",
        times.len(),
        ms(0.5),
        ms(0.99)
    ))
}

fn get(path: &str) -> (String, Vec<u8>) {
    (format!("GET {path} HTTP/1.1\r\n"), Vec::new())
}

/// Repeats a request until the time is over, whatever the answers are.
fn again(
    until: Instant,
    who: &'static str,
    address: &str,
    answers: &Answers,
    request: impl Fn(usize) -> (String, Vec<u8>),
) {
    for turn in 0.. {
        if Instant::now() >= until {
            return;
        }
        let (head, body) = request(turn);
        let status = ask(address, &head, &body).unwrap_or_else(|error| {
            std::thread::sleep(PAUSE);
            error.to_string()
        });
        if let Ok(mut answers) = answers.lock() {
            *answers.entry((who, status)).or_default() += 1;
        }
    }
}

/// Sends a request, reads the whole answer, and returns its status.
fn ask(address: &str, head: &str, body: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let rest = format!("Host: localhost\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(&[head.as_bytes(), rest.as_bytes(), body].concat())?;
    let mut first = [0; 12];
    stream.read_exact(&mut first)?;
    std::io::copy(&mut stream, &mut std::io::sink())?;
    Ok(String::from_utf8_lossy(&first[9..]).into_owned())
}
