//! Queries across the merge logs of several processes (Chow, dissertation, §2.3): the bytes that
//! made an output, and the outputs that bytes reached.
//!
//! Logs name their sources and outputs by ids. The output of one log and the source of another with
//! the same id are the same bytes, so queries continue there.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use stroboscope_provenance::{
    FileError, InputSet, Label, LabelKind, Labels, LogFile, Losses, Output, Reach, ReadLog, Source,
    sweep,
};
use thiserror::Error;

use super::byte_ranges::ByteRanges;

/// Maximum number of flows that an answer lists.
const FLOWS_MAX: usize = 1 << 20;
/// Maximum number of ids that an error lists.
const IDS_MAX: usize = 20;

/// Reason that a query across logs has no answer.
#[derive(Debug, Error)]
pub enum ProvenanceError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{}: {error}", path.display())]
    Foreign { path: PathBuf, error: FileError },
    #[error("no log has {what} {}; there are: {}", shown(*id), listed(known))]
    UnknownId {
        what: &'static str,
        id: u64,
        known: Vec<u64>,
    },
    #[error("{} has no such bytes; the logs have {}", shown(*id), shown_ranges(known))]
    NoSuchBytes { id: u64, known: ByteRanges },
}

/// Direction of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From an output to the bytes that made it.
    Backward,
    /// From a source to the outputs that it reached.
    Forward,
}

/// Bytes of an output, and bytes of a source on which they depend, in one log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteFlow {
    /// Index of the log.
    pub log: usize,
    pub output: u64,
    pub output_bytes: (u64, u64),
    pub source: u64,
    pub source_bytes: (u64, u64),
    /// True if the bytes are copies, one by one; otherwise, each byte of the output depends on all
    /// those of the source.
    pub is_copy: bool,
}

/// Item that a query reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReachedItem {
    /// Bytes reached.
    pub bytes: ByteRanges,
    /// The bytes among them at which the query ended: no log has an output with them (backward), or
    /// a source (forward).
    pub ends: ByteRanges,
}

/// Answer of a query.
#[derive(Debug, Default)]
pub struct ProvenanceAnswer {
    /// Items by id, with the queried one.
    pub items: BTreeMap<u64, ReachedItem>,
    /// Flows in order of log, output and source.
    pub flows: Vec<ByteFlow>,
    /// Number of flows left out of the list, because it has its maximum length.
    pub left_out: u64,
    /// Number of labels of bytes that share one input, because the log reached a limit. Their
    /// sources are unknown.
    pub unknown: u64,
}

/// A merge log that was read from a file.
#[derive(Debug)]
pub struct ProvenanceLog<'a> {
    pub path: &'a Path,
    file: LogFile<'a>,
    /// Problem at which the reading ended; `None` if the file is whole.
    pub problem: Option<FileError>,
}

impl<'a> ProvenanceLog<'a> {
    /// Reads a file's bytes.
    ///
    /// # Errors
    /// Returns an error if the bytes are no log of a known version. A damaged or unfinished log has
    /// a [`problem`](Self::problem) instead.
    pub fn parse(path: &'a Path, bytes: &'a [u8]) -> Result<Self, ProvenanceError> {
        let read = LogFile::recover(bytes);
        let (file, problem) = read.map_err(|error| ProvenanceError::Foreign {
            path: path.to_owned(),
            error,
        })?;
        Ok(Self {
            path,
            file,
            problem,
        })
    }

    /// Returns the losses that the log counted; `None` if the file is unfinished.
    #[must_use]
    pub fn losses(&self) -> Option<Losses> {
        self.file.losses()
    }
}

