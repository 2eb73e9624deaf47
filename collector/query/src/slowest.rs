//! Lists requests, the slowest or the latest first. The order is deterministic, so a page of the
//! list can follow another one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::completeness::completeness;
use stroboscope_analysis::flow::ERROR;
use stroboscope_analysis::name_rule::normalise;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::segment::answered_interval;
use stroboscope_search::{Formula, Truth, Unit};
use stroboscope_store::tables::AttributeKeys;

use super::losses::is_unseen;
use super::notes::Notes;
use super::paths::has_failed;
use super::query_error::QueryError;
use super::search::{align, keep_early, keep_first};
use super::source::{Selection, Source};

/// Maximum number of services, and of root operations, that are listed for the user to choose from.
const NAMES_MAX: usize = 200;

/// Order of the listed requests. Among equal requests, the request with the lower id is first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestOrder {
    /// Highest latency first.
    #[default]
    Slowest,
    /// Latest start first.
    Latest,
}

/// Filter and order of the listed requests. The range of the selection limits their starts.
#[derive(Clone, Debug, Default)]
pub struct RequestsWanted {
    /// Formula that must certainly or possibly hold; `None` for no condition.
    pub formula: Option<Formula>,
    /// Service that must have a span in the request; `None` for any.
    pub service: Option<String>,
    /// Name or `service:name` that a span of the request must have, with or without `*` for ids;
    /// `None` for any.
    pub operation: Option<String>,
    /// True to list only requests whose root span failed.
    pub failed: bool,
    /// Minimum latency in ns, inclusive; `None` for no limit.
    pub min_ns: Option<u64>,
    /// Maximum latency in ns, exclusive; `None` for no limit.
    pub max_ns: Option<u64>,
    pub order: RequestOrder,
    /// Maximum number of requests to list, from the first in the order.
    pub kept_max: usize,
}

/// Request in a list of requests, with the figures to show for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRequest {
    pub id: u128,
    /// Trace id as its source wrote it; `None` if that is the id in 32 lower-case hexadecimal
    /// digits.
    pub name: Option<Arc<str>>,
    /// Root operation as `service:name`, or a placeholder for a request without a root span.
    pub root: String,
    /// Start, in ns since the Unix epoch.
    pub start_ns: i64,
    pub latency_ns: u64,
    pub spans: u64,
    pub services: u64,
    /// Distinct causes of incompleteness, with the names of
    /// [`Incomplete::cause`](stroboscope_analysis::completeness::Incomplete::cause), and
    /// [`INNER_ROOT`](stroboscope_analysis::inner_operations::INNER_ROOT).
    pub causes: Vec<&'static str>,
    /// True if the root span failed.
    pub has_failed: bool,
    /// True if the formula certainly holds or none is set; false if it possibly holds.
    pub is_sure: bool,
}

/// Listed requests, with the services and root operations that a user can choose.
#[derive(Debug, Default)]
pub struct RequestList {
    /// Number of requests that were examined.
    pub searched: u64,
    /// Number of requests that match; `requests` has the first of them.
    pub matched: u64,
    /// Number of matching requests for which it is unknown whether the formula holds.
    pub unknown: u64,
    pub requests: Vec<ListedRequest>,
    /// Services of the examined requests; the first 200 by name.
    pub services: BTreeSet<Arc<str>>,
    /// Number of examined requests by root operation; the first 200 root operations by name.
    pub roots: BTreeMap<String, u64>,
    pub notes: Notes,
}

/// Sort key of a request: its latency or start, descending, and its id.
type Place = (Reverse<i128>, u128);

#[derive(Clone, Debug, Default)]
struct Worker {
    searched: u64,
    matched: u64,
    unknown: u64,
    kept: BTreeMap<Place, ListedRequest>,
    services: BTreeSet<Arc<str>>,
    roots: BTreeMap<String, u64>,
}

impl Worker {
    fn note_names(&mut self, records: &TraceRecords, root: &str) {
        for span in &records.spans {
            if !self.services.contains(&span.service) {
                self.services.insert(span.service.clone());
            }
        }
        if let Some(requests) = self.roots.get_mut(root) {
            *requests += 1;
        } else {
            self.roots.insert(root.to_owned(), 1);
        }
        self.bound_names();
    }

    /// Keeps the first [`NAMES_MAX`] services and root operations by name. This choice does not
    /// depend on how workers divide the store. A root operation that is dropped once is always
    /// dropped again, so the counts of the kept ones are complete.
    fn bound_names(&mut self) {
        while self.services.len() > NAMES_MAX {
            self.services.pop_last();
        }
        keep_first(&mut self.roots, NAMES_MAX);
    }

