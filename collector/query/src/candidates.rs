//! Finds the requests that may satisfy a formula, so that a search need not read the others. First
//! excludes row groups by their dictionaries and statistics, then checks the rows of the remaining
//! row groups.

use std::collections::BTreeMap;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_search::{
    EventField, Field, FieldFacts, Requirement, is_own_name, kind_of, status_of,
};
use stroboscope_store::tables::{
    AttributeKeys, ColumnFacts, ProbeResult, ProbedGroup, RowGroupFacts, RowProbe, StoreTable,
    TraceFiles,
};

use super::first_look::FirstLook;
use super::query_error::QueryError;
use super::source::{Selection, Source};

/// Maximum share of the requests, 0 to 1, that is read selectively. Beyond it, selecting requests
/// costs more than it saves, so all are read.
const READ_SHARE_MAX: f64 = 0.5;

/// Requests that a search reads and skips, or the reason why it reads all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchPlan {
    /// Conditions on spans in the formula's notation. A request must have spans that meet some or
    /// all of them. Empty if the formula may hold without any span.
    pub needs: Vec<String>,
    /// Reason why all requests are read; `None` if only selected ones are.
    pub all_because: Option<&'static str>,
    /// Files, each with the number of row groups that cannot contain any of the spans in `needs`.
    pub files: Vec<ProbedFile>,
    /// Number of requests that may be incomplete; 0 in a search for bursts. The search reads all of
    /// them, because a missing span does not show that a formula is false.
    pub unseen: u64,
    /// Number of traces that may have the necessary spans; 0 if the search did not look for them,
    /// or if files are damaged.
    pub candidates: u64,
    /// Number of requests that the search reads; if it skips some requests, the number of traces
    /// that it reads. `of` is the number of selected requests.
    pub read: u64,
    pub of: u64,
    /// Attributes that rows of the searched files may have, as far as the files' statistics show
    /// them; empty if all requests are read.
    pub(super) present: Vec<String>,
}

/// File of the store, with its number of row groups and rows, and how many of them cannot contain a
/// span that the formula needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbedFile {
    pub file: String,
    pub row_groups: u64,
    pub skipped_row_groups: u64,
    pub rows: u64,
    pub skipped_rows: u64,
}

impl SearchPlan {
    /// Returns the plan to read all requests because the user asked for it.
    pub(super) fn asked_for(look: &FirstLook) -> Self {
        let plan = Self {
            of: look.notes.traces,
            unseen: look.unseen.len() as u64,
            ..Self::default()
        };
        plan.all("it was asked for").0
    }

    fn note(&mut self, groups: &[ProbedGroup]) {
        let mut files: BTreeMap<&str, ProbedFile> = BTreeMap::new();
        for group in groups {
            let file = files.entry(&group.file).or_insert_with(|| ProbedFile {
                file: group.file.clone(),
                ..ProbedFile::default()
            });
            file.row_groups += 1;
            file.rows += group.rows;
            if group.may == 0 {
                file.skipped_row_groups += 1;
                file.skipped_rows += group.rows;
            }
        }
        self.files = files.into_values().collect();
    }

    fn all(mut self, because: &'static str) -> (Self, Option<Vec<u128>>) {
        self.all_because = Some(because);
        self.read = self.of;
        (self, None)
    }
}

/// Returns the plan of the search, and the ids of the requests to read; `None` for all requests.
pub(super) fn candidates(
    source: &Source,
    selection: Selection,
    need: &Requirement,
    keys: &AttributeKeys,
    look: &FirstLook,
) -> Result<(SearchPlan, Option<Vec<u128>>), QueryError> {
    let plan = SearchPlan {
        needs: need.spans().iter().map(ToString::to_string).collect(),
        of: look.notes.traces,
        unseen: look.unseen.len() as u64,
        ..SearchPlan::default()
    };
    if need.is_anything() {
        return Ok(plan.all("it may hold without a span of any kind"));
    }
    if look.unseen.len() as f64 > READ_SHARE_MAX * plan.of as f64 {
        return Ok(plan.all("most requests are incomplete, so a missing span refutes nothing"));
    }
    if !source.connections.is_empty() && !look.unseen.is_empty() {
        return Ok(plan
            .all("requests inside of connections have ids of their own, and some are incomplete"));
    }
    let times_ns = selection.range.records_ns();
    let files = TraceFiles::open_between(source.store(), keys, times_ns)?;
    let probe = SpanProbe {
        need,
        are_times_kept: look.clocks.as_ref().is_none_or(Alignment::keeps_times),
    };
    let probed = files.probe(&probe, source.parts_wanted.threads());
    let (mut plan, wanted) = chosen(plan, probed, need, look);
    if wanted.is_some() {
        plan.present = files.present(keys);
    }
    Ok((plan, wanted))
}

fn chosen(
    mut plan: SearchPlan,
    probed: ProbeResult,
    need: &Requirement,
    look: &FirstLook,
) -> (SearchPlan, Option<Vec<u128>>) {
    plan.note(&probed.groups);
    if !probed.damage.is_empty() || !look.notes.damage.is_empty() {
        return plan.all("files are damaged");
    }
    let found = probed.found.into_iter();
    let met = found.filter(|(_, there)| need.is_met(*there));
    let mut wanted: Vec<u128> = met.map(|(trace, _)| trace).collect();
    plan.candidates = wanted.len() as u64;
    wanted.extend(&look.unseen);
    wanted.sort_unstable();
    wanted.dedup();
    if wanted.len() as f64 > READ_SHARE_MAX * plan.of as f64 {
        return plan.all("most requests have the spans it needs");
    }
    plan.read = wanted.len() as u64;
    (plan, Some(wanted))
}

