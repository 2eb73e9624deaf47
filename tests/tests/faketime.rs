//! The newsfeed with one process whose clock is 30 ms ahead, and one whose clock also gains time.
//! The model must equal that of true clocks, within the bounds of the correction.
//!
//! libfaketime sets the error of a clock, so the truth about the recorded requests is known. A
//! comparison with another run would differ by sampling and load. The test computes the smallest
//! gap between each pair of segments over all requests, by brute force on true clocks. The program
//! knows only the recorded times. It must believe every order whose gap exceeds its bounds, and
//! none that is contradicted by more than them.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use stroboscope_analysis::clock::ClockEvidence;
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::segment::Segmenter;
use stroboscope_newsfeed::{Fleet, FleetOptions};
use stroboscope_store::tables::{Store, TraceReader, read_batches};
use stroboscope_tests::{Program, Server};

/// The process whose clock is wrong: it is called by one and calls another.
const WRONG: &str = "ranker";
const AHEAD_NS: i64 = 30_000_000;

/// Returns the path of libfaketime for programs with threads, as Debian installs it. Returns `None`
/// if it is missing.
fn library() -> Option<PathBuf> {
    let directories = std::fs::read_dir("/usr/lib")
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    directories
        .map(|directory| directory.join("faketime/libfaketimeMT.so.1"))
        .find(|path| path.exists())
}

/// Returns the command that runs roles, each as a host of its own. Timers follow the true clock;
/// only the time of day is wrong.
fn roles(library: &std::path::Path, faketime: &str) -> Vec<String> {
    let script = format!(
        "export STROBOSCOPE_HOST=\"host-$1\"\n\
         if [ \"$1\" = {WRONG} ]; then\n\
         export FAKETIME='{faketime}' DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_FAKE_MONOTONIC=1 LD_PRELOAD='{}'\n\
         fi\n\
         exec '{}' \"$@\"\n",
        library.display(),
        Program::newsfeed().display()
    );
    vec!["-c".to_owned(), script, "role".to_owned()]
}

fn wall_ns() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is after 1970");
    i64::try_from(since.as_nanos()).expect("and before 2262")
}

/// Records the newsfeed with every request whole. Returns the time before its processes start, in
/// ns since 1970.
async fn record(program: &Program, library: &std::path::Path, faketime: &str) -> i64 {
    let mut command = program.command(&["collect"]);
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--otlp-http",
        "none",
        "--http",
        "127.0.0.1:0",
        "--no-live-model",
    ]);
    let mut server = Server::start(command);
    let address = server.collector_address();
    let started_ns = wall_ns();
    let mut fleet = Fleet::start(FleetOptions {
        prefix_args: roles(library, faketime),
        collector: Some(format!("http://{address}")),
        burst_config: Some("always".to_owned()),
        sample: Some("follow".to_owned()),
        rate_per_s: 3.0,
        seconds: 10.0,
        ..FleetOptions::new(PathBuf::from("/bin/sh"))
    })
    .await
    .expect("the newsfeed starts");
    let load = fleet.run_load().await.expect("a report");
    let stopped = fleet.stop().await;
    assert!(stopped.iter().all(|one| one.clean), "{stopped:?}");
    // Requests that the client gave up on a busy machine are recorded and compared, too.
    assert!(load.ok >= 5, "{load:?}");
    assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());
    started_ns
}

/// Error of the wrong clock: `true = origin + (shown - origin - ahead) / rate`.
struct Clock {
    origin_ns: i64,
    rate: f64,
}

impl Clock {
    fn true_ns(&self, shown_ns: i64) -> i64 {
        let elapsed_ns = (shown_ns - AHEAD_NS - self.origin_ns) as f64;
        self.origin_ns + (elapsed_ns / self.rate) as i64
    }

