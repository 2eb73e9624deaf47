//! Converts parameters of requests to a table of columns for a decision tree.

use super::identity::{is_named, is_of_library};
use super::{ExplainSettings, ExplainedRequest, Parameter, Unseen};
use crate::decision_tree::{Column, Table, Values};
use crate::statistics::correlation;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Maximum number of recorded parameters that are considered. The facts that operations ran do not
/// count.
pub const PARAMETERS_MAX: usize = 256;

/// Reason why an explanation ignores a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The user asked to ignore the parameter.
    Asked,
    /// The parameter is an identity, such as of a process, a thread, a connection or a request.
    NamesProcess,
    /// The parameter describes the library that records.
    OfLibrary,
    /// The parameter describes a failure or a response, and the explained change is a change of
    /// failures.
    OfFailure,
    /// The parameter is a measured time, and the explained change is a change of latency.
    Duration,
    /// The parameter has ten or more values, and at least nine tenths of them are distinct. If the
    /// values are numbers, nine tenths of them must also be integers with a magnitude of at least
    /// 2⁵³, too large to be measurements.
    DiffersAlways,
    /// The parameter's numbers grow or fall with the start times of requests in each category with
    /// enough numbers to judge, or are Unix times within an hour of their requests' starts. The
    /// parameter is a timestamp or a counter.
    FollowsTime,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Asked => "as asked for",
            Why::NamesProcess => "names a process, a thread or a connection",
            Why::OfLibrary => "describes the tracing library",
            Why::OfFailure => "describes the failure",
            Why::Duration => "is a measured time",
            Why::DiffersAlways => "is different in nearly every request",
            Why::FollowsTime => "follows the time",
        })
    }
}

/// A parameter that an explanation ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The parameter.
    pub parameter: Parameter,
    /// Reason for ignoring it.
    pub why: Why,
}

/// Minimum number of values to test for distinctness or order. Fewer may pass by chance.
const DIFFERENT_OF_MIN: usize = 10;
/// Minimum fraction of distinct values, and of large integers among numbers, of a parameter that
/// differs in nearly every request.
const DIFFERENT_MIN: f64 = 0.9;
/// 2⁵³, the magnitude from which not every integer has an exact `f64`.
const MEASURE_MAX: f64 = 9_007_199_254_740_992.0;
/// Minimum rank correlation with time of a parameter that follows the time, relative to the best
/// possible one.
const FOLLOWS_MIN: f64 = 0.9;

/// Minimum number of distinct values of a parameter that follows the time.
const STEPS_MIN: usize = 5;
/// Minimum rank correlation with time that the values must be able to reach in their best order,
/// for the test to apply.
const ORDERED_MIN: f64 = 0.8;

/// Source of a column of the table: the value of a parameter, or the fact that it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TableColumn {
    Value(Parameter),
    Recorded(Parameter),
}

pub(super) const RECORDED: &str = "recorded";
pub(super) const NOT_RECORDED: &str = "not recorded";

/// Parameters of the requests, as a table.
pub(super) struct Parameters {
    pub(super) table: Table,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) unseen: Unseen,
    pub(super) asked: Vec<TableColumn>,
}

