//! Checks that received batches follow the protocol and the limits.

use stroboscope_proto::v1::{Batch, Events, Process, Spans};

use super::Refusal;
use super::attributes::{AttributeColumns, check_indexes, check_length};
use crate::limits::Limits;

/// Batch that passed all checks, so that its conversion to rows cannot fail.
#[derive(Clone, Debug)]
pub struct CheckedBatch {
    pub(super) batch: Batch,
    pub(super) incarnation: u128,
}

impl CheckedBatch {
    /// Decodes and checks the protobuf of a batch.
    ///
    /// # Errors
    /// Returns the reason if the batch is refused.
    pub fn from_bytes(bytes: &[u8], limits: &Limits) -> Result<Self, Refusal> {
        use prost::Message as _;
        let undecodable = |error: prost::DecodeError| Refusal::Undecodable(error.to_string());
        Self::check(Batch::decode(bytes).map_err(undecodable)?, limits)
    }

    /// Checks a batch.
    ///
    /// # Errors
    /// Returns the first problem found.
    pub fn check(batch: Batch, limits: &Limits) -> Result<Self, Refusal> {
        let process = batch.process.as_ref().ok_or(Refusal::NoProcess)?;
        let incarnation = check_process(process, limits)?;
        check_strings(&batch.strings, limits)?;
        let (spans, events) = counts(&batch);
        let (count, limit) = (spans.saturating_add(events), limits.records_per_batch_max);
        if count > limit {
            return Err(Refusal::TooManyRecords { count, limit });
        }
        let mut attribute_bytes = 0;
        if let Some(spans) = &batch.spans {
            check_spans(spans, batch.strings.len())?;
            let (attributes, count) =
                (span_attributes(spans, &batch.strings), spans.span_ids.len());
            attributes.check(count, limits, &mut attribute_bytes)?;
        }
        if let Some(events) = &batch.events {
            check_events(events, batch.strings.len())?;
            let attributes = event_attributes(events, &batch.strings);
            attributes.check(events.span_ids.len(), limits, &mut attribute_bytes)?;
        }
        check_notes(&batch, limits)?;
        check_plausible(&batch, process)?;
        Ok(Self { batch, incarnation })
    }

    /// Returns the incarnation of the process that sent the batch; never 0.
    #[must_use]
    pub fn incarnation(&self) -> u128 {
        self.incarnation
    }

    /// Returns the batch's sequence number within the incarnation.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.batch.sequence
    }

    /// Returns the number of spans and events in the batch.
    #[must_use]
    pub fn records(&self) -> usize {
        let (spans, events) = counts(&self.batch);
        spans + events
    }

    /// Returns the batch in its protobuf form.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        &self.batch
    }
}

pub(super) fn counts(batch: &Batch) -> (usize, usize) {
    let (spans, events) = (batch.spans.as_ref(), batch.events.as_ref());
    let events = events.map_or(0, |events| events.span_ids.len());
    (spans.map_or(0, |spans| spans.span_ids.len()), events)
}

pub(super) fn span_attributes<'a>(spans: &'a Spans, strings: &'a [String]) -> AttributeColumns<'a> {
    AttributeColumns {
        counts: &spans.attribute_count,
        attributes: spans.attributes.as_ref(),
        strings,
        counts_name: "spans.attribute_count",
    }
}

pub(super) fn event_attributes<'a>(
    events: &'a Events,
    strings: &'a [String],
) -> AttributeColumns<'a> {
    AttributeColumns {
        counts: &events.attribute_count,
        attributes: events.attributes.as_ref(),
        strings,
        counts_name: "events.attribute_count",
    }
}

fn check_process(process: &Process, limits: &Limits) -> Result<u128, Refusal> {
    for text in [&process.service, &process.host, &process.sdk_version] {
        check_string(text, limits)?;
    }
    check_time("process.started_ns", 0, process.started_ns)?;
    match <[u8; 16]>::try_from(&process.incarnation[..]).map(u128::from_be_bytes) {
        Ok(incarnation) if incarnation != 0 => Ok(incarnation),
        _ => Err(Refusal::Incarnation(process.incarnation.len())),
    }
}

fn check_string(text: &str, limits: &Limits) -> Result<(), Refusal> {
    let (bytes, limit) = (text.len(), limits.string_bytes_max);
    if bytes > limit {
        Err(Refusal::StringTooLong { bytes, limit })
    } else {
        Ok(())
    }
}

fn check_strings(strings: &[String], limits: &Limits) -> Result<(), Refusal> {
    if strings.first().is_some_and(|first| !first.is_empty()) {
        return Err(Refusal::FirstString);
    }
    let mut strings = strings.iter();
    strings.try_for_each(|text| check_string(text, limits))
}

