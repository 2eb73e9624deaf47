//! Tests that the spans of all processes reach a collector, and form one tree per request.

// Collector of the SDK's own tests, which stores the batches that it receives.
#[path = "../../../sdk/tests/collector/mod.rs"]
mod collector;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use collector::{Collector, Span};
use stroboscope_newsfeed::{Fleet, FleetOptions, LoadReport};

/// Spans of one run by trace id, and the service of each span by span id.
struct Traces {
    report: LoadReport,
    traces: BTreeMap<String, Vec<Span>>,
    services: HashMap<u64, String>,
}

async fn record(options: FleetOptions) -> Traces {
    let collector = Collector::default();
    let options = FleetOptions {
        collector: Some(collector.clone().start()),
        burst_config: Some("0".to_owned()),
        mix: Some("fast=100".to_owned()),
        rate_per_s: 8.0,
        seconds: 2.0,
        ..options
    };
    let mut fleet = Fleet::start(options).await.expect("started");
    let report = fleet.run_load().await.expect("a report");
    let stopped = fleet.stop().await;
    assert!(stopped.iter().all(|stopped| stopped.clean), "{stopped:?}");
    assert_eq!(report.failed, 0, "{report}");
    let mut traces: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    for span in collector.spans() {
        traces.entry(span.trace.clone()).or_default().push(span);
    }
    let mut services = HashMap::new();
    for batch in collector.batches() {
        let service = batch
            .process
            .map(|process| process.service)
            .unwrap_or_default();
        services.extend(
            batch
                .spans
                .into_iter()
                .flat_map(|spans| spans.span_ids)
                .map(|id| (id, service.clone())),
        );
        assert!(
            batch.losses.iter().all(|loss| loss.records == 0),
            "{service} lost {:?}",
            batch.losses
        );
    }
    Traces {
        report,
        traces,
        services,
    }
}

impl Traces {
    /// Returns the distinct paths from the root as lines, indented by depth. Siblings are in
    /// alphabetical order, each with its number of spans.
    fn tree(&self, spans: &[Span]) -> String {
        let mut text = String::new();
        self.write(&mut text, spans, &BTreeSet::from([0]), 0);
        text
    }

    fn write(&self, text: &mut String, spans: &[Span], parents: &BTreeSet<u64>, depth: usize) {
        let mut children: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for span in spans.iter().filter(|span| parents.contains(&span.parent)) {
            let name = format!("{}:{}", self.services[&span.id], span.name);
            children.entry(name).or_default().insert(span.id);
        }
        for (name, ids) in children {
            let indent = "  ".repeat(depth);
            text.push_str(&format!("{indent}{name} ×{}\n", ids.len()));
            self.write(text, spans, &ids, depth + 1);
        }
    }
}

/// Asserts that no two of the named spans overlap.
#[track_caller]
fn assert_one_at_a_time<'a>(spans: impl Iterator<Item = &'a Span>, names: &[&str]) {
    let mut named: Vec<&Span> = spans.filter(|span| names.contains(&&*span.name)).collect();
    named.sort_by_key(|span| span.start_ns);
    assert!(named.len() > 1, "there are several of {names:?}");
    for pair in named.windows(2) {
        assert!(
            pair[0].end_ns <= pair[1].start_ns,
            "these overlap: {pair:#?}"
        );
    }
}

/// Asserts that the spans with this name process the pagelets in order of their numbers.
#[track_caller]
fn assert_in_order(spans: &[Span], name: &str) {
    let mut named: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
    named.sort_by_key(|span| span.start_ns);
    let pagelets: Vec<&str> = named
        .iter()
        .map(|span| &*span.attributes["element"])
        .collect();
    assert_eq!(pagelets, ["0", "1", "2", "3"], "{name}");
}

