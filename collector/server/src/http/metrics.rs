//! `/metrics`, in Prometheus' text format.

mod care;

use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering::Relaxed;

use super::server::Pages;
use crate::live::LiveModel;
use crate::pace::lines_left_out;

struct Text(String);

impl Text {
    /// Writing to a String cannot fail.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(
            self.0,
            "# HELP stroboscope_{name} {help}\n# TYPE stroboscope_{name} {kind}\n"
        );
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "stroboscope_{name}");
        for (i, (label, text)) in labels.iter().enumerate() {
            let text = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(
                self.0,
                "{}{label}=\"{text}\"",
                if i == 0 { '{' } else { ',' }
            );
        }
        let _ = writeln!(
            self.0,
            "{} {value}",
            if labels.is_empty() { "" } else { "}" }
        );
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// The metrics of a collector.
pub(super) fn render(pages: &Pages) -> String {
    let intake = &pages.intake;
    let counters = intake.counters();
    let totals = counters.totals();
    let mut text = Text(String::new());
    text.family("batches_total", "counter", "Batches by outcome.");
    for (outcome, count) in &totals.batches {
        text.sample("batches_total", &[("outcome", outcome)], count);
    }
    text.family(
        "refused_batches_total",
        "counter",
        "Batches refused for good, by cause.",
    );
    for (cause, count) in &totals.refused {
        text.sample("refused_batches_total", &[("cause", cause)], count);
    }
    text.single(
        "records_total",
        "counter",
        "Spans and events stored.",
        totals.records,
    );
    text.single(
        "otlp_requests_total",
        "counter",
        "Requests of OTLP stored.",
        counters.otlp_requests.load(Relaxed),
    );
    text.single(
        "otlp_rejected_spans_total",
        "counter",
        "Spans of OTLP that were left out of requests.",
        counters.otlp_rejected_spans.load(Relaxed),
    );
    text.single(
        "otlp_rejected_logs_total",
        "counter",
        "Log records of OTLP that were left out of requests, as something was wrong with them.",
        counters.otlp_rejected_logs.load(Relaxed),
    );
    text.single(
        "otlp_logs_without_trace_total",
        "counter",
        "Log records of OTLP that belong to no request, and were left out for that.",
        counters.otlp_logs_without_trace.load(Relaxed),
    );
    text.single(
        "commits_total",
        "counter",
        "Group commits of the log.",
        counters.commits.load(Relaxed),
    );
    let (written, waiting) = (
        counters.wal_bytes_written.load(Relaxed),
        counters.wal_bytes.load(Relaxed),
    );
    text.single(
        "wal_written_bytes_total",
        "counter",
        "Bytes appended to the log.",
        written,
    );
    text.single(
        "wal_bytes",
        "gauge",
        "Bytes of log that are not in the store yet.",
        waiting,
    );
    let damage = counters.wal_damage.load(Relaxed) + counters.wal_undecodable.load(Relaxed);
    text.single(
        "wal_damage_total",
        "counter",
        "Damaged places and undecodable batches found in the log.",
        damage,
    );
    text.single(
        "parquet_bytes_total",
        "counter",
        "Bytes of Parquet written.",
        counters.parquet_bytes.load(Relaxed),
    );
    text.single(
        "flushes_total",
        "counter",
        "Log segments put into the store.",
        counters.flushes.load(Relaxed),
    );
    let failures = counters.flush_failures.load(Relaxed);
    text.single(
        "flush_failures_total",
        "counter",
        "Attempts to do so that failed.",
        failures,
    );
    let last_s = counters.last_flush_ns.load(Relaxed) as f64 / 1e9;
    text.single(
        "last_flush_timestamp_seconds",
        "gauge",
        "When a segment was last put into the store.",
        last_s,
    );
    let (holes, processes, losses) =
        intake.with_ledger(|ledger| (ledger.holes(), ledger.entries().count(), ledger.losses()));
    text.single(
        "missing_batches",
        "gauge",
        "Sequence numbers that never arrived.",
        holes,
    );
    text.single(
        "processes",
        "gauge",
        "Process incarnations known.",
        processes,
    );
    text.family(
        "lost_records_total",
        "counter",
        "Records lost by the processes, by service and cause.",
    );
    for ((service, cause), count) in &losses {
        text.sample(
            "lost_records_total",
            &[("service", service), ("cause", cause)],
            count,
        );
    }
    care::render(intake.care(), &mut text);
    door_metrics(pages, &mut text);
    if let Some(live) = intake.live() {
        live_metrics(live, &mut text);
    }
    text.0
}

