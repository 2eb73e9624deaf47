//! One request or one burst: its segments, and below them the kernel's activities.

use std::collections::BTreeMap;

use chrono::DateTime;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;
use stroboscope_analysis::kernel::summary::requests;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_kernel_model::export;

use super::items::{Item, items_of, summary_text, took};
use super::part::part_text;
use super::short::sum_up;
use crate::verb::{Report, schema_is_of};
use stroboscope_query::request_tree::{SpanNode, tree};
use stroboscope_query::timeline::{BurstPart, TimelineView};
use stroboscope_query::{KernelPart, Notes};
use stroboscope_render::humanise::counted;
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc, Figure, Interval, Timeline, TimelineRow};

const SPANS_DRAWN: usize = 40;

/// Recorded data of one request or of one burst. Times in JSON are ns; instants are ns since the
/// Unix epoch.
pub struct TimelineReport {
    pub view: TimelineView,
    pub notes: Notes,
}

impl TimelineReport {
    pub fn of(mut view: TimelineView) -> Self {
        let notes = Notes::of_unread(std::mem::take(&mut view.damage), view.large_traces);
        Self { view, notes }
    }
}

/// JSON of a request or a burst. `burst` has the times of the burst and of the shown part; it is
/// null for a request. `requests` have their `spans` and `segments`. `kernel` has one element for
/// each kernel recording, with its activities at the time. Each activity has its span and its
/// owner, which is the low half of a trace id if a request is known.
#[derive(Serialize, JsonSchema)]
struct SeenJson<'a> {
    burst: Option<BurstJson>,
    requests: Vec<RequestJson<'a>>,
    kernel: Vec<PartJson<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct BurstJson {
    open_ns: i64,
    close_ns: i64,
    shown_from_ns: i64,
    shown_to_ns: i64,
}

#[derive(Serialize, JsonSchema)]
struct RequestJson<'a> {
    trace: String,
    trace_id: String,
    spans: Vec<SpanJson<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct SpanJson<'a> {
    span: String,
    parent: String,
    depth: usize,
    operation: String,
    host: &'a str,
    start_ns: i64,
    end_ns: i64,
    segments: Vec<SegmentJson>,
}

#[derive(Serialize, JsonSchema)]
struct SegmentJson {
    start: String,
    end: String,
    start_ns: i64,
    end_ns: i64,
}

#[derive(Serialize, JsonSchema)]
struct PartJson<'a> {
    #[serde(flatten)]
    recorded: Value,
    host: &'a str,
    recording: String,
    events: usize,
    lost: u64,
    /// Last of `burst_configs`, as a mask; 0 if there are none.
    burst_config: u64,
    /// Burst-configs of the recording, in order of first use.
    burst_configs: &'a [u64],
    /// Other burst-configs by which services of the host recorded at the time.
    services_burst_configs: &'a [u64],
}

impl Serialize for TimelineReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let burst = |burst: BurstPart| BurstJson {
            open_ns: burst.burst_ns.0,
            close_ns: burst.burst_ns.1,
            shown_from_ns: burst.shown_ns.0,
            shown_to_ns: burst.shown_ns.1,
        };
        let view = SeenJson {
            burst: self.view.burst.map(burst),
            requests: self.view.requests.iter().map(RequestJson::of).collect(),
            kernel: self.view.kernel.iter().map(PartJson::of).collect(),
        };
        view.serialize(serializer)
    }
}

