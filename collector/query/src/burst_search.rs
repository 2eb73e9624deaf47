//! Search for bursts that satisfy a formula. A burst is held completely in memory while it is
//! searched. The size of the bursts in memory at a time is bounded, so the store may be of any
//! size.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::record::{
    AttributeRecord, EventRecord, PointEvent, RecordOwner, SpanRecord, TraceRecords,
};
use stroboscope_search::{Field, Truth, Unit};
use stroboscope_store::tables::{AttributeKeys, IdRange, read_batches};

use super::candidates::SearchPlan;
use super::first_look::first_look;
use super::kernel_events::KernelEvents;
use super::notes::Notes;
use super::parts::Parts;
use super::query_error::QueryError;
use super::search::{
    LargeBurst, Matches, SearchMatch, SearchReport, SearchSettings, align, note_present, times_ns,
    with_cut, witness,
};
use super::source::{Selection, Source};
use super::time_range::TimeRange;

/// Bytes that a search needs per span or event in addition to its record, to order it by time and
/// to evaluate formulas on it.
const SEARCHED_SPAN_BYTES: u64 = 160;

/// Searches for bursts that satisfy or may satisfy a formula, which is evaluated over the spans and
/// events that start in the burst. Reads the store once to compare clocks, unless the result is
/// cached, and once to determine the size of each burst. Then reads the bursts in slices that fit
/// into memory, and leaves out bursts that are too large even alone.
///
/// # Errors
/// Fails if the store cannot be read, if it has no recorded burst that opened in the selected time
/// range, or if there is too little memory. A formula about the kernel also fails if the kernel was
/// not recorded, or if its events exceed the memory limit.
pub fn search_bursts(
    source: &Source,
    selection: Selection,
    settings: &SearchSettings,
) -> Result<SearchReport, QueryError> {
    let selection = with_cut(selection);
    let mut hosts = BTreeSet::new();
    let batches = read_batches(source.store())?.inspect(|batch| {
        hosts.insert(batch.host.clone());
    });
    let mut recorded = super::recorded::windows(batches);
    recorded.retain(|(open_ns, _)| selection.range.contains(*open_ns));
    if recorded.is_empty() {
        return Err(QueryError::NoBursts(source.name()));
    }
    let look = first_look(source, selection)?;
    let clocks = look.clocks.as_ref();
    let burst = |recorded| Burst::of(recorded, clocks, &hosts);
    let bursts: Vec<Burst> = recorded.into_iter().map(burst).collect();
    let kernel = match settings.formula.names_kernel() {
        true => Some(KernelEvents::read(source, selection.range, clocks)?),
        false => None,
    };
    let fields = settings.formula.fields();
    let reading = BurstReader {
        source,
        settings,
        reads_events: fields.iter().any(|of| matches!(of, Field::Event(_))),
        clocks,
        kernel: kernel.as_ref(),
        selection: Selection {
            range: TimeRange::default(),
            ..selection
        },
    };
    let mut notes = look.notes;
    notes.add_damage(kernel.iter().flat_map(|of| of.damage.clone()).collect());
    let mut matches = Matches::new(settings);
    let bytes = reading.weigh(&bursts, &mut notes)?;
    // Leaves room for the data that are read during the search.
    let memory = &source.memory;
    let held_max = usize::try_from(settings.held_bytes_max).unwrap_or(usize::MAX);
    let held_max = held_max.min(memory.trace_max() / 4);
    let held = memory.take(held_max.min(bytes.iter().sum::<u64>() as usize));
    let _held = held.map_err(QueryError::lack_of_requests)?;
    let (slices, large) = slices(&bursts, &bytes, held_max as u64);
    let (mut held_bytes, mut slice_count) = (0, 0);
    for slice in &slices {
        let requests = reading.gather(slice, &mut notes)?;
        let all = requests.iter().flatten();
        held_bytes = all.map(bytes_of).sum::<u64>().max(held_bytes);
        slice_count += 1;
        matches.merge(reading.search_each(slice, &requests));
    }
    let plan = SearchPlan {
        all_because: Some("bursts are searched with all of their requests"),
        read: notes.traces,
        of: notes.traces,
        ..SearchPlan::default()
    };
    let mut report = matches.report(notes, plan);
    (report.large, report.held_bytes, report.slices) = (large, held_bytes, slice_count);
    Ok(report)
}

