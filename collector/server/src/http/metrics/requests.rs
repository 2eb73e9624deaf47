//! `/metrics/requests`: counts, failures and latencies of requests by root operation, of spans by
//! operation, and of calls between services; time on critical paths, and slack. The format is
//! Prometheus' text format, or OpenMetrics, which also has exemplars.

use std::fmt::Display;
use std::sync::Arc;

use super::Text;
use crate::live::{
    Exemplar, LATENCY_BOUNDS_NS, LatencyHistogram, Outcomes, ServiceOperation, Totals,
};

const NS_PER_S: f64 = 1e9;
/// Labels of operations.
const OPERATION: [&str; 2] = ["service", "operation"];
/// Labels of root operations of critical paths.
const ROOT: [&str; 2] = ["root_service", "root_operation"];
/// Labels of spans.
const SPAN: [&str; 3] = ["service", "span_kind", "span_name"];
/// Labels of edges.
const EDGE: [&str; 3] = ["client", "server", "span_name"];

/// Format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    /// Chooses a format by the `Accept` headers of a request: OpenMetrics if any of them lists it,
    /// whatever its weight.
    pub(crate) fn preferred<'a>(accepted: impl IntoIterator<Item = &'a str>) -> Self {
        let is_open = |part: &str| part.trim().starts_with("application/openmetrics-text");
        let mut kinds = accepted.into_iter().flat_map(|value| value.split(','));
        if kinds.any(is_open) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writer of metrics as text, in one of the formats.
struct Writer {
    text: Text,
    format: Format,
}

impl Writer {
    /// Writes the help and type of a counter, whose name lacks `_total` in OpenMetrics.
    fn counter(&mut self, name: &str, help: &str) {
        let suffix = match self.format {
            Format::Prometheus => "_total",
            Format::OpenMetrics => "",
        };
        self.text
            .named_family(&format!("{name}{suffix}"), "counter", help);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.named_sample(name, labels, value);
    }

    /// Writes one sample of the successes, and one of the failures.
    fn outcomes(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        (label, names): (&str, [&str; 2]),
        of: &Outcomes,
    ) {
        let (all, failed) = (of.all.estimate(), of.failed.estimate());
        for (outcome, count) in names.into_iter().zip([all - failed, failed]) {
            self.sample(name, &with(labels, (label, outcome)), count);
        }
    }

    /// Writes histograms of a family, each with its labels.
    fn histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        histograms: impl Iterator<Item = (Vec<(&'a str, &'a str)>, &'a LatencyHistogram)>,
    ) {
        self.text.named_family(name, "histogram", help);
        let bounds = LATENCY_BOUNDS_NS.map(|bound_ns| format!("{:?}", bound_ns as f64 / NS_PER_S));
        let [in_bucket, sum, count] = ["bucket", "sum", "count"].map(|of| format!("{name}_{of}"));
        for (labels, of) in histograms {
            let mut value = 0.0;
            let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
            for (bucket, bound) in of.buckets.iter().zip(bounds) {
                value += bucket.count.estimate();
                let is_shown = |_: &Exemplar| self.format == Format::OpenMetrics;
                let exemplar = bucket.exemplar.filter(is_shown);
                let sample = Sample { value, exemplar };
                self.sample(&in_bucket, &with(&labels, ("le", bound)), sample);
            }
            self.sample(&sum, &labels, seconds(of.sum_ns));
            self.sample(&count, &labels, value);
        }
    }
}

/// Renders the totals. `duty` is the fraction of time in bursts; `None` if each service chooses its
/// own.
pub(crate) fn render(totals: &Totals, duty: Option<f64>, format: Format) -> String {
    let mut writer = Writer {
        text: Text(String::new()),
        format,
    };
    requests(&mut writer, totals);
    paths(&mut writer, totals);
    spans(&mut writer, totals);
    calls(&mut writer, totals);
    if let Some(duty) = duty {
        writer.text.single(
            "burst_duty_ratio",
            "gauge",
            "Fraction of time in bursts, by the burst-config in force.",
            duty,
        );
    }
    if format == Format::OpenMetrics {
        writer.text.0.push_str("# EOF\n");
    }
    writer.text.0
}

fn requests(writer: &mut Writer, totals: &Totals) {
    writer.counter(
        "stroboscope_requests",
        "Requests that recorded ones represent, by root operation and outcome.",
    );
    for (operation, of) in &totals.roots {
        let outcomes = ("outcome", ["ok", "failed"]);
        let labels = labels(OPERATION, operation);
        writer.outcomes(
            "stroboscope_requests_total",
            &labels,
            outcomes,
            &of.outcomes,
        );
    }
    writer.counter(
        "stroboscope_recorded_requests",
        "Recorded requests, by root operation.",
    );
    for (operation, of) in &totals.roots {
        let recorded = of.outcomes.all.recorded();
        let labels = labels(OPERATION, operation);
        writer.sample("stroboscope_recorded_requests_total", &labels, recorded);
    }
    let histograms = totals.roots.iter();
    writer.histograms(
        "stroboscope_request_duration_seconds",
        "Latencies of the requests that complete ones represent.",
        histograms.map(|(operation, of)| (labels(OPERATION, operation).to_vec(), &of.latency)),
    );
}

fn paths(writer: &mut Writer, totals: &Totals) {
    writer.counter(
        "stroboscope_critical_path_seconds",
        "Time on the critical paths of complete requests, by root operation and operation.",
    );
    for ((root, operation), time_ns) in &totals.critical_ns {
        let [root, operation] = [labels(ROOT, root), labels(OPERATION, operation)];
        let name = "stroboscope_critical_path_seconds_total";
        writer.sample(name, &[root, operation].concat(), seconds(*time_ns));
    }
    let help = "Slack of the segments of complete requests, by operation.";
    let name = "stroboscope_slack_seconds";
    writer.text.named_family(name, "summary", help);
    for (operation, of) in &totals.slack {
        let labels = labels(OPERATION, operation);
        let sum_s = seconds(of.sum_ns);
        writer.sample("stroboscope_slack_seconds_sum", &labels, sum_s);
        let segments = of.segments.estimate();
        writer.sample("stroboscope_slack_seconds_count", &labels, segments);
    }
}

/// Writes the metrics of spans, with the names and labels of Tempo's metrics generator.
fn spans(writer: &mut Writer, totals: &Totals) {
    writer.counter(
        "traces_spanmetrics_calls",
        "Spans that recorded ones represent, by operation and status.",
    );
    for (operation, of) in &totals.spans {
        let statuses = ("status_code", ["STATUS_CODE_UNSET", "STATUS_CODE_ERROR"]);
        let name = "traces_spanmetrics_calls_total";
        writer.outcomes(name, &texts(SPAN, operation), statuses, &of.outcomes);
    }
    let histograms = totals.spans.iter();
    writer.histograms(
        "traces_spanmetrics_latency",
        "Durations of the spans that whole ones represent, in seconds.",
        histograms.map(|(operation, of)| (texts(SPAN, operation).to_vec(), &of.latency)),
    );
}

/// Writes the metrics of calls, with the names and labels of Tempo's service graphs.
fn calls(writer: &mut Writer, totals: &Totals) {
    let families = [
        (
            "traces_service_graph_request",
            "Calls between services that recorded ones represent.",
            false,
        ),
        (
            "traces_service_graph_request_failed",
            "Failed calls between services that recorded ones represent.",
            true,
        ),
    ];
    for (name, help, is_of_failed) in families {
        writer.counter(name, help);
        let name = format!("{name}_total");
        for (edge, of) in &totals.calls {
            let Outcomes { all, failed } = of.outcomes;
            let count = if is_of_failed { failed } else { all };
            writer.sample(&name, &texts(EDGE, edge), count.estimate());
        }
    }
    let edges = totals.calls.iter();
    writer.histograms(
        "traces_service_graph_request_client_seconds",
        "Durations of calls by their client spans or, without these, by the called spans.",
        edges.map(|(edge, of)| (texts(EDGE, edge).to_vec(), &of.client)),
    );
    let edges = totals.calls.iter();
    writer.histograms(
        "traces_service_graph_request_server_seconds",
        "Durations of the called spans.",
        edges.map(|(edge, of)| (texts(EDGE, edge).to_vec(), &of.server)),
    );
}

fn labels<'a>(
    labels: [&'a str; 2],
    (service, name): &'a ServiceOperation,
) -> [(&'a str, &'a str); 2] {
    let [of_service, of_name] = labels;
    [(of_service, service), (of_name, name)]
}

fn texts<'a>(labels: [&'a str; 3], texts: &'a [Arc<str>; 3]) -> [(&'a str, &'a str); 3] {
    std::array::from_fn(|at| (labels[at], &*texts[at]))
}

