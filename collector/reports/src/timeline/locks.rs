//! Locks and futexes at which requests waited: a row for each, or those of one name in detail.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::kernel::lock_sums::{LockExample, LockHolder, LockSum, WaitSum};

use super::items::{lock_kind, took, whole_id};
use super::lock_json::LockJson;
use crate::Failure;
use crate::verb::{Report, schema_is_of};
use stroboscope_query::Notes;
use stroboscope_query::timeline::KernelOverview;
use stroboscope_render::humanise::{counted, percent};
use stroboscope_render::page::path_segment;
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc};

fn holder(holder: &LockHolder) -> &str {
    match holder {
        LockHolder::Operation(operation) => operation,
        LockHolder::Nobody => "(no request)",
        LockHolder::Unknown => "(a request that is not known)",
        LockHolder::Unseen => "(not seen)",
    }
}

/// A lock as a row of a table. The map has full ids of requests by their low halves.
struct LockRow<'a>(&'a LockSum, &'a HashMap<u64, u128>);

/// Names the first entry with waits, which must be the largest one. If there are others, adds the
/// share of the first one in `total_ns`, and the number of the others.
fn named<'a>(all: impl Iterator<Item = (&'a str, WaitSum)>, total_ns: u64) -> Cell {
    let all: Vec<(&str, WaitSum)> = all.filter(|(_, sum)| sum.waits > 0).collect();
    let named = all.first().map(|(what, sum)| match all.len() {
        1 => (*what).to_owned(),
        many => {
            let share = percent(sum.total_ns as f64 / total_ns.max(1) as f64);
            format!("{what} {share}, {} more", many - 1)
        }
    });
    named.as_deref().into()
}

rows! {
    LockRow<'_> as row, "kernel_locks":
        "A lock or futex, over all requests that waited there, with the holders of a marked lock, or the wakers at a \
                futex.";
    {
        let Self(row, ids) = *row;
        let key = &row.key;
        let total_ns = row.sum.total_ns;
        let example = row.longest.first();
        let waiting = row.waiting.iter().map(|(what, sum)| (&**what, *sum));
        let holding = row.holding.iter().map(|(who, sum)| (holder(who), *sum));
        let by = example.and_then(|example| example.holder_trace);
        let what = match &row.service {
            Some(service) => format!("{} of {service}", lock_kind(key)),
            None => lock_kind(key).to_owned(),
        };
        let address = format!("/timeline?lock={}", path_segment(&key.to_string()));
    }
    lock: Text, "lock" = Cell::Linked(key.to_string(), address);
    what: Text, "what" = what.as_str();
    total_ns: DurationNs, "waited" = total_ns;
    waiting: Text, "waiter" = named(waiting, total_ns);
    holding: Text, "held by / woken by" = named(holding, total_ns);
    example: Request, "for example" = example.map(|example| whole_id(ids, example.span.trace)).as_deref();
    example_holder: Request, "waited for" = by.map(|low| whole_id(ids, low)).as_deref();
    waits: Count, "waits" = row.sum.waits;
    requests: Count, "requests" = row.requests;
    p50_ns: DurationNs, "p50" = row.p50_ns;
    p99_ns: DurationNs, "p99" = row.p99_ns;
    max_ns: DurationNs, "longest" = row.max_ns;
    kind: Text, "" = lock_kind(key);
    host: Text, "" = &*key.host;
    service: Text, "" = row.service.as_deref();
    cut: Count, "" = row.cut;
}

const FUTEX: &str = "A futex without a marker may be a lock, a condition variable, or a thread that waits for \
                     another's result: its wakers are known, its holders are not.";

