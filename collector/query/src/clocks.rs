//! What the traces say about the clocks of their hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::clock::{Alignment, ClockEstimates};
use stroboscope_analysis::record::TraceRecords;

use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};
use stroboscope_store::tables::AttributeKeys;

/// One host's clock beside that of the reference host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostReport {
    /// The host.
    pub host: Arc<str>,
    /// Its last timestamp, by its own clock, ns since the Unix epoch.
    pub last_ns: i64,
    /// How far it was ahead of the reference host then, and how far that may be off, both in ns; `None` where no
    /// nothing ties it to the reference host.
    pub ahead_ns: Option<(i128, u64)>,
    /// Hosts of one number have a common time; the reference host's is 0.
    pub island: usize,
}

/// How the clocks of all hosts are related.
#[derive(Debug)]
pub struct ClockReport {
    /// Every pair of hosts, and who could not be aligned.
    pub alignment: Alignment,
    /// Every host, by name.
    pub hosts: Vec<HostReport>,
    /// Round trips, of all pairs.
    pub round_trips: u64,
    /// Round trips that no offset explains: the server's part is longer than the whole.
    pub impossible: u64,
    /// Round trips that the alignment contradicts beyond all error bounds: a clock was set, or an event log's lines are
    /// not in the order of their threads.
    pub contradictions: u64,
    /// How many times a host or a pair of hosts found no room.
    pub refused: u64,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// Compares the clocks of all hosts, in two passes over the store: one that aligns them, and one that checks each round
/// trip against the alignment. `reference` names the host that the others are related to; without one it is the
/// host with the most round trips.
///
/// # Errors
/// When the store cannot be read.
pub fn clocks(
    source: &Source,
    selection: Selection,
    reference: Option<&str>,
) -> Result<ClockReport, QueryError> {
    let parts = source.parts(selection, &AttributeKeys::none())?;
    let workers = (0..parts.count()).map(|_| Seen::default()).collect();
    let (seen, notes) = source.fold(
        "comparing clocks",
        selection,
        &parts,
        workers,
        |seen: &mut Seen, records, _| {
            seen.estimates.observe(records);
            note_last(records, &mut seen.last);
        },
    )?;
    let Seen {
        mut estimates,
        mut last,
    } = Seen::default();
    for part in seen {
        estimates.merge(&part.estimates);
        part.last
            .iter()
            .for_each(|(host, last_ns)| note_host(host, *last_ns, &mut last));
    }
    source.kernel_clocks().note_in(&mut estimates);
    let alignment = estimates.align(reference);
    let hosts_of = |host: &Arc<str>| {
        alignment
            .islands()
            .iter()
            .position(|island| island.contains(host))
    };
    let workers = vec![0; parts.count()];
    let (contradictions, _) = source.fold(
        "checking clocks",
        selection,
        &parts,
        workers,
        |contradictions: &mut u64, records, _| {
            *contradictions += alignment.contradictions(records);
        },
    )?;
    let contradictions = contradictions.iter().sum();
    let hosts = last.into_iter().map(|(host, last_ns)| {
        let converted = alignment.convert(&host, last_ns);
        let ahead_ns = converted.map(|(by_reference_ns, error_ns)| {
            (i128::from(last_ns) - i128::from(by_reference_ns), error_ns)
        });
        let island = hosts_of(&host).unwrap_or_default();
        HostReport {
            host,
            last_ns,
            ahead_ns,
            island,
        }
    });
    let hosts = hosts.collect();
    Ok(ClockReport {
        hosts,
        round_trips: alignment.pairs().iter().map(|pair| pair.round_trips).sum(),
        impossible: estimates.impossible(),
        refused: estimates.refused(),
        contradictions,
        alignment,
        notes,
    })
}

/// What one part of the store has shown.
#[derive(Default)]
struct Seen {
    estimates: ClockEstimates,
    last: BTreeMap<Arc<str>, i64>,
}

/// So many traces say what clocks are like, to begin with.
const SAMPLED_TRACES: u64 = 256;

/// What the first traces say about the clocks: mostly what all of them say, so that one pass over the store will do.
pub(super) fn sampled(source: &Source, selection: Selection) -> Result<Alignment, QueryError> {
    let mut estimates = ClockEstimates::new();
    let mut left = SAMPLED_TRACES;
    source.for_each_trace(
        "looking at the clocks",
        selection,
        &AttributeKeys::none(),
        |records, _| {
            estimates.observe(records);
            left -= 1;
            left > 0
        },
    )?;
    source.kernel_clocks().note_in(&mut estimates);
    Ok(as_selected(&estimates, selection))
}

/// How to take timestamps.
pub(super) fn as_selected(estimates: &ClockEstimates, selection: Selection) -> Alignment {
    let alignment = estimates.align(None);
    if selection.trust_clocks {
        alignment.trusting()
    } else {
        alignment
    }
}

/// How to take the timestamps of the selected traces, if not as they are: as `infer` does.
///
/// # Errors
/// When the store cannot be read.
pub fn alignment(source: &Source, selection: Selection) -> Result<Option<Alignment>, QueryError> {
    let parts = source.parts(selection, &AttributeKeys::none())?;
    let workers = (0..parts.count()).map(|_| ClockEstimates::new()).collect();
    let (seen, _) = source.fold(
        "comparing clocks",
        selection,
        &parts,
        workers,
        |estimates: &mut ClockEstimates, records, _| {
            estimates.observe(records);
        },
    )?;
    let mut estimates = ClockEstimates::new();
    seen.iter().for_each(|part| estimates.merge(part));
    source.kernel_clocks().note_in(&mut estimates);
    Ok(Some(as_selected(&estimates, selection)).filter(|alignment| !alignment.is_exact()))
}

fn note_last(records: &TraceRecords, last: &mut BTreeMap<Arc<str>, i64>) {
    let spans = records.spans.iter().map(|span| (&span.host, span.end_ns));
    for (host, at_ns) in spans.chain(
        records
            .events
            .iter()
            .map(|event| (&event.host, event.ts_ns)),
    ) {
        note_host(host, at_ns, last);
    }
}

fn note_host(host: &Arc<str>, at_ns: i64, last: &mut BTreeMap<Arc<str>, i64>) {
    match last.get_mut(host) {
        Some(last_ns) => *last_ns = at_ns.max(*last_ns),
        None => {
            last.insert(host.clone(), at_ns);
        }
    }
}
