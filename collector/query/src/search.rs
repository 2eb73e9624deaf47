//! Search for requests and bursts that satisfy a formula.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::record::{AttributeRecord, RecordOwner, TraceRecords};
use stroboscope_search::{Field, Formula, Requirement, Truth, Unit};
use stroboscope_store::tables::AttributeKeys;

use super::candidates::{SearchPlan, candidates};
use super::first_look::first_look;
use super::kernel_events::KernelEvents;
use super::losses::may_lack_records;
use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};
use super::time_range::recorded_ns;

/// Default maximum memory for bursts that are searched together, in bytes.
pub const HELD_BYTES_MAX: u64 = 256 << 20;

/// Formula and limits of a search.
#[derive(Clone, Debug)]
pub struct SearchSettings {
    /// Formula that [`parse`](stroboscope_search::parse) returned.
    pub formula: Formula,
    /// Maximum number of certain matches to keep, and likewise of possible matches. The earliest
    /// ones are kept.
    pub kept_max: usize,
    /// Maximum memory for bursts that are searched together, in bytes. An eighth of the query's
    /// memory limits it further. A single burst that is larger is not searched.
    pub held_bytes_max: u64,
    /// True to read even requests for which the formula cannot hold.
    pub reads_all: bool,
}

/// Span that makes a formula hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessSpan {
    /// Id of the request that contains the span.
    pub trace: u128,
    /// Id of the span. For an event-log event, its number; for a kernel event, the id of the span
    /// that caused it, or 0.
    pub span_id: u64,
    /// Service of the span. For an event-log event, its task; for a kernel event, its kind.
    pub service: Arc<str>,
    /// Name of the span or event.
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
    /// Request that shows the match: in a burst, that of the first witness. In a burst without a
    /// witness, this is the first request; `None` if there is none.
    pub example: Option<u128>,
    /// `service:name` of the root or a placeholder, or the number of requests in the burst.
    pub what: String,
    /// True if the formula certainly holds.
    pub is_sure: bool,
    /// Spans that make the formula hold.
    pub witness: Vec<WitnessSpan>,
}

/// Matches of a search, with the counts of all searched requests or bursts.
#[derive(Debug, Default)]
pub struct SearchReport {
    /// Number of requests or bursts that were searched, including requests that were not read
    /// because they cannot match.
    pub searched: u64,
    /// Number of searched requests or bursts that satisfy the formula.
    pub matched: u64,
    /// Number of searched requests or bursts for which it is unknown whether the formula holds. The
    /// reason is missing records, the error of clocks, or a cycle of parents.
    pub unknown: u64,
    /// Certain matches in order of time, then possible matches in order of time.
    pub matches: Vec<SearchMatch>,
    /// Attributes that the formula reads and that no searched request has; may lack some if
    /// requests were not read.
    pub absent: Vec<String>,
    /// Requests that were read and skipped, or the reason why all were read.
    pub plan: SearchPlan,
    /// Bursts that were not searched because they do not fit into the memory limit.
    pub large: Vec<LargeBurst>,
    /// Number of slices in which bursts were searched. `held_bytes` is the size of the largest
    /// slice in memory, in bytes.
    pub slices: u64,
    pub held_bytes: u64,
    /// Notes about the data that the query read.
    pub notes: Notes,
}

/// Burst that was not searched because it exceeds the memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeBurst {
    /// Start of the burst, in ns since the Unix epoch. `close_ns` is its end.
    pub open_ns: i64,
    pub close_ns: i64,
    /// Memory that the burst would occupy, in bytes.
    pub bytes: u64,
}

/// Earliest matches, with the counts of all matches.
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
        keep_early(kept, self.kept_max, at, found);
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
            keep_first(own, self.kept_max);
        }
    }

    pub(super) fn report(self, notes: Notes, plan: SearchPlan) -> SearchReport {
        let matches = self.sure.into_values().chain(self.unsure.into_values());
        SearchReport {
            searched: self.searched,
            matched: self.matched,
            unknown: self.unknown,
            matches: matches.collect(),
            absent: self.absent.into_iter().map(|one| one.name).collect(),
            plan,
            notes,
            ..SearchReport::default()
        }
    }
}

