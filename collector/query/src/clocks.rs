//! Evidence from the traces about the clocks of their hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::clock::{Alignment, ClockEvidence};
use stroboscope_analysis::record::TraceRecords;

use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};
use stroboscope_store::tables::{AttributeKeys, ShardPlan};

/// Clock of one host, compared with the clock of the reference host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostReport {
    /// Name of the host.
    pub host: Arc<str>,
    /// Last timestamp of the host by its own clock, in ns since the Unix epoch.
    pub last_ns: i64,
    /// Lead over the reference host at that time, and the error bound of the lead, both in ns;
    /// `None` if nothing ties the host to the reference host.
    pub ahead_ns: Option<(i128, u64)>,
    /// Number of the host's island: hosts with the same number have a common time. The reference
    /// host's number is 0.
    pub island: usize,
}

/// Relations between the clocks of all hosts.
#[derive(Debug)]
pub struct ClockReport {
    /// Alignment of the hosts' clocks, with a report on each pair of hosts.
    pub alignment: Alignment,
    /// Hosts in order of name.
    pub hosts: Vec<HostReport>,
    /// Number of round trips, summed over all pairs of hosts.
    pub round_trips: u64,
    /// Number of round trips that no clock offset explains, because the server's part is longer
    /// than the whole round trip, by more than the resolution of the timestamps. Tasks of event
    /// logs that cross hosts also count if their lines from one host are not in the order of its
    /// timestamps.
    pub impossible: u64,
    /// Number of round trips that the alignment contradicts beyond all error bounds. Probably, a
    /// clock was set, or lines of an event log are not in the order of their threads.
    pub contradictions: u64,
    /// Number of refusals due to the limit on hosts or on pairs of hosts.
    pub refused: u64,
    /// Notes about the data that the query read.
    pub notes: Notes,
}

/// Compares the clocks of all hosts in two passes over the store. The first pass aligns the clocks.
/// The second pass checks the round trips against the alignment. `reference` names the host that
/// the others are related to. Without it, this is the host with the most round trips.
///
/// # Errors
/// Fails if the store cannot be read, or if there is too little memory.
pub fn clocks(
    source: &Source,
    selection: Selection,
    reference: Option<&str>,
) -> Result<ClockReport, QueryError> {
    let (evidence, seen, notes) = compared(source, selection, note_last)?;
    let mut last = LastSeen::default();
    for (host, last_ns) in seen.iter().flatten() {
        note_host(host, *last_ns, &mut last);
    }
    let alignment = evidence.align(reference);
    let hosts_of = |host: &Arc<str>| {
        let mut islands = alignment.islands().iter();
        islands.position(|island| island.contains(host))
    };
    let parts = source.parts(selection, &AttributeKeys::none())?;
    let workers = vec![0; parts.count()];
    let visit = |contradictions: &mut u64, records: &mut TraceRecords, _: &mut Notes| {
        *contradictions += alignment.contradictions(records);
    };
    let (contradictions, _) = source.fold("checking clocks", selection, &parts, workers, visit)?;
    let mut alone = alignment.islands().len()..;
    let hosts = last.into_iter().map(|(host, last_ns)| {
        let converted = alignment.convert(&host, last_ns);
        let ahead_ns = converted.map(|(by_reference_ns, error_ns)| {
            (i128::from(last_ns) - i128::from(by_reference_ns), error_ns)
        });
        // Nothing ties a host without evidence to another one.
        let island = hosts_of(&host).unwrap_or_else(|| alone.next().unwrap_or(usize::MAX));
        HostReport {
            host,
            last_ns,
            ahead_ns,
            island,
        }
    });
    Ok(ClockReport {
        hosts: hosts.collect(),
        round_trips: alignment.pairs().iter().map(|pair| pair.round_trips).sum(),
        impossible: evidence.impossible(),
        refused: evidence.refused(),
        contradictions: contradictions.iter().sum(),
        alignment,
        notes,
    })
}

/// Last timestamp of each host, in ns since the Unix epoch.
type LastSeen = BTreeMap<Arc<str>, i64>;

/// Reads all selected traces once. Returns the evidence about their hosts' clocks, the values that
/// `also` collects from the traces of each part of the store, and the notes taken while reading.
pub(super) fn compared<T: Default + Send>(
    source: &Source,
    selection: Selection,
    also: impl Fn(&TraceRecords, &mut T) + Sync,
) -> Result<(ClockEvidence, Vec<T>, Notes), QueryError> {
    let parts = source.parts(selection, &AttributeKeys::none())?;
    let workers = (0..parts.count()).map(|_| <(ClockEvidence, T)>::default());
    let visit = |seen: &mut (ClockEvidence, T), records: &mut TraceRecords, _: &mut Notes| {
        seen.0.observe(records);
        also(records, &mut seen.1);
    };
    let what = "comparing clocks";
    let (seen, notes) = source.fold(what, selection, &parts, workers.collect(), visit)?;
    let mut evidence = ClockEvidence::new();
    let mut noted = Vec::with_capacity(seen.len());
    for (of_part, more) in seen {
        evidence.merge(&of_part);
        noted.push(more);
    }
    source.kernel_clocks().note_in(&mut evidence);
    Ok((evidence, noted, notes))
}

