//! What tells requests with a change from those without it.
//!
//! A tree is learned from a sample: the [table](StatedAttributes) of what its requests say is kept beside the store. All requests of the store
//! then say where the tree's thresholds lie and how precise it is; where the sample has all of them, nothing is read again.
//! `compare` and `explain` ask the same.

mod rows;
mod said;

use stroboscope_analysis::compare::{CompareSettings, Comparison, Contrast, PartialChange};
use stroboscope_analysis::explain::{
    ExplainSettings, ExplainedRequest, Explanation, LearnedTree, StoredRows,
};
use stroboscope_analysis::flow::FlowSettings;

use super::compare::{ComparedPeriods, PeriodOf, compare};
use super::infer_settings::InferSettings;
use super::notes::Notes;
use super::query_error::QueryError;
use rows::RowsQuestion;
use said::{SAID, StatedAttributes};

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

/// Reads the stored requests of both sides that the trees ask about.
type ReadRows<'a> = dyn Fn([Option<&LearnedTree>; 2]) -> Result<[StoredRows; 2], QueryError> + 'a;

impl Telling {
    /// Of a table of what requests say, and of all requests, which this reads for trees.
    fn of(
        said: &StatedAttributes,
        settings: &ExplainSettings,
        read: &ReadRows<'_>,
    ) -> Result<Telling, QueryError> {
        let settings = &ExplainSettings {
            subject: said.subject,
            ..settings.clone()
        };
        let requests = said.requests();
        // Later requests are of processes of one time: which of them is slow can be what is wrong.
        let among_later = said.partial.and_then(|partial| {
            let later = requests.iter().filter_map(|(request, is_beyond)| {
                Some(ExplainedRequest {
                    is_mutation: (*is_beyond)?,
                    ..request.clone()
                })
            });
            let later: Vec<ExplainedRequest> = later.collect();
            // Too few of either are no reason to say nothing of the periods. Where nothing tells them apart, chance may.
            let tree = LearnedTree::of(&later, settings).ok()?;
            tree.tells().then_some((partial, tree, later))
        });
        let settings = ExplainSettings {
            identities: said.identities().collect(),
            ..settings.clone()
        };
        let all: Vec<ExplainedRequest> = requests.into_iter().map(|of| of.0).collect();
        let tree = LearnedTree::of(&all, &settings)?;
        let later_tree = among_later.as_ref().map(|(_, tree, _)| tree);
        let tells = tree.tells() || later_tree.is_some();
        let [rows, later_rows] = if said.is_whole || !tells {
            let later = among_later
                .as_ref()
                .map(|(_, tree, later)| rows_of(tree, later));
            [rows_of(&tree, &all), later.unwrap_or_default()]
        } else {
            read([Some(&tree), later_tree])?
        };
        Ok(Telling {
            explanation: tree.explanation(&rows),
            among_later: among_later.map(|(partial, tree, _)| AmongLater {
                partial,
                explanation: tree.explanation(&later_rows),
            }),
        })
    }
}

/// What requests say of what a tree asks about.
fn rows_of(tree: &LearnedTree, requests: &[ExplainedRequest]) -> StoredRows {
    let mut rows = StoredRows::default();
    for request in requests {
        tree.observe(&mut rows, request.into(), &request.parameters);
    }
    rows
}

/// How periods are compared before something of that is explained.
#[derive(Clone, Copy, Debug)]
pub struct HowCompared<'a> {
    pub infer: &'a InferSettings,
    pub flow: FlowSettings,
    pub compare: &'a CompareSettings,
}

/// In words, what a comparison has found.
pub type Describe<'a> = &'a dyn Fn(&Comparison) -> String;

