//! Explains the difference between requests with a change and those without it.
//!
//! Decision trees are learned from a sample of the requests. The [table](StatedAttributes) of their
//! attributes is cached in the data directory if the sources have caches and no file is damaged. As
//! many selected requests as [fit](StoredRows) then determine the trees' thresholds and precision,
//! unless the sample already contains them all or no tree distinguishes anything. `compare`,
//! `explain` and `report` share this code.

mod rows;
mod said;

use stroboscope_analysis::compare::{CompareSettings, Comparison, Contrast, PartialChange, Period};
use stroboscope_analysis::explain::{
    ExplainSettings, ExplainedRequest, Explanation, LearnedTree, StoredRows,
};
use stroboscope_analysis::flow::FlowSettings;

use super::compare::{ComparedPeriods, PeriodOf, compare};
use super::infer_settings::InferSettings;
use super::notes::Notes;
use super::query_error::QueryError;
use rows::{RowsQuestion, merge_rows};
use said::{SAID, StatedAttributes};

/// Subject of an explanation, by its rank among the causes or mutations of a comparison, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainSubject {
    Cause(usize),
    Mutation(usize),
}

/// Explanation of one change, with a description of the change.
#[derive(Debug)]
pub struct ExplainedChange {
    /// Description of the change in words.
    pub what: String,
    pub telling: Distinction,
    pub notes: Notes,
}

/// Differences between requests with a change and those without it.
#[derive(Debug)]
pub struct Distinction {
    /// Explanation of what distinguishes the changed requests from the unchanged ones. If times
    /// changed, the sides are the later and the earlier requests.
    pub explanation: Explanation,
    /// Period of the requests of both sides; `None` if they are of both periods. If it is the
    /// earlier period, the changed side has the structure that later vanished.
    pub within: Option<Period>,
    /// Explanation of what distinguishes the later requests that changed from the other later ones;
    /// `None` if the change is not partial, if there are too few requests, or if nothing
    /// distinguishes them.
    pub among_later: Option<AmongLater>,
}

/// Differences between the later requests that show a change and the other later ones.
#[derive(Debug)]
pub struct AmongLater {
    /// Rule that separates the later requests that changed from the others.
    pub partial: PartialChange,
    pub explanation: Explanation,
}

/// Function that reads, from all selected requests of both periods, the attributes that two trees
/// ask about: the tree of both sides, and the tree of later requests.
type ReadRows<'a> = dyn Fn([Option<&LearnedTree>; 2]) -> Result<[StoredRows; 2], QueryError> + 'a;

impl Distinction {
    /// Learns trees from a table of sampled requests. Reads all requests with `read` to evaluate
    /// the trees if the sample lacks some of them and a tree distinguishes something.
    fn of(
        said: &StatedAttributes,
        settings: &ExplainSettings,
        read: &ReadRows<'_>,
    ) -> Result<Distinction, QueryError> {
        let settings = &ExplainSettings {
            subject: said.subject,
            ..settings.clone()
        };
        let requests = said.requests();
        // This tree may use the identities of processes: all later requests had the same processes
        // to choose from, so a slow process may be the cause.
        let mut among_later = said.partial.and_then(|partial| {
            let later = requests.iter().filter_map(|(request, is_beyond)| {
                Some(ExplainedRequest {
                    is_mutation: (*is_beyond)?,
                    ..request.clone()
                })
            });
            let later: Vec<ExplainedRequest> = later.collect();
            // Errors are ignored here, because too few requests of either kind must not prevent the
            // explanation of the periods. A tree that distinguishes nothing is dropped.
            let tree = LearnedTree::of(&later, settings).ok()?;
            let earlier = requests.iter().filter(|of| of.1.is_none());
            let earlier = rows_of(&tree, earlier.map(|of| &of.0));
            let later = rows_of(&tree, &later);
            tree.tells().then_some((partial, tree, later, earlier))
        });
        let settings = ExplainSettings {
            identities: said.identities().collect(),
            ..settings.clone()
        };
        let all: Vec<ExplainedRequest> = requests.into_iter().map(|of| of.0).collect();
        let tree = LearnedTree::of(&all, &settings)?;
        let later_tree = among_later.as_ref().map(|(_, tree, ..)| tree);
        let tells = tree.tells() || later_tree.is_some();
        let [rows, later_rows] = if said.is_whole || !tells {
            let later = among_later.as_mut();
            let later = later.map(|(_, _, later, _)| std::mem::take(later));
            [rows_of(&tree, &all), later.unwrap_or_default()]
        } else {
            read([Some(&tree), later_tree])?
        };
        Ok(Distinction {
            explanation: tree.explanation(&rows, None),
            within: said.within,
            among_later: among_later.map(|(partial, tree, _, earlier)| AmongLater {
                partial,
                explanation: tree.explanation(&later_rows, Some(&earlier)),
            }),
        })
    }
}