/// Times of a burst. Each process opens its window by its host's clock. If clocks differ, windows
/// are not open at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Burst {
    /// Window of the burst by the clocks that recorded it, in ns since the Unix epoch.
    recorded_ns: (i64, i64),
    /// Time from the first opening to the last close of the hosts' windows, on the hosts' common
    /// time axis, in ns since the Unix epoch.
    any_ns: (i64, i64),
    /// Time in which the windows of all hosts were open, on the hosts' common time axis, in ns
    /// since the Unix epoch; `None` if there was none.
    all_ns: Option<(i64, i64)>,
}

impl Burst {
    fn of(recorded_ns: (i64, i64), clocks: Option<&Alignment>, hosts: &BTreeSet<Arc<str>>) -> Self {
        let windows = hosts.iter().map(|host| {
            let common_ns = |at_ns| {
                let converted = clocks.and_then(|clocks| clocks.convert(host, at_ns));
                converted.map_or(at_ns, |(ns, _)| ns)
            };
            (common_ns(recorded_ns.0), common_ns(recorded_ns.1))
        });
        let both = windows.map(|window| (window, window)).reduce(|a, b| {
            (
                (a.0.0.min(b.0.0), a.0.1.max(b.0.1)),
                (a.1.0.max(b.1.0), a.1.1.min(b.1.1)),
            )
        });
        let (any_ns, all_ns) = both.unwrap_or((recorded_ns, recorded_ns));
        Self {
            recorded_ns,
            any_ns,
            all_ns: (all_ns.0 < all_ns.1).then_some(all_ns),
        }
    }
}

/// Splits the bursts, in order, into slices that fit into memory. Also returns the bursts that are
/// too large to fit even alone.
fn slices(
    bursts: &[Burst],
    bytes: &[u64],
    held_bytes_max: u64,
) -> (Vec<Vec<Burst>>, Vec<LargeBurst>) {
    let (mut slices, mut large) = (Vec::new(), Vec::new());
    let (mut slice, mut sum) = (Vec::new(), 0);
    for (&burst, &bytes) in bursts.iter().zip(bytes) {
        if bytes > held_bytes_max {
            large.push(LargeBurst {
                open_ns: burst.recorded_ns.0,
                close_ns: burst.recorded_ns.1,
                bytes,
            });
            continue;
        }
        if sum + bytes > held_bytes_max {
            slices.push(std::mem::take(&mut slice));
            sum = 0;
        }
        slice.push(burst);
        sum += bytes;
    }
    slices.push(slice);
    slices.retain(|slice| !slice.is_empty());
    (slices, large)
}

/// Estimates the memory in bytes that a request's records occupy in a search.
fn bytes_of(records: &TraceRecords) -> u64 {
    let attributes = records.attributes.iter();
    let values = attributes.map(|one| (size_of::<AttributeRecord>() + one.value.len()) as u64);
    let (spans, events) = (records.spans.len() as u64, records.events.len() as u64);
    let in_spans = records.spans.iter().map(|span| span.events.len() as u64);
    size_of::<TraceRecords>() as u64
        + spans * (size_of::<SpanRecord>() as u64 + SEARCHED_SPAN_BYTES)
        + events * (size_of::<EventRecord>() as u64 + SEARCHED_SPAN_BYTES)
        + in_spans.sum::<u64>() * size_of::<PointEvent>() as u64
        + values.sum::<u64>()
}

/// Returns the spans of a request, and its events of event logs, that start in the interval, with
/// their attributes. Returns `None` if nothing starts in the interval.
fn part_of(records: &TraceRecords, (open_ns, close_ns): (i64, i64)) -> Option<TraceRecords> {
    let is_in = |at_ns: i64| open_ns <= at_ns && at_ns < close_ns;
    let spans = records.spans.iter().filter(|span| is_in(span.start_ns));
    let events = records.events.iter().filter(|event| is_in(event.ts_ns));
    let mut part = TraceRecords {
        id: records.id,
        spans: spans.cloned().collect(),
        events: events.cloned().collect(),
        clocks: records.clocks.clone(),
        ..TraceRecords::default()
    };
    if part.spans.is_empty() && part.events.is_empty() {
        return None;
    }
    let spans = part.spans.iter();
    let spans = spans.map(|span| RecordOwner::Span(span.span_id));
    let events = part.events.iter();
    let events = events.map(|event| RecordOwner::Event(event.seq));
    let owners: HashSet<RecordOwner> = spans.chain(events).collect();
    let own = records.attributes.iter();
    part.attributes = own
        .filter(|attribute| match attribute.owner {
            RecordOwner::InSpan(span_id, _) => owners.contains(&RecordOwner::Span(span_id)),
            owner => owners.contains(&owner),
        })
        .cloned()
        .collect();
    Some(part)
}

