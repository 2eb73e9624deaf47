//! `/fleet`: the collector itself, and the processes that ship to it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use stroboscope_present::humanise::{are, counted, duration};
use stroboscope_present::page::{Html, NavLink, POLICY, PageHead, body};
use stroboscope_present::show::{Cell, Column, Doc, Kind, Row, TableSpec};

use super::now::{self, PathShare, Process, Processes, RecentPath};
use super::pages::Pages;
use crate::live::RECENT;
use stroboscope_analysis::by_root::{ByRoot, RootStatistics};
use stroboscope_burst::BurstConfig;

/// Root operations shown.
const ROOTS_SHOWN: usize = 20;
/// Processes shown; JSON has more.
const PROCESSES_SHOWN: usize = 50;
/// Its path.
const PATH: &str = "/fleet";

/// The page; `set` says how it went where the burst-config was to be set.
pub(super) fn answer(pages: &Pages, set: Option<&Result<String, String>>) -> Response {
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
    config_form(pages, &mut html);
    let mut doc = Doc::new();
    services(pages, &mut doc);
    processes(&Processes::of(pages), &mut doc);
    live(pages, &mut doc);
    doors(pages, &mut doc);
    html.html(&body(&doc))
        .markup(
            "<p class=\"about\">For programs: <a href=\"/metrics\">metrics</a>, <a href=\"/model\">the live model</a>, \
             <a href=\"/api/critical-path\">its critical path</a>, <a href=\"/api/processes\">processes</a>, \
             <a href=\"/api/doors\">doors</a>, <a href=\"/healthz\">health</a>, <a href=\"/readyz\">readiness</a>, \
             <a href=\"/burst-config\">burst-config</a>.</p>",
        )
        .markup("</div>")
        .html(&PageHead::end());
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, html.into_string()).into_response()
}

fn collecting(pages: &Pages, doc: &mut Doc) {
    let counters = pages.intake.counters();
    let totals = counters.totals();
    let stored = totals.batches.get("stored").copied().unwrap_or(0);
    doc.sentence(format!(
        "{} in {} stored since the start; {} of log wait for the store.",
        counted(totals.records, "record"),
        counted(stored, "batch"),
        counted(counters.wal_bytes.load(Relaxed), "byte"),
    ));
}