/// Collects the attribute values that a tree asks about from these requests.
fn rows_of<'a>(
    tree: &LearnedTree,
    requests: impl IntoIterator<Item = &'a ExplainedRequest>,
) -> StoredRows {
    let mut rows = StoredRows::default();
    for request in requests {
        tree.observe(&mut rows, request.into(), &request.parameters);
    }
    rows
}

/// Settings of the comparison of periods that precedes an explanation.
#[derive(Clone, Copy, Debug)]
pub struct HowCompared<'a> {
    pub infer: &'a InferSettings,
    pub flow: FlowSettings,
    pub compare: &'a CompareSettings,
}

/// Function that describes a change that a comparison found.
pub type Describe<'a> = &'a dyn Fn(&Comparison) -> String;

/// Explains a cause or a mutation, which `describe` puts into words.
///
/// # Errors
/// Fails under the same conditions as [`compare`], if there is no such change, or if there are too
/// few requests.
pub fn explain_change(
    periods: [&PeriodOf; 2],
    how: HowCompared<'_>,
    which: ExplainSubject,
    settings: &ExplainSettings,
    describe: Describe<'_>,
) -> Result<ExplainedChange, QueryError> {
    let kept = kept(periods, how, which);
    if let Some(said) = kept.filter(|said| said.is_whole) {
        return Ok(ExplainedChange {
            telling: Distinction::of(&said, settings, &|_| Ok(Default::default()))?,
            what: said.what,
            notes: periods[1].source.first_notes(),
        });
    }
    let compared = compare(periods, how.infer, how.flow, how.compare)?;
    Ok(ExplainedChange {
        telling: explain_compared(periods, &compared, how, which, settings, describe)?,
        what: describe(&compared.comparison),
        notes: compared.notes,
    })
}

/// Maximum number of requests, of both periods together, for which a comparison also explains its
/// first cause. More requests take too long to read again.
pub const EXPLAINED_MAX: u64 = 50_000;

/// Explains the first cause like [`explain_change`]. Returns `None` if there is no cause, if it has
/// too few requests, or if the periods have more than [`EXPLAINED_MAX`] requests.
///
/// # Errors
/// Fails if a store cannot be read, or if there is too little memory.
pub fn explain_first_cause(
    periods: [&PeriodOf; 2],
    compared: &ComparedPeriods,
    how: HowCompared<'_>,
    describe: Describe<'_>,
) -> Result<Option<Distinction>, QueryError> {
    if compared.comparison.causes.is_empty() || compared.requests() > EXPLAINED_MAX {
        return Ok(None);
    }
    let settings = ExplainSettings::default();
    let first = ExplainSubject::Cause(1);
    match explain_compared(periods, compared, how, first, &settings, describe) {
        Ok(telling) => Ok(Some(telling)),
        Err(QueryError::Explain(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl ComparedPeriods {
    /// Returns the number of recorded requests that were compared, of both periods together.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.before.flows.requests() + self.after.flows.requests()
    }
}

fn explain_compared(
    periods: [&PeriodOf; 2],
    compared: &ComparedPeriods,
    how: HowCompared<'_>,
    which: ExplainSubject,
    settings: &ExplainSettings,
    describe: Describe<'_>,
) -> Result<Distinction, QueryError> {
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
            merge_rows(trees, &mut rows, found);
        }
        Ok(rows)
    };
    Distinction::of(&said, settings, &read)
}

/// Returns the table of attributes that an earlier, equal question left in the cache; `None` if
/// there is none.
fn kept(
    periods: [&PeriodOf; 2],
    how: HowCompared<'_>,
    which: ExplainSubject,
) -> Option<StatedAttributes> {
    let asked = asked(periods, how, which)?;
    periods[1].source.cache()?.find(SAID, &asked)
}

/// Returns the cache key of a table, which contains everything that the table's requests depend on;
/// `None` if a period's source has no cache.
fn asked(periods: [&PeriodOf; 2], how: HowCompared<'_>, which: ExplainSubject) -> Option<String> {
    let of = |period: &PeriodOf| {
        let state = &period.source.cache()?.state;
        Some(format!(
            "{state} {} {:?} {:?} {}",
            period.source.chosen(),
            period.selection,
            period.only,
            // With more memory, large traces may be included.
            period.source.memory.trace_max()
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

fn contrast(compared: &ComparedPeriods, which: ExplainSubject) -> Result<Contrast, QueryError> {
    let flows = [&compared.before.flows, &compared.after.flows];
    let comparison = &compared.comparison;
    let none = |kind, asked, found| QueryError::NoSuchChange { kind, asked, found };
    let at = |rank: usize| rank.checked_sub(1);
    match which {
        ExplainSubject::Cause(rank) => at(rank)
            .and_then(|at| comparison.causes.get(at))
            .map(|cause| Contrast::of_cause(cause, &comparison.edges, flows))
            .ok_or_else(|| none("cause", rank, comparison.causes.len())),
        ExplainSubject::Mutation(rank) => at(rank)
            .and_then(|at| comparison.mutations.get(at))
            .map(|mutation| Contrast::of_mutation(mutation, flows))
            .ok_or_else(|| none("mutation", rank, comparison.mutations.len())),
    }
}