/// Explains a cause or a mutation; `describe` says in words what it is.
///
/// # Errors
/// When a store cannot be read, nothing such was found, or there are too few requests.
pub fn explain_change(
    periods: [&PeriodOf; 2],
    how: HowCompared<'_>,
    which: Explained,
    settings: &ExplainSettings,
    describe: Describe<'_>,
) -> Result<ExplainedChange, QueryError> {
    let kept = kept(periods, how, which);
    if let Some(said) = kept.filter(|said| said.is_whole) {
        let notes = periods[1].source.first_notes();
        let telling = Telling::of(&said, settings, &|_| Ok(Default::default()))?;
        return Ok(ExplainedChange {
            what: said.what,
            telling,
            notes,
        });
    }
    let compared = compare(periods, how.infer, how.flow, how.compare)?;
    let telling = explain_compared(periods, &compared, how, which, settings, describe)?;
    Ok(ExplainedChange {
        what: describe(&compared.comparison),
        telling,
        notes: compared.notes,
    })
}

/// Requests of both periods that are read again to explain a comparison that asked for no explanation, at most.
pub const EXPLAINED_MAX: u64 = 50_000;

/// Explains the first cause as [`explain_change`] does. None, where there is no cause, too few requests of it, or more requests than
/// [`EXPLAINED_MAX`].
///
/// # Errors
/// When a store cannot be read.
pub fn explain_first_cause(
    periods: [&PeriodOf; 2],
    compared: &ComparedPeriods,
    how: HowCompared<'_>,
    describe: Describe<'_>,
) -> Result<Option<Telling>, QueryError> {
    if compared.comparison.causes.is_empty() || compared.requests() > EXPLAINED_MAX {
        return Ok(None);
    }
    let settings = ExplainSettings::default();
    let first = Explained::Cause(1);
    match explain_compared(periods, compared, how, first, &settings, describe) {
        Ok(telling) => Ok(Some(telling)),
        Err(QueryError::Explain(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl ComparedPeriods {
    /// How many requests both periods have.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.before.flows.requests() + self.after.flows.requests()
    }
}

fn explain_compared(
    periods: [&PeriodOf; 2],
    compared: &ComparedPeriods,
    how: HowCompared<'_>,
    which: Explained,
    settings: &ExplainSettings,
    describe: Describe<'_>,
) -> Result<Telling, QueryError> {
    let contrast = contrast(compared, which)?;
    let said = match kept(periods, how, which) {
        Some(said) => said,
        None => {
            let said = StatedAttributes::read(periods, &contrast, describe(&compared.comparison))?;
            let (cache, asked) = (periods[1].source.cache(), asked(periods, how, which));
            let is_whole = compared.notes.damage.is_empty();
            if let (Some(cache), Some(asked), true) = (cache, &asked, is_whole) {
                cache.keep(SAID, asked, &said);
            }
            said
        }
    };
    let read = |trees: [Option<&LearnedTree>; 2]| {
        let mut rows = <[StoredRows; 2]>::default();
        for (at, (period, study)) in periods.iter().zip(&compared.studies).enumerate() {
            let found = study.ask(&RowsQuestion {
                contrast: &contrast,
                is_later: at == 1,
                trees,
                orders: &compared.orders,
                settings: how.flow,
                only: period.only.as_ref(),
            })?;
            for ((tree, rows), found) in trees.iter().zip(&mut rows).zip(found) {
                if let Some(tree) = tree {
                    tree.merge(rows, found);
                }
            }
        }
        Ok(rows)
    };
    Telling::of(&said, settings, &read)
}

/// The table that was kept of the same.
fn kept(
    periods: [&PeriodOf; 2],
    how: HowCompared<'_>,
    which: Explained,
) -> Option<StatedAttributes> {
    let asked = asked(periods, how, which)?;
    periods[1].source.cache()?.find(SAID, &asked)
}

/// What a table is kept by: all that it depends on, but for the store of the later period.
fn asked(periods: [&PeriodOf; 2], how: HowCompared<'_>, which: Explained) -> Option<String> {
    let of = |period: &PeriodOf| {
        let state = period.source.cache()?.state();
        Some(format!(
            "{state} {} {:?} {:?} {}",
            period.source.chosen(),
            period.selection,
            period.only,
            // With more memory there may be more traces.
            period.source.memory().trace_max()
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
