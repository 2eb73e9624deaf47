//! Page of `report`: the documents of other subcommands, and pictures.

use stroboscope_analysis::clock::Verdict;

use crate::clock_words::{name, resolutions, warnings};
use crate::results::anomalies::Anomalies;
use crate::results::clock_pairs::{ClockPair, show_pairs};
use crate::results::compare::ComparisonReport;
use crate::results::critical_path::Aggregate;
use crate::results::figures::{
    ModelGraph, convergence_figures, latency_figure, request_figure, shares_figure, slack_figure,
};
use crate::results::pipelines::pipeline_rows;
use crate::results::slack::SlackList;
use crate::results::strata::BrokenDown;
use crate::results::tradeoffs::TradeoffsSay;
use crate::study::NamedInference;
use crate::verb::Report;
use stroboscope_query::{Example, Overview, RecordedSummary};
use stroboscope_render::humanise::duration;
use stroboscope_render::page::Section;
use stroboscope_render::roots::headline_is_of;
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

const ROOTS_SHOWN: usize = 50;

pub(super) struct PageInput<'a> {
    pub known: NamedInference<'a>,
    pub overview: &'a Overview,
    pub aggregate: Aggregate,
    pub slack: SlackList,
    pub strata: Vec<BrokenDown>,
    pub anomalies: Anomalies,
    /// Comparison of two periods, if requested.
    pub changed: Option<ComparisonReport>,
    /// Models and log of tradeoffs, if requested.
    pub tradeoffs: Vec<TradeoffsSay>,
    /// Summary of the batches of Stroboscope's SDK; empty without any.
    pub recorded: RecordedSummary,
}

