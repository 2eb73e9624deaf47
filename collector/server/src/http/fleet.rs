//! Page `/fleet`: the state of the collector, and the processes that ship to it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use stroboscope_render::humanise::{are, counted, duration};
use stroboscope_render::page::{
    CarriedParameters, Html, NavLink, PageHead, PagedRows, body, paged_body, policy,
};
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

use super::adoption::Adoption;
use super::now::{self, PathShare, Process, Processes, RecentPath};
use super::pages::Pages;
use crate::live::RECENT;
use stroboscope_analysis::by_root::{ByRoot, RootStatistics};
use stroboscope_burst::BurstConfig;

/// Number of root operations that the page shows at first.
const ROOTS_SHOWN: usize = 20;
/// Path of the page.
const PATH: &str = "/fleet";

/// Renders the page. Its links contain the parameters `carried`, and its tables show as many rows
/// as `query` asks for. `set` is the result of changing the burst-config, if the request asked for
/// a change.
pub(super) fn answer(
    pages: &Pages,
    (carried, query): (&CarriedParameters, &str),
    set: Option<&Result<String, String>>,
) -> Response {
    let own = [NavLink {
        path: PATH.to_owned(),
        name: "Fleet".to_owned(),
        group: "",
    }];
    let head = PageHead {
        title: "Fleet",
        about: "The collector, and the processes that ship to it, as of now.",
        of: pages.site.as_ref().map_or("", |site| &site.name),
        navigation: pages.site.as_ref().map_or(&own, |site| &site.navigation),
        current: PATH,
        scripts: &[],
        above: &Html::new(),
    };
    let mut html = head.begin();
    html.markup("<div class=\"answer\">");
    let status = match set {
        Some(Err(wrong)) => {
            html.markup("<div class=\"notice error\" role=\"alert\"><p>")
                .text(&format!("The burst-config was not changed: {wrong}"))
                .markup("</p></div>");
            StatusCode::BAD_REQUEST
        }
        Some(Ok(said)) => {
            html.markup("<div class=\"notice\" role=\"status\"><p>")
                .text(&format!("The burst-config is {said}."))
                .markup("</p></div>");
            StatusCode::OK
        }
        None => StatusCode::OK,
    };
    let mut first = Doc::new();
    collecting(pages, &mut first);
    html.html(&body(&first));
    config_form(pages, carried, &mut html);
    let mut doc = Doc::new();
    adopted(&Adoption::of(pages), &mut doc);
    services(pages, &mut doc);
    processes(&Processes::of(pages), &mut doc);
    live(pages, &mut doc);
    doors(pages, &mut doc);
    html.html(&paged_body(&doc, PagedRows::of(query, "/fleet?")))
        .markup(
            "<p class=\"about\">For programs: <a href=\"/metrics\">metrics</a>, <a href=\"/api/model\">the live model</a>, \
             <a href=\"/api/critical-path\">its critical path</a>, <a href=\"/api/processes\">processes</a>, \
             <a href=\"/api/doors\">doors</a>, <a href=\"/healthz\">health</a>, <a href=\"/readyz\">readiness</a>, \
             <a href=\"/burst-config\">burst-config</a>.</p>",
        )
        .markup("</div>")
        .html(&PageHead::end());
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, carried.carry(html.as_str())).into_response()
}

fn collecting(pages: &Pages, doc: &mut Doc) {
    let counters = pages.intake.counters();
    let totals = counters.totals();
    let stored = totals.batches.get("stored").copied().unwrap_or(0);
    let (records, batches) = (counted(totals.records, "record"), counted(stored, "batch"));
    let waiting = counted(counters.wal_bytes.load(Relaxed), "byte");
    let Some((upstream, forwarding)) = pages.control.upstream().zip(pages.forwarding.as_ref())
    else {
        doc.sentence(format!(
            "{records} in {batches} stored since the start; {waiting} of log wait for the store."
        ));
        let agents = pages.control.agents();
        let slowest = agents.slowest().map_or_else(String::new, |slowest| {
            let slowest = duration(slowest.as_nanos() as f64);
            format!("; the slowest answers after {slowest}")
        });
        let count = agents.count();
        if count > 0 {
            let count = counted(count as u64, "agent");
            doc.sentence(format!(
                "{count} (or recorders of the kernel) are connected now{slowest}."
            ));
        }
        return;
    };
    let count = |count: &AtomicU64| count.load(Relaxed);
    let settled = count(&forwarding.stored) + count(&forwarding.duplicate);
    doc.sentence(format!(
        "An agent of {upstream}: {records} in {batches} received since the start; {} and requests forwarded, \
         {waiting} of log wait.",
        counted(settled, "batch"),
    ));
    let refused = count(&forwarding.refused);
    if refused > 0 {
        let refused = counted(refused, "batch");
        doc.sentence(format!(
            "Lost: {refused} or requests that the next collector rejected; the log has the reasons."
        ));
    }
    if let Err(reason) = pages.intake.health() {
        doc.sentence(format!("Not well: {reason}."));
    }
}