/// Adds an entry if it is among the first `kept_max`, and drops the last one if there are more.
pub(super) fn keep_early<K: Ord, V>(
    kept: &mut BTreeMap<K, V>,
    kept_max: usize,
    key: K,
    value: impl FnOnce() -> V,
) {
    if kept.len() < kept_max || kept.last_key_value().is_some_and(|last| key < *last.0) {
        kept.insert(key, value());
        keep_first(kept, kept_max);
    }
}

/// Drops the last entries beyond `kept_max`.
pub(super) fn keep_first<K: Ord, V>(kept: &mut BTreeMap<K, V>, kept_max: usize) {
    while kept.len() > kept_max {
        kept.pop_last();
    }
}

/// Attribute that a formula reads and that no record had so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AbsentAttribute {
    /// Name of the attribute in the user's notation.
    name: String,
    /// Keys under which the attribute may be stored.
    keys: Vec<String>,
    is_of_events: bool,
}

impl AbsentAttribute {
    fn all(formula: &Formula) -> Vec<Self> {
        let fields = formula.fields().into_iter();
        let absent = fields.map(|field| Self {
            name: match &field {
                // Users know the attribute by its key alone.
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

/// Removes the attributes that a trace has from the list of absent ones.
pub(super) fn note_present(absent: &mut Vec<AbsentAttribute>, records: &TraceRecords) {
    if !absent.is_empty() {
        absent.retain(|one| !records.attributes.iter().any(|said| one.is(said)));
    }
}

/// Returns the selection with incomplete requests.
pub(super) fn with_cut(selection: Selection) -> Selection {
    Selection {
        include_incomplete: true,
        ..selection
    }
}

pub(super) fn times_ns(records: &TraceRecords) -> (i64, i64) {
    recorded_ns(records).unwrap_or_default()
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

/// Searches for requests that satisfy or may satisfy a formula. First reads all selected requests
/// to compare the clocks, unless the result is cached. Then reads those that may be incomplete, and
/// those that may have the spans that the formula needs. Reads all again if the settings ask for
/// it, if more than half are needed, or if the needed requests cannot be determined.
///
/// # Errors
/// Fails if the store cannot be read, or if there is too little memory. A formula about the kernel
/// also fails if the kernel was not recorded, or if its events exceed the memory limit.
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
    let (need, keys) = (Requirement::of(formula), AttributeKeys::of(formula.keys()));
    let (plan, wanted) = match settings.reads_all {
        true => (SearchPlan::asked_for(&look), None),
        false => candidates(source, selection, &need, &keys, &look)?,
    };
    let mut parts = source.parts(selection, &keys)?;
    if let Some(wanted) = wanted {
        parts = parts.only(wanted);
    }
    let workers = vec![Matches::new(settings); parts.count()];
    let visit = |matches: &mut Matches, records: &mut TraceRecords, _: &mut Notes| {
        let has_losses = may_lack_records(records, source.losses());
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
            example: Some(records.id.0),
            what: records.root_name().into_owned(),
            is_sure: truth.is_sure(),
            witness: witness(&unit, formula),
        });
    };
    let (found, of_reading) = source.fold("searching", selection, &parts, workers, visit)?;
    let mut matches = Matches::new(settings);
    found.into_iter().for_each(|part| matches.merge(part));
    // Requests that were skipped count as searched, because they cannot match.
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

/// Corrects the timestamps of records, unless they are used as recorded.
pub(super) fn align(clocks: Option<&Alignment>, records: &mut TraceRecords) {
    if let Some(clocks) = clocks {
        clocks.apply(records);
    }
}