pub(super) fn show_locks(overview: &KernelOverview, top: usize, doc: &mut Doc) {
    let locks = &overview.locks;
    if !locks.is_empty() {
        doc.sentence(summary(overview));
    }
    let rows: Vec<LockRow<'_>> = locks
        .iter()
        .map(|row| LockRow(row, &overview.ids))
        .collect();
    let title = "By lock and futex: where requests wait, the longest together first";
    doc.table(title, &rows, top);
    if let Some(rest) = locks.get(top..).filter(|rest| !rest.is_empty()) {
        let waits: u64 = rest.iter().map(|row| row.sum.waits).sum();
        let total_ns: u64 = rest.iter().map(|row| row.sum.total_ns).sum();
        doc.sentence(format!(
            "Not shown: {}, at which requests waited {}, {} together; --top 0 shows all",
            counted(rest.len() as u64, "lock"),
            counted(waits, "time"),
            took(total_ns)
        ));
    }
    let other = overview.other_waits;
    if other.waits > 0 {
        doc.sentence(format!(
            "Threads that worked for no request that is known waited {}, {} together, in none of these rows: most of them had \
             nothing to do",
            counted(other.waits, "time"),
            took(other.total_ns)
        ));
    }
}

fn summary(overview: &KernelOverview) -> String {
    let sum = |is: &dyn Fn(&LockSum) -> bool| -> u64 {
        let rows = overview.locks.iter().filter(|row| is(row));
        rows.map(|row| row.sum.total_ns).sum()
    };
    let all_ns = sum(&|_| true);
    let known = |(holder, sum): &(LockHolder, WaitSum)| match holder {
        LockHolder::Operation(_) | LockHolder::Nobody => sum.total_ns,
        LockHolder::Unknown | LockHolder::Unseen => 0,
    };
    let holding = overview.locks.iter().flat_map(|row| &row.holding);
    let known_ns: u64 = holding.map(known).sum();
    let cut: u64 = overview.locks.iter().map(|row| row.cut).sum();
    let (marked_ns, futex_ns) = (
        sum(&|row| row.key.is_marked),
        sum(&|row| !row.key.is_marked),
    );
    let parts = [
        (marked_ns, "for marked locks"),
        (futex_ns, "at other futexes"),
    ];
    let parts = parts.into_iter().filter(|(ns, _)| *ns > 0);
    let parts = parts.map(|(ns, what)| format!("{} {what}", took(ns)));
    let parts: Vec<String> = parts.collect();
    let mut said = match all_ns {
        0 => "Requests waited at locks or futexes, and no wait's end was seen".to_owned(),
        _ => format!(
            "Requests waited {} together, {}; the holder or waker is known for {} ({})",
            took(all_ns),
            parts.join(" and "),
            took(known_ns),
            percent(known_ns as f64 / all_ns as f64)
        ),
    };
    if cut > 0 {
        said += &format!(
            "; the end of {} more was not seen, which are in no sum",
            counted(cut, "wait")
        );
    }
    if overview.locks.iter().any(|row| !row.key.is_marked) {
        said += &format!("\n{FUTEX}");
    }
    said
}

/// A waiter, holder or waker at a lock, as a row of a table. The last value is the lock's total
/// wait, in ns.
struct PartRow<'a>(&'a str, WaitSum, u64);

rows! {
    PartRow<'_> as row, "kernel_lock_operations": "An operation that waits at a lock, or was in the way.";
    {
        let Self(operation, sum, total_ns) = *row;
    }
    operation: Text, "operation" = operation;
    total_ns: DurationNs, "waited" = sum.total_ns;
    share: Share, "share" = sum.total_ns as f64 / total_ns.max(1) as f64;
    waits: Count, "waits" = sum.waits;
}

/// A wait at a lock, as a row of a table. The map has full ids of requests by their low halves.
struct WaitRow<'a>(&'a LockExample, &'a HashMap<u64, u128>);

