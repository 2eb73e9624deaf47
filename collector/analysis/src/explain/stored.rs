//! Stored requests of both categories (sides), reduced to the columns about which a tree asks.
//! These requests determine the thresholds, and the precision and recall of each leaf.
//!
//! Each request is stored as its latency, one number per column and a hash of its id. If not all
//! requests fit, those with the smallest hashes are kept. Each side has its own limit, so that the
//! rarer side stays complete for longest.

use super::parameters::{LARGEST, NOT_RECORDED, RECORDED, SMALLEST, TableColumn, number};
use super::sample::place_of;
use super::sentence::{ParameterCondition, ParameterTest};
use super::{ExplainedRequest, Parameter};
use crate::decision_tree::{Column, Condition, Table, Test, Values};
use crate::record::TraceId;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of values kept per side, which take 64 MiB.
const CELLS_MAX: usize = 1 << 23;

/// A column about which the tree asks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AskedColumn {
    name: Arc<str>,
    asked: TableColumn,
    /// Texts that the column distinguishes, in order; `None` if its values are numbers.
    texts: Option<Vec<Arc<str>>>,
}

impl AskedColumn {
    pub(super) fn of(column: &Column, asked: &TableColumn) -> AskedColumn {
        AskedColumn {
            name: column.name.clone(),
            asked: asked.clone(),
            texts: match &column.values {
                Values::Numbers(_) => None,
                Values::Texts { texts, .. } => Some(texts.clone()),
            },
        }
    }

    fn parameter(&self) -> &Parameter {
        match &self.asked {
            TableColumn::Value(parameter) | TableColumn::Recorded(parameter) => parameter,
        }
    }

    /// Returns the name under which the column's values were recorded.
    pub(super) fn recorded_key(&self) -> Arc<str> {
        self.parameter().recorded().key
    }

    /// Returns the value of the column in a request: a number, the index of a text (beyond the last
    /// one for another text), or NaN if the value is unknown.
    fn cell(&self, said: &[(Parameter, Arc<str>)]) -> f64 {
        let parameter = self.parameter();
        let recorded = parameter.recorded();
        // A recorded name may begin with the prefix for the largest or smallest value.
        let is_it = |of: &Parameter| of == parameter || *of == recorded;
        let own = said.iter().filter(|(of, _)| is_it(of));
        let mut texts: Vec<&Arc<str>> = own.map(|(_, text)| text).collect();
        texts.sort_unstable();
        texts.dedup();
        let only = || texts.first().filter(|_| texts.len() == 1);
        let numbers = || texts.iter().filter_map(|text| number(text));
        let by = |a: &f64, b: &f64| a.partial_cmp(b).unwrap_or(Ordering::Equal);
        let place = |known: &[Arc<str>], text: &str| {
            let place = known.binary_search_by(|known| (**known).cmp(text));
            place.unwrap_or(known.len()) as f64
        };
        let value = match (&self.asked, &self.texts) {
            (TableColumn::Recorded(_), Some(known)) => {
                let mut of_several = [LARGEST, SMALLEST].into_iter();
                let is_recorded = match of_several.any(|of| parameter.key.starts_with(of)) {
                    true => numbers().next().is_some(),
                    false => only().is_some(),
                };
                let text = if is_recorded { RECORDED } else { NOT_RECORDED };
                Some(place(known, text))
            }
            (_, Some(known)) => only().map(|text| place(known, text)),
            (_, None) if parameter.key.starts_with(LARGEST) => numbers().max_by(by),
            (_, None) if parameter.key.starts_with(SMALLEST) => numbers().min_by(by),
            (_, None) => only().and_then(|text| number(text)),
        };
        value.unwrap_or(f64::NAN)
    }

    /// Translates a condition on the column to one on its parameter, given the values of all
    /// requests. Returns `None` if the test does not fit the column.
    pub(super) fn condition(&self, test: &Test, values: &Values) -> Option<ParameterCondition> {
        let test = match &self.asked {
            TableColumn::Value(_) => {
                let only = only_value(values, test);
                ParameterTest::Value(only.unwrap_or_else(|| test.clone()))
            }
            TableColumn::Recorded(_) => ParameterTest::Recorded(match test {
                Test::OneOf(texts) => texts.contains(RECORDED),
                Test::NoneOf(texts) => !texts.contains(RECORDED),
                Test::Between(..) => return None,
            }),
        };
        Some(ParameterCondition {
            parameter: self.parameter().clone(),
            test,
        })
    }
}

/// Maximum number of distinct numbers that count as a set of choices and not as a measure.
const CHOICES_MAX: usize = 16;

/// Returns a test for equality if the numbers are choices and only one of them meets `test`.
fn only_value(values: &Values, test: &Test) -> Option<Test> {
    let (Values::Numbers(numbers), Test::Between(above, most)) = (values, test) else {
        return None;
    };
    let mut distinct: Vec<f64> = Vec::new();
    for number in numbers.iter().flatten() {
        if !distinct.contains(number) {
            distinct.push(*number);
        }
        if distinct.len() > CHOICES_MAX {
            return None;
        }
    }
    let mut left = distinct.iter().filter(|of| **of > *above && **of <= *most);
    match (left.next(), left.next()) {
        (Some(only), None) => Some(Test::OneOf(BTreeSet::from([only.to_string().into()]))),
        _ => None,
    }
}

