//! Remarks on a request: its completeness, the correction of its clocks, and its time as recorded
//! by kernels.

use std::collections::BTreeMap;

use stroboscope_analysis::completeness::{Incomplete, explanation};
use stroboscope_analysis::kernel::summary::{reason_name, requests};
use stroboscope_query::{KernelPart, Request};
use stroboscope_render::humanise::{counted, duration_spaced as duration};

/// Maximum number of reasons listed: of each cause of incompleteness, and of blocked threads.
const REASONS_TOLD: usize = 3;

/// Explains why a request is incomplete, by cause: the meaning, and the places.
pub(super) fn incomplete(request: &Request) -> Vec<String> {
    let mut by_cause: BTreeMap<&str, Vec<&Incomplete>> = BTreeMap::new();
    for reason in &request.reasons {
        by_cause.entry(reason.cause()).or_default().push(reason);
    }
    let say = |(cause, reasons): (&str, Vec<&Incomplete>)| {
        let told: Vec<String> = reasons
            .iter()
            .take(REASONS_TOLD)
            .map(ToString::to_string)
            .collect();
        let more = match reasons.len().saturating_sub(REASONS_TOLD) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let means = one_of(cause);
        format!("{}{more}. {means}", capital(&told.join("; ")))
    };
    by_cause.into_iter().map(say).collect()
}

/// Explains a cause for a single request.
fn one_of(cause: &str) -> String {
    match cause {
        "cut_open" => "Cut by the burst's edge: it was under way when its burst opened.".to_owned(),
        "cut_close" => {
            "Cut by the burst's edge: its burst closed before it ended, so it took longer than shown here."
                .to_owned()
        }
        "unfinished" => "Its process ended, or was killed, or has not shipped the end yet.".to_owned(),
        other => format!("That is: {}.", explanation(other)),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

/// Describes the correction of the hosts' clocks, and groups of clocks that cannot be related.
pub(super) fn clocks(request: &Request) -> Vec<String> {
    let mut moved: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    let both = request.recorded.spans.iter().zip(&request.aligned.spans);
    for (recorded, aligned) in both {
        let by_ns = aligned.start_ns.saturating_sub(recorded.start_ns);
        let known = moved.entry(&recorded.host).or_insert((by_ns, by_ns));
        *known = (known.0.min(by_ns), known.1.max(by_ns));
    }
    let clocks = &request.aligned.clocks;
    let error_ns = |host: &str| {
        let clock = clocks.iter().find(|clock| &*clock.host == host);
        clock.map_or(0, |clock| clock.error_ns)
    };
    let mut said: Vec<String> = moved
        .iter()
        .filter(|(_, by_ns)| **by_ns != (0, 0))
        .map(|(host, (least_ns, most_ns))| {
            let by = if least_ns == most_ns {
                signed(*least_ns)
            } else {
                format!("{} to {}", signed(*least_ns), signed(*most_ns))
            };
            let error = duration(error_ns(host) as f64);
            format!("The clock of {host} was corrected by {by} ± {error}: round trips prove that it differs.")
        })
        .collect();
    let mut islands: Vec<u32> = clocks.iter().map(|clock| clock.island).collect();
    islands.sort_unstable();
    islands.dedup();
    if islands.len() > 1 {
        said.push(format!(
            "Its hosts fall into {} groups whose clocks cannot be related: the order of events across groups is \
             unknown.",
            islands.len()
        ));
    }
    said
}

fn signed(ns: i64) -> String {
    let sign = if ns < 0 { '−' } else { '+' };
    format!("{sign}{}", duration(ns.unsigned_abs() as f64))
}

/// Describes the request's time from the view of each host's kernel.
pub(super) fn kernel(request: &Request) -> Vec<String> {
    let low = request.recorded.stored_id().0 as u64;
    let parts = request.kernel.iter();
    parts.filter_map(|part| kernel_of(part, low)).collect()
}

fn kernel_of(part: &KernelPart, low: u64) -> Option<String> {
    let summaries = requests(&part.timeline, part.architecture);
    let summary = summaries.iter().find(|one| one.trace == low)?;
    let took = |ns: u64| duration(ns as f64);
    let mut said = vec![format!(
        "{} on a processor, in {}",
        took(summary.on_cpu_ns),
        counted(summary.threads as u64, "thread")
    )];
    if summary.runnable_ns > 0 {
        said.push(format!(
            "{} ready while no processor was free",
            took(summary.runnable_ns)
        ));
    }
    let mut blocked: BTreeMap<String, u64> = BTreeMap::new();
    for (reason, ns) in &summary.blocked_ns {
        *blocked
            .entry(reason_name(*reason, part.architecture))
            .or_default() += ns;
    }
    let mut blocked: Vec<(String, u64)> = blocked.into_iter().collect();
    blocked.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    said.extend(
        blocked
            .iter()
            .take(REASONS_TOLD)
            .map(|(reason, ns)| format!("{} blocked in {reason}", took(*ns))),
    );
    let waited_ns: u64 = summary.lock_ns.values().sum();
    if waited_ns > 0 {
        said.push(format!("{} waiting for locks", took(waited_ns)));
    }
    let calls: u64 = summary.calls.values().map(|sum| sum.count).sum();
    said.push(counted(calls, "system call"));
    let cut = if summary.is_cut {
        "; a window's edge cuts it"
    } else {
        ""
    };
    Some(format!(
        "Kernel of {}: {}{cut}.",
        part.host,
        said.join(", ")
    ))
}