/// To see and to change when the fleet records: a form without a script.
fn config_form(pages: &Pages, html: &mut Html) {
    let config = pages.control.current().map(|config| config.to_string());
    html.markup("<form class=\"options\" method=\"post\" action=\"/fleet\"><p><label for=\"config\">Burst-config")
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

impl Row for Service {
    const TABLE: TableSpec = TableSpec {
        name: "services",
        about: "A service, and what of it arrived.",
        columns: Cow::Borrowed(&[
            Column::new("service", "service", Kind::Text),
            Column::new("processes", "processes", Kind::Count),
            Column::new("records", "records", Kind::Count),
            Column::new("missing_batches", "missing batches", Kind::Count),
            Column::new("lost", "records lost, by cause", Kind::Text),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (&*self.name).into(),
            self.processes.into(),
            self.records.into(),
            self.missing_batches.into(),
            (&*causes(self.lost.iter().map(|(cause, n)| (&**cause, *n)))).into(),
        ]
    }
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
    if services.is_empty() {
        doc.sentence(
            "Nothing has arrived yet. Point a service here with STROBOSCOPE_COLLECTOR and let it do some work.",
        );
    }
    let rows = services
        .into_iter()
        .map(|(name, of)| Service { name, ..of });
    doc.table("", &rows.collect::<Vec<_>>(), usize::MAX);
    let refused = &pages.intake.counters().totals().refused;
    let refused: Vec<Counted> = refused
        .iter()
        .map(|(cause, count)| Counted((*cause).to_owned(), count.to_string()))
        .collect();
    doc.table("Batches refused", &refused, usize::MAX);
}

/// Something, and how many or which.
struct Counted(String, String);

impl Row for Counted {
    const TABLE: TableSpec = TableSpec {
        name: "counts",
        about: "What was turned away, and why.",
        columns: Cow::Borrowed(&[
            Column::new("what", "what", Kind::Text),
            Column::new("count", "how many, by cause", Kind::Text),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![(&*self.0).into(), (&*self.1).into()]
    }
}

/// What the last minutes' requests waited for, and how long they took.
fn live(pages: &Pages, doc: &mut Doc) {
    let Some(live) = pages.intake.live() else {
        return;
    };
    let (counts, segments) = live.counts();
    doc.heading("Live model").sentence(format!(
        "{} of {}, {}; {} {} still arriving. Left out: {} that came late, {} that {} skipped.",
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
    roots(&live.roots(), doc);
    let path = RecentPath::of(live);
    let minutes = RECENT.as_secs() / 60;
    doc.heading("What requests wait for");
    if path.requests == 0 {
        doc.sentence(format!(
            "No complete request in the last {minutes} minutes."
        ));
        return;
    }
    doc.sentence(format!(
        "The critical path of {} of the last {minutes} minutes: the mean share of a request that each segment makes up, and \
         of that, the wait before it.",
        counted(path.requests, "request")
    ));
    doc.table("", &path.segments, usize::MAX);
    for (share, what) in [
        (path.others_mean_share, "other segments"),
        (path.mean_tail_share, "the time after the last segment"),
    ] {
        if share > 0.0 {
            let share = stroboscope_present::humanise::percent(share);
            doc.sentence(format!("And {share} are of {what}."));
        }
    }
}

impl Row for PathShare {
    const TABLE: TableSpec = TableSpec {
        name: "recent_path",
        about: "A segment, and its part in the critical paths of the last minutes.",
        columns: Cow::Borrowed(&[
            Column::new("segment", "segment", Kind::Segment),
            Column::new("mean_share", "share", Kind::Share),
            Column::new("mean_wait_share", "of it waiting", Kind::Share),
            Column::new("mean_ns", "mean", Kind::DurationNs),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (&self.segment).into(),
            self.mean_share.into(),
            self.mean_wait_share.into(),
            self.mean_ns.into(),
        ]
    }
}

/// A root operation, and its requests so far.
struct Root<'a>(&'a str, &'a RootStatistics);

impl Row for Root<'_> {
    const TABLE: TableSpec = TableSpec {
        name: "live_roots",
        about: "A root operation, and its requests that are whole by now.",
        columns: Cow::Borrowed(&[
            Column::new("root", "root operation", Kind::Text),
            Column::new("requests", "requests", Kind::Count),
            Column::new("complete", "complete", Kind::Count),
            Column::new("latency_p50_ns", "p50", Kind::DurationNs),
            Column::new("latency_p95_ns", "p95", Kind::DurationNs),
            Column::new("latency_p99_ns", "p99", Kind::DurationNs),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        let latency = self.1.latency.percentiles();
        vec![
            self.0.into(),
            self.1.requests().rounded().into(),
            self.1.complete.rounded().into(),
            (latency.p50_ns as f64).into(),
            (latency.p95_ns as f64).into(),
            (latency.p99_ns as f64).into(),
        ]
    }
}

fn roots(roots: &ByRoot, doc: &mut Doc) {
    let ranked = roots.ranked();
    let rows: Vec<Root<'_>> = ranked.iter().map(|(name, of)| Root(name, of)).collect();
    doc.table("", &rows, ROOTS_SHOWN);
}

impl Row for Process {
    const TABLE: TableSpec = TableSpec {
        name: "processes",
        about: "A process that ships here, or did.",
        columns: Cow::Borrowed(&[
            Column::new("service", "service", Kind::Text),
            Column::new("host", "host", Kind::Text),
            Column::new("pid", "process", Kind::Count),
            Column::new("quiet_ns", "last seen, ago", Kind::DurationNs),
            Column::new("records", "records", Kind::Count),
            Column::new("windows", "windows", Kind::Text),
            Column::new("missing_batches", "missing batches", Kind::Count),
            Column::new("lost", "records lost, by cause", Kind::Text),
            Column::new("clock_unit_ns", "clock in steps of", Kind::DurationNs),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        let windows = self.windows.map(|windows| {
            let config = BurstConfig::from_bits(windows.burst_config);
            format!("{} by {config}", windows.count)
        });
        let clock = self.clock.filter(|clock| clock.timestamps > 0);
        vec![
            (&*self.service).into(),
            (&*self.host).into(),
            (self.pid > 0).then_some(u64::from(self.pid)).into(),
            (self.quiet().as_nanos() as f64).into(),
            self.records.into(),
            windows.as_deref().into(),
            self.missing_batches.into(),
            (&*causes(self.lost.iter().map(|(cause, n)| (&**cause, *n)))).into(),
            clock.map(|clock| clock.unit_ns as f64).into(),
        ]
    }
}

fn processes(processes: &Processes, doc: &mut Doc) {
    if processes.shown.is_empty() {
        return;
    }
    doc.heading("Processes");
    if processes.known > PROCESSES_SHOWN {
        doc.sentence(format!(
            "Of {} processes, those seen last.",
            processes.known
        ));
    }
    doc.table("", &processes.shown, PROCESSES_SHOWN);
    let silent = processes.shown.iter().map(Process::quiet).min();
    if let Some(silent) = silent {
        doc.sentence(format!(
            "The last of them was heard of {} ago.",
            duration(silent.as_nanos() as f64)
        ));
    }
}

fn doors(pages: &Pages, doc: &mut Doc) {
    let rows: Vec<Counted> = now::turned_away(pages)
        .into_iter()
        .map(|(door, counts)| Counted(door.to_owned(), causes(counts.into_iter())))
        .collect();
    doc.heading("Doors")
        .sentence("What was turned away at each.")
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
