//! Attributes that distinguish failed requests from others of the same root operation, by a
//! decision tree as in `explain`.
//!
//! The pass that counts failures keeps a sample of the ids of failed requests and of others. The
//! attributes of some of these are read afterwards. Attributes that describe a failure or a
//! response are left out, because they explain nothing. Attributes of events are left out, because
//! they may describe the failure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stroboscope_analysis::explain::{
    ExplainSettings, ExplainedRequest, Explanation, Parameter, REQUESTS_MIN, Template, explain,
    place_of,
};
use stroboscope_analysis::failure::is_of_failure;
use stroboscope_analysis::flow::Operation;
use stroboscope_analysis::name_rule::normalise;
use stroboscope_analysis::record::{RecordOwner, SpanRecord, TraceId, TraceRecords};
use stroboscope_analysis::sampling::Weight;
use stroboscope_store::tables::AttributeKeys;

use super::super::notes::Notes;
use super::super::query_error::QueryError;
use super::super::search::keep_first;
use super::super::source::{Selection, Source};

/// Maximum number of requests of one outcome and root operation that are kept.
const KEPT_MAX: usize = 2_048;
/// Maximum number of kept requests of one outcome and root operation whose attributes are read.
const READ_MAX: usize = 512;
/// Maximum number of root operations whose failed requests are compared with others. Among those
/// with enough requests of both kinds, those with the most failed requests are chosen.
const ROOTS_MAX: usize = 3;

/// Pseudo-random sample of requests: the [`KEPT_MAX`] requests whose ids have the smallest hashes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RequestSample {
    /// Weight and start in ns of each kept request, by the hash of its id and the id.
    kept: BTreeMap<(u64, TraceId), (Weight, i64)>,
    requests: u64,
}

impl RequestSample {
    pub(super) fn observe(&mut self, id: TraceId, weight: Weight, start_ns: i64) {
        self.requests += 1;
        self.kept.insert((place_of(id, 0), id), (weight, start_ns));
        keep_first(&mut self.kept, KEPT_MAX);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.kept.extend(other.kept);
        keep_first(&mut self.kept, KEPT_MAX);
    }

    /// Returns at most [`READ_MAX`] of the kept requests that began at `from_ns` or later, and the
    /// number of observed requests for which each of them stands.
    fn since(&self, from_ns: i64) -> (Vec<(TraceId, Weight)>, f64) {
        let kept = self.kept.iter();
        let later = kept.filter(|(_, (_, start_ns))| *start_ns >= from_ns);
        let mut later: Vec<_> = later.map(|((_, id), (weight, _))| (*id, *weight)).collect();
        let kept = later.len();
        later.truncate(READ_MAX);
        let each = self.requests as f64 / self.kept.len().max(1) as f64;
        let each = each * kept as f64 / later.len().max(1) as f64;
        (later, each)
    }
}

/// Differences between failed requests of a root operation and others.
#[derive(Clone, Debug)]
pub struct FailedApart {
    pub root: String,
    /// Explanation in which failed requests are the changed side.
    pub explanation: Explanation,
}

/// Sampled request whose attributes are read.
struct WantedRequest {
    /// Index of the request's root operation among those that are explained.
    root: usize,
    has_failed: bool,
    weight: f64,
}

/// Root operation, the samples of its requests that did not fail and of its failed ones, and the
/// time in ns from which requests count.
type RootSamples<'a> = (&'a str, &'a [RequestSample; 2], i64);

/// Finds the differences between failed requests and others. Reads only the pages of files that may
/// contain sampled requests, unless the store has connections or declared requests.
pub(super) fn tell_apart<'a>(
    source: &Source,
    selection: Selection,
    roots: impl Iterator<Item = RootSamples<'a>>,
) -> Result<Vec<FailedApart>, QueryError> {
    let later = roots.map(|(root, samples, from_ns)| {
        let later = samples.each_ref().map(|sample| sample.since(from_ns));
        (root, later)
    });
    let enough = later.filter(|(_, samples)| samples.iter().all(|of| of.0.len() >= REQUESTS_MIN));
    let roots: Vec<_> = enough.take(ROOTS_MAX).collect();
    let mut wanted: BTreeMap<TraceId, WantedRequest> = BTreeMap::new();
    for (root, (_, samples)) in roots.iter().enumerate() {
        for ((sample, each), has_failed) in samples.iter().zip([false, true]) {
            wanted.extend(sample.iter().map(|(id, weight)| {
                let of_request = WantedRequest {
                    root,
                    has_failed,
                    weight: each * weight.value(),
                };
                (*id, of_request)
            }));
        }
    }
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = source.parts(selection, &AttributeKeys::all())?;
    // A request divided from a trace has an id of its own, by which the store cannot find it.
    if source.connections.is_empty() {
        parts = parts.only(wanted.keys().map(|id| id.0).collect());
    }
    let workers = vec![vec![Vec::new(); roots.len()]; parts.count()];
    let visit =
        |found: &mut Vec<Vec<ExplainedRequest>>, records: &mut TraceRecords, _: &mut Notes| {
            if let Some(wanted) = wanted.get(&records.id) {
                found[wanted.root].push(explained(records, wanted));
            }
        };
    let what = "reading attributes of failed requests";
    let (workers, _) = source.fold(what, selection, &parts, workers, visit)?;
    let mut apart = Vec::new();
    for (at, (root, ..)) in roots.into_iter().enumerate() {
        let of_root = workers.iter().flat_map(|found| found[at].iter().cloned());
        let requests: Vec<ExplainedRequest> = of_root.collect();
        if let Ok(explanation) = explain(&requests, &ExplainSettings::default()) {
            let root = root.to_owned();
            apart.push(FailedApart { root, explanation });
        }
    }
    Ok(apart)
}