/// Probe for the spans that a formula needs.
struct SpanProbe<'a> {
    need: &'a Requirement,
    /// True if correcting the clocks leaves durations unchanged.
    are_times_kept: bool,
}

/// Converts the store's facts to those of the search crate.
fn field_facts(facts: ColumnFacts) -> FieldFacts {
    FieldFacts {
        is_unknown: facts.is_unknown,
        may_be_absent: facts.may_be_absent,
        texts: facts.texts,
        between: facts.between,
    }
}

impl SpanProbe<'_> {
    fn of(&self, facts: &impl Fn(&Field) -> FieldFacts) -> u64 {
        let conditions = self.need.spans().iter().enumerate();
        conditions.fold(0, |bits, (number, condition)| {
            bits | u64::from(condition.may_hold(facts)) << number
        })
    }

    fn duration(&self, low_ns: i64, high_ns: i64) -> FieldFacts {
        match self.are_times_kept {
            true => FieldFacts::between(low_ns as f64, high_ns as f64),
            false => FieldFacts::unknown(),
        }
    }
}

impl RowProbe for SpanProbe<'_> {
    fn of_group(&self, group: &RowGroupFacts<'_>) -> u64 {
        let is_spans = group.table() == StoreTable::Spans;
        let attribute = |key: &str| field_facts(group.attribute(key));
        let texts = |column: &str| field_facts(group.texts(column));
        self.of(&|field| match field {
            Field::Name => texts("name"),
            Field::Service if is_spans => texts("service"),
            Field::Service => texts("task"),
            Field::Host => texts("host"),
            // A cut span may have taken longer, but its request was not recorded completely and is
            // read anyway.
            Field::Duration if is_spans => match group.durations_ns() {
                Some((low_ns, high_ns)) => self.duration(low_ns, high_ns),
                None => FieldFacts::unknown(),
            },
            Field::Duration => FieldFacts::between(0.0, 0.0),
            Field::Attribute(key) => attribute(key),
            Field::AnyScope(key) => {
                attribute(key).or_else(|| attribute(&format!("resource.{key}")))
            }
            Field::Kernel => FieldFacts::absent(),
            // Each row of the events table is itself an event.
            Field::Event(EventField::Name) if !is_spans => texts("name"),
            Field::Event(EventField::Attribute(key)) if !is_spans => attribute(key),
            // The statistics of spans do not show their events, which are in another table, or
            // their links, which are JSON.
            Field::Event(_)
            | Field::Link(_)
            | Field::Kind
            | Field::Status
            | Field::ResourceHost
            | Field::RootName
            | Field::RootService
            | Field::RootDuration => FieldFacts::unknown(),
        })
    }

    fn of_row(&self, row: &TraceRecords) -> u64 {
        // Every attribute of a row has the same owner. Owners are ignored, because events may be
        // renumbered if several imports share their trace.
        let said = |key: &str| {
            let mut own = row.attributes.iter();
            own.find(|one| *one.key == *key).map(|one| &*one.value)
        };
        let attribute = |key: &str| said(key).map_or_else(FieldFacts::absent, FieldFacts::text);
        if let Some(span) = row.spans.first() {
            if !span.is_whole() {
                return u64::MAX;
            }
            let made = |key: &str| said(key).filter(|_| !is_own_name(key, said("otel.own_names")));
            return self.of(&|field| match field {
                Field::Name => FieldFacts::text(&span.name),
                Field::Service => FieldFacts::text(&span.service),
                Field::Host => FieldFacts::text(&span.host),
                Field::Duration => {
                    let ns = span.end_ns.saturating_sub(span.start_ns).max(0);
                    self.duration(ns, ns)
                }
                Field::Attribute(key) => attribute(key),
                Field::AnyScope(key) => {
                    attribute(key).or_else(|| attribute(&format!("resource.{key}")))
                }
                Field::Kernel => FieldFacts::absent(),
                Field::Kind => FieldFacts::text(made("span.kind").unwrap_or_else(|| kind_of(span))),
                Field::Status => {
                    FieldFacts::text(status_of(span, made("error"), said("otel.status_code")))
                }
                _ => FieldFacts::unknown(),
            });
        }
        let Some(event) = row.events.first() else {
            return 0;
        };
        self.of(&|field| match field {
            Field::Name => FieldFacts::text(&event.event),
            Field::Service => FieldFacts::text(&event.task),
            Field::Host => FieldFacts::text(&event.host),
            Field::Attribute(key) | Field::Event(EventField::Attribute(key)) => attribute(key),
            Field::AnyScope(key) => {
                attribute(key).or_else(|| attribute(&format!("resource.{key}")))
            }
            Field::Event(EventField::Name) => FieldFacts::text(&event.event),
            Field::Kernel | Field::Status => FieldFacts::absent(),
            _ => FieldFacts::unknown(),
        })
    }
}