schema_is_of!(TimelineReport, SeenJson<'_>);

impl<'a> PartJson<'a> {
    fn of(part: &'a KernelPart) -> Self {
        Self {
            recorded: export::json(&part.timeline, &part.clocks, part.architecture),
            host: &part.host,
            recording: format!("{:032x}", part.recording),
            events: part.events.len(),
            lost: part.lost.total(),
            burst_config: part.burst_configs.last().copied().unwrap_or_default(),
            burst_configs: &part.burst_configs,
            services_burst_configs: &part.services_configs,
        }
    }
}

impl<'a> RequestJson<'a> {
    fn of(records: &'a TraceRecords) -> Self {
        let span = |node: SpanNode<'a>| SpanJson {
            span: format!("{:016x}", node.span.span_id),
            parent: format!("{:016x}", node.span.parent_id),
            depth: node.depth,
            operation: node.operation(),
            host: &node.span.host,
            start_ns: node.span.start_ns,
            end_ns: node.span.end_ns,
            segments: node
                .segments
                .iter()
                .map(|segment| SegmentJson {
                    start: segment.start.to_string(),
                    end: segment.end.to_string(),
                    start_ns: segment.start_ns,
                    end_ns: segment.end_ns,
                })
                .collect(),
        };
        Self {
            trace: name(records),
            trace_id: records.id.to_string(),
            spans: tree(records).into_iter().map(span).collect(),
        }
    }
}

/// Returns the name that the source of a request gave it, else its id.
fn name(records: &TraceRecords) -> String {
    records
        .name
        .as_deref()
        .map_or_else(|| records.id.to_string(), str::to_owned)
}

impl Report for TimelineReport {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let view = &self.view;
        if let Some(part) = view.burst {
            show_burst(part, doc);
            if view.kernel.is_empty() {
                doc.sentence("nothing of the kernel was recorded in it: only spans are shown");
            }
        }
        let recorded: Vec<String> = view.kernel.iter().map(part_text).collect();
        doc.sentence(recorded.join("\n"));
        view.requests
            .iter()
            .for_each(|records| show_request(records, &view.kernel, doc));
        show_others(view, doc);
    }
}

/// Shows the times of a burst, and of the part of it in the report.
fn show_burst(part: BurstPart, doc: &mut Doc) {
    let at = |at_ns: i64| {
        format!(
            "{} ({at_ns})",
            DateTime::from_timestamp_nanos(at_ns).format("%Y-%m-%dT%H:%M:%S%.6fZ")
        )
    };
    let length = |(from_ns, to_ns): (i64, i64)| took(from_ns.abs_diff(to_ns));
    let (burst_ns, shown_ns) = (part.burst_ns, part.shown_ns);
    if !part.is_a_part() {
        doc.heading(format!(
            "burst of {} from {}",
            length(burst_ns),
            at(burst_ns.0)
        ));
        return;
    }
    let next = if shown_ns.1 < burst_ns.1 {
        format!("; --burst {} shows what comes next", shown_ns.1)
    } else {
        "; it ends there".to_owned()
    };
    let (shown, burst, open) = (length(shown_ns), length(burst_ns), at(burst_ns.0));
    doc.heading(format!(
        "{shown} of a burst of {burst} that opened at {open}"
    ));
    doc.sentence(format!(
        "shown from {} to {}{next}",
        at(shown_ns.0),
        at(shown_ns.1)
    ));
}

/// A span, a segment, or an activity of the kernel in it.
struct TimelineLine<'a> {
    trace: &'a str,
    span: u64,
    kind: &'static str,
    depth: usize,
    start_ns: i64,
    /// Time since [`Happenings::origin_ns`], in ns.
    from_ns: i64,
    takes_ns: Option<u64>,
    /// Thread of an activity of the kernel; `None` for spans and segments.
    thread: Option<String>,
    what: String,
}

rows! {
    TimelineLine<'_> as row, "timeline": "A span, a segment, or what the kernel did in it for a request.";
    from_ns: DurationNs, "from" = row.from_ns;
    takes_ns: DurationNs, "takes" = row.takes_ns.map(|ns| ns as f64);
    thread: Text, "thread" = row.thread.as_deref();
    what: Text, "what" = Cell::Nested(row.depth, row.what.clone());
    kind: Text, "" = row.kind;
    trace: Text, "" = row.trace;
    span: Text, "" = format!("{:016x}", row.span).as_str();
    depth: Count, "" = row.depth as u64;
    start_ns: Count, "" = u64::try_from(row.start_ns).ok();
}