/// Number of traces for a first estimate of the clocks.
const SAMPLED_TRACES: u64 = 256;

/// Number of rows of the lowest trace ids that are opened first. They usually suffice for the
/// estimate.
const SAMPLED_ROWS: u64 = 1 << 18;

/// Estimates the alignment of the clocks from the first [`SAMPLED_TRACES`] traces. It mostly agrees
/// with the alignment from all traces, so one pass over the store usually suffices.
///
/// Opens only the lowest trace ids at first. Opening more files than can be read together merges
/// their rows, which takes as long as a pass over the store.
pub(super) fn sampled(source: &Source, selection: Selection) -> Result<Alignment, QueryError> {
    sampled_within(source, selection, SAMPLED_ROWS)
}

/// Estimates the alignment like [`sampled`], and first opens the lowest trace ids with about `rows`
/// rows.
fn sampled_within(
    source: &Source,
    selection: Selection,
    rows: u64,
) -> Result<Alignment, QueryError> {
    let mut evidence = ClockEvidence::new();
    let mut left = SAMPLED_TRACES;
    let plan = ShardPlan::of(source.store(), &selection.range.records_ns())?;
    for ids in plan.first_and_rest(rows) {
        let (what, keys) = ("looking at the clocks", AttributeKeys::none());
        source.for_each_trace_of(&ids, what, selection, &keys, |records, _| {
            evidence.observe(records);
            left -= 1;
            left > 0
        })?;
        if left == 0 {
            break;
        }
    }
    source.kernel_clocks().note_in(&mut evidence);
    Ok(as_selected(&evidence, selection))
}

/// Returns the alignment of the clocks. It trusts the recorded timestamps if
/// `selection.trust_clocks` is set.
pub(super) fn as_selected(evidence: &ClockEvidence, selection: Selection) -> Alignment {
    let alignment = evidence.align(None);
    if selection.trust_clocks {
        alignment.trusting()
    } else {
        alignment
    }
}

fn note_last(records: &TraceRecords, last: &mut LastSeen) {
    let spans = records.spans.iter().map(|span| (&span.host, span.end_ns));
    let events = records.events.iter();
    let events = events.map(|event| (&event.host, event.ts_ns));
    for (host, at_ns) in spans.chain(events) {
        note_host(host, at_ns, last);
    }
}

fn note_host(host: &Arc<str>, at_ns: i64, last: &mut LastSeen) {
    match last.get_mut(host) {
        Some(last_ns) => *last_ns = at_ns.max(*last_ns),
        None => {
            last.insert(host.clone(), at_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use stroboscope_analysis::clock::HOSTS_MAX;
    use stroboscope_fixtures::workload;
    use stroboscope_store::record::{Rows, SpanRow};
    use stroboscope_store::tables::{PartitionRule, Store, write_rows};

    #[test]
    fn the_estimate_is_from_the_first_traces_however_few_are_opened() {
        const REQUESTS: u64 = 400;
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let at_ns = workload::EPOCH_NS as i64;
        let rule = PartitionRule::received(at_ns, at_ns);
        for file in 0..workload::files(REQUESTS) {
            let rows = workload::rows(3, REQUESTS, file);
            write_rows(&store, &format!("seg-{file:010}"), rows, &rule).unwrap();
        }
        let source = Source::open(directory.path(), runtime.handle().clone()).unwrap();
        let (selection, mut left) = (Selection::default(), SAMPLED_TRACES);
        let (keys, mut evidence) = (AttributeKeys::none(), ClockEvidence::new());
        let read = source.for_each_trace("reading", selection, &keys, |records, _| {
            evidence.observe(records);
            left -= 1;
            left > 0
        });
        assert!(read.is_ok() && left == 0);
        let expected = as_selected(&evidence, selection);
        assert!(expected.pairs().len() > 1);
        for rows in [0, 1, 500, 3_000, u64::MAX] {
            let found = sampled_within(&source, selection, rows).unwrap();
            assert_eq!(found, expected, "{rows} rows");
        }
    }

    #[test]
    fn hosts_beyond_the_limit_have_no_common_time() {
        const HOSTS: usize = HOSTS_MAX + 3;
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let at_ns = workload::EPOCH_NS as i64;
        let mut rows = Rows::default();
        for number in 1..=HOSTS {
            let [service, name, host] =
                ["s", "n", &format!("h{number}")].map(|text| rows.strings.intern(text));
            rows.spans.push(SpanRow {
                trace_id: number as u128,
                trace_name: None,
                span_id: 1,
                parent_id: 0,
                service,
                name,
                host,
                process: 1,
                start_ns: at_ns,
                end_ns: at_ns + 1,
                flags: 0,
                attributes: None,
            });
        }
        let rule = PartitionRule::received(at_ns, at_ns);
        write_rows(&store, "seg-0000000001", rows, &rule).unwrap();
        let source = Source::open(directory.path(), runtime.handle().clone()).unwrap();
        let found = clocks(&source, Selection::default(), None).unwrap();
        let islands: BTreeSet<usize> = found.hosts.iter().map(|host| host.island).collect();
        assert_eq!((found.hosts.len(), islands.len()), (HOSTS, HOSTS));
        assert!(found.refused > 0);
    }
}