    fn correct(&self, records: &mut TraceRecords) {
        for span in records
            .spans
            .iter_mut()
            .filter(|span| span.host.ends_with(WRONG))
        {
            span.start_ns = self.true_ns(span.start_ns);
            span.end_ns = self.true_ns(span.end_ns);
            span.events
                .iter_mut()
                .for_each(|event| event.time_ns = self.true_ns(event.time_ns));
        }
    }
}

type Label = (String, String, String);

/// Truth about the recorded requests.
struct Truth {
    /// The least of `start(b) - end(a)` over all requests that have both, on true clocks.
    gaps: HashMap<(Label, Label), i64>,
    /// Maximum error of each host's times after the correction: the greatest bound of any request.
    errors_ns: BTreeMap<String, i64>,
}

/// Computes the truth. Checks that no span's start or end differs from it by more than the bound of
/// its request, plus `unsure_ns` and 1 µs.
fn truth(
    program: &Program,
    clock: &Clock,
    unsure_ns: i64,
    runtime: tokio::runtime::Handle,
) -> Truth {
    let store = Store::local(&program.data(), runtime).expect("a store");
    let (mut labels, mut segmenter) = (Labels::default(), Segmenter::default());
    let mut least: HashMap<(u32, u32), i64> = HashMap::new();
    let mut ids = Vec::new();
    let mut errors_ns = BTreeMap::new();
    let mut evidence = ClockEvidence::new();
    TraceReader::open(&store)
        .expect("traces")
        .for_each(|records| evidence.observe(&records));
    let alignment = evidence.align(None);
    for mut records in TraceReader::open(&store).expect("traces") {
        let mut corrected = records.clone();
        alignment.apply(&mut corrected);
        clock.correct(&mut records);
        for host in &corrected.clocks {
            let error_ns = i64::try_from(host.error_ns).expect("all hosts are aligned");
            let greatest = errors_ns.entry(host.host.to_string()).or_insert(error_ns);
            *greatest = error_ns.max(*greatest);
            for (found, real) in corrected
                .spans
                .iter()
                .zip(&records.spans)
                .filter(|(s, _)| s.host == host.host)
            {
                let off_ns = (found.start_ns - real.start_ns)
                    .abs()
                    .max((found.end_ns - real.end_ns).abs());
                assert!(
                    off_ns <= error_ns + unsure_ns + 1_000,
                    "{}: {off_ns} ns off, {error_ns}",
                    host.host
                );
            }
        }
        let (trace, _) = segmenter.segment(&records, &mut labels);
        for a in &trace.segments {
            for b in trace.segments.iter().filter(|b| b.id != a.id) {
                let gap_ns = b.start_ns - a.end_ns;
                let known = least
                    .entry((number(&mut ids, a.id), number(&mut ids, b.id)))
                    .or_insert(gap_ns);
                *known = gap_ns.min(*known);
            }
        }
    }
    let label = |at: u32| {
        let label = labels.get(ids[at as usize]).expect("a segment has a label");
        (
            label.task.to_string(),
            label.start.to_string(),
            label.end.to_string(),
        )
    };
    let gaps = least
        .into_iter()
        .map(|((a, b), gap_ns)| ((label(a), label(b)), gap_ns))
        .collect();
    Truth { gaps, errors_ns }
}

fn number<Id: PartialEq + Copy>(ids: &mut Vec<Id>, id: Id) -> u32 {
    let at = ids
        .iter()
        .position(|known| *known == id)
        .unwrap_or_else(|| {
            ids.push(id);
            ids.len() - 1
        });
    at as u32
}

/// Differences between a model and the truth: believed orders that are contradicted by more than
/// the bounds, and orders longer than the bounds that the model does not believe.
#[derive(Debug, Default)]
struct Difference {
    compared: usize,
    orders: usize,
    false_orders: Vec<(Label, Label, i64)>,
    missed_orders: Vec<(Label, Label, i64)>,
}

/// Minimum distance of two times at which the program knows their order.
struct Bounds {
    errors_ns: BTreeMap<String, i64>,
    unsure_ns: i64,
}