/// Adds the number of live processes that apply the burst-config, and lists others.
fn adopted(adoption: &Adoption, doc: &mut Doc) {
    if adoption.live == 0 {
        return;
    }
    doc.sentence(adoption.to_string());
    doc.table("", &adoption.others, usize::MAX);
}

/// Writes the form that shows and changes the fleet's burst-config; an agent only shows it. The
/// form needs no script.
fn config_form(pages: &Pages, carried: &CarriedParameters, html: &mut Html) {
    let config = pages.control.current().map(|config| config.to_string());
    if let Some(upstream) = pages.control.upstream() {
        let config = config.as_deref().unwrap_or("none");
        html.markup("<p class=\"hint\">").text(&format!(
            "Burst-config: {config}. It is set at the collector that this agent forwards to ({upstream})."
        ));
        html.markup("</p>\n");
        return;
    }
    html.markup("<form class=\"options\" method=\"post\" action=\"")
        .text(&carried.address(PATH))
        .markup("\"><p><label for=\"config\">Burst-config")
        .markup("</label> <input id=\"config\" name=\"config\" required=\"\" autocomplete=\"off\" placeholder=\"4ms/32ms\" value=\"")
        .text(config.as_deref().unwrap_or_default())
        .markup("\"/> <button>Set for all processes</button></p><p class=\"hint\">")
        .text(if config.is_some() {
            "All processes record in these bursts, and change together. Such as 4ms/32ms, a mask such as 0b11100, or always."
        } else {
            "None is set: each process records by its own. Such as 4ms/32ms, a mask such as 0b11100, or always."
        })
        .markup("</p></form>\n");
}

#[derive(Default)]
struct Service {
    name: String,
    processes: u64,
    records: u64,
    missing_batches: u64,
    lost: BTreeMap<String, u64>,
}

rows! {
    Service as row, "services": "A service and the data received from it.";
    service: Text, "service" = &*row.name;
    processes: Count, "processes" = row.processes;
    records: Count, "records" = row.records;
    missing_batches: Count, "missing batches" = row.missing_batches;
    lost: Text, "records lost, by cause" = &*causes(row.lost.iter().map(|(cause, n)| (&**cause, *n)));
}

fn services(pages: &Pages, doc: &mut Doc) {
    let mut services: BTreeMap<String, Service> = BTreeMap::new();
    pages.intake.with_ledger(|ledger| {
        for (_, entry) in ledger.entries() {
            let service = services.entry(entry.service.clone()).or_default();
            service.processes += 1;
            service.records += entry.records;
            service.missing_batches = service.missing_batches.saturating_add(entry.stored.holes());
        }
        for ((service, cause), records) in ledger.losses() {
            let lost = &mut services.entry(service).or_default().lost;
            lost.insert(cause, records);
        }
    });
    doc.heading("Services");
    let totals = pages.intake.counters().totals();
    if services.is_empty() {
        doc.sentence(match totals.records {
            0 => {
                "Nothing has arrived yet. Point a service here with STROBOSCOPE_COLLECTOR and let it do some work."
            }
            _ => {
                "No service with Stroboscope's SDK has shipped here. The live model below has the root operations of \
                 services that use OpenTelemetry."
            }
        });
    }
    let rows = services
        .into_iter()
        .map(|(name, of)| Service { name, ..of });
    doc.table("", &rows.collect::<Vec<_>>(), usize::MAX);
    let refused: Vec<RejectionRow> = totals
        .refused
        .iter()
        .map(|(cause, count)| RejectionRow((*cause).to_owned(), count.to_string()))
        .collect();
    doc.table("Batches refused", &refused, usize::MAX);
}

/// Row of a table of rejections: a cause and its count, or a port and its counts by cause.
struct RejectionRow(String, String);

rows! {
    RejectionRow as row, "counts": "Rejections, with their causes.";
    what: Text, "what" = &*row.0;
    count: Text, "number, by cause" = &*row.1;
}

