//! `/metrics/requests`: rates, failures and latencies of requests by root operation, in Prometheus'
//! text format or OpenMetrics, which also has exemplars.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::Text;
use crate::live::{Exemplar, LATENCY_BOUNDS_NS, RequestTotals, RootOperation};

const NS_PER_S: f64 = 1e9;

/// Format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    /// Chooses a format by the `Accept` headers of a request. Clients that know OpenMetrics prefer
    /// it, such as Prometheus.
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

/// Renders the totals. `duty` is the fraction of time in bursts; `None` if services choose
/// themselves.
pub(crate) fn render(
    totals: &BTreeMap<RootOperation, RequestTotals>,
    duty: Option<f64>,
    format: Format,
) -> String {
    let mut text = Text(String::new());
    counter(
        &mut text,
        format,
        "requests",
        "Requests that recorded ones represent, by root operation and outcome.",
    );
    for (operation, of) in totals {
        let (all, failed) = (of.outcomes.all.estimate(), of.outcomes.failed.estimate());
        for (outcome, count) in [("ok", all - failed), ("failed", failed)] {
            let labels = with(operation, ("outcome", outcome));
            text.sample("requests_total", &labels, count);
        }
    }
    counter(
        &mut text,
        format,
        "recorded_requests",
        "Recorded requests, by root operation.",
    );
    for (operation, of) in totals {
        let recorded = of.outcomes.all.recorded();
        text.sample("recorded_requests_total", &labels(operation), recorded);
    }
    text.family(
        "request_duration_seconds",
        "histogram",
        "Latencies of the requests that complete ones represent.",
    );
    for (operation, of) in totals {
        histogram(&mut text, operation, of, format);
    }
    if let Some(duty) = duty {
        text.single(
            "burst_duty_ratio",
            "gauge",
            "Fraction of time in bursts, by the burst-config in force.",
            duty,
        );
    }
    if format == Format::OpenMetrics {
        text.0.push_str("# EOF\n");
    }
    text.0
}

/// Writes the help and type of a counter, whose name lacks `_total` in OpenMetrics.
fn counter(text: &mut Text, format: Format, name: &str, help: &str) {
    let suffix = match format {
        Format::Prometheus => "_total",
        Format::OpenMetrics => "",
    };
    text.family(&format!("{name}{suffix}"), "counter", help);
}

fn histogram(text: &mut Text, operation: &RootOperation, of: &RequestTotals, format: Format) {
    let bounds = LATENCY_BOUNDS_NS.map(|bound_ns| format!("{:?}", bound_ns as f64 / NS_PER_S));
    let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
    let mut requests = 0.0;
    for (bucket, bound) in of.latencies.iter().zip(bounds) {
        requests += bucket.requests.estimate();
        let exemplar = bucket.exemplar.filter(|_| format == Format::OpenMetrics);
        let value = Sample {
            value: requests,
            exemplar,
        };
        let labels = with(operation, ("le", bound));
        text.sample("request_duration_seconds_bucket", &labels, value);
    }
    let labels = labels(operation);
    let sum_s = of.latency_sum_ns as f64 / NS_PER_S;
    text.sample("request_duration_seconds_sum", &labels, sum_s);
    text.sample("request_duration_seconds_count", &labels, requests);
}

fn labels((service, name): &RootOperation) -> [(&'static str, &str); 2] {
    [("service", service), ("operation", name)]
}

fn with<'a>(
    operation: &'a RootOperation,
    more: (&'static str, &'a str),
) -> [(&'static str, &'a str); 3] {
    let [service, name] = labels(operation);
    [service, name, more]
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
    use stroboscope_analysis::record::TraceId;
    use stroboscope_analysis::sampling::{Weight, WeightedCount};

    use super::*;
    use crate::live::{LatencyBucket, Outcomes};

    fn totals() -> BTreeMap<RootOperation, RequestTotals> {
        let mut of = RequestTotals::default();
        let mut all = WeightedCount::default();
        all.count(Weight::ONE);
        all.count(Weight::of_threshold(1 << 55));
        let mut failed = WeightedCount::default();
        failed.count(Weight::ONE);
        of.outcomes = Outcomes { all, failed };
        of.latencies[2] = LatencyBucket {
            requests: all,
            exemplar: Some(Exemplar {
                trace_id: TraceId(0xab),
                latency_ns: 300_000,
                start_ns: 1_700_000_000_000_000_001,
            }),
        };
        of.latency_sum_ns = 900_000;
        BTreeMap::from([(("web".into(), "say \"hi\"".into()), of)])
    }

    #[test]
    fn the_formats_differ_in_names_and_exemplars() {
        let plain = render(&totals(), None, Format::Prometheus);
        let open = render(&totals(), Some(0.125), Format::OpenMetrics);
        let labels = "service=\"web\",operation=\"say \\\"hi\\\"\"";
        for text in [&plain, &open] {
            for line in [
                format!("stroboscope_requests_total{{{labels},outcome=\"ok\"}} 2\n"),
                format!("stroboscope_requests_total{{{labels},outcome=\"failed\"}} 1\n"),
                format!("stroboscope_recorded_requests_total{{{labels}}} 2\n"),
                format!(
                    "stroboscope_request_duration_seconds_bucket{{{labels},le=\"0.00025\"}} 0\n"
                ),
                format!("stroboscope_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 3\n"),
                format!("stroboscope_request_duration_seconds_sum{{{labels}}} 0.0009\n"),
                format!("stroboscope_request_duration_seconds_count{{{labels}}} 3\n"),
            ] {
                assert!(text.contains(&line), "{line} in {text}");
            }
        }
        let bucket =
            format!("stroboscope_request_duration_seconds_bucket{{{labels},le=\"0.0005\"}} 3");
        let exemplar = format!(
            "# {{trace_id=\"{:032x}\"}} 0.0003 1700000000.000000001",
            0xab
        );
        assert!(plain.contains(&format!("{bucket}\n")), "{plain}");
        assert!(
            plain.contains("# TYPE stroboscope_requests_total counter\n"),
            "{plain}"
        );
        assert!(!plain.contains("EOF") && !plain.contains("duty"), "{plain}");
        assert!(open.contains(&format!("{bucket} {exemplar}\n")), "{open}");
        assert!(
            open.contains("# TYPE stroboscope_requests counter\n"),
            "{open}"
        );
        assert!(
            open.contains("stroboscope_burst_duty_ratio 0.125\n"),
            "{open}"
        );
        assert!(open.ends_with("# EOF\n"), "{open}");
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
