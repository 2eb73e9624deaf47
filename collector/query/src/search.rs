//! Search for requests and bursts that satisfy a formula.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::record::{AttributeRecord, RecordOwner, TraceRecords};
use stroboscope_search::{Field, Formula, Requirement, Truth, Unit};
use stroboscope_store::tables::AttributeKeys;

use super::candidates::{SearchPlan, candidates};
use super::first_look::{first_look, has_losses};
use super::kernel_events::KernelEvents;
use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};

/// Default maximum number of bytes of the bursts that are held at a time.
pub const HELD_BYTES_MAX: u64 = 256 << 20;

/// Formula and limits of a search.
#[derive(Clone, Debug)]
pub struct SearchSettings {
    /// Formula that [`parse`](stroboscope_search::parse) returned.
    pub formula: Formula,
    /// Maximum number of sure matches to keep, and of possible ones; the first in time.
    pub kept_max: usize,
    /// Maximum number of bytes of the bursts that are searched at a time. A larger single burst is
    /// not searched.
    pub held_bytes_max: u64,
    /// True to read all requests, even if the formula cannot hold of them.
    pub reads_all: bool,
}

/// Span that makes a formula hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessSpan {
    /// Id of its trace.
    pub trace: u128,
    /// Id of the span, or number of an event-log event.
    pub span_id: u64,
    /// Service that recorded it.
    pub service: Arc<str>,
    /// Operation.
    pub name: Arc<str>,
    /// Start, in ns since the Unix epoch.
    pub start_ns: i64,
    /// End, in ns since the Unix epoch.
    pub end_ns: i64,
}

/// Request or burst that satisfies the formula, or may satisfy it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchMatch {
    /// Start, in ns since the Unix epoch.
    pub start_ns: i64,
    /// End, in ns since the Unix epoch.
    pub end_ns: i64,
    /// Id of the request; `None` for a burst.
    pub trace: Option<u128>,
    /// `service:name` of the root, or the number of requests in the burst.
    pub what: String,
    /// True if the formula certainly holds.
    pub is_sure: bool,
    /// Spans that make the formula hold.
    pub witness: Vec<WitnessSpan>,
}

/// Result of a search.
#[derive(Debug, Default)]
pub struct SearchReport {
    /// Number of requests or bursts that were searched.
    pub searched: u64,
    /// Number of those that satisfy the formula.
    pub matched: u64,
    /// Number of those that may satisfy it, because they are cut or their clocks err too much.
    pub unknown: u64,
    /// Matches in order of time, the sure ones first.
    pub matches: Vec<SearchMatch>,
    /// Attributes that the formula reads and no span has.
    pub absent: Vec<String>,
    /// Requests that were not read, and the reason.
    pub plan: SearchPlan,
    /// Bursts that are too large to be held, and were not searched.
    pub large: Vec<LargeBurst>,
    /// Number of slices in which bursts were searched, and bytes of the largest one.
    pub slices: u64,
    pub held_bytes: u64,
    /// Notes taken while reading.
    pub notes: Notes,
}

/// Burst that is larger than the bound, and was not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeBurst {
    /// Instants of its opening and closing, in ns since the Unix epoch.
    pub open_ns: i64,
    pub close_ns: i64,
    /// Bytes that the burst would occupy.
    pub bytes: u64,
}

/// First matches, with counts of all.
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

/// Attribute that a formula reads and that was not seen so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AbsentAttribute {
    /// Name in the user's notation.
    name: String,
    /// Names under which it may be stored.
    keys: Vec<String>,
    is_of_events: bool,
}

impl AbsentAttribute {
    fn all(formula: &Formula) -> Vec<Self> {
        let fields = formula.fields().into_iter();
        let absent = fields.map(|field| Self {
            name: match &field {
                // Users know the name of their span's attribute.
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

/// Removes the attributes that a trace has.
pub(super) fn note_present(absent: &mut Vec<AbsentAttribute>, records: &TraceRecords) {
    if !absent.is_empty() {
        absent.retain(|one| !records.attributes.iter().any(|said| one.is(said)));
    }
}

fn keys_of(formula: &Formula) -> AttributeKeys {
    AttributeKeys::of(formula.keys())
}

/// Includes cut requests, because a search reports the uncertainty about them.
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

/// Returns the requests that satisfy a formula. Reads the store for the clocks, unless their
/// comparison is cached. Then, of completely recorded requests, reads only those that have the
/// spans that the formula needs.
///
/// # Errors
/// Fails if the store cannot be read, or if the formula is about the kernel and the kernel was not
/// recorded.
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
            &Requirement::of(formula),
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
    // Requests that were not read are known not to match.
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
