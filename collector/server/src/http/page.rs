//! `/`, the page for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use stroboscope_analysis::by_root::ByRoot;

use super::now::{self, Process, Processes, RecentPath};
use super::server::Pages;
use crate::live::RECENT;
use stroboscope_burst::BurstConfig;
use stroboscope_present::humanise::{duration, percent};

/// Root operations shown.
const ROOTS_SHOWN: usize = 20;
/// Processes shown; JSON has more.
const PROCESSES_SHOWN: usize = 50;

#[derive(Default)]
struct Service {
    processes: u64,
    records: u64,
    missing_batches: u64,
    lost: BTreeMap<String, u64>,
}

/// The page.
pub(super) fn render(pages: &Pages) -> String {
    let (intake, control) = (&pages.intake, &pages.control);
    let mut services: BTreeMap<String, Service> = BTreeMap::new();
    intake.with_ledger(|ledger| {
        for (_, entry) in ledger.entries() {
            let service = services.entry(entry.service.clone()).or_default();
            service.processes += 1;
            service.records += entry.records;
            service.missing_batches = service.missing_batches.saturating_add(entry.stored.holes());
        }
        for ((service, cause), records) in ledger.losses() {
            services
                .entry(service)
                .or_default()
                .lost
                .insert(cause, records);
        }
    });
    let counters = intake.counters();
    let totals = counters.totals();
    let config = control.current().map_or_else(
        || "each process its own".to_owned(),
        |config| config.to_string(),
    );
    let mut page = String::from(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>Stroboscope collector</title><style>body{font:16px/1.5 system-ui;max-width:60em;margin:2em auto;\
         padding:0 1em}table{border-collapse:collapse}td,th{padding:.2em 1em .2em 0;text-align:left;\
         border-bottom:1px solid #ccc}td.n{text-align:right}</style><h1>Stroboscope collector</h1>",
    );
    // Writing to a String cannot fail.
    let _ = write!(
        page,
        "<p>Burst-config: <b>{}</b>. {} records in {} batches stored since the start; {} bytes of log wait for the \
         store.</p><h2>Services</h2>",
        escape(&config),
        totals.records,
        totals.batches.get("stored").copied().unwrap_or(0),
        counters.wal_bytes.load(Relaxed),
    );
    if services.is_empty() {
        page.push_str(
            "<p>Nothing has arrived yet. Point a service here with STROBOSCOPE_COLLECTOR and let it do some work.</p>",
        );
    } else {
        services_table(&services, &mut page);
    }
    count_table("Batches refused", &totals.refused, &mut page);
    if let Some(live) = intake.live() {
        let (counts, segments) = live.counts();
        let _ = write!(
            page,
            "<h2>Live model</h2><p>{} complete requests of {}, {segments} segments; {} are still arriving. Left out: {} \
             records that came late, {} that were skipped. <a href=/model>The model</a></p>",
            counts.complete_traces,
            counts.traces,
            counts.open_traces,
            counts.late_records,
            counts.skipped_records,
        );
        roots_table(&live.roots(), &mut page);
        path_table(&RecentPath::of(live), &mut page);
    }
    processes_table(&Processes::of(pages), &mut page);
    doors_table(pages, &mut page);
    page.push_str(
        "<p><a href=/metrics>metrics</a> · <a href=/api/critical-path>critical path</a>, <a href=/api/processes>processes</a>, \
         <a href=/api/doors>doors</a> as JSON · <a href=/healthz>health</a> · <a href=/readyz>readiness</a> · <a href=/burst-config>burst-config</a></p>\
         <p>Results: <code>stroboscope infer</code>, <code>stroboscope critical-path</code>, <code>stroboscope \
         slack</code>.</p></html>",
    );
    page
}

fn services_table(services: &BTreeMap<String, Service>, page: &mut String) {
    page.push_str(
        "<table><tr><th>service<th>processes<th>records<th>missing batches<th>records lost, by cause</tr>",
    );
    for (name, service) in services {
        let lost = counted_causes(service.lost.iter().map(|(cause, n)| (&**cause, *n)));
        let Service {
            processes,
            records,
            missing_batches,
            ..
        } = service;
        let _ = write!(
            page,
            "<tr><td>{}<td class=n>{processes}<td class=n>{records}<td class=n>{missing_batches}<td>{lost}</tr>",
            escape(name)
        );
    }
    page.push_str("</table>");
}

/// Latency as the verbs have it, of the traces that are whole by now.
fn roots_table(roots: &ByRoot, page: &mut String) {
    if roots.roots().is_empty() {
        return;
    }
    page.push_str(
        "<table><tr><th>requests<th>complete<th>p50<th>p95<th>p99<th>after the answer<th>root operation</tr>",
    );
    for (root, of) in roots.ranked().into_iter().take(ROOTS_SHOWN) {
        let latency = of.latency.percentiles();
        let after = match of.after_answer.count() {
            0 => String::new(),
            count => format!("{} in {count}", duration(of.after_answer.mean_ns())),
        };
        let _ = write!(
            page,
            "<tr><td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{after}<td>{}</tr>",
            of.requests(),
            of.complete,
            duration(latency.p50_ns as f64),
            duration(latency.p95_ns as f64),
            duration(latency.p99_ns as f64),
            escape(root)
        );
    }
    page.push_str("</table>");
}

/// What the last minutes' requests waited for.
fn path_table(path: &RecentPath, page: &mut String) {
    let minutes = RECENT.as_secs() / 60;
    let _ = write!(page, "<h2>What requests wait for</h2>");
    if path.requests == 0 {
        let _ = write!(
            page,
            "<p>No complete request in the last {minutes} minutes.</p>"
        );
        return;
    }
    let _ = write!(
        page,
        "<p>The critical path of {} requests of the last {minutes} minutes: the mean share of a request that each segment \
         makes up, and of that, the wait before it.</p><table><tr><th>share<th>of it waiting<th>mean<th>segment</tr>",
        path.requests
    );
    for share in &path.segments {
        let _ = write!(
            page,
            "<tr><td class=n>{}<td class=n>{}<td class=n>{}<td title=\"{}\">{}</tr>",
            percent(share.mean_share),
            percent(share.mean_wait_share),
            duration(share.mean_ns),
            escape(&share.full_name),
            escape(&share.name)
        );
    }
    for (share, what) in [
        (path.others_mean_share, "other segments"),
        (path.mean_tail_share, "after the last segment"),
    ] {
        if share > 0.0 {
            let _ = write!(
                page,
                "<tr><td class=n>{}<td><td><td><i>{what}</i></tr>",
                percent(share)
            );
        }
    }
    page.push_str("</table>");
}

fn processes_table(processes: &Processes, page: &mut String) {
    if processes.shown.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Processes</h2><table><tr><th>service<th>host<th>process<th>last seen<th>records<th>windows<th>missing batches\
         <th>records lost, by cause<th>clock in steps of</tr>",
    );
    for process in processes.shown.iter().take(PROCESSES_SHOWN) {
        process_row(process, page);
    }
    page.push_str("</table>");
    if processes.known > PROCESSES_SHOWN {
        let _ = write!(
            page,
            "<p>Of {} processes, those seen last.</p>",
            processes.known
        );
    }
}