/// Rows of a table with a request's spans, segments and kernel activities.
struct Happenings<'a> {
    trace: &'a str,
    origin_ns: i64,
    rows: Vec<TimelineLine<'a>>,
}

impl<'a> Happenings<'a> {
    fn of(trace: &'a str, origin_ns: i64) -> Self {
        Self {
            trace,
            origin_ns,
            rows: Vec::new(),
        }
    }

    fn add(
        &mut self,
        (span, kind, depth): (u64, &'static str, usize),
        (start_ns, takes_ns): (i64, Option<u64>),
        thread: Option<String>,
        what: String,
    ) {
        self.rows.push(TimelineLine {
            trace: self.trace,
            span,
            kind,
            depth,
            start_ns,
            from_ns: start_ns - self.origin_ns,
            takes_ns,
            thread,
            what,
        });
    }

    /// Adds rows for activities of the kernel.
    fn items<'i>(&mut self, items: impl Iterator<Item = &'i Item>, depth: usize) {
        for item in sum_up(items.collect()) {
            let takes_ns = item.end_ns.map(|end_ns| end_ns.abs_diff(item.start_ns));
            let times_ns = (item.start_ns, takes_ns);
            let thread = Some(item.thread);
            self.add((item.span, "kernel", depth), times_ns, thread, item.what);
        }
    }

    /// Adds a span, then its segments and the kernel's activities, in order of start.
    fn span(&mut self, node: &SpanNode<'_>, items: &[Item]) {
        let (depth, span) = (node.depth, node.span);
        let times_ns = |start_ns: i64, end_ns: i64| (start_ns, Some(end_ns.abs_diff(start_ns)));
        let own_ns = times_ns(span.start_ns, span.end_ns);
        self.add(
            (span.span_id, "span", depth),
            own_ns,
            None,
            node.operation(),
        );
        let mut rest = items.iter().peekable();
        for segment in &node.segments {
            let mut until = |ns: i64| rest.next_if(|item| item.start_ns < ns);
            self.items(std::iter::from_fn(|| until(segment.start_ns)), depth + 2);
            let what = format!("[{} … {}]", segment.start, segment.end);
            let own_ns = times_ns(segment.start_ns, segment.end_ns);
            self.add((span.span_id, "segment", depth + 1), own_ns, None, what);
            self.items(std::iter::from_fn(|| until(segment.end_ns)), depth + 2);
        }
        self.items(rest, depth + 2);
    }
}

fn show_request(records: &TraceRecords, kernel: &[KernelPart], doc: &mut Doc) {
    let low = records.stored_id().0 as u64;
    let nodes = tree(records);
    let starts_ns = records.spans.iter().map(|span| span.start_ns);
    let start_ns = starts_ns.min().unwrap_or(0);
    let ends_ns = records.spans.iter().map(|span| span.end_ns);
    let end_ns = ends_ns.max().unwrap_or(start_ns);
    let name = name(records);
    doc.heading(format!(
        "request {name}: {}",
        took(end_ns.abs_diff(start_ns))
    ));
    let summaries = kernel.iter().filter_map(|part| {
        let summaries = requests(&part.timeline, part.architecture);
        let summary = summaries.iter().find(|one| one.trace == low)?;
        Some(format!(
            "{}: {}",
            part.host,
            summary_text(summary, part.architecture)
        ))
    });
    doc.sentence(summaries.collect::<Vec<_>>().join("\n"));
    let mut items: BTreeMap<u64, Vec<Item>> = BTreeMap::new();
    for item in kernel.iter().flat_map(|part| items_of(part, low)) {
        items.entry(item.span).or_default().push(item);
    }
    let mut rows = Happenings::of(&name, start_ns);
    nodes
        .iter()
        .for_each(|node| rows.span(node, &items.remove(&node.span.span_id).unwrap_or_default()));
    for (span_id, items) in items {
        let first_ns = items.first().map_or(start_ns, |item| item.start_ns);
        let what = format!("span {span_id:016x}, which is not in the store");
        rows.add((span_id, "span", 0), (first_ns, None), None, what);
        rows.items(items.iter(), 1);
    }
    doc.figures(picture(&nodes, start_ns, end_ns));
    doc.table("", &rows.rows, usize::MAX);
}