/// Returns a request with the attributes of its spans, except those that describe its failure or
/// response.
fn explained(records: &mut TraceRecords, wanted: &WantedRequest) -> ExplainedRequest {
    records
        .attributes
        .retain(|said| matches!(said.owner, RecordOwner::Span(_)) && !is_of_failure(&said.key));
    let operation = |span: &SpanRecord| Operation {
        service: span.service.clone(),
        name: normalise(&span.name).into(),
        host: None,
    };
    let operations: BTreeSet<Operation> = records.spans.iter().map(operation).collect();
    let said = Template::new(&operations, None, false).said(records);
    let starts = records.spans.iter().map(|span| span.start_ns);
    let start_ns = starts.min().unwrap_or_default();
    let ends = records.spans.iter().map(|span| span.end_ns);
    let end_ns = ends.max().unwrap_or(start_ns);
    let said = said.into_iter().map(|said| (said.parameter, said.text));
    let mut parameters: Vec<(Parameter, Arc<str>)> = said.collect();
    parameters.dedup();
    ExplainedRequest {
        id: records.id,
        start_ns,
        latency_ns: end_ns.abs_diff(start_ns),
        is_mutation: wanted.has_failed,
        weight: wanted.weight,
        parameters,
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::{AttributeRecord, SpanFlags};

    use super::*;

    #[test]
    fn samples_of_parts_are_those_of_the_whole() {
        let sample = |ids: std::ops::Range<u128>| {
            let mut sample = RequestSample::default();
            ids.for_each(|id| sample.observe(TraceId(id), Weight::ONE, id as i64));
            sample
        };
        let mut merged = sample(2_000..6_000);
        merged.merge(sample(0..2_000));
        assert_eq!(merged, sample(0..6_000));
        assert_eq!((merged.kept.len(), merged.requests), (KEPT_MAX, 6_000));
        // The sample is not biased towards the first ids.
        let early = merged.kept.keys().filter(|(_, id)| id.0 < 3_000).count();
        assert!((900..1_150).contains(&early), "{early}");
        // Enough requests are in the last twentieth, and they stand for about as many as there
        // were.
        let (late, each) = merged.since(5_700);
        assert!((70..140).contains(&late.len()), "{}", late.len());
        assert!((each - 6_000.0 / KEPT_MAX as f64).abs() < 1e-9, "{each}");
        let (all, each) = merged.since(0);
        assert_eq!((all.len(), each), (READ_MAX, 6_000.0 / READ_MAX as f64));
        assert_eq!(sample(0..10).since(0).1, 1.0);
    }

    #[test]
    fn failures_and_events_say_nothing_of_themselves() {
        let said = |owner, key: &str| AttributeRecord {
            owner,
            key: key.into(),
            value: "x".into(),
        };
        let span = SpanRecord {
            span_id: 1,
            parent_id: 0,
            service: "web".into(),
            name: "GET /7".into(),
            host: "".into(),
            process: 1,
            start_ns: 5,
            end_ns: 9,
            flags: SpanFlags(0),
            events: Vec::new(),
        };
        let mut records = TraceRecords {
            spans: vec![span],
            attributes: vec![
                said(RecordOwner::Span(1), "tenant"),
                said(RecordOwner::Span(1), "error.type"),
                said(RecordOwner::InSpan(1, 0), "level"),
            ],
            ..TraceRecords::default()
        };
        let wanted = WantedRequest {
            root: 0,
            has_failed: true,
            weight: 2.0,
        };
        let found = explained(&mut records, &wanted);
        let said: Vec<String> = found.parameters.iter().map(|of| of.0.to_string()).collect();
        assert_eq!(said, [" (web:GET /*)", "tenant (web:GET /*)"]);
        assert_eq!(
            (found.start_ns, found.weight, found.is_mutation),
            (5, 2.0, true)
        );
    }
}