/// Returns the part of a request in each burst that it has records in, with the burst's index.
fn parts_of<'a>(
    records: &'a TraceRecords,
    bursts: &'a [Burst],
) -> impl Iterator<Item = (usize, TraceRecords)> + 'a {
    let (from_ns, to_ns) = times_ns(records);
    let first = bursts.partition_point(|burst| burst.any_ns.1 <= from_ns);
    let after = bursts.partition_point(|burst| burst.any_ns.0 <= to_ns);
    let touched = bursts.iter().enumerate().take(after).skip(first);
    touched.filter_map(|(place, burst)| Some((place, part_of(records, burst.any_ns)?)))
}

struct BurstReader<'a> {
    source: &'a Source,
    settings: &'a SearchSettings,
    /// True if the formula reads events inside spans.
    reads_events: bool,
    clocks: Option<&'a Alignment>,
    kernel: Option<&'a KernelEvents>,
    selection: Selection,
}

impl BurstReader<'_> {
    /// Returns the parts of the store that may hold records of these bursts, which must be in order
    /// of time.
    fn parts(&self, bursts: &[Burst]) -> Result<Parts, QueryError> {
        let recorded_ns = |burst: Option<&Burst>| burst.map_or((0, 0), |of| of.recorded_ns);
        let (from_ns, to_ns) = (recorded_ns(bursts.first()).0, recorded_ns(bursts.last()).1);
        let keys = AttributeKeys::of(self.settings.formula.keys());
        let is_as_recorded = self.clocks.is_none();
        let is_any = self.source.root().is_none() && self.source.filter().is_empty();
        let times_ns = match is_as_recorded && is_any {
            // A search looks only at the part of a request that starts in a burst.
            true => from_ns..=to_ns,
            false => TimeRange {
                since_ns: Some(from_ns),
                until_ns: Some(to_ns),
            }
            .records_ns(),
        };
        self.source
            .parts_between(times_ns, Some(&IdRange::ALL), &keys)
    }

    /// Aligns the records of a request, and drops events inside spans if the formula reads none of
    /// them.
    fn prepare(&self, records: &mut TraceRecords) {
        align(self.clocks, records);
        if !self.reads_events {
            for span in &mut records.spans {
                span.events = Vec::new();
            }
        }
    }

    /// Estimates the memory in bytes that the records of each burst occupy.
    fn weigh(&self, bursts: &[Burst], notes: &mut Notes) -> Result<Vec<u64>, QueryError> {
        let parts = self.parts(bursts)?;
        let workers = vec![vec![0_u64; bursts.len()]; parts.count()];
        let visit = |bytes: &mut Vec<u64>, records: &mut TraceRecords, _: &mut Notes| {
            self.prepare(records);
            for (place, part) in parts_of(records, bursts) {
                bytes[place] += bytes_of(&part);
            }
        };
        let (source, selection) = (self.source, self.selection);
        let (weighed, of_reading) =
            source.fold("weighing bursts", selection, &parts, workers, visit)?;
        notes.add_unread(of_reading);
        let mut bytes = vec![0; bursts.len()];
        for of_part in weighed {
            let all = bytes.iter_mut().zip(of_part);
            all.for_each(|(sum, of_burst)| *sum += of_burst);
        }
        Ok(bytes)
    }

    /// Returns the requests of each burst, with the spans and events that start in it.
    fn gather(
        &self,
        bursts: &[Burst],
        notes: &mut Notes,
    ) -> Result<Vec<Vec<TraceRecords>>, QueryError> {
        let parts = self.parts(bursts)?;
        let workers = vec![vec![Vec::new(); bursts.len()]; parts.count()];
        let visit =
            |gathered: &mut Vec<Vec<TraceRecords>>, records: &mut TraceRecords, _: &mut Notes| {
                self.prepare(records);
                for (place, part) in parts_of(records, bursts) {
                    gathered[place].push(part);
                }
            };
        let (source, selection) = (self.source, self.selection);
        let (found, of_slice) = source.fold("searching", selection, &parts, workers, visit)?;
        notes.add_unread(of_slice);
        let mut requests = vec![Vec::new(); bursts.len()];
        for part in found {
            for (all, of_part) in requests.iter_mut().zip(part) {
                all.extend(of_part);
            }
        }
        Ok(requests)
    }

    fn search_each(&self, bursts: &[Burst], requests: &[Vec<TraceRecords>]) -> Matches {
        let threads = self.source.parts_wanted.threads();
        let threads = threads.min(bursts.len()).max(1);
        let one = |first: usize| {
            let mut matches = Matches::new(self.settings);
            let own = bursts.iter().zip(requests).skip(first).step_by(threads);
            own.for_each(|(burst, requests)| self.search_one(*burst, requests, &mut matches));
            matches
        };
        let one = &one;
        let mut matches = Matches::new(self.settings);
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

    fn search_one(&self, burst: Burst, requests: &[TraceRecords], matches: &mut Matches) {
        let (open_ns, close_ns) = burst.recorded_ns;
        for records in requests {
            note_present(&mut matches.absent, records);
        }
        let mut losses = self.source.losses().iter();
        let is_lossy = losses.any(|loss| loss.from_ns < close_ns && loss.to_ns > open_ns);
        let mut unit = Unit::of(requests, burst.all_ns.filter(|_| !is_lossy));
        if let Some(kernel) = self.kernel {
            let (any_from_ns, any_to_ns) = burst.any_ns;
            let is_in = |at_ns: i64| any_from_ns <= at_ns && at_ns < any_to_ns;
            let events = requests.iter().enumerate().flat_map(|(at, records)| {
                let own = kernel.of(records).iter();
                own.filter(|event| is_in(event.start_ns))
                    .map(move |event| (at, event))
            });
            let hosts = requests.iter().flat_map(TraceRecords::hosts);
            unit = unit.with_kernel(events, kernel.is_seen(hosts, burst.any_ns));
        }
        let truth: Truth = unit.of_whole(&self.settings.formula);
        let first = || requests.iter().min_by_key(|of| (times_ns(of), of.id));
        matches.note(truth, (open_ns, 0), || {
            let witness = witness(&unit, &self.settings.formula);
            let of_witness = witness.first().map(|span| span.trace);
            SearchMatch {
                start_ns: open_ns,
                end_ns: close_ns,
                trace: None,
                example: of_witness.or_else(|| first().map(|of| of.id.0)),
                what: match requests.len() {
                    1 => "1 request".to_owned(),
                    many => format!("{many} requests"),
                },
                is_sure: truth.is_sure(),
                witness,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::SpanFlags;
    use stroboscope_search::parse;

    use super::*;

    #[test]
    fn a_part_of_a_request_has_the_events_inside_its_spans() {
        let span = |(span_id, start_ns)| SpanRecord {
            span_id,
            parent_id: 0,
            service: "shop".into(),
            name: "order".into(),
            host: "h".into(),
            process: 1,
            start_ns,
            end_ns: start_ns + 5,
            flags: SpanFlags(0),
            events: vec![PointEvent {
                time_ns: start_ns + 1,
                name: "reserved".into(),
                element: None,
            }],
        };
        let attribute = |span_id| AttributeRecord {
            owner: RecordOwner::InSpan(span_id, 0),
            key: "shard".into(),
            value: span_id.to_string().into(),
        };
        let records = TraceRecords {
            spans: [(1, 5), (2, 15)].map(span).to_vec(),
            attributes: [1, 2].map(attribute).to_vec(),
            ..TraceRecords::default()
        };
        let part = part_of(&records, (10, 20)).unwrap();
        let unit = Unit::of([&part], Some((10, 20)));
        let check = |formula: &str, expected: Truth| {
            assert_eq!(unit.of_whole(&parse(formula).unwrap()), expected);
        };
        check(
            r#"{ event:name = "reserved" && event.shard = 2 }"#,
            Truth::True,
        );
        check("{ event.shard = 1 }", Truth::False);
    }

    #[test]
    fn slices_fit_and_leave_nothing_out() {
        let hosts = BTreeSet::new();
        let bursts: Vec<Burst> = (0..6)
            .map(|at| Burst::of((at * 10, at * 10 + 4), None, &hosts))
            .collect();
        let (found, large) = slices(&bursts, &[60, 40, 1, 101, 0, 99], 100);
        let sizes: Vec<usize> = found.iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 3], "{found:?}");
        assert_eq!(large.len(), 1);
        assert_eq!((large[0].open_ns, large[0].bytes), (30, 101));
        assert_eq!(slices(&[], &[], 100), (Vec::new(), Vec::new()));
    }
}
