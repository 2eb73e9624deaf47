//! What tells requests with a change from those without it.
//!
//! The table of what requests say is kept beside the store: leaving a parameter out reads nothing again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::compare::{
    CompareSettings, Comparison, Contrast, Contrasted, PartialChange,
};
use stroboscope_analysis::explain::{
    ExplainError, ExplainSettings, ExplainedRequest, Explanation, Parameter, Template, explain,
};
use stroboscope_analysis::flow::FlowSettings;
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_store::tables::AttributeKeys;

use super::compare::{ComparedPeriods, PeriodOf, compare};
use super::infer::InferSettings;
use super::notes::Notes;
use super::query_error::QueryError;
use super::source::Source;

/// The kind of entry that tables are kept as.
const SAID: &str = "said-2";

/// What is to be explained, by its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explained {
    Cause(usize),
    Mutation(usize),
}

/// An explanation, and of what.
#[derive(Debug)]
pub struct ExplainedChange {
    /// What changed, in words.
    pub what: String,
    pub telling: Telling,
    pub notes: Notes,
}

/// What tells requests with a change from those without it.
#[derive(Debug)]
pub struct Telling {
    /// Both sides of the change. Where times changed: later requests from earlier ones.
    pub explanation: Explanation,
    /// Where times of a part of the later requests changed only, and something tells this part from the others.
    pub among_later: Option<AmongLater>,
}

/// What tells the later requests that a change is seen in from the other later ones.
#[derive(Debug)]
pub struct AmongLater {
    /// Which these are.
    pub partial: PartialChange,
    pub explanation: Explanation,
}

impl Telling {
    /// Of requests, each with whether it is beyond the partial change, if there is one.
    fn of(
        requests: Vec<ExplainedRequest>,
        beyond: Vec<Option<bool>>,
        partial: Option<PartialChange>,
        settings: &ExplainSettings,
    ) -> Result<Telling, ExplainError> {
        let explanation = explain(&requests, settings)?;
        let later = requests.into_iter().zip(beyond);
        let later: Vec<ExplainedRequest> = later
            .filter_map(|(request, is_beyond)| {
                Some(ExplainedRequest {
                    is_mutation: is_beyond?,
                    ..request
                })
            })
            .collect();
        // Too few of either are no reason to say nothing of the periods. Where nothing tells them apart, chance may.
        let among_later = partial.and_then(|partial| {
            let explanation = explain(&later, settings).ok()?;
            (!explanation.leaves.is_empty()).then_some(AmongLater {
                partial,
                explanation,
            })
        });
        Ok(Telling {
            explanation,
            among_later,
        })
    }
}

/// A table, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    what: String,
    partial: Option<PartialChange>,
    parameters: Vec<(String, String)>,
    texts: Vec<String>,
    rows: Vec<Row>,
}

/// A request: its id, when it began, whether it is of the changed side, whether it is beyond a partial change, and what it
/// says, by places in the lists.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    id: u128,
    start_ns: i64,
    is_mutation: bool,
    is_beyond: Option<bool>,
    said: Vec<(u32, u32)>,
}

/// How periods are compared before something of that is explained.
#[derive(Clone, Copy, Debug)]
pub struct HowCompared<'a> {
    pub infer: &'a InferSettings,
    pub flow: FlowSettings,
    pub compare: &'a CompareSettings,
}

/// Explains a cause or a mutation; `describe` says in words what it is.
///
/// # Errors
/// When a store cannot be read, nothing such was found, or there are too few requests.
pub fn explain_change(
    periods: [&PeriodOf; 2],
    how: HowCompared<'_>,
    which: Explained,
    settings: &ExplainSettings,
    describe: &dyn Fn(&Comparison) -> String,
) -> Result<ExplainedChange, QueryError> {
    let asked = asked(periods, how, which);
    let cache = periods[1].source.cache();
    let kept = cache.and_then(|cache| cache.find::<Said>(SAID, asked.as_deref()?));
    let (said, notes) = match kept {
        Some(said) => (said, periods[1].source.first_notes()),
        None => {
            let compared = compare(periods, how.infer, how.flow, how.compare)?;
            let contrast = contrast(&compared, which)?;
            let what = describe(&compared.comparison);
            let said = read(periods, &contrast, what)?;
            let is_whole = compared.notes.damage.is_empty();
            if let (Some(cache), Some(asked), true) = (cache, &asked, is_whole) {
                cache.keep(SAID, asked, &said);
            }
            (said, compared.notes)
        }
    };
    let beyond = said.rows.iter().map(|row| row.is_beyond).collect();
    let telling = Telling::of(said.requests(), beyond, said.partial, settings)?;
    Ok(ExplainedChange {
        what: said.what,
        telling,
        notes,
    })
}

