//! Table of the attributes of sampled requests on both sides of a change, which the data directory
//! may cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::compare::{Contrast, ContrastRequest, PartialChange, Period};
use stroboscope_analysis::explain::{ExplainedRequest, Incarnations, Parameter, Subject, Template};
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_store::tables::AttributeKeys;

use super::super::compare::PeriodOf;
use super::super::notes::Notes;
use super::super::query_error::QueryError;

/// Kind of the cache entries that hold tables of attributes.
pub(super) const SAID: &str = "said-5";

/// Table of attributes, in the form that is stored in the cache.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StatedAttributes {
    pub(super) what: String,
    pub(super) subject: Subject,
    pub(super) partial: Option<PartialChange>,
    pub(super) within: Option<Period>,
    /// True if the table has all requests of both sides.
    pub(super) is_whole: bool,
    parameters: Vec<(String, String)>,
    /// Indexes of the parameters that are identities of processes.
    identities: Vec<u32>,
    texts: Vec<String>,
    rows: Vec<Row>,
}

/// One request of the table. `is_mutation` is true on the changed side. `is_beyond` reports whether
/// a later request shows a partial change; it is `None` if the request is not compared for that.
/// `weight` is the number of requests that this one represents. `said` holds its attributes as
/// indexes into the lists of parameters and of texts.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    id: u128,
    start_ns: i64,
    is_mutation: bool,
    is_beyond: Option<bool>,
    weight: f64,
    latency_ns: u64,
    said: Vec<(u32, u32)>,
}

impl StatedAttributes {
    /// Reads the attributes of the sampled requests of each period from its source.
    pub(super) fn read(
        periods: [&PeriodOf; 2],
        contrast: &Contrast,
        what: String,
    ) -> Result<StatedAttributes, QueryError> {
        let mut said = StatedAttributes {
            what,
            subject: contrast.subject,
            partial: contrast.partial,
            within: contrast.within,
            is_whole: contrast.is_whole,
            parameters: Vec::new(),
            identities: Vec::new(),
            texts: Vec::new(),
            rows: Vec::new(),
        };
        let mut numbers = Numbers::default();
        let mut incarnations = Incarnations::default();
        for (period, is_later) in periods.into_iter().zip([false, true]) {
            let all = contrast.requests.iter();
            let of_period = all.filter(|request| request.is_later == is_later);
            let wanted: BTreeMap<TraceId, &ContrastRequest> =
                of_period.map(|request| (request.id, request)).collect();
            for found in requests(period, &wanted, &contrast.template)? {
                incarnations.merge(found.incarnations);
                for (request, is_beyond) in found.requests {
                    said.add(&mut numbers, request, is_beyond);
                }
            }
        }
        for parameter in incarnations.identities() {
            let parameter = (parameter.operation.to_string(), parameter.key.to_string());
            let number = numbers.of_parameter(&mut said.parameters, parameter);
            said.identities.push(number);
        }
        Ok(said)
    }

    fn add(&mut self, numbers: &mut Numbers, request: ExplainedRequest, is_beyond: Option<bool>) {
        let said_of = request.parameters.into_iter().map(|(parameter, text)| {
            let parameter = (parameter.operation.to_string(), parameter.key.to_string());
            (
                numbers.of_parameter(&mut self.parameters, parameter),
                numbers.of_text(&mut self.texts, &text),
            )
        });
        let said = said_of.collect();
        self.rows.push(Row {
            id: request.id.0,
            start_ns: request.start_ns,
            is_mutation: request.is_mutation,
            is_beyond,
            weight: request.weight,
            latency_ns: request.latency_ns,
            said,
        });
    }

    fn parameters(&self) -> Vec<Parameter> {
        let of = |(operation, key): &(String, String)| Parameter {
            operation: operation.as_str().into(),
            key: key.as_str().into(),
        };
        self.parameters.iter().map(of).collect()
    }

    /// Returns the parameters that are identities of processes.
    pub(super) fn identities(&self) -> impl Iterator<Item = Parameter> {
        let parameters = self.parameters();
        let of = self.identities.iter();
        of.filter_map(move |number| parameters.get(*number as usize).cloned())
    }

    /// Returns the requests. The flag reports whether a later request shows the partial change; it
    /// is `None` if the request is not compared for that.
    pub(super) fn requests(&self) -> Vec<(ExplainedRequest, Option<bool>)> {
        let texts: Vec<Arc<str>> = self.texts.iter().map(|text| text.as_str().into()).collect();
        let parameters = self.parameters();
        let rows = self.rows.iter().map(|row| {
            let request = ExplainedRequest {
                id: TraceId(row.id),
                start_ns: row.start_ns,
                is_mutation: row.is_mutation,
                weight: row.weight,
                latency_ns: row.latency_ns,
                parameters: row
                    .said
                    .iter()
                    .filter_map(|(parameter, text)| {
                        let parameter = parameters.get(*parameter as usize)?;
                        Some((parameter.clone(), texts.get(*text as usize)?.clone()))
                    })
                    .collect(),
            };
            (request, row.is_beyond)
        });
        rows.collect()
    }
}

/// Indexes of the parameters and texts already in the table.
#[derive(Default)]
struct Numbers {
    parameters: BTreeMap<(String, String), u32>,
    texts: BTreeMap<String, u32>,
}

impl Numbers {
    fn of_parameter(&mut self, all: &mut Vec<(String, String)>, of: (String, String)) -> u32 {
        *self.parameters.entry(of).or_insert_with_key(|of| {
            all.push(of.clone());
            all.len() as u32 - 1
        })
    }

    fn of_text(&mut self, all: &mut Vec<String>, text: &str) -> u32 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        all.push(text.to_owned());
        let number = all.len() as u32 - 1;
        self.texts.insert(text.to_owned(), number);
        number
    }
}

/// Requests found in a part of the store.
#[derive(Clone, Default)]
struct FoundRequests {
    requests: Vec<(ExplainedRequest, Option<bool>)>,
    incarnations: Incarnations,
}

/// Reads the wanted requests of a period with their attributes. Returns one element for each part
/// of the store, or none if no request is wanted.
fn requests(
    period: &PeriodOf,
    wanted: &BTreeMap<TraceId, &ContrastRequest>,
    template: &Template,
) -> Result<Vec<FoundRequests>, QueryError> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let (source, selection) = (&period.source, period.selection);
    let parts = source.parts(selection, &AttributeKeys::all())?;
    let workers = vec![FoundRequests::default(); parts.count()];
    let visit = |found: &mut FoundRequests, records: &mut TraceRecords, _: &mut Notes| {
        let Some(contrasted) = wanted.get(&records.id) else {
            return;
        };
        let said = template.said(records);
        found.incarnations.observe(contrasted.is_later, &said);
        let starts = records.spans.iter().map(|span| span.start_ns);
        let starts = starts.chain(records.events.iter().map(|event| event.ts_ns));
        let said = said.into_iter().map(|said| (said.parameter, said.text));
        let mut parameters: Vec<(Parameter, Arc<str>)> = said.collect();
        parameters.dedup();
        let request = ExplainedRequest {
            id: records.id,
            start_ns: starts.min().unwrap_or_default(),
            is_mutation: contrasted.is_mutation,
            weight: contrasted.weight,
            latency_ns: contrasted.latency_ns,
            parameters,
        };
        found.requests.push((request, contrasted.is_beyond));
    };
    // Ignores the notes, because the comparison has already taken notes about these requests.
    let (found, _) = source.fold("reading attributes", selection, &parts, workers, visit)?;
    Ok(found)
}
