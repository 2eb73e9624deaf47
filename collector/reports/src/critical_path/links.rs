//! Links of one request to others, and its critical path across them.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::critical_path::{Leg, SegmentTiming};
use stroboscope_query::{
    AcrossAnswer, Follow, Follows, LegRequest, LinkOrder, LinkedSpan, StoredSpanId,
};
use stroboscope_render::humanise::{counted, duration};
use stroboscope_render::rows;
use stroboscope_render::show::{Doc, SegmentName};

use crate::study::NamedInference;

/// Links of spans of this request to spans of others, or of spans of others to this request.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Links {
    /// Number of links; for links to this request, those found plus `unread`.
    links: u64,
    /// Number of links whose other span is in the store.
    found: u64,
    /// Number of found links whose producer had ended when the consumer began.
    before: u64,
    /// Number of links for which the order of these two instants is unknown.
    unknown: u64,
    /// Number of links whose other span is not in the store.
    missing: u64,
    /// Number of links, or of traces that may link to this request, beyond the maximum of 10,000.
    unread: u64,
    /// First 50 links: those in the order `before` come first, the shortest wait first.
    first: Vec<Link>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Link {
    producer: End,
    consumer: End,
    /// End of the producer relative to the consumer's begin: `before`, `later` or `unknown`.
    order: &'static str,
    /// Time from the producer's end to the consumer's begin, if they are in this order.
    waited_ns: Option<u64>,
    #[serde(skip)]
    is_of_producer: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct End {
    trace_id: String,
    span: String,
    operation: String,
    root: String,
    start_ns: i64,
    end_ns: i64,
}

impl End {
    fn of(span: &LinkedSpan) -> Self {
        Self {
            trace_id: span.request.to_string(),
            span: format!("{:016x}", span.span),
            operation: span.operation.clone(),
            root: span.root.clone(),
            start_ns: span.start_ns,
            end_ns: span.end_ns,
        }
    }
}

rows! {
    Link as row, "links": "A link between a span of a request and a span of another request.";
    { let (other, own) = match row.is_of_producer {
        true => (&row.consumer, &row.producer),
        false => (&row.producer, &row.consumer),
    }; }
    request: Request, "request" = other.trace_id.as_str();
    operation: Text, "span" = other.operation.as_str();
    root: Text, "of" = other.root.as_str();
    own: Text, "own span" = own.operation.as_str();
    waited_ns: DurationNs, "wait" = row.waited_ns.map(|ns| ns as f64);
    order: Text, "producer ended" = row.order;
}

impl Links {
    /// Returns the links; `None` if there are none. `is_of_producer` is true for links of other
    /// requests to this one.
    pub(super) fn of(follows: &Follows, is_of_producer: bool) -> Option<Self> {
        let link = |follow: &Follow| Link {
            producer: End::of(&follow.producer),
            consumer: End::of(&follow.consumer),
            order: match follow.order {
                LinkOrder::Before => "before",
                LinkOrder::Overlaps => "later",
                LinkOrder::Unknown => "unknown",
            },
            waited_ns: follow.waited_ns(),
            is_of_producer,
        };
        (follows.links > 0).then(|| Self {
            links: follows.links,
            found: follows.found,
            before: follows.before,
            unknown: follows.unknown,
            missing: follows.missing(),
            unread: follows.unread,
            first: follows.first.iter().map(link).collect(),
        })
    }

    /// Shows the links as a table under `title`, with the number of links that the table lacks.
    pub(super) fn show(&self, title: &str, doc: &mut Doc) {
        let more = self.found.saturating_sub(self.first.len() as u64);
        let mut said = vec![format!("{title}: {}", counted(self.links, "link"))];
        for (count, what) in [
            (self.missing, "to spans that are not in the store"),
            (self.unread, "not read"),
            (self.unknown, "in an unknown order"),
            (more, "not listed"),
        ] {
            if count > 0 {
                said.push(format!("{count} {what}"));
            }
        }
        let said = said.join(", ");
        // An empty table is not shown.
        if self.first.is_empty() {
            doc.sentence(format!("{said}."));
        }
        doc.table(said, &self.first, usize::MAX);
    }
}

/// Critical path of a request, continued into the requests of its producers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Across {
    /// Time from the start of the path to the answer of the request.
    length_ns: u64,
    /// True if the path may go on before its first request: it has the maximum of 64 requests, the
    /// links form a cycle, or a request could not be found.
    is_cut: bool,
    /// Number of links of these requests to spans that are not in the store, or that were not read.
    missing: u64,
    /// Number of links of these requests whose order is unknown, which were not followed.
    unknown: u64,
    /// Requests on the path, in order of time.
    requests: Vec<LegJson>,
    #[serde(skip)]
    rows: Vec<AcrossRow>,
}

