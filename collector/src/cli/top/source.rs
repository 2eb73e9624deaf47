//! Sources of snapshots: a collector's pages, or a store.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::runtime::Handle;

use super::super::ask::{HttpClient, Response};
use super::snapshot::{LatestPath, Operation, Senders, Snapshot, Spread, Totals};
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::name_rule::normalise;
use stroboscope_query::{CategoryRule, Operations, OperationsQuestion, PathsQuestion};
use stroboscope_reports::Failure;
use stroboscope_reports::arguments::{DataArguments, ReadingArguments, SelectionArguments};
use stroboscope_reports::study::{NamedStudy, Reader};
use stroboscope_store::flush::now_ns;
use stroboscope_store::progress::silent;

/// Timeout for each attempt to connect to the collector, each read and each write.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of a response and its head, in bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Collector or store that `top` watches.
#[derive(Clone, Debug)]
pub(super) enum TopSource {
    Collector(HttpClient),
    Store {
        data: DataArguments,
        last: Duration,
        runtime: Handle,
    },
}

impl TopSource {
    /// Returns the name of the source, as shown to the user.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Collector(client) => format!("collector at {}", client.address()),
            Self::Store { data, .. } => format!("store {}", data.data.display()),
        }
    }

    /// Takes one snapshot. Blocks until the collector has responded or the store is read.
    pub(super) fn look(&self) -> Result<Snapshot, Failure> {
        match self {
            Self::Collector(client) => of_collector(client),
            Self::Store {
                data,
                last,
                runtime,
            } => of_store(data, *last, runtime),
        }
    }
}

fn of_collector(client: &HttpClient) -> Result<Snapshot, Failure> {
    let address = client.address();
    let get = |path: &str| -> Result<Response, Failure> {
        let answer = client.ask(path, PATIENCE, ANSWER_BYTES_MAX);
        let answer = answer.map_err(Failure::of)?;
        match answer.status {
            200 | 404 => Ok(answer),
            status => Err(Failure::new(format!(
                "the collector at {address} answers {status} for {path}: {}",
                answer.body.trim_end()
            ))),
        }
    };
    let found = |path: &str| -> Result<String, Failure> {
        let answer = get(path)?;
        if answer.status == 404 {
            return Err(Failure::new(format!(
                "the server at {address} is not a collector's port for pages (no {path}): give that port with --http"
            )));
        }
        Ok(answer.body)
    };
    let unreadable = |path: &str, error: serde_json::Error| {
        Failure::new(format!(
            "{path} of the collector at {address} cannot be read ({error}): is it of another version?"
        ))
    };
    let metrics = found("/metrics")?;
    let at_ns = now_ns();
    let senders = Senders::of_json(&found("/api/processes")?, at_ns)
        .map_err(|error| unreadable("/api/processes", error))?;
    let adoption = serde_json::from_str(&found("/api/burst-config")?)
        .map_err(|error| unreadable("/api/burst-config", error))?;
    let path = get("/api/critical-path")?;
    // Without a live model the path is missing; all else is available.
    let path = match path.status {
        200 => {
            let read = serde_json::from_str::<LatestPath>(&path.body);
            Some(read.map_err(|error| unreadable("/api/critical-path", error))?)
        }
        _ => None,
    };
    Ok(Snapshot {
        path,
        senders,
        totals: Totals::of_metrics(&metrics),
        is_live: true,
        adoption: Some(adoption),
        at_ns,
    })
}

fn spread(of: &Distribution) -> Spread {
    let percentiles = of.percentiles();
    Spread {
        p50_ns: percentiles.p50_ns,
        p99_ns: percentiles.p99_ns,
    }
}

/// Counts spans and failed spans by operation. Normalises the operations' names, as the names of
/// segments are.
fn outcomes(timed: &Operations) -> BTreeMap<String, (u64, u64)> {
    let mut outcomes = BTreeMap::<String, (u64, u64)>::new();
    for (operation, times) in &timed.of {
        let name = match operation.split_once(':') {
            Some((service, name)) => format!("{service}:{}", normalise(name)),
            None => operation.clone(),
        };
        let (spans, failed) = outcomes.entry(name).or_default();
        *spans += times.duration.weighted_count().rounded();
        *failed += times.failed.rounded();
    }
    outcomes
}