fn door_metrics(pages: &Pages, text: &mut Text) {
    let Pages {
        intake,
        doors,
        redaction,
        ..
    } = pages;
    text.family(
        "turned_away_total",
        "counter",
        "Connections and requests turned away at a door, by cause.",
    );
    for (door, cause, count) in doors.refused().counts() {
        let labels = [("door", door), ("cause", cause)];
        text.sample("turned_away_total", &labels, count);
    }
    text.family(
        "secrets_reloads_total",
        "counter",
        "Times that changed certificates and tokens were read, by whether they could be used.",
    );
    for (outcome, count) in ["used", "failed"].into_iter().zip(&doors.reloads) {
        let labels = [("outcome", outcome)];
        text.sample("secrets_reloads_total", &labels, count.load(Relaxed));
    }
    text.family(
        "redacted_values_total",
        "counter",
        "Values of attributes that were redacted, by what was done.",
    );
    let counts = redaction.as_ref().map(|redaction| &redaction.counts);
    for (at, action) in ["drop", "hash"].into_iter().enumerate() {
        let count = counts.map_or(0, |counts| counts[at].load(Relaxed));
        text.sample("redacted_values_total", &[("action", action)], count);
    }
    text.single(
        "log_lines_left_out_total",
        "counter",
        "Lines left out of the collector's log, as others like them came too often.",
        lines_left_out(),
    );
    text.single(
        "reading_bytes",
        "gauge",
        "Bytes of requests that are arriving, or being checked.",
        doors.reading_bytes(),
    );
    text.single(
        "in_flight_bytes",
        "gauge",
        "Bytes of what is checked and not durable yet.",
        intake.in_flight_bytes(),
    );
}

fn live_metrics(live: &LiveModel, text: &mut Text) {
    let (counts, segments) = live.counts();
    text.family(
        "live_traces_total",
        "counter",
        "Traces that the live model took for whole, by completeness.",
    );
    for (complete, count) in [
        ("yes", counts.complete_traces),
        ("no", counts.traces - counts.complete_traces),
    ] {
        text.sample("live_traces_total", &[("complete", complete)], count);
    }
    text.family(
        "live_left_out_records_total",
        "counter",
        "Records not in the live model, by cause.",
    );
    let left_out = counts.left_out;
    for (cause, count) in [
        ("late", counts.late_records),
        ("skipped", counts.skipped_records),
        ("outside_requests", left_out.outside_requests),
        ("over_trace_limit", left_out.over_trace_limit),
        ("span_missing", left_out.span_missing),
        ("no_span_no_task", left_out.no_span_no_task),
    ] {
        text.sample("live_left_out_records_total", &[("cause", cause)], count);
    }
    let early = "Traces observed before they were quiet, for want of memory.";
    text.single(
        "live_early_traces_total",
        "counter",
        early,
        counts.early_traces,
    );
    text.single(
        "live_open_traces",
        "gauge",
        "Traces that are still arriving.",
        counts.open_traces,
    );
    text.single(
        "live_open_records",
        "gauge",
        "Records of traces still arriving.",
        counts.open_records,
    );
    text.single(
        "live_segments",
        "gauge",
        "Segments that the live model knows.",
        segments,
    );
}
