//! The metrics of requests, spans, calls and critical paths that Prometheus scrapes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::load::Seen;

/// Service, kind and name of an operation, and the numbers of its spans and failed spans.
pub(crate) type Spans<'a> = (&'a str, &'a str, &'a str, u64, u64);
/// Calling service, called service and operation, and the numbers of calls and failed calls.
pub(crate) type Calls<'a> = (&'a str, &'a str, &'a str, u64, u64);

/// Spans and calls by the client's counts.
#[derive(Debug)]
pub(crate) struct Counted<'a> {
    pub(crate) spans: &'a [Spans<'a>],
    pub(crate) calls: &'a [Calls<'a>],
}

/// Largest difference of shares of time. The model may refute a relation after a request counts.
const SHARE_ERROR_MAX: f64 = 1e-3;
const ROOT: &str = "service=\"front\",operation=\"GET /order\"";

/// Answer of `/metrics/requests`.
#[derive(Debug)]
pub(crate) struct Metrics(pub(crate) String);

impl Metrics {
    /// Returns the samples of a metric by their labels.
    fn samples(&self, name: &str) -> BTreeMap<&str, f64> {
        let lines = self.0.lines();
        let samples = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
        let samples = samples.map(|sample| sample.rsplit_once("} ").expect("a value"));
        samples
            .map(|(labels, value)| (labels, value.parse().expect("a number")))
            .collect()
    }

    fn value(&self, name: &str, labels: &str) -> f64 {
        let samples = self.samples(name);
        let value = samples.get(labels).copied();
        value.unwrap_or_else(|| panic!("no {name}{{{labels}}} in {}", self.0))
    }

    /// Checks the metrics of requests. The live model has counted all requests by now.
    pub(crate) fn check_requests(&self, seen: &Seen) {
        let failed = seen.all_failed() as f64;
        let all = seen.requests as f64;
        let of = |outcome: &str| {
            let labels = format!("{ROOT},outcome=\"{outcome}\"");
            self.value("stroboscope_requests_total", &labels)
        };
        assert_eq!((of("failed"), of("ok")), (failed, all - failed));
        assert_eq!(self.value("stroboscope_recorded_requests_total", ROOT), all);
        let [bucket, count] =
            ["bucket", "count"].map(|part| format!("stroboscope_request_duration_seconds_{part}"));
        let complete = self.value(&count, ROOT);
        assert_eq!(
            self.value(&bucket, &format!("{ROOT},le=\"+Inf\"")),
            complete
        );
        assert!(complete >= all - failed && complete <= all, "{complete}");
    }

    /// Checks the metrics of operations and of edges: there are no others.
    pub(crate) fn check_counts(&self, counted: &Counted<'_>) {
        let mut expected = [(); 4].map(|()| BTreeMap::new());
        let [calls, latencies, edges, failed_edges] = &mut expected;
        for &(service, kind, name, all, failed) in counted.spans {
            let labels = format!(
                "service=\"{service}\",span_kind=\"SPAN_KIND_{kind}\",span_name=\"{name}\""
            );
            for (status, count) in [("UNSET", all - failed), ("ERROR", failed)] {
                let labels = format!("{labels},status_code=\"STATUS_CODE_{status}\"");
                calls.insert(labels, count as f64);
            }
            latencies.insert(labels, all as f64);
        }
        for &(client, server, name, all, failed) in counted.calls {
            let labels = format!("client=\"{client}\",server=\"{server}\",span_name=\"{name}\"");
            edges.insert(labels.clone(), all as f64);
            failed_edges.insert(labels, failed as f64);
        }
        let [calls, latencies, edges, failed_edges] = expected;
        for (name, expected) in [
            ("traces_spanmetrics_calls_total", &calls),
            ("traces_spanmetrics_latency_count", &latencies),
            ("traces_service_graph_request_total", &edges),
            ("traces_service_graph_request_failed_total", &failed_edges),
            ("traces_service_graph_request_client_seconds_count", &edges),
            ("traces_service_graph_request_server_seconds_count", &edges),
        ] {
            let found = self.samples(name);
            let expected = expected.iter().map(|(labels, count)| (&**labels, *count));
            assert_eq!(found, expected.collect(), "{name}");
        }
        let sums = ["client", "server"]
            .map(|side| self.samples(&format!("traces_service_graph_request_{side}_seconds_sum")));
        for (labels, client_s) in &sums[0] {
            let server_s = sums[1][labels];
            assert!(0.0 < server_s && server_s < *client_s, "{labels}");
        }
    }

    /// Checks the shares of time on critical paths against those of a list of operations in JSON,
    /// and their sum against the latencies.
    pub(crate) fn check_shares(&self, operations: &Value) {
        let total_s = self.value("stroboscope_request_duration_seconds_sum", ROOT);
        let root = "root_service=\"front\",root_operation=\"GET /order\",service=\"";
        let mut shares = BTreeMap::new();
        let mut sum_s = 0.0;
        for (labels, time_s) in self.samples("stroboscope_critical_path_seconds_total") {
            let operation = labels.strip_prefix(root).expect("the only root");
            let operation = operation.replace("\",operation=\"", ":");
            shares.insert(operation.trim_end_matches('"').to_owned(), time_s / total_s);
            sum_s += time_s;
        }
        assert!((sum_s / total_s - 1.0).abs() < 1e-9, "{sum_s} {total_s}");
        shares.remove(":(tail)");
        let listed = operations.as_array().expect("a list").iter();
        let mut names = BTreeSet::new();
        for row in listed {
            let name = row["operation"].as_str().expect("a name");
            let expected = row["share_of_time"].as_f64().expect("a share");
            let found = shares.get(name).copied().unwrap_or_default();
            let error = (found - expected).abs();
            assert!(error < SHARE_ERROR_MAX, "{name}: {found} {expected}");
            names.insert(name);
        }
        assert!(!shares.is_empty() && shares.keys().all(|name| names.contains(&**name)));
    }

    /// Requires that Prometheus' own checker accepts the text.
    pub(crate) fn check_by_prometheus(&self) {
        let mut command = Command::new("promtool");
        command.args(["check", "metrics"]).stdin(Stdio::piped());
        let checker = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut checker = match checker {
            Ok(checker) => checker,
            Err(error) => {
                eprintln!("SKIPPED: the check by promtool: {error}; install Debian's prometheus");
                return;
            }
        };
        let mut input = checker.stdin.take().expect("a pipe");
        input.write_all(self.0.as_bytes()).expect("it reads");
        drop(input);
        let output = checker.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}\n{}", self.0);
    }
}