/// Requests of each side that are looked up one by one, at most
const BRIEF_MAX: usize = 120;
/// and at least: of fewer, the tree learns nothing that others could judge.
const BRIEF_MIN: usize = 16;
/// Each is looked for in each file that may have it: so many times at most, which is half a second.
const LOOKED_MAX: usize = 1_000;

/// Explains the first cause by a few requests of it, each looked up by its id; nothing, where there are too few, or the store is of
/// many files: [`explain_change`] reads them all.
///
/// # Errors
/// When a store cannot be read.
pub fn explain_briefly(
    periods: [&PeriodOf; 2],
    compared: &ComparedPeriods,
) -> Result<Option<Telling>, QueryError> {
    let Ok(contrast) = contrast(compared, Explained::Cause(1)) else {
        return Ok(None);
    };
    let mut files = 1;
    for period in periods {
        let parts = period
            .source
            .parts(period.selection, &AttributeKeys::none())?;
        files = files.max(parts.files().0);
    }
    let most = (LOOKED_MAX / 2 / files).min(BRIEF_MAX);
    if most < BRIEF_MIN {
        return Ok(None);
    }
    let (mut found, mut beyond) = (Vec::new(), Vec::new());
    for is_mutation in [false, true] {
        let of_side = contrast
            .requests
            .iter()
            .filter(|request| request.is_mutation == is_mutation);
        let mut of_side: Vec<&Contrasted> = of_side.collect();
        // Ids of one source may be in order; these are in none.
        of_side.sort_by_key(|request| (request.id.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        of_side.truncate(most);
        for (period, is_later) in periods.into_iter().zip([false, true]) {
            let wanted = of_side
                .iter()
                .filter(|request| request.is_later == is_later);
            let wanted: BTreeMap<TraceId, Option<bool>> = wanted
                .map(|request| (request.id, request.is_beyond))
                .collect();
            let ids: Vec<u128> = wanted.keys().map(|id| id.0).collect();
            for records in &period.source.traces(&ids, period.selection)? {
                found.push(said_by(records, is_mutation, &contrast.template));
                beyond.push(wanted.get(&records.id).copied().flatten());
            }
        }
    }
    let settings = ExplainSettings::default();
    Ok(Telling::of(found, beyond, contrast.partial, &settings).ok())
}

/// A request of a side, and what it says.
fn said_by(records: &TraceRecords, is_mutation: bool, template: &Template) -> ExplainedRequest {
    let starts = records.spans.iter().map(|span| span.start_ns);
    let starts = starts.chain(records.events.iter().map(|event| event.ts_ns));
    ExplainedRequest {
        id: records.id,
        start_ns: starts.min().unwrap_or_default(),
        is_mutation,
        parameters: template.said(records),
    }
}

/// What a table is kept by: all that it depends on, but for the store of the later period.
fn asked(periods: [&PeriodOf; 2], how: HowCompared<'_>, which: Explained) -> Option<String> {
    let of = |period: &PeriodOf| {
        let state = period.source.cache()?.state();
        let (root, filter) = (period.source.root(), period.source.filter());
        Some(format!(
            "{state} {root:?} {filter:?} {:?} {:?}",
            period.selection, period.only
        ))
    };
    Some(format!(
        "{} {} {} {} {:?} {:?} {which:?}",
        of(periods[0])?,
        of(periods[1])?,
        how.infer.asked(),
        how.infer.tolerance,
        how.flow,
        how.compare,
    ))
}

fn contrast(compared: &ComparedPeriods, which: Explained) -> Result<Contrast, QueryError> {
    let flows = [&compared.before.flows, &compared.after.flows];
    let comparison = &compared.comparison;
    let none = |kind, asked, found| QueryError::NoSuchChange { kind, asked, found };
    let at = |rank: usize| rank.checked_sub(1);
    match which {
        Explained::Cause(rank) => at(rank)
            .and_then(|at| comparison.causes.get(at))
            .map(|cause| Contrast::of_cause(cause, &comparison.edges, flows))
            .ok_or_else(|| none("cause", rank, comparison.causes.len())),
        Explained::Mutation(rank) => at(rank)
            .and_then(|at| comparison.mutations.get(at))
            .map(|mutation| Contrast::of_mutation(mutation, flows))
            .ok_or_else(|| none("mutation", rank, comparison.mutations.len())),
    }
}

/// Reads what the requests say, of either period from its source.
fn read(periods: [&PeriodOf; 2], contrast: &Contrast, what: String) -> Result<Said, QueryError> {
    let mut said = Said {
        what,
        partial: contrast.partial,
        parameters: Vec::new(),
        texts: Vec::new(),
        rows: Vec::new(),
    };
    let mut numbers = Numbers::default();
    for (period, is_later) in periods.into_iter().zip([false, true]) {
        let of_period = contrast
            .requests
            .iter()
            .filter(|request| request.is_later == is_later);
        let wanted: BTreeMap<TraceId, &Contrasted> =
            of_period.map(|request| (request.id, request)).collect();
        let found = requests(&period.source, period, &wanted, &contrast.template)?;
        for request in found {
            let said_of = request.parameters.into_iter().map(|(parameter, text)| {
                let parameter = (parameter.operation.to_string(), parameter.key.to_string());
                (
                    numbers.of_parameter(&mut said.parameters, parameter),
                    numbers.of_text(&mut said.texts, &text),
                )
            });
            let said_of = said_of.collect();
            said.rows.push(Row {
                id: request.id.0,
                start_ns: request.start_ns,
                is_mutation: request.is_mutation,
                is_beyond: wanted.get(&request.id).and_then(|of| of.is_beyond),
                said: said_of,
            });
        }
    }
    Ok(said)
}

/// The places of what is said already.
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

impl Said {
    fn requests(&self) -> Vec<ExplainedRequest> {
        let texts: Vec<std::sync::Arc<str>> =
            self.texts.iter().map(|text| text.as_str().into()).collect();
        let parameters: Vec<Parameter> = self
            .parameters
            .iter()
            .map(|(operation, key)| Parameter {
                operation: operation.as_str().into(),
                key: key.as_str().into(),
            })
            .collect();
        let rows = self.rows.iter().map(|row| ExplainedRequest {
            id: TraceId(row.id),
            start_ns: row.start_ns,
            is_mutation: row.is_mutation,
            parameters: row
                .said
                .iter()
                .filter_map(|(parameter, text)| {
                    let parameter = parameters.get(*parameter as usize)?;
                    Some((parameter.clone(), texts.get(*text as usize)?.clone()))
                })
                .collect(),
        });
        rows.collect()
    }
}

/// Those of a source that are wanted, in order of their ids, with what they say.
fn requests(
    source: &Source,
    period: &PeriodOf,
    wanted: &BTreeMap<TraceId, &Contrasted>,
    template: &Template,
) -> Result<Vec<ExplainedRequest>, QueryError> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let parts = source.parts(period.selection, &AttributeKeys::all())?;
    let workers = vec![Vec::new(); parts.count()];
    let visit = |found: &mut Vec<ExplainedRequest>, records: &mut TraceRecords, _: &mut Notes| {
        if let Some(contrasted) = wanted.get(&records.id) {
            found.push(said_by(records, contrasted.is_mutation, template));
        }
    };
    // What there is to note was noted when the periods were compared.
    let (found, _) = source.fold(
        "reading what is said",
        period.selection,
        &parts,
        workers,
        visit,
    );
    Ok(found.into_iter().flatten().collect())
}
