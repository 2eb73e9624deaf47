//! `/metrics`, in Prometheus' text format.

mod maintenance;
mod publishing;
pub(super) mod requests;

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::adoption::is_live;
use super::pages::Pages;
use crate::line_limit::lines_left_out;
use crate::live::LiveModel;
use stroboscope_store::flush::now_ns;

struct Text(String);

impl Text {
    /// Writes the help and the type of a metric with the prefix `stroboscope_`.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.named_family(&format!("stroboscope_{name}"), kind, help);
    }

    /// Writes the help and the type of a metric. Writing to a `String` cannot fail.
    fn named_family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.named_sample(&format!("stroboscope_{name}"), labels, value);
    }

    fn named_sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
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

    /// Writes counters without labels, given as name, help and count.
    fn counters(&mut self, counters: &[(&str, &str, &AtomicU64)]) {
        for (name, help, count) in counters {
            self.single(name, "counter", help, count.load(Relaxed));
        }
    }

    /// Writes a counter for each value of a label.
    fn labelled<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counts: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.family(name, "counter", help);
        for (value, count) in counts {
            self.sample(name, &[(label, value)], count);
        }
    }
}

/// Renders the metrics of a collector.
pub(super) fn render(pages: &Pages) -> String {
    let intake = &pages.intake;
    let counters = intake.counters();
    let totals = counters.totals();
    let mut text = Text(String::new());
    let of = |counts: &BTreeMap<&'static str, u64>| -> Vec<(&'static str, u64)> {
        counts.iter().map(|(&name, &count)| (name, count)).collect()
    };
    let help = "Batches by outcome.";
    text.labelled("batches_total", help, "outcome", of(&totals.batches));
    let help = "Rejected batches, OTLP requests, calls and streams, by cause; permanently except for \
                otlp_later and broken_stream.";
    text.labelled("refused_batches_total", help, "cause", of(&totals.refused));
    text.single(
        "records_total",
        "counter",
        "Spans and events stored.",
        totals.records,
    );
    text.counters(&[
        (
            "otlp_requests_total",
            "OTLP requests stored.",
            &counters.otlp_requests,
        ),
        (
            "otlp_rejected_spans_total",
            "Rejected OTLP spans.",
            &counters.otlp_rejected_spans,
        ),
        (
            "otlp_rejected_logs_total",
            "Invalid OTLP log records that were rejected.",
            &counters.otlp_rejected_logs,
        ),
        (
            "otlp_replaced_texts_total",
            "OTLP strings in which invalid UTF-8 was replaced.",
            &counters.otlp_replaced_texts,
        ),
        (
            "otlp_logs_without_trace_total",
            "OTLP log records left out because they belong to no request.",
            &counters.otlp_logs_without_trace,
        ),
        (
            "commits_total",
            "Group commits of the log.",
            &counters.commits,
        ),
        (
            "wal_written_bytes_total",
            "Bytes appended to the log.",
            &counters.wal_bytes_written,
        ),
        (
            "parquet_bytes_total",
            "Bytes of Parquet written.",
            &counters.parquet_bytes,
        ),
        (
            "flushes_total",
            "Log segments put into the store.",
            &counters.flushes,
        ),
        (
            "flush_failures_total",
            "Failed attempts to put log segments into the store.",
            &counters.flush_failures,
        ),
    ]);
    let damage = counters.wal_damage.load(Relaxed) + counters.wal_undecodable.load(Relaxed);
    let help = "Damaged places and undecodable batches found in the log.";
    text.single("wal_damage_total", "counter", help, damage);
    let help = "Bytes of log that are not in the store yet.";
    text.single("wal_bytes", "gauge", help, counters.wal_bytes.load(Relaxed));
    let last_s = counters.last_flush_ns.load(Relaxed) as f64 / 1e9;
    let help = "When a segment was last put into the store.";
    text.single("last_flush_timestamp_seconds", "gauge", help, last_s);
    let now_ns = now_ns();
    let (holes, processes, losses) = intake.with_ledger(|ledger| {
        let live = ledger.entries().filter(|(_, entry)| is_live(entry, now_ns));
        (ledger.holes(), live.count(), ledger.losses())
    });
    text.single(
        "missing_batches",
        "gauge",
        "Sequence numbers that never arrived.",
        holes,
    );
    text.single(
        "processes",
        "gauge",
        "Processes that sent a batch in the last 150 s and have not ended.",
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
    maintenance::render(intake.care(), &mut text);
    if let Some(counters) = &pages.publishing {
        publishing::render(counters, &mut text);
    }
    if let Some(counters) = &pages.forwarding {
        let help =
            "Batches and OTLP requests that were forwarded, by outcome at the next collector.";
        let counts = [
            ("stored", &counters.stored),
            ("duplicate", &counters.duplicate),
            ("refused", &counters.refused),
        ];
        let counts = counts.map(|(outcome, count)| (outcome, count.load(Relaxed)));
        text.labelled("forwarded_total", help, "outcome", counts);
    }
    let help = "Agents and kernel recorders that are connected to this collector.";
    text.single("agents", "gauge", help, pages.control.agents().count());
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
        site,
        ..
    } = pages;
    text.family(
        "turned_away_total",
        "counter",
        "Connections and requests rejected at a port, by cause.",
    );
    for (door, cause, count) in doors.refused().counts() {
        let labels = [("door", door), ("cause", cause)];
        text.sample("turned_away_total", &labels, count);
    }
    let help = "Reloads of changed certificates and tokens, by outcome.";
    let reloads = doors.reloads.iter().map(|count| count.load(Relaxed));
    let reloads = ["used", "failed"].into_iter().zip(reloads);
    text.labelled("secrets_reloads_total", help, "outcome", reloads);
    let help = "Redacted texts and numbers, by action.";
    let counts = redaction.as_ref().map(|redaction| &redaction.counts);
    let redacted = |at: usize| counts.map_or(0, |counts| counts[at].load(Relaxed));
    let redacted = ["drop", "hash", "mask"]
        .into_iter()
        .zip((0..3).map(redacted));
    text.labelled("redacted_values_total", help, "action", redacted);
    let help = "Provenance logs dropped because they could not be redacted, by cause.";
    let counts = redaction.as_ref().map(|redaction| &redaction.logs_dropped);
    let dropped = |at: usize| counts.map_or(0, |counts| counts[at].load(Relaxed));
    let dropped = [("unreadable", dropped(0)), ("too_long", dropped(1))];
    text.labelled("redaction_dropped_logs_total", help, "cause", dropped);
    text.single(
        "log_lines_left_out_total",
        "counter",
        "Lines left out of the collector's log by its rate limit.",
        lines_left_out(),
    );
    text.single(
        "reading_bytes",
        "gauge",
        "Bytes of requests being received or checked.",
        doors.reading_bytes(),
    );
    if let Some(site) = site {
        let help = "Memory of pages and of responses to Jaeger and Tempo queries that are being built \
                    or sent, and reserved for cached pages.";
        text.single("query_memory_bytes", "gauge", help, site.memory.lent());
        let help = "Pages and responses to Jaeger and Tempo queries that got no memory, by exceeded \
                    limit: of one query, or of all.";
        text.labelled(
            "queries_refused_total",
            help,
            "cause",
            site.memory.refused(),
        );
    }
    text.single(
        "in_flight_bytes",
        "gauge",
        "Bytes of checked batches that are not durable yet.",
        intake.in_flight_bytes(),
    );
}

fn live_metrics(live: &LiveModel, text: &mut Text) {
    let (counts, segments) = live.counts();
    let help = "Traces that the live model considered finished, by completeness.";
    let complete = [
        ("yes", counts.complete_traces),
        ("no", counts.traces - counts.complete_traces),
    ];
    text.labelled("live_traces_total", help, "complete", complete);
    let left_out = counts.left_out;
    let causes = [
        ("late", counts.late_records),
        ("skipped", counts.skipped_records),
        ("outside_requests", left_out.outside_requests),
        ("over_trace_limit", left_out.over_trace_limit),
        ("span_missing", left_out.span_missing),
        ("no_span_no_task", left_out.no_span_no_task),
        ("copies", left_out.copies),
    ];
    let help = "Records not in the live model, by cause.";
    text.labelled("live_left_out_records_total", help, "cause", causes);
    let early = "Traces observed before they were quiet, for lack of memory.";
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