fn with<'a>(labels: &[(&'a str, &'a str)], more: (&'a str, &'a str)) -> Vec<(&'a str, &'a str)> {
    labels.iter().copied().chain([more]).collect()
}

fn seconds(of_ns: u128) -> f64 {
    of_ns as f64 / NS_PER_S
}

/// Value of a sample with its exemplar.
struct Sample {
    value: f64,
    exemplar: Option<Exemplar>,
}

impl Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.value)?;
        let Some(of) = self.exemplar else {
            return Ok(());
        };
        let seconds = of.latency_ns as f64 / NS_PER_S;
        let (whole_s, rest_ns) = (
            of.start_ns.div_euclid(1_000_000_000),
            of.start_ns.rem_euclid(1_000_000_000),
        );
        write!(
            f,
            " # {{trace_id=\"{}\"}} {seconds} {whole_s}.{rest_ns:09}",
            of.trace_id
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stroboscope_analysis::record::TraceId;
    use stroboscope_analysis::sampling::{Weight, WeightedCount};

    use super::*;
    use crate::live::{EdgeTotals, LatencyBucket, OperationTotals, SlackTotals};

    fn histogram() -> LatencyHistogram {
        let mut count = WeightedCount::default();
        count.count(Weight::ONE);
        count.count(Weight::of_threshold(1 << 55));
        let mut of = LatencyHistogram {
            sum_ns: 900_000,
            ..LatencyHistogram::default()
        };
        of.buckets[2] = LatencyBucket {
            count,
            exemplar: Some(Exemplar {
                trace_id: TraceId(0xab),
                latency_ns: 300_000,
                start_ns: 1_700_000_000_000_000_001,
            }),
        };
        of
    }

    fn totals() -> Totals {
        let all = histogram().buckets[2].count;
        let mut failed = WeightedCount::default();
        failed.count(Weight::ONE);
        let outcomes = Outcomes { all, failed };
        let of = OperationTotals {
            outcomes,
            latency: histogram(),
        };
        let edge = EdgeTotals {
            outcomes,
            client: histogram(),
            server: histogram(),
        };
        let slack = SlackTotals {
            segments: all,
            sum_ns: 1_500_000,
        };
        let root: ServiceOperation = ("web".into(), "say \"hi\"".into());
        let find: ServiceOperation = ("shop".into(), "find".into());
        let span = ["shop", "SPAN_KIND_SERVER", "find"].map(Arc::from);
        Totals {
            roots: BTreeMap::from([(root.clone(), of.clone())]),
            spans: BTreeMap::from([(span, of)]),
            calls: BTreeMap::from([(["web", "shop", "find"].map(Arc::from), edge)]),
            critical_ns: BTreeMap::from([((root, find.clone()), 400_000)]),
            slack: BTreeMap::from([(find, slack)]),
        }
    }

    /// Removes the buckets of histograms, except for the third and the last.
    fn without_buckets(text: &str) -> String {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.retain(|line| {
            !line.contains("_bucket") || line.contains("\"0.0005\"") || line.contains("+Inf")
        });
        lines.join("\n")
    }

    const PROMETHEUS: &str = r#"# HELP stroboscope_requests_total Requests that recorded ones represent, by root operation and outcome.
# TYPE stroboscope_requests_total counter
stroboscope_requests_total{service="web",operation="say \"hi\"",outcome="ok"} 2
stroboscope_requests_total{service="web",operation="say \"hi\"",outcome="failed"} 1
# HELP stroboscope_recorded_requests_total Recorded requests, by root operation.
# TYPE stroboscope_recorded_requests_total counter
stroboscope_recorded_requests_total{service="web",operation="say \"hi\""} 2
# HELP stroboscope_request_duration_seconds Latencies of the requests that complete ones represent.
# TYPE stroboscope_request_duration_seconds histogram
stroboscope_request_duration_seconds_bucket{service="web",operation="say \"hi\"",le="0.0005"} 3
stroboscope_request_duration_seconds_bucket{service="web",operation="say \"hi\"",le="+Inf"} 3
stroboscope_request_duration_seconds_sum{service="web",operation="say \"hi\""} 0.0009
stroboscope_request_duration_seconds_count{service="web",operation="say \"hi\""} 3
# HELP stroboscope_critical_path_seconds_total Time on the critical paths of complete requests, by root operation and operation.
# TYPE stroboscope_critical_path_seconds_total counter
stroboscope_critical_path_seconds_total{root_service="web",root_operation="say \"hi\"",service="shop",operation="find"} 0.0004
# HELP stroboscope_slack_seconds Slack of the segments of complete requests, by operation.
# TYPE stroboscope_slack_seconds summary
stroboscope_slack_seconds_sum{service="shop",operation="find"} 0.0015
stroboscope_slack_seconds_count{service="shop",operation="find"} 3
# HELP traces_spanmetrics_calls_total Spans that recorded ones represent, by operation and status.
# TYPE traces_spanmetrics_calls_total counter
traces_spanmetrics_calls_total{service="shop",span_kind="SPAN_KIND_SERVER",span_name="find",status_code="STATUS_CODE_UNSET"} 2
traces_spanmetrics_calls_total{service="shop",span_kind="SPAN_KIND_SERVER",span_name="find",status_code="STATUS_CODE_ERROR"} 1
# HELP traces_spanmetrics_latency Durations of the spans that whole ones represent, in seconds.
# TYPE traces_spanmetrics_latency histogram
traces_spanmetrics_latency_bucket{service="shop",span_kind="SPAN_KIND_SERVER",span_name="find",le="0.0005"} 3
traces_spanmetrics_latency_bucket{service="shop",span_kind="SPAN_KIND_SERVER",span_name="find",le="+Inf"} 3
traces_spanmetrics_latency_sum{service="shop",span_kind="SPAN_KIND_SERVER",span_name="find"} 0.0009
traces_spanmetrics_latency_count{service="shop",span_kind="SPAN_KIND_SERVER",span_name="find"} 3
# HELP traces_service_graph_request_total Calls between services that recorded ones represent.
# TYPE traces_service_graph_request_total counter
traces_service_graph_request_total{client="web",server="shop",span_name="find"} 3
# HELP traces_service_graph_request_failed_total Failed calls between services that recorded ones represent.
# TYPE traces_service_graph_request_failed_total counter
traces_service_graph_request_failed_total{client="web",server="shop",span_name="find"} 1
# HELP traces_service_graph_request_client_seconds Durations of calls by their client spans or, without these, by the called spans.
# TYPE traces_service_graph_request_client_seconds histogram
traces_service_graph_request_client_seconds_bucket{client="web",server="shop",span_name="find",le="0.0005"} 3
traces_service_graph_request_client_seconds_bucket{client="web",server="shop",span_name="find",le="+Inf"} 3
traces_service_graph_request_client_seconds_sum{client="web",server="shop",span_name="find"} 0.0009
traces_service_graph_request_client_seconds_count{client="web",server="shop",span_name="find"} 3
# HELP traces_service_graph_request_server_seconds Durations of the called spans.
# TYPE traces_service_graph_request_server_seconds histogram
traces_service_graph_request_server_seconds_bucket{client="web",server="shop",span_name="find",le="0.0005"} 3
traces_service_graph_request_server_seconds_bucket{client="web",server="shop",span_name="find",le="+Inf"} 3
traces_service_graph_request_server_seconds_sum{client="web",server="shop",span_name="find"} 0.0009
traces_service_graph_request_server_seconds_count{client="web",server="shop",span_name="find"} 3"#;

    #[test]
    fn the_formats_differ_in_names_and_exemplars() {
        let plain = render(&totals(), None, Format::Prometheus);
        assert_eq!(without_buckets(&plain), PROMETHEUS);
        assert_eq!(plain.matches("_bucket").count(), 4 * 20);
        let open = render(&totals(), Some(0.125), Format::OpenMetrics);
        // Names of counters have no suffix in their help and type.
        let is_about_counter = |line: &&str| line.starts_with('#') && line.contains("_total ");
        let expected = PROMETHEUS.lines().map(|line| match line {
            line if is_about_counter(&line) => line.replace("_total ", " "),
            line if line.contains("\"0.0005\"") => {
                let trace_id = format!("{:032x}", 0xab);
                format!("{line} # {{trace_id=\"{trace_id}\"}} 0.0003 1700000000.000000001")
            }
            line => line.to_owned(),
        });
        let of_duty = "# HELP stroboscope_burst_duty_ratio Fraction of time in bursts, by the burst-config in force.\n\
                       # TYPE stroboscope_burst_duty_ratio gauge\n\
                       stroboscope_burst_duty_ratio 0.125\n# EOF";
        let expected: Vec<String> = expected.chain([of_duty.to_owned()]).collect();
        assert_eq!(without_buckets(&open), expected.join("\n"));
    }

    #[test]
    fn clients_choose_the_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::preferred([prometheus]), Format::OpenMetrics);
        for other in [&["*/*"][..], &["text/html, text/plain"], &[]] {
            assert_eq!(Format::preferred(other.iter().copied()), Format::Prometheus);
        }
    }
}