/// Answers a query about an item, or about some of its bytes.
///
/// # Errors
/// Returns an error if no log has the item, or none of the bytes.
pub fn provenance(
    logs: &[ProvenanceLog<'_>],
    direction: Direction,
    id: u64,
    bytes: Option<Range<u64>>,
) -> Result<ProvenanceAnswer, ProvenanceError> {
    let mut query = Query {
        logs,
        answer: ProvenanceAnswer::default(),
        waiting: asked(logs, direction, id, bytes)?,
    };
    while let Some((id, bytes)) = query.waiting.pop() {
        let item = query.answer.items.entry(id).or_default();
        for part in item.bytes.missing(bytes) {
            let found = match direction {
                Direction::Backward => query.backward(id, part.clone()),
                Direction::Forward => query.forward(id, part.clone()),
            };
            let item = query.answer.items.entry(id).or_default();
            item.bytes.insert(part.clone());
            for end in found.missing(part) {
                item.ends.insert(end);
            }
        }
    }
    Ok(query.finish())
}

/// Returns the bytes to query: those of the item that a log has.
fn asked(
    logs: &[ProvenanceLog<'_>],
    direction: Direction,
    id: u64,
    bytes: Option<Range<u64>>,
) -> Result<Vec<(u64, Range<u64>)>, ProvenanceError> {
    let mut known: BTreeMap<u64, ByteRanges> = BTreeMap::new();
    for log in logs {
        match direction {
            Direction::Backward => log.file.outputs().iter().for_each(|output| {
                let item = known.entry(output.id).or_default();
                item.insert(output.offset..output.offset.saturating_add(output.count));
            }),
            Direction::Forward => log.file.sources().iter().for_each(|source| {
                let item = known.entry(source.id).or_default();
                item.insert(source_bytes(source));
            }),
        }
    }
    let Some(item) = known.remove(&id) else {
        return Err(ProvenanceError::UnknownId {
            what: match direction {
                Direction::Backward => "the output",
                Direction::Forward => "the source",
            },
            id,
            known: known.into_keys().collect(),
        });
    };
    let bytes = bytes.unwrap_or(0..u64::MAX);
    let parts = item.iter().map(|range| {
        let part = range.start.max(bytes.start)..range.end.min(bytes.end);
        (id, part)
    });
    let parts: Vec<_> = parts.filter(|(_, part)| !part.is_empty()).collect();
    if parts.is_empty() {
        return Err(ProvenanceError::NoSuchBytes { id, known: item });
    }
    Ok(parts)
}

/// Shows an id as those of spans.
#[must_use]
pub fn shown(id: u64) -> String {
    format!("{id:016x}")
}

fn listed(ids: &[u64]) -> String {
    let mut listed: Vec<String> = ids.iter().take(IDS_MAX).map(|id| shown(*id)).collect();
    if ids.len() > IDS_MAX {
        listed.push(format!("and {} more", ids.len() - IDS_MAX));
    }
    match listed.is_empty() {
        true => "none".to_owned(),
        false => listed.join(", "),
    }
}

/// Shows ranges of bytes as `0..5, 8..10`.
#[must_use]
pub fn shown_ranges(ranges: &ByteRanges) -> String {
    let shown: Vec<String> = ranges.iter().map(|range| format!("{range:?}")).collect();
    shown.join(", ")
}

struct Query<'a> {
    logs: &'a [ProvenanceLog<'a>],
    answer: ProvenanceAnswer,
    /// Bytes of items that the query has yet to follow.
    waiting: Vec<(u64, Range<u64>)>,
}

impl Query<'_> {
    /// Follows bytes of an output to the sources in all logs. Returns the bytes that are in a log.
    fn backward(&mut self, id: u64, part: Range<u64>) -> ByteRanges {
        let mut found = ByteRanges::default();
        for (number, log) in self.logs.iter().enumerate() {
            let mut by_label: HashMap<Label, Vec<Range<u64>>> = HashMap::new();
            for output in log.file.outputs() {
                let end = output.offset.saturating_add(output.count);
                let bytes = output.offset.max(part.start)..end.min(part.end);
                if output.id != id || bytes.is_empty() {
                    continue;
                }
                found.insert(bytes.clone());
                match successive_inputs(output) {
                    Some(first) => {
                        let first = u64::from(first) + (bytes.start - output.offset);
                        let inputs = first..first + (bytes.end - bytes.start);
                        self.copied(number, log, id, &bytes, &inputs);
                    }
                    None => by_label.entry(output.labels.at(0)).or_default().push(bytes),
                }
            }
            let labels: Vec<Label> = by_label.keys().copied().collect();
            sweep(&log.file, &labels, |label, inputs| {
                for bytes in &by_label[&label] {
                    self.computed(number, log, id, bytes, inputs);
                }
            });
        }
        found
    }

    /// Adds the flows of output bytes that are copies of successive inputs.
    fn copied(
        &mut self,
        number: usize,
        log: &ProvenanceLog<'_>,
        output: u64,
        bytes: &Range<u64>,
        inputs: &Range<u64>,
    ) {
        for (source, of_source, input) in sources_of(log, inputs) {
            let start = bytes.start + (input.start - inputs.start);
            let copy = start..start + (input.end - input.start);
            self.list(number, &(output, copy), &(source, of_source.clone()), true);
            self.waiting.push((source, of_source));
        }
    }

    /// Adds the flows of output bytes that each depend on all of some inputs.
    fn computed(
        &mut self,
        number: usize,
        log: &ProvenanceLog<'_>,
        output: u64,
        bytes: &Range<u64>,
        inputs: &InputSet,
    ) {
        for range in inputs.ranges() {
            let range = u64::from(*range.start())..u64::from(*range.end()) + 1;
            let mut known = 0;
            for (source, of_source, input) in sources_of(log, &range) {
                known += input.end - input.start;
                let source = (source, of_source);
                self.list(number, &(output, bytes.clone()), &source, false);
                self.waiting.push(source);
            }
            self.answer.unknown += u64::from(known < range.end - range.start);
        }
    }

    /// Follows bytes of a source to the outputs in all logs. Returns the bytes that are in a log.
    fn forward(&mut self, id: u64, part: Range<u64>) -> ByteRanges {
        let mut found = ByteRanges::default();
        for (number, log) in self.logs.iter().enumerate() {
            let mut inputs = InputSet::new();
            let mut own = ByteRanges::default();
            for source in log.file.sources() {
                let bytes = source_bytes(source);
                let bytes = bytes.start.max(part.start)..bytes.end.min(part.end);
                if source.id != id || bytes.is_empty() {
                    continue;
                }
                let first = source.first + (bytes.start - source.offset) as u32;
                inputs.insert(first, first + (bytes.end - bytes.start - 1) as u32);
                own.insert(bytes);
            }
            if inputs.is_empty() {
                continue;
            }
            let reach = Reach::new(&log.file, inputs.clone());
            for output in log.file.outputs() {
                let all = output.offset..output.offset.saturating_add(output.count);
                match successive_inputs(output) {
                    Some(first) => self.copies(number, log, output, first, &inputs),
                    None if reach.contains(output.labels.at(0)) => {
                        self.waiting.push((output.id, all.clone()));
                        for bytes in own.iter() {
                            self.list(number, &(output.id, all.clone()), &(id, bytes), false);
                        }
                    }
                    None => {}
                }
            }
            own.iter().for_each(|bytes| found.insert(bytes));
        }
        found
    }

    /// Adds the flows to the bytes of an output that are copies of some inputs.
    fn copies(
        &mut self,
        number: usize,
        log: &ProvenanceLog<'_>,
        output: &Output,
        first: u32,
        inputs: &InputSet,
    ) {
        let first = u64::from(first);
        for range in inputs.ranges() {
            let start = u64::from(*range.start()).max(first);
            let end = (u64::from(*range.end()) + 1).min(first + output.count);
            if start >= end {
                continue;
            }
            for (source, of_source, input) in sources_of(log, &(start..end)) {
                let start = output.offset + (input.start - first);
                let copy = start..start + (input.end - input.start);
                let copy = (output.id, copy);
                self.list(number, &copy, &(source, of_source), true);
                self.waiting.push(copy);
            }
        }
    }

    /// Lists a flow, if the list has room.
    fn list(
        &mut self,
        log: usize,
        output: &(u64, Range<u64>),
        source: &(u64, Range<u64>),
        is_copy: bool,
    ) {
        if self.answer.flows.len() >= FLOWS_MAX {
            self.answer.left_out += 1;
            return;
        }
        self.answer.flows.push(ByteFlow {
            log,
            output: output.0,
            output_bytes: (output.1.start, output.1.end),
            source: source.0,
            source_bytes: (source.1.start, source.1.end),
            is_copy,
        });
    }

    /// Joins flows that continue each other.
    fn finish(mut self) -> ProvenanceAnswer {
        let flows = &mut self.answer.flows;
        flows.sort_unstable_by_key(|flow| {
            let of = (flow.log, flow.output, flow.source);
            (of, flow.source_bytes, flow.output_bytes)
        });
        flows.dedup();
        join(flows, |last, flow| {
            !last.is_copy && last.source_bytes == flow.source_bytes
        });
        flows.sort_unstable();
        join(flows, |last, flow| {
            last.is_copy && last.source_bytes.1 == flow.source_bytes.0
        });
        self.answer
    }
}

