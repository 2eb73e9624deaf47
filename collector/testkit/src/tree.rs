//! Traces as trees of spans, for messages.

use stroboscope_analysis::record::{RecordOwner, TraceRecords};
use stroboscope_render::humanise::duration;
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc, TextView};

use crate::critical_path::SpanPath;

/// Maximum number of spans of a tree.
const SPANS_MAX: usize = 200;

/// A span in a tree.
struct SpanRow {
    depth: usize,
    name: String,
    /// Service; `None` if the trace has only one.
    service: Option<String>,
    from_ns: u64,
    takes_ns: u64,
    critical_ns: Option<u64>,
    attributes: String,
}

rows! {
    SpanRow as row, "spans": "A span of a trace.";
    span: Text, "span" = Cell::Nested(row.depth, row.name.clone());
    service: Text, "service" = row.service.as_deref();
    from_ns: DurationNs, "from" = row.from_ns;
    takes_ns: DurationNs, "takes" = row.takes_ns;
    critical_ns: DurationNs, "critical" = row.critical_ns.map(|ns| ns as f64);
    attributes: Text, "attributes" = Some(&*row.attributes).filter(|text| !text.is_empty());
}

/// Returns a tree of the spans as text.
pub(crate) fn text(records: &TraceRecords, path: &SpanPath, is_open: bool) -> String {
    let name = records.root().map_or("(no root)", |root| &root.name);
    let mut doc = Doc::new();
    doc.heading(format!(
        "Trace {name}: {}",
        duration(path.latency_ns as f64)
    ));
    doc.table("", &span_rows(records, path), SPANS_MAX);
    let more = path.outline.len().saturating_sub(SPANS_MAX);
    if more > 0 {
        doc.sentence(format!("{more} more spans are not shown."));
    }
    if is_open {
        doc.sentence("Spans that have not ended are missing.");
    }
    TextView::default().render(&doc)
}

/// Returns the rows of the first spans. Each comes after its parent.
fn span_rows(records: &TraceRecords, path: &SpanPath) -> Vec<SpanRow> {
    let spans = &records.spans;
    let start_ns = spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
    let has_services = spans
        .windows(2)
        .any(|pair| pair[0].service != pair[1].service);
    let mut rows: Vec<SpanRow> = Vec::new();
    for place in path.outline.iter().take(SPANS_MAX) {
        let span = &spans[place.record];
        let owner = RecordOwner::Span(span.span_id);
        let attributes: Vec<String> = (records.attributes.iter())
            .filter(|attribute| attribute.owner == owner)
            .map(|attribute| format!("{}={}", attribute.key, attribute.value))
            .collect();
        rows.push(SpanRow {
            depth: place.parent.map_or(0, |parent| rows[parent].depth + 1),
            name: span.name.to_string(),
            service: has_services.then(|| span.service.to_string()),
            from_ns: span.start_ns.abs_diff(start_ns),
            takes_ns: span.end_ns.abs_diff(span.start_ns),
            critical_ns: None,
            attributes: attributes.join(" "),
        });
    }
    for (place, ns) in &path.steps {
        if let Some(row) = rows.get_mut(*place) {
            *row.critical_ns.get_or_insert(0) += ns;
        }
    }
    rows
}