impl Parameters {
    pub(super) fn of(requests: &[&ExplainedRequest], settings: &ExplainSettings) -> Parameters {
        let mut unseen = Unseen::default();
        let (mut left_out, mut asked, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (parameter, said) in texts(requests, &mut unseen) {
            let numbers = numbers(&said);
            if let Some(why) = why_not(&parameter, &said, numbers.as_deref(), requests, settings) {
                left_out.push(LeftOut { parameter, why });
                continue;
            }
            let name: Arc<str> = parameter.to_string().into();
            // Adds a column for whether the value is known, if it is unknown for some requests.
            if said.iter().any(Option::is_none) {
                let is_recorded = |text: &Option<Arc<str>>| match text {
                    Some(_) => Some(RECORDED.into()),
                    None => Some(NOT_RECORDED.into()),
                };
                let recorded: Vec<Option<Arc<str>>> = said.iter().map(is_recorded).collect();
                let (name, (values, _)) = (name.clone(), Values::of_texts(&recorded));
                columns.push(Column { name, values });
                asked.push(TableColumn::Recorded(parameter.clone()));
            }
            let values = match numbers {
                Some(numbers) => Values::Numbers(numbers),
                None => {
                    let (values, others) = Values::of_texts(&said);
                    unseen.texts += others;
                    values
                }
            };
            columns.push(Column { name, values });
            asked.push(TableColumn::Value(parameter));
        }
        let classes = requests.iter().map(|request| request.is_mutation).collect();
        Parameters {
            // Every column has one row per request, so `Table::new` does not fail.
            table: Table::new(columns, classes).unwrap_or_default(),
            left_out,
            unseen,
            asked,
        }
    }

    /// Returns the parameters whose values are columns.
    pub(super) fn asked_about(&self) -> Vec<Parameter> {
        let of = self.asked.iter().filter_map(|asked| match asked {
            TableColumn::Value(parameter) => Some(parameter.clone()),
            TableColumn::Recorded(_) => None,
        });
        of.collect()
    }
}

/// Returns the value of each parameter in each request, for at most [`PARAMETERS_MAX`] recorded
/// ones. A value is `None` if the request records none or several texts. A parameter becomes two,
/// the largest and the smallest number, if all its values are numbers and any request has several.
/// Omits the facts that operations ran, and parameters of operations that did not run in nearly all
/// requests of both categories.
fn texts(
    requests: &[&ExplainedRequest],
    unseen: &mut Unseen,
) -> BTreeMap<Parameter, Vec<Option<Arc<str>>>> {
    let mut counts: BTreeMap<&Parameter, usize> = BTreeMap::new();
    for (parameter, _) in requests.iter().flat_map(|request| &request.parameters) {
        *counts.entry(parameter).or_default() += 1;
    }
    let in_all = in_all_of_both(requests);
    let is_asked = |of: &Parameter| !of.key.is_empty() && in_all(&of.operation);
    let counts = counts.into_iter();
    let mut kept: Vec<(&Parameter, usize)> = counts.filter(|(of, _)| is_asked(of)).collect();
    kept.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    unseen.parameters += kept.len().saturating_sub(PARAMETERS_MAX);
    kept.truncate(PARAMETERS_MAX);
    let kept = kept.into_iter().map(|(parameter, _)| parameter);
    let cells = kept.map(|parameter| (parameter, vec![Vec::new(); requests.len()]));
    let mut cells: BTreeMap<&Parameter, Vec<Vec<&Arc<str>>>> = cells.collect();
    for (row, request) in requests.iter().enumerate() {
        for (parameter, text) in &request.parameters {
            if let Some(cells) = cells.get_mut(parameter)
                && !cells[row].contains(&text)
            {
                cells[row].push(text);
            }
        }
    }
    let mut said = BTreeMap::new();
    for (parameter, cells) in cells {
        let several = cells.iter().filter(|cell| cell.len() > 1).count();
        if several > 0 && cells.iter().flatten().all(|text| number(text).is_some()) {
            let extreme = |is_less: bool| -> Vec<Option<Arc<str>>> {
                let of = |cell: &Vec<&Arc<str>>| {
                    let by = |a: &&&Arc<str>, b: &&&Arc<str>| {
                        number(a).partial_cmp(&number(b)).unwrap_or(Ordering::Equal)
                    };
                    let found = match is_less {
                        true => cell.iter().min_by(by),
                        false => cell.iter().max_by(by),
                    };
                    found.map(|text| (*text).clone())
                };
                cells.iter().map(of).collect()
            };
            said.insert(parameter.of_several(LARGEST), extreme(false));
            said.insert(parameter.of_several(SMALLEST), extreme(true));
            continue;
        }
        unseen.several_values += several;
        let only =
            |cell: Vec<&Arc<str>>| cell.first().filter(|_| cell.len() == 1).copied().cloned();
        said.insert(parameter.clone(), cells.into_iter().map(only).collect());
    }
    said
}

/// Minimum fraction of each category's requests in which an operation must have run for its
/// attributes to be considered.
const RAN_MIN: f64 = 0.95;

/// Returns a predicate that reports whether an operation ran in nearly all requests of both
/// categories. An operation whose runs are not recorded counts as one that ran in all. Attributes
/// of an operation that ran only in some requests would separate requests by their structure, which
/// is already known.
fn in_all_of_both(requests: &[&ExplainedRequest]) -> impl Fn(&Arc<str>) -> bool {
    let mut ran: BTreeMap<Arc<str>, [usize; 2]> = BTreeMap::new();
    let mut all = [0; 2];
    for request in requests {
        let class = usize::from(request.is_mutation);
        all[class] += 1;
        for (parameter, _) in &request.parameters {
            if parameter.key.is_empty() {
                ran.entry(parameter.operation.clone()).or_default()[class] += 1;
            }
        }
    }
    move |operation| {
        let is_enough = |ran: usize, all: usize| ran as f64 >= RAN_MIN * all as f64;
        let ran = ran.get(operation);
        ran.is_none_or(|ran| is_enough(ran[0], all[0]) && is_enough(ran[1], all[1]))
    }
}

/// Prefix of the name of a parameter that holds the largest of several numbers per request.
pub(super) const LARGEST: &str = "largest ";
/// Prefix of the name of a parameter that holds the smallest of several numbers per request.
pub(super) const SMALLEST: &str = "smallest ";

impl Parameter {
    fn of_several(&self, which: &str) -> Parameter {
        Parameter {
            operation: self.operation.clone(),
            key: format!("{which}{}", self.key).into(),
        }
    }

