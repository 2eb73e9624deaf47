//! Requests and bursts of which a formula holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::record::{AttributeRecord, RecordOwner, TraceRecords};
use stroboscope_search::{Field, Formula, Need, Truth, Unit};
use stroboscope_store::tables::AttributeKeys;

use super::candidates::{SearchPlan, candidates};
use super::first_look::{first_look, has_losses};
use super::kernel_events::KernelEvents;
use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};

/// Rows of bursts that are held at a time, unless another bound is asked for.
pub const HELD_BYTES_MAX: u64 = 256 << 20;

/// What to search for.
#[derive(Clone, Debug)]
pub struct SearchSettings {
    /// As [`parse`](stroboscope_search::parse) makes it.
    pub formula: Formula,
    /// Keep so many of those of which it holds, and as many of those of which it may; the first in time.
    pub kept_max: usize,
    /// Bursts that are searched at a time take no more than this, and one that takes more by itself is not searched.
    pub held_bytes_max: u64,
    /// Read all requests, also those of which the formula cannot hold.
    pub reads_all: bool,
}

/// A span that makes a formula hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessSpan {
    /// Its trace's id.
    pub trace: u128,
    /// Its own; of an event log the event's number.
    pub span_id: u64,
    /// Who recorded it.
    pub service: Arc<str>,
    /// Its operation.
    pub name: Arc<str>,
    /// Ns since the Unix epoch.
    pub start_ns: i64,
    /// Ns since the Unix epoch.
    pub end_ns: i64,
}

/// A request or a burst of which the formula holds, or may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchMatch {
    /// When it began, ns since the Unix epoch.
    pub start_ns: i64,
    /// When it ended.
    pub end_ns: i64,
    /// The request's id; none: a burst.
    pub trace: Option<u128>,
    /// Its root's `service:name`, or how many requests there are in the burst.
    pub what: String,
    /// Whether it is sure.
    pub is_sure: bool,
    /// The spans by which it does.
    pub witness: Vec<WitnessSpan>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct SearchReport {
    /// Requests or bursts that were looked at.
    pub searched: u64,
    /// Those of which it holds.
    pub matched: u64,
    /// Those that were cut off, or whose clocks err too much, before it could be known.
    pub unknown: u64,
    /// In order of time, the sure ones first.
    pub matches: Vec<SearchMatch>,
    /// Attributes that the formula asks for, and no span has.
    pub absent: Vec<String>,
    /// What was not read, and why.
    pub plan: SearchPlan,
    /// Bursts that are too large to be held, and were not searched.
    pub large: Vec<LargeBurst>,
    /// In so many slices bursts were searched, of which the largest took so many bytes.
    pub slices: u64,
    pub held_bytes: u64,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// A burst that is larger than the bound, and was not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeBurst {
    /// The instants of its opening and closing, ns since the Unix epoch.
    pub open_ns: i64,
    pub close_ns: i64,
    /// Memory that the burst would take.
    pub bytes: u64,
}

/// The first of those found, and counts of all.
#[derive(Clone, Debug)]
pub(super) struct Matches {
    kept_max: usize,
    searched: u64,
    matched: u64,
    unknown: u64,
    sure: BTreeMap<(i64, u128), SearchMatch>,
    unsure: BTreeMap<(i64, u128), SearchMatch>,
    pub(super) absent: Vec<AbsentAttribute>,
}

impl Matches {
    pub(super) fn new(settings: &SearchSettings) -> Self {
        Self {
            kept_max: settings.kept_max,
            absent: AbsentAttribute::all(&settings.formula),
            searched: 0,
            matched: 0,
            unknown: 0,
            sure: BTreeMap::new(),
            unsure: BTreeMap::new(),
        }
    }

    pub(super) fn note(
        &mut self,
        truth: Truth,
        at: (i64, u128),
        found: impl FnOnce() -> SearchMatch,
    ) {
        self.searched += 1;
        let kept = match truth {
            Truth::False => return,
            Truth::True => {
                self.matched += 1;
                &mut self.sure
            }
            Truth::Unknown => {
                self.unknown += 1;
                &mut self.unsure
            }
        };
        let is_early =
            kept.len() < self.kept_max || kept.last_key_value().is_some_and(|last| at < *last.0);
        if is_early {
            kept.insert(at, found());
            if kept.len() > self.kept_max {
                kept.pop_last();
            }
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.searched += other.searched;
        self.matched += other.matched;
        self.unknown += other.unknown;
        self.absent.retain(|one| other.absent.contains(one));
        for (own, other) in [
            (&mut self.sure, other.sure),
            (&mut self.unsure, other.unsure),
        ] {
            own.extend(other);
            while own.len() > self.kept_max {
                own.pop_last();
            }
        }
    }

    pub(super) fn report(self, notes: Notes, plan: SearchPlan) -> SearchReport {
        SearchReport {
            searched: self.searched,
            matched: self.matched,
            unknown: self.unknown,
            matches: self
                .sure
                .into_values()
                .chain(self.unsure.into_values())
                .collect(),
            absent: self.absent.into_iter().map(|one| one.name).collect(),
            plan,
            large: Vec::new(),
            slices: 0,
            held_bytes: 0,
            notes,
        }
    }
}

/// An attribute that a formula asks for, while none was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AbsentAttribute {
    /// As it is written.
    name: String,
    /// The names that it may be stored under.
    keys: Vec<String>,
    is_of_events: bool,
}