impl Bounds {
    /// Returns the minimum gap from the end of one segment to the start of another at which the
    /// program knows its sign. It knows each of the two times within its bound, and believes only
    /// gaps beyond both.
    fn between(&self, a: &Label, b: &Label) -> i64 {
        let apart_ns = 2 * (self.error_ns(a, &a.2) + self.error_ns(b, &b.1));
        apart_ns + self.unsure_ns + 1_000
    }

    /// Returns the maximum error of a boundary's time, by the clock that took it.
    fn error_ns(&self, label: &Label, boundary: &str) -> i64 {
        self.error_of(&host(&label.0, boundary))
    }

    /// Returns the maximum time by which a segment may end later for the program than in truth. If
    /// a call ends after its caller within the clocks' errors, the program keeps the whole call,
    /// and the truth cuts it at its caller's end.
    fn uncut_ns(&self, label: &Label) -> i64 {
        let (of_task, of_caller) = (
            host(&label.0, ""),
            label
                .0
                .rsplit_once(" > ")
                .map(|(caller, _)| host(caller, "")),
        );
        let of_caller = of_caller.unwrap_or_else(|| of_task.clone());
        if of_caller == of_task {
            0
        } else {
            self.error_of(&of_task) + self.error_of(&of_caller)
        }
    }

    fn error_of(&self, host: &str) -> i64 {
        self.errors_ns.get(host).copied().unwrap_or(0)
    }
}

/// Returns the host whose clock took a boundary of a segment: that of its task, or of the call that
/// begins or ends there.
fn host(task: &str, boundary: &str) -> String {
    let task = task.rsplit(" > ").next().unwrap_or_default();
    let owner = boundary.strip_prefix(['→', '←']).unwrap_or(task);
    format!("host-{}", owner.split(':').next().unwrap_or_default())
}

fn compare(inferred: &Value, gaps: &HashMap<(Label, Label), i64>, bounds: &Bounds) -> Difference {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let segments = inferred["segments"].as_array().expect("segments");
    let labels: HashMap<u64, Label> = segments
        .iter()
        .map(|one| {
            (
                one["id"].as_u64().expect("an id"),
                (text(&one["task"]), text(&one["start"]), text(&one["end"])),
            )
        })
        .collect();
    let pairs = inferred["happens_before"].as_array().expect("relations");
    let believed: std::collections::HashSet<(&Label, &Label)> = pairs
        .iter()
        .map(|pair| [&pair[0], &pair[1]].map(|id| &labels[&id.as_u64().expect("an id")]))
        .map(|[a, b]| (a, b))
        .collect();
    let known: std::collections::HashSet<&Label> = labels.values().collect();
    let mut difference = Difference {
        orders: believed.len(),
        ..Difference::default()
    };
    for ((a, b), gap_ns) in gaps
        .iter()
        .filter(|((a, b), _)| known.contains(a) && known.contains(b))
    {
        difference.compared += 1;
        let bound_ns = bounds.between(a, b);
        let is_believed = believed.contains(&(a, b));
        if is_believed && *gap_ns < -bound_ns {
            difference
                .false_orders
                .push((a.clone(), b.clone(), *gap_ns));
        } else if !is_believed && *gap_ns > bound_ns + bounds.uncut_ns(a) {
            difference
                .missed_orders
                .push((a.clone(), b.clone(), *gap_ns));
        }
    }
    difference
}