fn process_row(process: &Process, page: &mut String) {
    let pid = match process.pid {
        0 => String::new(),
        pid => pid.to_string(),
    };
    let windows = process.windows.map_or_else(String::new, |windows| {
        let config = BurstConfig::from_bits(windows.burst_config);
        format!("{} by {}", windows.count, escape(&config.to_string()))
    });
    let clock = process.clock.filter(|clock| clock.timestamps > 0);
    let clock = clock.map_or_else(String::new, |clock| duration(clock.unit_ns as f64));
    let _ = write!(
        page,
        "<tr><td>{}<td>{}<td class=n>{pid}<td class=n>{} ago<td class=n>{}<td>{windows}<td class=n>{}<td>{}<td class=n>{clock}</tr>",
        escape(&process.service),
        escape(&process.host),
        duration(process.quiet().as_nanos() as f64),
        process.records,
        process.missing_batches,
        counted_causes(process.lost.iter().map(|(cause, n)| (&**cause, *n))),
    );
}

fn doors_table(pages: &Pages, page: &mut String) {
    page.push_str("<h2>Doors</h2><table><tr><th>door<th>turned away, by cause</tr>");
    for (door, causes) in now::turned_away(pages) {
        let causes = counted_causes(causes.into_iter());
        let _ = write!(page, "<tr><td>{}<td>{causes}</tr>", escape(door));
    }
    page.push_str("</table>");
}

/// Escaped.
fn counted_causes<'a>(causes: impl Iterator<Item = (&'a str, u64)>) -> String {
    let causes: Vec<String> = causes
        .map(|(cause, n)| format!("{} {n}", escape(cause)))
        .collect();
    if causes.is_empty() {
        "none".to_owned()
    } else {
        causes.join(", ")
    }
}

fn count_table(title: &str, counts: &BTreeMap<&'static str, u64>, page: &mut String) {
    if counts.is_empty() {
        return;
    }
    let _ = write!(page, "<h2>{title}</h2><table>");
    for (cause, count) in counts {
        let _ = write!(page, "<tr><td>{}<td class=n>{count}</tr>", escape(cause));
    }
    page.push_str("</table>");
}

/// Names come from the network: they must not become markup.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}