/// Adds the live model to the page: its counts, the latencies of root operations, and the recent
/// critical path.
fn live(pages: &Pages, doc: &mut Doc) {
    let Some(live) = pages.intake.live() else {
        return;
    };
    let (counts, segments) = live.counts();
    doc.heading("Live model").sentence(format!(
        "Since the start: {} of {}; {}; {} {} still arriving. Left out: {} that came late, {} that {} skipped.",
        counted(counts.complete_traces, "complete request"),
        counts.traces,
        counted(segments as u64, "segment"),
        counts.open_traces,
        are(counts.open_traces as u64),
        counted(counts.late_records, "record"),
        counts.skipped_records,
        if counts.skipped_records == 1 {
            "was"
        } else {
            "were"
        },
    ));
    doc.sentence(
        "The root operations of the time that the model covers (--live-window):".to_owned(),
    );
    roots(&live.roots(), doc);
    let path = RecentPath::of(live);
    let minutes = RECENT.as_secs() / 60;
    doc.heading("Recent critical path");
    if path.refused_segments > 0 {
        doc.sentence(format!(
            "The model is full (--max-segments), and left out a segment {}.",
            counted(path.refused_segments, "time")
        ));
    }
    if path.requests == 0 {
        doc.sentence(format!(
            "No complete request in the last {minutes} minutes."
        ));
        return;
    }
    doc.sentence(format!(
        "The critical path of {} of the last {minutes} minutes: the share of each segment in their time, and of \
         that, the wait before it.",
        counted(path.requests, "request")
    ));
    doc.table("", &path.segments, usize::MAX);
    for (share, what) in [
        (path.others_share_of_time, "other segments"),
        (path.tail_share_of_time, "the time after the last segment"),
    ] {
        if share > 0.0 {
            let share = stroboscope_render::humanise::percent(share);
            doc.sentence(format!("The remaining {share}: {what}."));
        }
    }
}

rows! {
    PathShare as row, "recent_path": "A segment, and its part in the critical paths of the last minutes.";
    segment: Segment, "segment" = &row.segment;
    share_of_time: Share, "share" = row.share_of_time;
    wait_share_of_time: Share, "of it waiting" = row.wait_share_of_time;
    mean_ns: DurationNs, "mean" = row.mean_ns;
}

/// A root operation, with statistics of its requests in the time that the live model covers.
struct Root<'a>(&'a str, &'a RootStatistics);

rows! {
    Root<'_> as row, "live_roots": "A root operation and its requests completed so far.";
    {
        let latency = row.1.latency.percentiles();
    }
    root: Text, "root operation" = row.0;
    requests: Count, "requests" = row.1.requests().rounded();
    complete: Count, "complete" = row.1.complete.rounded();
    latency_p50_ns: DurationNs, "p50" = latency.p50_ns;
    latency_p95_ns: DurationNs, "p95" = latency.p95_ns;
    latency_p99_ns: DurationNs, "p99" = latency.p99_ns;
}

fn roots(roots: &ByRoot, doc: &mut Doc) {
    let ranked = roots.ranked();
    let rows: Vec<Root<'_>> = ranked.iter().map(|(name, of)| Root(name, of)).collect();
    doc.table("", &rows, ROOTS_SHOWN);
}

rows! {
    Process as row, "processes": "A process that ships or shipped to this collector.";
    {
        let config = row.config.map(|of| BurstConfig::from_bits(of.burst_config).to_string());
        let windows = row.windows.map(|windows| {
            let config = BurstConfig::from_bits(windows.burst_config);
            format!("{} by {config}", windows.count)
        });
        let clock = row.clock.filter(|clock| clock.timestamps > 0);
    }
    service: Text, "service" = &*row.service;
    host: Text, "host" = &*row.host;
    pid: Count, "process" = (row.pid > 0).then_some(u64::from(row.pid));
    quiet_ns: DurationNs, "last seen, ago" = row.quiet().as_nanos() as f64;
    records: Count, "records" = row.records;
    burst_config: Text, "burst-config" = config.as_deref();
    windows: Text, "windows" = windows.as_deref();
    missing_batches: Count, "missing batches" = row.missing_batches;
    lost: Text, "records lost, by cause" = &*causes(row.lost.iter().map(|(cause, n)| (&**cause, *n)));
    clock_unit_ns: DurationNs, "clock in steps of" = clock.map(|clock| clock.unit_ns as f64);
}

fn processes(processes: &Processes, doc: &mut Doc) {
    if processes.shown.is_empty() {
        return;
    }
    doc.heading("Processes");
    let shown = processes.shown.len();
    if processes.known > shown {
        doc.sentence(format!(
            "The {shown} most recently seen of {} processes.",
            processes.known
        ));
    }
    doc.table("", &processes.shown, usize::MAX);
    let silent = processes.shown.iter().map(Process::quiet).min();
    if let Some(silent) = silent {
        doc.sentence(format!(
            "The collector last received data {} ago.",
            duration(silent.as_nanos() as f64)
        ));
    }
}

fn doors(pages: &Pages, doc: &mut Doc) {
    let rows: Vec<RejectionRow> = now::turned_away(pages)
        .into_iter()
        .map(|(door, counts)| RejectionRow(door.to_owned(), causes(counts.into_iter())))
        .collect();
    doc.heading("Ports")
        .sentence("Connections and requests rejected at each port.")
        .table("", &rows, usize::MAX);
}

fn causes<'a>(causes: impl Iterator<Item = (&'a str, u64)>) -> String {
    let causes: Vec<String> = causes.map(|(cause, n)| format!("{cause} {n}")).collect();
    if causes.is_empty() {
        "none".to_owned()
    } else {
        causes.join(", ")
    }
}