fn check_spans(spans: &Spans, strings: usize) -> Result<(), Refusal> {
    let count = spans.span_ids.len();
    check_length("spans.trace_ids (bytes)", spans.trace_ids.len(), count * 16)?;
    check_length("spans.parent_ids", spans.parent_ids.len(), count)?;
    check_length("spans.name_string", spans.name_string.len(), count)?;
    check_length("spans.start_ns", spans.start_ns.len(), count)?;
    check_length("spans.duration_ns", spans.duration_ns.len(), count)?;
    check_length("spans.flags", spans.flags.len(), count)?;
    check_indexes("spans.name_string", &spans.name_string, strings)?;
    check_times("spans.start_ns", spans.base_ns, &spans.start_ns)?;
    let mut start_ns = spans.base_ns;
    for (at, (&delta_ns, &duration_ns)) in spans.start_ns.iter().zip(&spans.duration_ns).enumerate()
    {
        start_ns = start_ns.wrapping_add_signed(delta_ns);
        check_time(
            "spans.duration_ns",
            at,
            start_ns.saturating_add(duration_ns),
        )?;
    }
    Ok(())
}

fn check_events(events: &Events, strings: usize) -> Result<(), Refusal> {
    let count = events.span_ids.len();
    let id_bytes = events.trace_ids.len();
    check_length("events.trace_ids (bytes)", id_bytes, count * 16)?;
    check_length("events.name_string", events.name_string.len(), count)?;
    check_length("events.time_ns", events.time_ns.len(), count)?;
    check_indexes("events.name_string", &events.name_string, strings)?;
    check_times("events.time_ns", events.base_ns, &events.time_ns)
}

/// Checks that delta-coded times stay at least 0 and below 2^63.
fn check_times(column: &'static str, base_ns: u64, deltas_ns: &[i64]) -> Result<(), Refusal> {
    let mut time_ns = check_time(column, 0, base_ns)?;
    for (at, &delta_ns) in deltas_ns.iter().enumerate() {
        time_ns = match time_ns.checked_add(delta_ns) {
            Some(time_ns) if time_ns >= 0 => time_ns,
            _ => return Err(Refusal::Time { column, at }),
        };
    }
    Ok(())
}

/// Refuses a batch whose sequence number or count of losses is too high for the age of its process.
/// Such a number would distort the totals of all processes permanently.
fn check_plausible(batch: &Batch, process: &Process) -> Result<(), Refusal> {
    /// Maximum sequence number: a base value, and the increase per second of the process's age.
    /// SDKs send far fewer batches.
    const BATCHES: (u64, u64) = (1 << 24, 10_000);
    const RECORDS: (u64, u64) = (1 << 32, 1_000_000_000);
    let age_s = batch.to_ns.saturating_sub(process.started_ns) / 1_000_000_000;
    let most = |(first, a_second): (u64, u64)| age_s.saturating_mul(a_second).saturating_add(first);
    let sequence = [("sequence", batch.sequence, most(BATCHES))];
    let losses = batch.losses.iter();
    let losses = losses.map(|loss| ("losses.records", loss.records, most(RECORDS)));
    for (what, value, limit) in sequence.into_iter().chain(losses) {
        if value > limit {
            return Err(Refusal::Implausible { what, value, limit });
        }
    }
    Ok(())
}

fn check_notes(batch: &Batch, limits: &Limits) -> Result<(), Refusal> {
    let limit = limits.notes_per_batch_max;
    let lengths = [
        ("windows", batch.windows.len()),
        ("losses", batch.losses.len()),
        ("clock steps", batch.clock_steps.len()),
        ("loads", batch.loads.len()),
        ("provenance logs", batch.provenance.len()),
    ];
    if let Some(&(what, count)) = lengths.iter().find(|(_, count)| *count > limit) {
        return Err(Refusal::TooManyNotes { what, count, limit });
    }
    check_interval("the batch", "from_ns, to_ns", 0, batch.from_ns, batch.to_ns)?;
    for (at, window) in batch.windows.iter().enumerate() {
        check_interval("a window", "windows", at, window.open_ns, window.close_ns)?;
    }
    for (at, load) in batch.loads.iter().enumerate() {
        check_interval("a load", "loads", at, load.from_ns, load.to_ns)?;
        check_time("loads.cpu_ns", at, load.cpu_ns.unwrap_or(0))?;
    }
    for (at, step) in batch.clock_steps.iter().enumerate() {
        check_time("clock_steps.at_ns", at, step.at_ns)?;
    }
    for (at, log) in batch.provenance.iter().enumerate() {
        check_length("provenance.trace_id (bytes)", log.trace_id.len(), 16)?;
        let (bytes, limit) = (log.log.len(), limits.provenance_bytes_max);
        if bytes > limit {
            return Err(Refusal::ProvenanceTooLong { bytes, limit });
        }
        check_time("provenance.time_ns", at, log.time_ns)?;
    }
    if let Some(said) = &batch.kernel_clock {
        let longest_ns = said.max_error_ns.max(said.estimated_error_ns);
        check_time("kernel_clock", 0, longest_ns)?;
    }
    Ok(())
}

/// Returns a time or a duration, after checking that it is below 2^63 ns.
fn check_time(column: &'static str, at: usize, ns: u64) -> Result<i64, Refusal> {
    i64::try_from(ns).map_err(|_| Refusal::Time { column, at })
}

fn check_interval(
    what: &'static str,
    column: &'static str,
    at: usize,
    from: u64,
    to: u64,
) -> Result<(), Refusal> {
    if from > to {
        return Err(Refusal::Interval { what });
    }
    check_time(column, at, to).map(drop)
}