fn median_ns(traces: &Traces, service: &str, name: &str) -> i64 {
    let spans = traces.traces.values().flatten();
    let mut durations: Vec<i64> = spans
        .filter(|span| span.name == name && traces.services[&span.id] == service)
        .map(|span| span.end_ns - span.start_ns)
        .collect();
    durations.sort_unstable();
    *durations
        .get(durations.len() / 2)
        .unwrap_or_else(|| panic!("no span {service}:{name}"))
}

fn options() -> FleetOptions {
    FleetOptions::new(PathBuf::from(env!("CARGO_BIN_EXE_newsfeed")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_one_tree_with_the_phenomena_in_it() {
    let run = record(options()).await;
    assert_eq!(run.traces.len() as u64, run.report.sent);
    for spans in run.traces.values() {
        assert_eq!(run.tree(spans), include_str!("tree.txt"));
        // The script engine and the link process one item at a time, and pagelets stay in order in
        // the pipeline.
        assert_one_at_a_time(spans.iter(), &["execute", "background", "onload"]);
        assert_one_at_a_time(spans.iter(), &["download"]);
        for stage in ["render", "download", "execute"] {
            assert_in_order(spans, stage);
        }
    }
    // The lock of a shard is held by one request at a time, whichever request that is.
    let shards: BTreeSet<&String> = run
        .traces
        .values()
        .flatten()
        .filter_map(|span| span.attributes.get("shard"))
        .collect();
    assert_eq!(shards.len(), 2, "properties and stories");
    for shard in shards {
        let holders = run
            .traces
            .values()
            .flatten()
            .filter(|span| span.attributes.get("shard") == Some(shard));
        assert_one_at_a_time(holders, &["lock"]);
    }
    // The true bottleneck over fast links.
    let score_ns = median_ns(&run, "ranker", "score");
    assert!(score_ns > 5_000_000, "{score_ns}");
    let others = [
        ("edge", "proxy"),
        ("web", "auth"),
        ("web", "render"),
        ("store", "read"),
        ("client", "download"),
        ("client", "execute"),
        ("client", "onload"),
    ];
    for (service, name) in others {
        let other_ns = median_ns(&run, service, name);
        assert!(
            other_ns < score_ns / 2,
            "{service}:{name} takes {other_ns}, ranker:score {score_ns}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extra_call_changes_the_structure() {
    let faults = vec!["ranker.extra-call".to_owned()];
    let run = record(FleetOptions {
        faults,
        ..options()
    })
    .await;
    for spans in run.traces.values() {
        let tree = run.tree(spans);
        assert!(tree.contains("ranker:trending ×1\n"), "{tree}");
    }
}

/// Checks the lines that some faults without a duration add to the request's tree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn structural_faults_change_what_they_say() {
    let cases = [
        (
            "client.small-count",
            &[
                "web:amend ×1\n",
                "web:newsfeed.v1.Store/Write ×1\n",
                "store:write ×1\n",
            ][..],
        ),
        (
            "ranker.longer-loop",
            &["ranker:newsfeed.v1.Store/Read ×9\n"],
        ),
        (
            "ranker.cache-miss",
            &[
                "ranker:load_model ×1\n",
                "ranker:newsfeed.v1.Store/Read ×1\n",
            ],
        ),
        (
            "store.archive-shard",
            &["store:archive ×5\n", "store:archive ×3\n"],
        ),
    ];
    for (fault, lines) in cases {
        let faults = vec![fault.to_owned()];
        let run = record(FleetOptions {
            faults,
            ..options()
        })
        .await;
        for spans in run.traces.values() {
            let tree = run.tree(spans);
            for line in lines {
                assert!(!include_str!("tree.txt").contains(line), "{fault}: {line}");
                assert!(tree.contains(line), "{fault}: no {line} in {tree}");
            }
            // The attribute `count` distinguishes requests with the fault `client.small-count`.
            let page = spans.iter().find(|span| span.name == "page");
            let count: u64 = page
                .and_then(|page| page.attributes.get("count")?.parse().ok())
                .unwrap_or_else(|| panic!("{fault}: no count in {tree}"));
            assert_eq!(count <= 4_096, fault == "client.small-count", "{count}");
        }
    }
}