#[test]
fn a_wrong_clock_gives_the_model_that_a_right_one_gives() {
    let Some(library) = library() else {
        eprintln!(
            "SKIPPED: a_wrong_clock_gives_the_model_that_a_right_one_gives: no libfaketime (Debian: libfaketime)"
        );
        return;
    };
    for (faketime, rate) in [("+0.03", 1.0), ("+0.03 x1.0001", 1.0001)] {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let program = Program::new();
        let started_ns = runtime.block_on(record(&program, &library, faketime));
        let store = Store::local(&program.data(), runtime.handle().clone()).expect("a store");
        let wrong = read_batches(&store)
            .expect("batches")
            .filter(|batch| batch.host.ends_with(WRONG));
        let first_ns = wrong
            .map(|batch| batch.from_ns)
            .min()
            .expect("the wrong process recorded");
        // libfaketime's clock starts with the process, between `started_ns` and `origin_ns`.
        let clock = Clock {
            origin_ns: first_ns - AHEAD_NS,
            rate,
        };
        let unsure_ns = (clock.origin_ns - started_ns) as f64 * (rate - 1.0);
        assert!(
            clock.origin_ns > started_ns,
            "libfaketime has faked: {first_ns} {started_ns}"
        );

        let clocks = program
            .run(&["clocks", "--include-incomplete", "--json"])
            .succeeds()
            .json();
        assert_eq!(clocks["differ"], true, "{clocks:#}");
        let unsure_ns = unsure_ns as i64;
        let Truth { gaps, errors_ns } =
            truth(&program, &clock, unsure_ns, runtime.handle().clone());
        for host in clocks["hosts"].as_array().expect("hosts") {
            let said_ns = host["error_ns"]
                .as_i64()
                .unwrap_or_else(|| panic!("not aligned: {clocks:#}"));
            let greatest_ns = errors_ns
                .get(host["host"].as_str().expect("a name"))
                .copied()
                .unwrap_or(0);
            assert!(said_ns <= greatest_ns, "{errors_ns:?} {clocks:#}");
        }
        let bounds = Bounds {
            errors_ns,
            unsure_ns,
        };
        let infer = |args: &[&str]| {
            let all = [&["infer", "--include-incomplete", "--json"], args].concat();
            compare(&program.run(&all).succeeds().json(), &gaps, &bounds)
        };
        let (corrected, as_recorded) = (infer(&[]), infer(&["--trust-clocks"]));
        println!(
            "{faketime}: {} pairs of segments, hosts known to {:?} ns; as recorded {} of {} orders are false and {} missed; \
             corrected {} of {}, and {}",
            corrected.compared,
            bounds.errors_ns,
            as_recorded.false_orders.len(),
            as_recorded.orders,
            as_recorded.missed_orders.len(),
            corrected.false_orders.len(),
            corrected.orders,
            corrected.missed_orders.len()
        );
        assert!(corrected.compared > 1_000, "{corrected:#?}");
        let seen = as_recorded.missed_orders.len() + as_recorded.false_orders.len();
        assert!(seen > 0, "the measure sees a wrong clock: {clocks:#}");
        assert!(
            corrected.false_orders.is_empty(),
            "{faketime}: {corrected:#?}"
        );
        assert!(
            corrected.missed_orders.is_empty(),
            "{faketime}: {corrected:#?}"
        );

        let hosts = clocks["hosts"].as_array().expect("hosts");
        // The records include each kernel's report on its clock, and hosts whose kernel reports no
        // synchronization are named.
        let unsynchronised = |value: &Value| {
            value["unsynchronised_hosts"]
                .as_array()
                .expect("hosts")
                .len()
        };
        let said: Vec<&Value> = hosts
            .iter()
            .map(|host| &host["kernel"])
            .filter(|said| !said.is_null())
            .collect();
        if said.is_empty() {
            eprintln!(
                "SKIPPED: what the kernel says of its clock: it may not be asked here (adjtimex)"
            );
        } else {
            assert_eq!(said.len(), hosts.len(), "{clocks:#}");
            let wrong = said
                .iter()
                .filter(|said| said["synchronised"] == false)
                .count();
            assert_eq!(unsynchronised(&clocks), wrong, "{clocks:#}");
            let inferred = program.run(&["infer", "--json"]).succeeds();
            assert_eq!(unsynchronised(&inferred.json()), wrong);
            assert_eq!(
                inferred.stderr.contains("host-store"),
                wrong > 0,
                "{}",
                inferred.stderr
            );
        }
    }
}