    /// Returns the parameter without the prefix for the largest or smallest of several numbers,
    /// even if its recorded name begins with that prefix.
    pub fn recorded(&self) -> Parameter {
        let key = &*self.key;
        let of_several = key.strip_prefix(LARGEST).or(key.strip_prefix(SMALLEST));
        Parameter {
            operation: self.operation.clone(),
            key: of_several.map_or_else(|| self.key.clone(), Arc::from),
        }
    }
}

pub(super) fn number(text: &str) -> Option<f64> {
    let number: f64 = text.trim().parse().ok()?;
    number.is_finite().then_some(number)
}

/// Parses all texts as numbers. Returns `None` if any text is not a number.
fn numbers(said: &[Option<Arc<str>>]) -> Option<Vec<Option<f64>>> {
    let numbers = said.iter().map(|text| match text {
        None => Some(None),
        Some(text) => number(text).map(Some),
    });
    numbers.collect()
}

fn why_not(
    parameter: &Parameter,
    said: &[Option<Arc<str>>],
    numbers: Option<&[Option<f64>]>,
    requests: &[&ExplainedRequest],
    settings: &ExplainSettings,
) -> Option<Why> {
    let recorded = parameter.recorded();
    let names = [parameter, &recorded].map(|of| [of.key.to_string(), of.to_string()]);
    let mut names = names.iter().flatten();
    if names.any(|name| settings.without.contains(name)) {
        return Some(Why::Asked);
    }
    if is_named(&recorded.key) || settings.identities.contains(&recorded) {
        return Some(Why::NamesProcess);
    }
    if is_of_library(&recorded.key) {
        return Some(Why::OfLibrary);
    }
    if let Some(consequence) = settings.subject.consequence(&recorded.key) {
        return Some(consequence);
    }
    let recorded = said.iter().flatten().count();
    let different = said.iter().flatten().collect::<BTreeSet<_>>().len();
    let differs =
        recorded >= DIFFERENT_OF_MIN && different as f64 >= DIFFERENT_MIN * recorded as f64;
    let Some(numbers) = numbers else {
        return differs.then_some(Why::DiffersAlways);
    };
    let pairs = |class: Option<bool>| -> Vec<(i64, f64)> {
        let rows = requests.iter().zip(numbers);
        rows.filter(|(request, _)| class.is_none_or(|class| request.is_mutation == class))
            .filter_map(|(request, number)| Some((request.start_ns, (*number)?)))
            .collect()
    };
    // If the test does not apply to one category, as for lack of values, the other decides.
    let follows = [false, true].map(|class| follows_time(&pairs(Some(class))));
    let has_order = follows.contains(&Some(true)) && !follows.contains(&Some(false));
    if has_order || are_times(&pairs(None)) {
        return Some(Why::FollowsTime);
    }
    // Not all of the numbers need be large, as random ids are sometimes small.
    let is_id = |number: &&f64| number.fract() == 0.0 && number.abs() >= MEASURE_MAX;
    let ids = numbers.iter().flatten().filter(is_id).count();
    (differs && ids as f64 >= DIFFERENT_MIN * recorded as f64).then_some(Why::DiffersAlways)
}

/// Reports whether numbers follow the start times. Returns `None` if there are too few numbers, too
/// few distinct ones, or too many equal ones or equal times.
fn follows_time(pairs: &[(i64, f64)]) -> Option<bool> {
    if pairs.len() < DIFFERENT_OF_MIN {
        return None;
    }
    let mut times = ranks(&pairs.iter().map(|pair| pair.0 as f64).collect::<Vec<_>>());
    let mut numbers = ranks(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>());
    let both = |times: &[f64], numbers: &[f64]| {
        correlation(times.iter().copied().zip(numbers.iter().copied()))
    };
    let found = both(&times, &numbers)?;
    let mut different = numbers.clone();
    different.sort_by(f64::total_cmp);
    different.dedup();
    // A setting that changed once, or a rare last value, would follow the times as well.
    if different.len() < STEPS_MIN {
        return None;
    }
    // With many equal values, such as whole seconds, the best order does not reach 1.
    times.sort_by(f64::total_cmp);
    numbers.sort_by(f64::total_cmp);
    let best = both(&times, &numbers)?;
    (best >= ORDERED_MIN).then_some(found.abs() >= FOLLOWS_MIN * best)
}

/// Reports whether all numbers are Unix times within an hour of their requests' starts, in ns, µs,
/// ms or s.
fn are_times(pairs: &[(i64, f64)]) -> bool {
    const HOUR_NS: f64 = 3.6e12;
    /// March 1973 as a Unix time. Smaller numbers are not taken for times.
    const TIME_MIN_NS: f64 = 1e17;
    let is_time = |unit_ns: &f64| {
        pairs.iter().all(|(start_ns, number)| {
            let ns = number * unit_ns;
            ns >= TIME_MIN_NS && (ns - *start_ns as f64).abs() <= HOUR_NS
        })
    };
    !pairs.is_empty() && [1.0, 1e3, 1e6, 1e9].iter().any(is_time)
}

/// Returns the rank of each value. Equal values share the middle of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for alike in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = before as f64 + (alike.len() as f64 - 1.0) / 2.0;
        for place in alike {
            ranks[*place] = rank;
        }
        before += alike.len();
    }
    ranks
}