/// Takes a snapshot of the requests in the store that began within the time `last` before now.
fn of_store(data: &DataArguments, last: Duration, runtime: &Handle) -> Result<Snapshot, Failure> {
    let at_ns = now_ns();
    let last_ns = i64::try_from(last.as_nanos()).unwrap_or(i64::MAX);
    let reading = ReadingArguments::of(SelectionArguments {
        data: data.clone(),
        json: false,
        since: Some(at_ns.saturating_sub(last_ns)),
        until: None,
        root: None,
        requests: Vec::new(),
        filter: None,
        include_incomplete: false,
        memory_limit: None,
    });
    let reader = Reader {
        runtime: runtime.clone(),
        observer: silent(),
        memory: None,
    };
    let study = NamedStudy::read_by(&reading, &reader)?;
    let asked = (PathsQuestion(CategoryRule::default()), OperationsQuestion);
    let (paths, timed) = study.ask(&asked)?;
    let outcomes = outcomes(&timed);
    let known = study.known()?;
    let (aggregate, traces) = (&paths.aggregate, paths.aggregate.traces());
    let operations = aggregate
        .by_operation(known.inference.model.labels())
        .into_iter()
        .map(|of| Operation {
            occurrences: of.occurrences.rounded(),
            share_of_time: aggregate.share_of_time(of.critical_duration_ns + of.critical_wait_ns),
            wait_share_of_time: aggregate.share_of_time(of.critical_wait_ns),
            duration: spread(&of.duration),
            slack: (of.slack.count() > 0).then(|| spread(&of.slack)),
            spans: outcomes.get(&of.operation).map_or(0, |(spans, _)| *spans),
            failed: outcomes.get(&of.operation).map_or(0, |(_, failed)| *failed),
            operation: of.operation,
        });
    let operations: Vec<Operation> = operations.collect();
    let notes = &paths.notes;
    let mut lost: BTreeMap<String, u64> = notes
        .incomplete
        .iter()
        .map(|(cause, count)| (format!("incomplete:{cause}"), *count))
        .collect();
    let counted = [
        ("left_out:outside_requests", notes.left_out.outside_requests),
        ("left_out:over_trace_limit", notes.left_out.over_trace_limit),
        ("left_out:large_traces", notes.left_out.large_traces),
        ("left_out:span_missing", notes.left_out.span_missing),
        ("left_out:no_span_no_task", notes.left_out.no_span_no_task),
        ("left_out:copies", notes.left_out.copies),
        ("damaged_files", notes.damage.len() as u64),
        ("bytes_not_in_the_store_yet", notes.unflushed_bytes),
    ];
    let counted = counted.into_iter().filter(|(_, count)| *count > 0);
    lost.extend(counted.map(|(cause, count)| (cause.to_owned(), count)));
    let recorded = study.source().recorded().map_err(Failure::of)?;
    for ((_, cause), count) in &recorded.lost {
        *lost.entry(format!("processes:{cause}")).or_default() += count;
    }
    if recorded.missing_batches > 0 {
        lost.insert("missing_batches".to_owned(), recorded.missing_batches);
    }
    Ok(Snapshot {
        path: Some(LatestPath {
            last_seconds: last.as_secs(),
            requests: traces.rounded(),
            all_requests: traces.rounded(),
            failed_requests: paths.failed_requests().rounded(),
            tail_share_of_time: aggregate.share_of_time(aggregate.tail_wait().0),
            operations_known: operations.len(),
            refused_segments: known.inference.model.labels().refused(),
            operations,
        }),
        senders: Senders {
            processes: usize::try_from(recorded.processes).unwrap_or(usize::MAX),
            ..Senders::default()
        },
        totals: Totals {
            records: recorded.records,
            requests: notes.traces,
            lost,
        },
        is_live: false,
        adoption: None,
        at_ns,
    })
}
