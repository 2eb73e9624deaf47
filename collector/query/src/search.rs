//! Requests and bursts of which a formula holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::completeness::{Incomplete, completeness};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_search::{Formula, Truth, Unit};
use stroboscope_store::tables::{AttributeKeys, read_batches};

use super::clocks::alignment;
use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};
use super::time_range::TimeRange;

/// Bursts are held whole while they are searched: those of so much time together.
const SLICE_NS: i64 = 600_000_000_000;

/// What to search for.
#[derive(Clone, Debug)]
pub struct SearchSettings {
    /// As [`parse`](stroboscope_search::parse) makes it.
    pub formula: Formula,
    /// Keep so many of those of which it holds, and as many of those of which it may; the first in time.
    pub kept_max: usize,
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
    /// What was noticed on the way.
    pub notes: Notes,
}

/// The first of those found, and counts of all.
#[derive(Clone, Debug)]
struct Matches {
    kept_max: usize,
    searched: u64,
    matched: u64,
    unknown: u64,
    sure: BTreeMap<(i64, u128), SearchMatch>,
    unsure: BTreeMap<(i64, u128), SearchMatch>,
    absent: Vec<String>,
}

impl Matches {
    fn new(settings: &SearchSettings) -> Self {
        Self {
            kept_max: settings.kept_max,
            absent: absent_at_first(&settings.formula),
            searched: 0,
            matched: 0,
            unknown: 0,
            sure: BTreeMap::new(),
            unsure: BTreeMap::new(),
        }
    }

