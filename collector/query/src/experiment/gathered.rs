//! Requests of both sides, gathered while reading.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use stroboscope_analysis::experiment::ExperimentRequest;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_store::tables::IdRange;

use super::ExperimentSettings;
use super::assignment::{Assignment, AssignmentReading};
use crate::attribute_names::{attribute_counts, no_such_attribute};
use crate::query_error::QueryError;
use crate::source::{Selection, Source};

/// Maximum number of values that an error lists.
const VALUES_MAX: usize = 12;

/// Request with its start in ns and the index of its root operation in [`PartRequests::roots`].
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenRequest {
    pub(super) at_ns: i64,
    pub(super) root: u32,
    pub(super) observed: ExperimentRequest,
}

/// Requests of both sides in one or several parts of the store. Omits requests with neither a root
/// span nor events of an event log, without counting them.
#[derive(Clone, Debug, Default)]
pub(super) struct PartRequests {
    pub(super) seen: Vec<SeenRequest>,
    /// Names of the root operations to which the requests refer by index.
    pub(super) roots: Vec<String>,
    values: BTreeMap<Arc<str>, u64>,
    pub(super) of_no_side: u64,
    pub(super) of_several: u64,
    /// Number of requests of the control whose unit is unknown, then of the test.
    pub(super) without_unit: [u64; 2],
    is_by_said: bool,
    is_unit_said: bool,
}

impl PartRequests {
    pub(super) fn take(
        &mut self,
        records: &TraceRecords,
        settings: &ExperimentSettings,
        by: &Assignment,
        unit: Option<&Assignment>,
        hasher: &RandomState,
    ) {
        let value = match by.of_request(records) {
            AssignmentReading::Value(value) => value,
            AssignmentReading::Several => {
                self.is_by_said = true;
                self.of_several += 1;
                return;
            }
            AssignmentReading::Nothing => {
                self.of_no_side += 1;
                return;
            }
        };
        self.is_by_said = true;
        if self.values.len() < VALUES_MAX || self.values.contains_key(&value) {
            *self.values.entry(value.clone()).or_default() += 1;
        }
        let is_one_of = |values: &[String]| values.iter().any(|known| **known == *value);
        let is_test = is_one_of(&settings.test);
        if !is_test && !is_one_of(&settings.control) {
            self.of_no_side += 1;
            return;
        }
        let unit = match unit.map(|unit| unit.of_request(records)) {
            // The request itself is the unit.
            None => hasher.hash_one(records.id.0),
            Some(AssignmentReading::Value(unit)) => {
                self.is_unit_said = true;
                hasher.hash_one(&*unit)
            }
            Some(AssignmentReading::Several | AssignmentReading::Nothing) => {
                self.without_unit[usize::from(is_test)] += 1;
                return;
            }
        };
        let Some((start_ns, end_ns)) = request_time_ns(records) else {
            return;
        };
        let root = self.root(&records.root_name());
        let observed = ExperimentRequest {
            unit,
            burst: 0,
            is_test,
            latency_ns: end_ns.saturating_sub(start_ns).max(0).unsigned_abs(),
        };
        self.seen.push(SeenRequest {
            at_ns: start_ns,
            root,
            observed,
        });
    }

    /// Returns the index of a root operation, and adds it if it is new.
    fn root(&mut self, name: &str) -> u32 {
        let known = self.roots.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.roots.push(name.to_owned());
            self.roots.len() - 1
        }) as u32
    }

    pub(super) fn merge(&mut self, other: PartRequests) {
        let numbers: Vec<u32> = other.roots.iter().map(|root| self.root(root)).collect();
        let seen = other.seen.into_iter().map(|seen| SeenRequest {
            root: numbers[seen.root as usize],
            ..seen
        });
        self.seen.extend(seen);
        for (value, count) in other.values {
            if self.values.len() < VALUES_MAX || self.values.contains_key(&value) {
                *self.values.entry(value).or_default() += count;
            }
        }
        self.of_no_side += other.of_no_side;
        self.of_several += other.of_several;
        for (own, other) in self.without_unit.iter_mut().zip(other.without_unit) {
            *own += other;
        }
        self.is_by_said |= other.is_by_said;
        self.is_unit_said |= other.is_unit_said;
    }

    /// Returns an error if no request has the attribute `by`, if a side has no requests, or if no
    /// request of the sides has the attribute `unit`.
    pub(super) fn check(
        &self,
        source: &Source,
        selection: Selection,
        settings: &ExperimentSettings,
    ) -> Result<(), QueryError> {
        if !self.is_by_said {
            return Err(no_such_attribute(source, selection, &settings.by));
        }
        for (values, is_test) in [(&settings.control, false), (&settings.test, true)] {
            let is_own = |seen: &SeenRequest| seen.observed.is_test == is_test;
            if !self.seen.iter().any(is_own) && self.without_unit[usize::from(is_test)] == 0 {
                let known: Vec<&str> = self.values.keys().map(|value| &**value).collect();
                return Err(QueryError::NoSide {
                    attribute: settings.by.clone(),
                    value: values.join(" or "),
                    known: known.join(", "),
                });
            }
        }
        if let Some(unit) = settings.unit.as_ref().filter(|_| !self.is_unit_said) {
            let counts = attribute_counts(source, selection, &IdRange::ALL)?;
            return Err(match counts.has(unit) {
                true => QueryError::NoUnit(unit.clone()),
                false => counts.no_such_attribute(unit),
            });
        }
        Ok(())
    }
}

/// Returns the start and end of the root span in ns. Without a root, as in an event log, the first
/// and last events count instead. Returns `None` for a trace with neither.
fn request_time_ns(records: &TraceRecords) -> Option<(i64, i64)> {
    if let Some(root) = records.root() {
        return Some((root.start_ns, root.end_ns));
    }
    let times = records.events.iter().map(|event| event.ts_ns);
    Some((times.clone().min()?, times.max()?))
}