rows! {
    WaitRow<'_> as row, "kernel_lock_waits": "A wait at a lock, and the longest holder or waker.";
    {
        let Self(example, ids) = *row;
        let by = example.holder_trace.map(|low| whole_id(ids, low));
    }
    request: Request, "request" = whole_id(ids, example.span.trace).as_str();
    operation: Text, "waiter" = &*example.operation;
    took_ns: DurationNs, "waited" = example.took_ns;
    holder: Text, "held by / woken by" = holder(&example.holder);
    holder_request: Request, "its request" = by.as_deref();
    start_ns: Count, "" = u64::try_from(example.start_ns).ok();
}

/// Locks with the requested name, of one host or of all hosts.
pub struct Locks {
    rows: Vec<LockSum>,
    ids: HashMap<u64, u128>,
    notes: Notes,
}

/// Locks and futexes with the requested name, with the waits of all requests.
#[derive(Serialize, JsonSchema)]
struct LocksJson<'a> {
    locks: Vec<LockJson<'a>>,
}

impl Serialize for Locks {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let one = |row| LockJson::of(row, &self.ids);
        let locks = self.rows.iter().map(one).collect();
        LocksJson { locks }.serialize(serializer)
    }
}

schema_is_of!(Locks, LocksJson<'_>);

impl Locks {
    /// Selects the lock `asked`, which is `PROCESS:LOCK`, on `host` or on all hosts. Returns an
    /// error if no request waited at it.
    pub fn of(
        mut overview: KernelOverview,
        asked: &str,
        host: Option<&str>,
    ) -> Result<Self, Failure> {
        let rows = std::mem::take(&mut overview.locks);
        let all = rows.len() as u64;
        let is_it = |row: &LockSum| {
            row.key.to_string() == asked && host.is_none_or(|host| host == &*row.key.host)
        };
        let rows: Vec<LockSum> = rows.into_iter().filter(is_it).collect();
        if rows.is_empty() {
            return Err(Failure::unknown(format!(
                "no request waited at a lock {asked:?}: it is PROCESS:LOCK, such as 4711:0x7f0a12345678, and `stroboscope \
                 timeline` lists the {} of this store",
                counted(all, "lock")
            )));
        }
        let notes = Notes::of_unread(std::mem::take(&mut overview.damage), overview.large_traces);
        Ok(Self {
            rows,
            ids: overview.ids,
            notes,
        })
    }
}

impl Report for Locks {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        for row in &self.rows {
            let key = &row.key;
            let process = format!("process {} on {}", key.process, key.host);
            let of = match &row.service {
                Some(service) => format!("{service} ({process})"),
                None => process,
            };
            let what = if key.is_marked { "lock" } else { "futex" };
            doc.heading(format!("{what} {:#x} of {of}", key.lock));
            let cut = match row.cut {
                0 => String::new(),
                cut => format!("; the end of {} more was not seen", counted(cut, "wait")),
            };
            let mut said = format!(
                "{} waited {}, {} together: half of them up to {}, 99 % up to {}, the longest {}{cut}",
                counted(row.requests, "request"),
                counted(row.sum.waits, "time"),
                took(row.sum.total_ns),
                took(row.p50_ns),
                took(row.p99_ns),
                took(row.max_ns)
            );
            if !key.is_marked {
                said += &format!("\n{FUTEX}");
            }
            doc.sentence(said);
            let total_ns = row.sum.total_ns;
            let waiting: Vec<PartRow<'_>> = row
                .waiting
                .iter()
                .map(|(what, sum)| PartRow(what, *sum, total_ns))
                .collect();
            doc.table("Waiters", &waiting, usize::MAX);
            let holding: Vec<PartRow<'_>> = row
                .holding
                .iter()
                .map(|(who, sum)| PartRow(holder(who), *sum, total_ns))
                .collect();
            let title = if key.is_marked {
                "Holders meanwhile"
            } else {
                "Wakers of the waiters"
            };
            doc.table(title, &holding, usize::MAX);
            let longest: Vec<WaitRow<'_>> = row
                .longest
                .iter()
                .map(|example| WaitRow(example, &self.ids))
                .collect();
            doc.table("The longest waits", &longest, usize::MAX);
        }
    }
}