/// Part of a path in one request.
#[derive(Debug, Serialize, JsonSchema)]
struct LegJson {
    trace: String,
    trace_id: String,
    root: String,
    start_ns: i64,
    end_ns: i64,
    /// Time from the end of the producer in the earlier request to `start_ns`; 0 in the first one.
    queued_ns: u64,
    segments: Vec<StepJson>,
    /// Time from the end of the last segment, or from `start_ns` without one, to `end_ns`.
    tail_wait_ns: u64,
    /// Span at whose end the path leaves the request; null in the last one.
    producer: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct StepJson {
    #[serde(flatten)]
    segment: SegmentName,
    start_ns: i64,
    end_ns: i64,
    wait_ns: u64,
}

/// Row of the table: a segment, or the time in a queue or after the last segment.
#[derive(Debug)]
struct AcrossRow {
    request: String,
    what: String,
    from_ns: u64,
    duration_ns: u64,
    wait_ns: u64,
}

rows! {
    AcrossRow as row, "across": "A segment of a critical path across requests, or the time in a queue.";
    request: Request, "request" = row.request.as_str();
    what: Text, "segment" = row.what.as_str();
    from_ns: DurationNs, "from" = row.from_ns;
    duration_ns: DurationNs, "takes" = row.duration_ns;
    wait_ns: DurationNs, "after waiting" = row.wait_ns;
}

impl Across {
    pub(super) fn of(answer: &AcrossAnswer, known: NamedInference<'_>) -> Self {
        let legs = || answer.path.legs.iter().zip(&answer.requests);
        let start_ns = answer.path.legs.first().map_or(0, |leg| leg.start_ns);
        Self {
            length_ns: answer.path.length_ns(),
            is_cut: answer.path.is_cut,
            missing: answer.missing,
            unknown: answer.unknown,
            requests: legs()
                .map(|(leg, of)| LegJson::of(leg, of, known))
                .collect(),
            rows: legs()
                .flat_map(|(leg, of)| AcrossRow::of(leg, of, start_ns, known))
                .collect(),
        }
    }

    pub(super) fn show(&self, doc: &mut Doc) {
        let length = duration(self.length_ns as f64);
        let requests = counted(self.requests.len() as u64, "request");
        doc.heading(format!("Across traces: {length} in {requests}"));
        let mut said = Vec::new();
        if self.is_cut {
            said.push("The path may begin earlier: it was followed no further.".to_owned());
        }
        if self.missing > 0 {
            let links = counted(self.missing, "link");
            said.push(format!(
                "These requests also have {links} to spans that were not read."
            ));
        }
        if self.unknown > 0 {
            let links = counted(self.unknown, "link");
            said.push(format!(
                "Not followed, because the order is unknown: {links}. The clocks are not comparable, or a span was cut. \
                 --trust-clocks uses the times as recorded."
            ));
        }
        doc.sentence(said.join("\n"));
        doc.table("", &self.rows, usize::MAX);
    }
}

impl LegJson {
    fn of(leg: &Leg<StoredSpanId>, of: &LegRequest, known: NamedInference<'_>) -> Self {
        let step = |(_, timing): &(usize, SegmentTiming)| StepJson {
            segment: known.name(timing.segment),
            start_ns: timing.start_ns,
            end_ns: timing.end_ns,
            wait_ns: timing.wait_ns,
        };
        Self {
            trace: of.label.clone(),
            trace_id: of.id.to_string(),
            root: of.root.clone(),
            start_ns: leg.start_ns,
            end_ns: leg.end_ns,
            queued_ns: leg.queued_ns,
            segments: leg.steps.iter().map(step).collect(),
            tail_wait_ns: leg.tail_wait_ns,
            producer: leg.producer.map(|id| format!("{:016x}", id.span)),
        }
    }
}

impl AcrossRow {
    fn of(
        leg: &Leg<StoredSpanId>,
        of: &LegRequest,
        start_ns: i64,
        known: NamedInference<'_>,
    ) -> Vec<Self> {
        let row = |what: String, at_ns: i64, duration_ns, wait_ns| Self {
            request: of.label.clone(),
            what,
            from_ns: at_ns.abs_diff(start_ns),
            duration_ns,
            wait_ns,
        };
        let queued_ns = leg.queued_ns;
        let queue = (queued_ns > 0).then(|| {
            let at_ns = leg.start_ns.saturating_sub_unsigned(queued_ns);
            row("(in the queue)".to_owned(), at_ns, queued_ns, 0)
        });
        let steps = leg.steps.iter().map(|(_, timing)| {
            let name = known.name(timing.segment).short();
            row(name, timing.start_ns, timing.duration_ns(), timing.wait_ns)
        });
        let tail_ns = leg.tail_wait_ns;
        let tail = (tail_ns > 0).then(|| {
            let at_ns = leg.end_ns.saturating_sub_unsigned(tail_ns);
            row("(nothing recorded)".to_owned(), at_ns, tail_ns, 0)
        });
        queue.into_iter().chain(steps).chain(tail).collect()
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_render::show::TextView;

    use super::*;

    #[test]
    fn links_to_nowhere_are_counted() {
        let links = Links {
            links: 2,
            found: 0,
            before: 0,
            unknown: 0,
            missing: 2,
            unread: 0,
            first: Vec::new(),
        };
        let mut doc = Doc::new();
        links.show("Links", &mut doc);
        assert_eq!(
            TextView::default().render(&doc),
            "Links: 2 links, 2 to spans that are not in the store."
        );
    }
}