    fn merge(&mut self, other: Self, kept_max: usize) {
        self.searched += other.searched;
        self.matched += other.matched;
        self.unknown += other.unknown;
        self.kept.extend(other.kept);
        keep_first(&mut self.kept, kept_max);
        self.services.extend(other.services);
        for (root, requests) in other.roots {
            *self.roots.entry(root).or_default() += requests;
        }
        self.bound_names();
    }
}

/// Lists the matching requests. Reads the selected requests once. `alignment` corrects the clocks;
/// with `None`, timestamps are used as recorded.
///
/// # Errors
/// Fails if the store cannot be read, or if there is too little memory.
pub fn list_requests(
    source: &Source,
    selection: Selection,
    alignment: Option<&Alignment>,
    wanted: &RequestsWanted,
) -> Result<RequestList, QueryError> {
    let asked = wanted.formula.iter().flat_map(Formula::keys);
    let keys = AttributeKeys::of(asked.chain([ERROR.to_owned()]));
    let parts = source.parts(selection, &keys)?;
    let workers = vec![Worker::default(); parts.count()];
    let visit = |worker: &mut Worker, records: &mut TraceRecords, _: &mut Notes| {
        align(alignment, records);
        worker.searched += 1;
        let root = records.root_name().into_owned();
        worker.note_names(records, &root);
        look(source, wanted, worker, records, root);
    };
    let (found, notes) = source.fold("listing requests", selection, &parts, workers, visit)?;
    let mut all = Worker::default();
    for part in found {
        all.merge(part, wanted.kept_max);
    }
    Ok(RequestList {
        searched: all.searched,
        matched: all.matched,
        unknown: all.unknown,
        requests: all.kept.into_values().collect(),
        services: all.services,
        roots: all.roots,
        notes,
    })
}

/// Keeps a request if it matches.
fn look(
    source: &Source,
    wanted: &RequestsWanted,
    worker: &mut Worker,
    records: &TraceRecords,
    root: String,
) {
    let (start_ns, answer_ns) = answered_interval(records);
    let latency_ns = answer_ns.abs_diff(start_ns);
    let is_in = wanted.min_ns.is_none_or(|min_ns| latency_ns >= min_ns)
        && wanted.max_ns.is_none_or(|max_ns| latency_ns < max_ns);
    if !is_in || !has_names(wanted, records) {
        return;
    }
    let has_failed = has_failed(records);
    if wanted.failed && !has_failed {
        return;
    }
    let reasons = completeness(records, source.losses()).reasons;
    let truth = wanted.formula.as_ref().map_or(Truth::True, |formula| {
        Unit::of_request(records, reasons.iter().any(is_unseen)).of_whole(formula)
    });
    match truth {
        Truth::False => return,
        Truth::Unknown => worker.unknown += 1,
        Truth::True => {}
    }
    worker.matched += 1;
    let first = match wanted.order {
        RequestOrder::Slowest => i128::from(latency_ns),
        RequestOrder::Latest => i128::from(start_ns),
    };
    let place = (Reverse(first), records.id.0);
    keep_early(&mut worker.kept, wanted.kept_max, place, || {
        let services: BTreeSet<&str> = records.spans.iter().map(|span| &*span.service).collect();
        ListedRequest {
            id: records.id.0,
            name: records.name.clone(),
            root,
            start_ns,
            latency_ns,
            spans: records.spans.len() as u64,
            services: services.len() as u64,
            causes: source.causes(records, &reasons),
            has_failed,
            is_sure: truth == Truth::True,
        }
    });
}

/// Reports whether a request has the wanted service and operation. If both are wanted, one span
/// must have both. The operation may have `*` for ids, as in reports, or the ids of one span.
fn has_names(wanted: &RequestsWanted, records: &TraceRecords) -> bool {
    if wanted.service.is_none() && wanted.operation.is_none() {
        return true;
    }
    let is_operation = |service: &str, name: &str, operation: &str| {
        let of_service = operation.strip_prefix(service);
        name == operation || of_service.and_then(|rest| rest.strip_prefix(':')) == Some(name)
    };
    records.spans.iter().any(|span| {
        let service = wanted.service.as_deref();
        let operation = wanted.operation.as_deref();
        service.is_none_or(|service| service == &*span.service)
            && operation.is_none_or(|operation| {
                is_operation(&span.service, &span.name, operation)
                    || is_operation(&span.service, &normalise(&span.name), operation)
            })
    })
}