/// Draws the request's segments. On terminals, the rows of the table replace it.
fn picture(nodes: &[SpanNode<'_>], start_ns: i64, end_ns: i64) -> Option<Figure> {
    let since = |ns: i64| u64::try_from(ns.saturating_sub(start_ns)).unwrap_or(0);
    let row = |node: &SpanNode<'_>| TimelineRow {
        name: node.operation(),
        depth: node.depth,
        intervals: node
            .segments
            .iter()
            .map(|segment| Interval {
                from_ns: since(segment.start_ns),
                to_ns: since(segment.end_ns),
                ..Interval::default()
            })
            .collect(),
    };
    let more = match nodes.len().saturating_sub(SPANS_DRAWN) {
        0 => String::new(),
        more => format!("; {more} more spans are not drawn"),
    };
    let rows: Vec<TimelineRow> = nodes.iter().take(SPANS_DRAWN).map(row).collect();
    let alternative = format!(
        "{}; the table has their segments.",
        counted(nodes.len() as u64, "span")
    );
    let timeline = Timeline {
        length_ns: since(end_ns),
        marks: Vec::new(),
        rows,
    };
    (!nodes.is_empty())
        .then(|| Figure::new(format!("What ran when{more}"), alternative, timeline).on_pages_only())
}

/// Shows the kernel's work for requests that are not in the view.
fn show_others(view: &TimelineView, doc: &mut Doc) {
    let known = view.requests.iter().map(|of| of.stored_id().0 as u64);
    let known: Vec<u64> = known.collect();
    let why = match view.large_traces {
        0 => "which is not in the store",
        _ => "which is not in the store, or is too large to read",
    };
    for part in &view.kernel {
        let summaries = requests(&part.timeline, part.architecture);
        for summary in summaries
            .iter()
            .filter(|summary| !known.contains(&summary.trace))
        {
            doc.heading(format!("request {:016x}, {why}", summary.trace));
            let text = summary_text(summary, part.architecture);
            doc.sentence(format!("{}: {text}", part.host));
            // With --trace, show all activities of the request.
            if view.burst.is_none() {
                let name = format!("{:016x}", summary.trace);
                let mut rows = Happenings::of(&name, part.clocks.wall_ns(summary.first_ns));
                rows.items(items_of(part, summary.trace).iter(), 0);
                doc.table("", &rows.rows, usize::MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::kernel::marker::RequestId;
    use stroboscope_analysis::kernel::timeline::WorkInterval;
    use stroboscope_render::show::TextView;

    use super::*;

    #[test]
    fn a_request_that_was_not_read_may_be_too_large() {
        let mut part = KernelPart::default();
        part.timeline.work_intervals.push(WorkInterval {
            tid: 1,
            request: RequestId { trace: 7, span: 1 },
            start_ns: 0,
            end_ns: Some(9),
            is_carried: false,
        });
        let mut view = TimelineView::default();
        view.kernel.push(part);
        view.burst = Some(BurstPart {
            burst_ns: (0, 9),
            shown_ns: (0, 9),
        });
        for (large_traces, is_said) in [(0, false), (1, true)] {
            view.large_traces = large_traces;
            let mut doc = Doc::new();
            show_others(&view, &mut doc);
            let text = TextView::default().render(&doc);
            assert_eq!(text.contains("or is too large to read"), is_said, "{text}");
        }
    }
}