    fn note(&mut self, truth: Truth, at: (i64, u128), found: impl FnOnce() -> SearchMatch) {
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

    fn merge(&mut self, other: Self) {
        self.searched += other.searched;
        self.matched += other.matched;
        self.unknown += other.unknown;
        self.absent.retain(|key| other.absent.contains(key));
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

    fn report(self, notes: Notes) -> SearchReport {
        SearchReport {
            searched: self.searched,
            matched: self.matched,
            unknown: self.unknown,
            matches: self
                .sure
                .into_values()
                .chain(self.unsure.into_values())
                .collect(),
            absent: self.absent,
            notes,
        }
    }
}

/// The attributes of which nothing was seen yet. What a span's kind is, is known without.
fn absent_at_first(formula: &Formula) -> Vec<String> {
    let keys = formula.keys().into_iter();
    keys.filter(|key| key != "span.kind").collect()
}

/// Takes those out that a trace has.
fn note_present(absent: &mut Vec<String>, records: &TraceRecords) {
    if !absent.is_empty() {
        let has = |key: &str| records.attributes.iter().any(|one| *one.key == *key);
        absent.retain(|key| !has(key));
    }
}

fn keys_of(formula: &Formula) -> AttributeKeys {
    AttributeKeys::of(formula.keys())
}

/// Cut requests are searched, too: what of them is not known is said.
fn with_cut(selection: Selection) -> Selection {
    Selection {
        include_incomplete: true,
        ..selection
    }
}

/// Whether spans of a trace may be missing anywhere in it.
pub(super) fn is_unseen(reason: &Incomplete) -> bool {
    matches!(
        reason,
        Incomplete::Lossy { .. } | Incomplete::MissingParent { .. }
    )
}

fn has_losses(source: &Source, records: &TraceRecords) -> bool {
    let reasons = completeness(records, source.losses()).reasons;
    reasons.iter().any(is_unseen)
}

fn times_ns(records: &TraceRecords) -> (i64, i64) {
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

fn witness(unit: &Unit<'_>, formula: &Formula) -> Vec<WitnessSpan> {
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

/// The requests of which a formula holds. Reads the store twice: for the clocks, and to search.
///
/// # Errors
/// When the store cannot be read.
pub fn search_requests(
    source: &Source,
    selection: Selection,
    settings: &SearchSettings,
) -> Result<SearchReport, QueryError> {
    let selection = with_cut(selection);
    let formula = &settings.formula;
    let clocks = alignment(source, selection)?;
    let parts = source.parts(selection, &keys_of(formula))?;
    let workers = vec![Matches::new(settings); parts.count()];
    let visit = |matches: &mut Matches, records: &mut TraceRecords, _: &mut Notes| {
        align(clocks.as_ref(), records);
        note_present(&mut matches.absent, records);
        let unit = Unit::of_request(records, has_losses(source, records));
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
    let (found, notes) = source.fold("searching", selection, &parts, workers, visit);
    let mut matches = Matches::new(settings);
    found.into_iter().for_each(|part| matches.merge(part));
    Ok(matches.report(notes))
}

fn align(clocks: Option<&Alignment>, records: &mut TraceRecords) {
    if let Some(clocks) = clocks {
        clocks.apply(records);
    }
}

/// The bursts of which a formula holds, about all spans of all their requests. Reads the store once for the clocks, and once
/// in slices of ten minutes, of which one is held at a time.
///
/// # Errors
/// When the store cannot be read, or nothing in it was recorded in bursts.
pub fn search_bursts(
    source: &Source,
    selection: Selection,
    settings: &SearchSettings,
) -> Result<SearchReport, QueryError> {
    let selection = with_cut(selection);
    let bursts: Vec<(i64, i64)> = super::recorded::bursts(read_batches(source.store())?)
        .into_iter()
        .filter(|(open_ns, _)| selection.range.contains(*open_ns))
        .collect();
    if bursts.is_empty() {
        return Err(QueryError::NoBursts(source.name()));
    }
    let clocks = alignment(source, selection)?;
    let mut matches = Matches::new(settings);
    let mut notes = Notes::default();
    let slices = bursts.chunk_by(|a, b| a.0.div_euclid(SLICE_NS) == b.0.div_euclid(SLICE_NS));
    for bursts in slices {
        let (Some(first), Some(last)) = (bursts.first(), bursts.last()) else {
            continue;
        };
        let selection = Selection {
            range: TimeRange {
                // Requests begin before the burst that saw the rest of them.
                since_ns: Some(first.0.saturating_sub(SLICE_NS)),
                until_ns: Some(last.1),
            },
            ..selection
        };
        let (requests, of_slice) = gather(source, selection, settings, bursts, clocks.as_ref())?;
        notes.merge(of_slice);
        let found = search_each(source, settings, bursts, &requests);
        matches.merge(found);
    }
    Ok(matches.report(notes))
}

/// The requests of each burst, with those of their spans that start in it.
fn gather(
    source: &Source,
    selection: Selection,
    settings: &SearchSettings,
    bursts: &[(i64, i64)],
    clocks: Option<&Alignment>,
) -> Result<(Vec<Vec<TraceRecords>>, Notes), QueryError> {
    let parts = source.parts(selection, &keys_of(&settings.formula))?;
    let workers = vec![vec![Vec::new(); bursts.len()]; parts.count()];
    let visit =
        |gathered: &mut Vec<Vec<TraceRecords>>, records: &mut TraceRecords, _: &mut Notes| {
            align(clocks, records);
            let (from_ns, to_ns) = times_ns(records);
            let first = bursts.partition_point(|(_, close_ns)| *close_ns <= from_ns);
            let after = bursts.partition_point(|(open_ns, _)| *open_ns <= to_ns);
            for (place, (open_ns, close_ns)) in bursts.iter().enumerate().take(after).skip(first) {
                let is_in = |at_ns: i64| *open_ns <= at_ns && at_ns < *close_ns;
                let mut of_burst = records.clone();
                of_burst.spans.retain(|span| is_in(span.start_ns));
                of_burst.events.retain(|event| is_in(event.ts_ns));
                if !of_burst.spans.is_empty() || !of_burst.events.is_empty() {
                    gathered[place].push(of_burst);
                }
            }
        };
    let (found, notes) = source.fold("searching", selection, &parts, workers, visit);
    let mut requests = vec![Vec::new(); bursts.len()];
    for part in found {
        for (all, of_part) in requests.iter_mut().zip(part) {
            all.extend(of_part);
        }
    }
    Ok((requests, notes))
}

fn search_each(
    source: &Source,
    settings: &SearchSettings,
    bursts: &[(i64, i64)],
    requests: &[Vec<TraceRecords>],
) -> Matches {
    let threads = source.parts_wanted().threads().min(bursts.len()).max(1);
    let one = |first: usize| {
        let mut matches = Matches::new(settings);
        let own = bursts.iter().zip(requests).skip(first).step_by(threads);
        for (&(open_ns, close_ns), requests) in own {
            for records in requests {
                note_present(&mut matches.absent, records);
            }
            let is_lossy = source
                .losses()
                .iter()
                .any(|loss| loss.from_ns < close_ns && loss.to_ns > open_ns);
            let unit = Unit::of(requests, (!is_lossy).then_some((open_ns, close_ns)));
            let truth = unit.of_whole(&settings.formula);
            matches.note(truth, (open_ns, 0), || SearchMatch {
                start_ns: open_ns,
                end_ns: close_ns,
                trace: None,
                what: match requests.len() {
                    1 => "1 request".to_owned(),
                    many => format!("{many} requests"),
                },
                is_sure: truth.is_sure(),
                witness: witness(&unit, &settings.formula),
            });
        }
        matches
    };
    let one = &one;
    let mut matches = Matches::new(settings);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || one(first)))
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(found) => matches.merge(found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    matches
}
