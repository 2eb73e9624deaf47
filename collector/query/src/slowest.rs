//! A list of requests, the slowest first or the latest: the same list each time, page by page.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::completeness::completeness;
use stroboscope_analysis::flow::ERROR;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::segment::answered_interval;
use stroboscope_search::{Formula, Truth, Unit};
use stroboscope_store::tables::AttributeKeys;

use super::losses::is_unseen;
use super::notes::Notes;
use super::paths::has_failed;
use super::query_error::QueryError;
use super::source::{Selection, Source};

/// So many names of services and of root operations are listed to choose from.
const NAMES_MAX: usize = 200;

/// In which order requests are listed. Of equals, the one with the smaller id is first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestOrder {
    /// The longest first.
    #[default]
    Slowest,
    /// The latest first.
    Latest,
}

/// Which requests are listed. When they began is said by the selection's range.
#[derive(Clone, Debug, Default)]
pub struct RequestsWanted {
    /// Those of which this holds, or may.
    pub formula: Option<Formula>,
    /// Those that a span of this service is in.
    pub service: Option<String>,
    /// Those that a span of this name, or this `service:name`, is in.
    pub operation: Option<String>,
    /// Leaves out requests whose root did not fail.
    pub failed: bool,
    /// Not shorter than this.
    pub min_ns: Option<u64>,
    /// Shorter than this.
    pub max_ns: Option<u64>,
    pub order: RequestOrder,
    /// So many of them, the first ones.
    pub kept_max: usize,
}

/// A request in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRequest {
    pub id: u128,
    /// As its source wrote it, if that was not hex.
    pub name: Option<Arc<str>>,
    /// Its root's `service:name`.
    pub root: String,
    /// Ns since the Unix epoch.
    pub start_ns: i64,
    pub latency_ns: u64,
    pub spans: u64,
    pub services: u64,
    /// Why it is not complete: causes, as [`Incomplete::cause`](stroboscope_analysis::completeness::Incomplete::cause) names
    /// them.
    pub causes: Vec<&'static str>,
    /// True if its root failed.
    pub has_failed: bool,
    /// Whether the formula holds; otherwise it may.
    pub is_sure: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub struct RequestList {
    /// Requests that were looked at.
    pub searched: u64,
    /// Those that are wanted, of which the list holds the first.
    pub matched: u64,
    /// Those of them of which it is not known whether the formula holds.
    pub unknown: u64,
    pub requests: Vec<ListedRequest>,
    /// Services seen, by name; the first so many.
    pub services: BTreeSet<Arc<str>>,
    /// Root operations seen, by name, the first so many, and how many requests each has.
    pub roots: BTreeMap<String, u64>,
    pub notes: Notes,
}

/// Where a request stands: in the order, and by its id.
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
    fn keep(&mut self, place: Place, kept_max: usize, listed: impl FnOnce() -> ListedRequest) {
        let is_first = self.kept.len() < kept_max
            || self
                .kept
                .last_key_value()
                .is_some_and(|last| place < *last.0);
        if is_first && kept_max > 0 {
            self.kept.insert(place, listed());
            if self.kept.len() > kept_max {
                self.kept.pop_last();
            }
        }
    }

    fn note_names(&mut self, records: &TraceRecords, root: &str) {
        for span in &records.spans {
            if self.services.len() < NAMES_MAX && !self.services.contains(&span.service) {
                self.services.insert(span.service.clone());
            }
        }
        if let Some(requests) = self.roots.get_mut(root) {
            *requests += 1;
        } else if self.roots.len() < NAMES_MAX {
            self.roots.insert(root.to_owned(), 1);
        }
    }

    fn merge(&mut self, other: Self, kept_max: usize) {
        self.searched += other.searched;
        self.matched += other.matched;
        self.unknown += other.unknown;
        self.kept.extend(other.kept);
        while self.kept.len() > kept_max {
            self.kept.pop_last();
        }
        self.services.extend(other.services);
        while self.services.len() > NAMES_MAX {
            self.services.pop_last();
        }
        for (root, requests) in other.roots {
            *self.roots.entry(root).or_default() += requests;
        }
        while self.roots.len() > NAMES_MAX {
            self.roots.pop_last();
        }
    }
}

/// The requests that are wanted. Reads the selected time once. `alignment` is how clocks are corrected, if they are.
///
/// # Errors
/// When the store cannot be read.
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
        if let Some(alignment) = alignment {
            alignment.apply(records);
        }
        worker.searched += 1;
        let root = records.root_name().into_owned();
        worker.note_names(records, &root);
        look(source, wanted, worker, records, root);
    };
    let (found, notes) = source.fold("listing requests", selection, &parts, workers, visit)?;
    let mut all = Worker::default();
    found
        .into_iter()
        .for_each(|part| all.merge(part, wanted.kept_max));
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

/// Keeps a request if it is wanted.
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
    worker.keep((Reverse(first), records.id.0), wanted.kept_max, || {
        let mut causes: Vec<&'static str> = reasons.iter().map(|reason| reason.cause()).collect();
        causes.dedup();
        let services: BTreeSet<&str> = records.spans.iter().map(|span| &*span.service).collect();
        ListedRequest {
            id: records.id.0,
            name: records.name.clone(),
            root,
            start_ns,
            latency_ns,
            spans: records.spans.len() as u64,
            services: services.len() as u64,
            causes,
            has_failed,
            is_sure: truth == Truth::True,
        }
    });
}

/// Whether the wanted service and operation are in it, and if both are wanted, in one span.
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
            && operation.is_none_or(|operation| is_operation(&span.service, &span.name, operation))
    })
}