/// Translates the conditions of a leaf to conditions on parameters. Returns `None` if one of them
/// cannot be translated.
pub(super) fn in_words(
    columns: &[AskedColumn],
    table: &Table,
    conditions: &[Condition],
) -> Option<Vec<ParameterCondition>> {
    let said = conditions.iter().map(|condition| {
        let values = &table.columns().get(condition.column)?.values;
        let column = columns.get(condition.column)?;
        column.condition(&condition.test, values)
    });
    said.collect()
}

/// A request to be counted in [`StoredRows`].
#[derive(Clone, Copy, Debug)]
pub struct CountedRequest {
    /// Trace id.
    pub id: TraceId,
    /// True for a request with the change, such as a mutation's; false for one without it.
    pub is_mutation: bool,
    /// Number of requests that this request represents.
    pub weight: f64,
    /// Latency of the whole request in nanoseconds.
    pub latency_ns: u64,
}

impl From<&ExplainedRequest> for CountedRequest {
    fn from(request: &ExplainedRequest) -> Self {
        Self {
            id: request.id,
            is_mutation: request.is_mutation,
            weight: request.weight,
            latency_ns: request.latency_ns,
        }
    }
}

/// Stored requests of one side.
#[derive(Clone, Debug, Default)]
struct Side {
    /// Weighted number of requests, kept or not.
    seen: f64,
    /// Sampling level: one request in 2^`level` is kept.
    level: u32,
    hashes: Vec<u64>,
    latencies_ns: Vec<u64>,
    /// Values of the kept requests, one request after another.
    cells: Vec<f64>,
}

/// Stored requests of both sides, with the values of the columns about which a tree asks. Merging
/// is commutative and associative, except for the order of rows and for rounding.
#[derive(Clone, Debug, Default)]
pub struct StoredRows {
    sides: [Side; 2],
}

impl StoredRows {
    pub(super) fn observe(
        &mut self,
        columns: &[AskedColumn],
        request: CountedRequest,
        said: &[(Parameter, Arc<str>)],
    ) {
        let side = &mut self.sides[usize::from(request.is_mutation)];
        side.seen += request.weight;
        let hash = place_of(request.id, 0);
        if side.keeps(hash) {
            side.hashes.push(hash);
            side.latencies_ns.push(request.latency_ns);
            let cells = columns.iter().map(|column| column.cell(said));
            side.cells.extend(cells);
            side.bound(columns.len());
        }
    }

    /// Adds the rows of another instance with the same columns.
    pub(super) fn merge(&mut self, other: StoredRows, columns: usize) {
        for (side, other) in self.sides.iter_mut().zip(other.sides) {
            side.seen += other.seen;
            side.level = side.level.max(other.level);
            side.hashes.extend(other.hashes);
            side.latencies_ns.extend(other.latencies_ns);
            side.cells.extend(other.cells);
            side.retain(columns);
            side.bound(columns);
        }
    }

    /// Returns the weighted number of requests of each side, kept or not.
    pub(super) fn seen(&self) -> [u64; 2] {
        self.sides.each_ref().map(|side| side.seen.round() as u64)
    }

    /// Returns the number of kept requests of each side.
    pub(super) fn kept(&self) -> [u64; 2] {
        self.sides.each_ref().map(|side| side.hashes.len() as u64)
    }

    /// Returns the mean number of requests that a kept request represents, by side.
    pub(super) fn weights(&self) -> [f64; 2] {
        let sides = self.sides.each_ref();
        sides.map(|side| side.seen / side.hashes.len().max(1) as f64)
    }

    /// Iterates over the latencies of the kept requests in nanoseconds, in the order of the
    /// [table](Self::table).
    pub(super) fn latencies_ns(&self) -> impl Iterator<Item = u64> {
        let sides = self.sides.iter();
        sides.flat_map(|side| side.latencies_ns.iter().copied())
    }

    /// Returns the values of the kept requests as a table of these columns.
    pub(super) fn table(&self, columns: &[AskedColumn]) -> Table {
        let width = columns.len();
        let sides = || self.sides.iter();
        let all = || sides().flat_map(|side| side.cells.chunks_exact(width));
        let place = |cell: f64| (!cell.is_nan()).then_some(cell as u32);
        let values = columns.iter().enumerate().map(|(at, column)| Column {
            name: column.name.clone(),
            values: match &column.texts {
                None => Values::Numbers(all().map(|cells| Some(cells[at])).collect()),
                Some(texts) => Values::Texts {
                    places: all().map(|cells| place(cells[at])).collect(),
                    texts: texts.clone(),
                },
            },
        });
        let classes = [false, true].iter().zip(&self.sides);
        let classes = classes.flat_map(|(class, side)| vec![*class; side.hashes.len()]);
        // An unknown number is NaN, which the table treats as unknown.
        Table::new(values.collect(), classes.collect()).unwrap_or_default()
    }
}

impl Side {
    fn keeps(&self, hash: u64) -> bool {
        hash.leading_zeros() >= self.level
    }

    fn bound(&mut self, columns: usize) {
        while self.hashes.len() * columns.max(1) > CELLS_MAX && self.level < u64::BITS {
            self.level += 1;
            self.retain(columns);
        }
    }

    fn retain(&mut self, columns: usize) {
        let keeps: Vec<bool> = self.hashes.iter().map(|hash| self.keeps(*hash)).collect();
        if keeps.iter().all(|keeps| *keeps) {
            return;
        }
        let mut at = 0;
        self.cells.retain(|_| {
            at += 1;
            keeps[(at - 1) / columns.max(1)]
        });
        for kept in [&mut self.hashes, &mut self.latencies_ns] {
            let mut keeps = keeps.iter().copied();
            kept.retain(|_| keeps.next().unwrap_or_default());
        }
    }
}