impl AbsentAttribute {
    fn all(formula: &Formula) -> Vec<Self> {
        let fields = formula.fields().into_iter();
        let absent = fields.map(|field| Self {
            name: match &field {
                // As users know it, whose span has it.
                Field::AnyScope(key) => key.to_string(),
                field => field.to_string(),
            },
            keys: field.asked_keys(),
            is_of_events: matches!(field, Field::Event(_)),
        });
        absent.filter(|one| !one.keys.is_empty()).collect()
    }

    fn is(&self, said: &AttributeRecord) -> bool {
        let is_of_events = matches!(said.owner, RecordOwner::InSpan(..));
        (self.is_of_events == is_of_events || matches!(said.owner, RecordOwner::Event(_)))
            && self.keys.iter().any(|key| **key == *said.key)
    }
}

/// Takes those out that a trace has.
pub(super) fn note_present(absent: &mut Vec<AbsentAttribute>, records: &TraceRecords) {
    if !absent.is_empty() {
        absent.retain(|one| !records.attributes.iter().any(|said| one.is(said)));
    }
}

fn keys_of(formula: &Formula) -> AttributeKeys {
    AttributeKeys::of(formula.keys())
}

/// Cut requests are searched, too: what of them is not known is said.
pub(super) fn with_cut(selection: Selection) -> Selection {
    Selection {
        include_incomplete: true,
        ..selection
    }
}

pub(super) fn times_ns(records: &TraceRecords) -> (i64, i64) {
    let spans = records
        .spans
        .iter()
        .map(|span| (span.start_ns, span.end_ns));
    let events = records
        .events
        .iter()
        .map(|event| (event.ts_ns, event.ts_ns));
    spans
        .chain(events)
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        .unwrap_or((0, 0))
}

pub(super) fn witness(unit: &Unit<'_>, formula: &Formula) -> Vec<WitnessSpan> {
    let places = unit.search(formula).witness;
    let span = |place: usize| {
        let (records, span_id) = unit.names(place);
        let (service, name, start_ns, end_ns) = unit.describe(place);
        WitnessSpan {
            trace: records.id.0,
            span_id,
            service: service.into(),
            name: name.into(),
            start_ns,
            end_ns,
        }
    };
    places.into_iter().map(span).collect()
}

/// The requests of which a formula holds. Reads the store for the clocks, unless that was done before; and then, of requests
/// of which all was seen, only those that have what the formula needs.
///
/// # Errors
/// When the store cannot be read, or the formula is about the kernel and that was not recorded.
pub fn search_requests(
    source: &Source,
    selection: Selection,
    settings: &SearchSettings,
) -> Result<SearchReport, QueryError> {
    let selection = with_cut(selection);
    let formula = &settings.formula;
    let look = first_look(source, selection)?;
    let clocks = look.clocks.as_ref();
    let kernel = match formula.names_kernel() {
        true => Some(KernelEvents::read(source, selection.range, clocks)?),
        false => None,
    };
    let (plan, wanted) = match settings.reads_all {
        true => (SearchPlan::asked_for(&look), None),
        false => candidates(
            source,
            selection,
            &Need::of(formula),
            &keys_of(formula),
            &look,
        )?,
    };
    let mut parts = source.parts(selection, &keys_of(formula))?;
    if let Some(wanted) = wanted {
        parts = parts.only(wanted);
    }
    let workers = vec![Matches::new(settings); parts.count()];
    let visit = |matches: &mut Matches, records: &mut TraceRecords, _: &mut Notes| {
        let has_losses = has_losses(source, records);
        align(clocks, records);
        note_present(&mut matches.absent, records);
        let mut unit = Unit::of_request(records, has_losses);
        if let Some(kernel) = &kernel {
            unit = kernel.join(unit, records);
        }
        let truth = unit.of_whole(formula);
        let (start_ns, end_ns) = times_ns(records);
        matches.note(truth, (start_ns, records.id.0), || SearchMatch {
            start_ns,
            end_ns,
            trace: Some(records.id.0),
            what: records.root_name().into_owned(),
            is_sure: truth.is_sure(),
            witness: witness(&unit, formula),
        });
    };
    let (found, of_reading) = source.fold("searching", selection, &parts, workers, visit)?;
    let mut matches = Matches::new(settings);
    found.into_iter().for_each(|part| matches.merge(part));
    // Those that were not read are known not to be it.
    let mut notes = look.notes;
    let unread = notes.add_unread(of_reading);
    matches.searched = notes.traces.saturating_sub(unread);
    notes.add_damage(kernel.map_or_else(Vec::new, |kernel| kernel.damage));
    if !matches.absent.is_empty() {
        let is_present = |key: &String| plan.present.contains(key);
        matches
            .absent
            .retain(|one| !one.keys.iter().any(is_present));
    }
    Ok(matches.report(notes, plan))
}

pub(super) fn align(clocks: Option<&Alignment>, records: &mut TraceRecords) {
    if let Some(clocks) = clocks {
        clocks.apply(records);
    }
}