impl PageInput<'_> {
    pub(super) fn sections(&self) -> Vec<Section> {
        let section = |id, show: fn(&Self, &mut Doc)| {
            let mut doc = Doc::new();
            show(self, &mut doc);
            Section { id, doc }
        };
        let mut sections = vec![
            section("summary", Self::summary),
            section("roots", Self::roots),
            section("latency", Self::latency),
            section("critical-path", Self::critical_path),
            section("examples", Self::examples),
            section("anomalies", |page, doc| page.anomalies.show(doc)),
            section("slack", Self::slack),
            section("model", Self::model),
            section("segments", Self::segments),
            section("clocks", Self::clocks),
            section("quality", Self::quality),
        ];
        if !self.tradeoffs.is_empty() {
            let mut doc = Doc::new();
            let all = self.tradeoffs.iter();
            all.for_each(|says| show_unweighted(says, &mut doc));
            let id = "tradeoffs";
            sections.push(Section { id, doc });
        }
        if let Some(changed) = &self.changed {
            let mut doc = Doc::new();
            changed.show(&mut doc);
            sections.insert(1, Section { id: "changed", doc });
        }
        sections
    }

    fn summary(&self, doc: &mut Doc) {
        doc.table("", &[Summary(self)], 1);
        doc.sentences(self.aggregate.headlines());
        doc.sentence(warnings(&self.known.inference.clocks).join("\n"));
    }

    fn roots(&self, doc: &mut Doc) {
        let roots = &self.known.inference.roots;
        let rows = &self.aggregate.roots;
        doc.heading("Requests by root operation").sentence(format!(
            "{} of {} root operations. Latency ends when the root span does: the caller has its answer; what goes on \
             after that is counted apart. A root that is a server's or a client's span has a caller, who waits; of \
             others, such as jobs and workers, that is not known. Latency on this page, where no root is named, is of {}.",
            rows.len().min(ROOTS_SHOWN),
            rows.len(),
            headline_is_of(roots)
        ));
        doc.table("", rows, ROOTS_SHOWN);
    }

    fn latency(&self, doc: &mut Doc) {
        doc.heading("Latency and slack").sentence(
            "Latency is from a request's first event to its answer. Slack is how much later the last segment of the \
             server could have ended without making its request slower. The highest 1 % lie beyond the right edge.",
        );
        doc.figure(latency_figure(&self.known.inference.roots.headline()));
        let slack = &self.overview.server_slack;
        doc.figures((slack.count() > 0).then(|| slack_figure(slack)));
    }

    fn critical_path(&self, doc: &mut Doc) {
        doc.heading("Critical path").sentence(
            "The chain of segments that make up a request's latency. Summed delay adds up all segments, even \
             parallel ones, and so overstates work off the critical path.",
        );
        self.aggregate.show_figures(doc);
        doc.figure(shares_figure(
            self.overview.categories.names(),
            &self.overview.breakdown,
        ));
        self.aggregate.show_shares(doc);
        self.strata
            .iter()
            .for_each(|strata| strata.show_strata(doc));
    }

    fn examples(&self, doc: &mut Doc) {
        doc.heading("Example requests").sentence(
            "A row for each task, in order of start. Orange-red with a dark edge: on the critical path; a line \
             before it is waiting time without events. Blue: off the critical path; the thin line after it is its \
             slack.",
        );
        let labels = self.known.inference.model.labels();
        let figure = |Example { quantile, answer }: &Example| {
            let took = duration(answer.path.latency_ns as f64);
            let title = format!(
                "Request {} of {took}, at p{:.0} of latency",
                answer.label(),
                quantile * 100.0
            );
            request_figure(&title, &answer.path, labels)
        };
        doc.figures(self.overview.examples.iter().map(figure));
    }

    fn slack(&self, doc: &mut Doc) {
        doc.heading("Segments with slack");
        self.slack.show(doc);
    }

    fn model(&self, doc: &mut Doc) {
        doc.heading("Causal model").sentence(
            "An arrow: the one segment always ended before the other one started; a thick one, if both are in at least \
             half of the requests. Relations that follow from others are not drawn. The bar at a box's lower edge is \
             its mean share of the critical path; its edge is in the colour of its category, as above.",
        );
        let (inference, aggregate) = (self.known.inference, &self.overview.aggregate);
        let graph = ModelGraph {
            labels: inference.model.labels(),
            relations: &inference.relations,
            name: &|id| self.known.name(id),
            style: &|id| self.overview.categories.of(id),
            traces: inference.model.traces(),
        };
        let shares = aggregate
            .segments()
            .map(|(id, of)| (id, of.shares().mean(aggregate.traces())));
        doc.figures(graph.figure(
            shares.collect(),
            "with the largest shares of the critical path",
        ));
        let pipelines = pipeline_rows(&inference.relations);
        if !pipelines.is_empty() {
            doc.sentence(
                "A pipeline: two tasks that work on the same data elements in the same order, the second on each after the \
                 first.",
            )
            .table("Pipelines", &pipelines, usize::MAX);
        }
        doc.figures(convergence_figures(&inference.convergence));
    }

    fn segments(&self, doc: &mut Doc) {
        doc.heading("Segments")
            .sentence("By their mean share of the critical path.");
        self.aggregate.show_segments(doc);
    }

    /// Shows clock pairs and resolutions; nothing if there are none.
    fn clocks(&self, doc: &mut Doc) {
        let alignment = &self.known.inference.clocks;
        let pairs: Vec<ClockPair> = alignment.pairs().iter().map(ClockPair::of).collect();
        let lines = resolutions(alignment);
        if pairs.is_empty() && lines.is_empty() {
            return;
        }
        doc.heading("Clocks of the hosts")
            .sentence(lines.join("\n"));
        if alignment.is_needed() {
            let reference = name(alignment.reference().unwrap_or_default());
            doc.sentence(format!(
                "Clocks differ; timestamps are corrected to that of {reference}."
            ));
        }
        show_pairs(&pairs, doc);
    }

    /// Shows how much data was read, lost, left out or doubtful.
    fn quality(&self, doc: &mut Doc) {
        let (inference, recorded, notes) =
            (self.known.inference, &self.recorded, &self.overview.notes);
        let mut rows = vec![
            QualityRow(notes.traces, "traces read".to_owned()),
            QualityRow(notes.complete_traces, "complete traces".to_owned()),
            QualityRow(
                recorded.records,
                "records of processes that shipped them".to_owned(),
            ),
            QualityRow(recorded.missing_batches, "batches missing".to_owned()),
            QualityRow(notes.damage.len() as u64, "damaged files".to_owned()),
        ];
        let mut more = |count: u64, what: String| rows.push(QualityRow(count, what));
        for ((service, cause), records) in &recorded.lost {
            more(*records, format!("lost by {service}: {cause}"));
        }
        notes
            .incomplete
            .iter()
            .for_each(|(cause, traces)| more(*traces, format!("traces incomplete: {cause}")));
        let diagnostics = &inference.notes.diagnostics;
        diagnostics
            .iter()
            .for_each(|(cause, count)| more(*count, format!("flaws in traces used: {cause}")));
        let left = notes.left_out;
        let left_out = [
            (
                left.large_traces,
                "traces left out: too large for the memory available to readers",
            ),
            (
                left.over_trace_limit,
                "records left out: beyond the largest trace allowed",
            ),
            (
                left.span_missing,
                "events left out: their span is not in the store",
            ),
            (
                left.no_span_no_task,
                "events left out: of no span and no task",
            ),
            (
                left.copies,
                "spans and events left out: equal to an earlier one",
            ),
            (notes.excluded_segments, "segments left out: excluded"),
            (
                inference.model.labels().refused(),
                "segments left out: no room for more labels",
            ),
        ];
        let some = left_out.into_iter().filter(|(count, _)| *count > 0);
        some.for_each(|(count, what)| more(count, what.to_owned()));
        if let Some(alignment) = &inference.alignment {
            let pairs = alignment.pairs().iter();
            let differ = pairs.filter(|pair| pair.verdict == Verdict::Differ);
            more(
                differ.count() as u64,
                "pairs of hosts whose clocks differ and were aligned".to_owned(),
            );
            more(
                alignment.unaligned().len() as u64,
                "hosts whose clocks nothing ties to the others: orders between them are unknown"
                    .to_owned(),
            );
        }
        doc.heading("Losses and diagnostics")
            .table("", &rows, usize::MAX);
    }
}