/// Joins each flow with the one before it if both are of the same items, the output's bytes are
/// successive, and `continues` holds.
fn join(flows: &mut Vec<ByteFlow>, continues: impl Fn(&ByteFlow, &ByteFlow) -> bool) {
    flows.dedup_by(|flow, last| {
        let items = |flow: &ByteFlow| (flow.log, flow.output, flow.source);
        let is_next = items(last) == items(flow)
            && last.is_copy == flow.is_copy
            && last.output_bytes.1 == flow.output_bytes.0
            && continues(last, flow);
        if is_next {
            last.output_bytes.1 = flow.output_bytes.1;
            last.source_bytes.1 = flow.source_bytes.1;
        }
        is_next
    });
}

/// Returns the input of an output's first byte, if each byte is one input and they are successive.
fn successive_inputs(output: &Output) -> Option<u32> {
    let Labels::Inputs(first) = output.labels else {
        return None;
    };
    let last = usize::try_from(output.count.saturating_sub(1)).ok()?;
    match (first.kind(), output.labels.at(last).kind()) {
        (LabelKind::Input(first), LabelKind::Input(_)) => Some(first),
        _ => None,
    }
}

fn source_bytes(source: &Source) -> Range<u64> {
    source.offset..source.offset.saturating_add(source.count.into())
}

/// Returns the sources of inputs: the id, the bytes of the source, and the inputs.
fn sources_of<'a>(
    log: &'a ProvenanceLog<'_>,
    inputs: &Range<u64>,
) -> impl Iterator<Item = (u64, Range<u64>, Range<u64>)> + use<'a> {
    let sources = log.file.sources();
    let inputs = inputs.clone();
    let end_of = |source: &Source| u64::from(source.first) + u64::from(source.count);
    let from = sources.partition_point(|source| end_of(source) <= inputs.start);
    sources[from..].iter().map_while(move |source| {
        let first = u64::from(source.first);
        let shared = inputs.start.max(first)..inputs.end.min(end_of(source));
        let start = source.offset + shared.start.saturating_sub(first);
        let bytes = shared.end.saturating_sub(shared.start);
        (first < inputs.end).then(|| (source.id, start..start + bytes, shared))
    })
}

#[cfg(test)]
mod tests;