/// Shows a result that counts recorded requests, and states this if they have sampling weights.
fn show_unweighted(result: &TradeoffsSay, doc: &mut Doc) {
    result.show(doc);
    if result.notes().sampling.requests.is_weighted() {
        doc.sentence("This section counts recorded requests, without their sampling weights.");
    }
}

/// Key figures in one row.
struct Summary<'a>(&'a PageInput<'a>);

rows! {
    Summary<'_> as row, "summary": "All requests, and the model of them.";
    {
        let inference = row.0.known.inference;
        let (latency, relations) = (
            inference.roots.headline().percentiles(),
            &inference.relations,
        );
    }
    requests: Count, "requests" = row.0.overview.aggregate.traces().rounded();
    latency_p50_ns: DurationNs, "latency p50" = latency.p50_ns;
    latency_p95_ns: DurationNs, "p95" = latency.p95_ns;
    latency_p99_ns: DurationNs, "p99" = latency.p99_ns;
    segments: Count, "segments" = inference.segments().count() as u64;
    happens_before: Count, "happens-before relations" = relations.all_happens_before().len() as u64;
    mutual_exclusions: Count, "mutual exclusions" = relations.all_mutual_exclusion().len() as u64;
    pipelines: Count, "pipelines" = relations.all_pipelines().len() as u64;
    lost_records: Count, "records lost" = row.0.recorded.lost_records();
}

/// A count and its label.
struct QualityRow(u64, String);

rows! {
    QualityRow as row, "quality": "How much was read, lost, left out and doubtful.";
    what: Text, "what" = &*row.1;
    count: Count, "count" = row.0;
}
