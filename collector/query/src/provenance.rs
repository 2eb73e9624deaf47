//! Queries across the merge logs of several processes (Chow, dissertation, §2.3): the bytes that
//! made an output, and the outputs that bytes reached.
//!
//! Logs name their sources and outputs by ids. The output of one log and the source of another with
//! the same id are the same bytes, so queries continue there.

mod item_info;
mod logs;
mod parts;
mod spans;
mod stored;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{ControlFlow, Range, RangeInclusive};
use std::path::PathBuf;

use stroboscope_provenance::{
    FileError, InputSet, Label, LabelKind, Labels, LogFile, Losses, Output, Reach, ReadLog, Source,
    sweep_within,
};
use thiserror::Error;

use super::byte_ranges::ByteRanges;
pub use item_info::{ItemInfo, infos};
pub use logs::{ProvenanceLogs, ProvenanceMap};
pub use parts::OutputPart;
pub use stored::StoredLogs;

/// Maximum number of flows that an answer lists; small in the tests of this crate.
const FLOWS_MAX: usize = if cfg!(test) { 1 << 14 } else { 1 << 20 };
/// Number of steps, of about 10 ns each, that the queries of a log may take, regardless of its
/// size; small in the tests of this crate.
const STEPS: u64 = if cfg!(test) { 1 << 18 } else { 1 << 24 };
/// Additional steps for each byte of a log. A node takes 8 bytes, so this allows 2,048 steps per
/// node. Every node may therefore depend on inputs throughout 8 MiB, which are 2,048 pages.
const STEPS_PER_BYTE: u64 = 1 << 8;
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
    #[error("{name}: {error}")]
    Foreign { name: String, error: FileError },
    #[error("no log has {what} {}; there are: {}{problems}", item_id(*id), listed(known))]
    UnknownId {
        what: &'static str,
        id: u64,
        known: BTreeSet<u64>,
        problems: String,
    },
    #[error("{} has no such bytes with labels (bytes that depend on no input have none); the logs have {known}{problems}", item_id(*id))]
    NoSuchBytes {
        id: u64,
        known: ByteRanges,
        problems: String,
    },
}

/// Direction of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Part of `bytes` at which the query ended, because no log has an output (backward) or a
    /// source (forward) with it.
    pub ends: ByteRanges,
}

/// Answer of a query.
#[derive(Debug, Default)]
pub struct ProvenanceAnswer {
    /// Items by id, with the queried one.
    pub items: BTreeMap<u64, ReachedItem>,
    /// Flows in order of log, output and bytes of the output.
    pub flows: Vec<ByteFlow>,
    /// Number of flows left out of the list because it reached its maximum length.
    pub left_out: u64,
    /// Number of ranges that contain inputs without a source, because a log reached a limit.
    pub unknown: u64,
}

/// A merge log in the form of a file.
#[derive(Debug)]
pub struct ProvenanceLog<'a> {
    /// Name for people: the file's path, or the service.
    pub name: String,
    /// Request that wrote the log; `None` if it is unknown.
    pub trace: Option<u128>,
    /// Service that wrote the log; `None` if it is unknown.
    pub service: Option<String>,
    file: LogFile<'a>,
    /// Problem at which the reading ended; `None` if the file is whole.
    problem: Option<FileError>,
    /// Number of steps that queries may still take. Without a limit, queries of a small forged log
    /// could take minutes.
    steps: Cell<u64>,
}

impl<'a> ProvenanceLog<'a> {
    /// Reads a file's bytes.
    ///
    /// # Errors
    /// Returns an error if the bytes are no log of a known version. A damaged or unfinished log has
    /// a [`problem`](Self::problem) instead.
    pub fn parse(name: String, bytes: &'a [u8]) -> Result<Self, ProvenanceError> {
        let read = LogFile::recover(bytes);
        let (file, problem) = match read {
            Ok(read) => read,
            Err(error) => return Err(ProvenanceError::Foreign { name, error }),
        };
        Ok(Self {
            name,
            trace: None,
            service: None,
            file,
            problem,
            steps: Cell::new(STEPS + STEPS_PER_BYTE * bytes.len() as u64),
        })
    }

    /// Describes why answers may lack flows: the log is damaged or unfinished, or no steps are
    /// left. Returns `None` if neither is the case.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        match self.problem {
            Some(error) => Some(error.to_string()),
            None => (self.steps.get() == 0).then(|| {
                "its queries take too many steps for its size, so answers lack flows of it; query fewer bytes, as \
                 ID:FROM..UNTIL"
                    .to_owned()
            }),
        }
    }

    /// Takes steps; breaks off if none are left.
    fn take_steps(&self, count: usize) -> ControlFlow<()> {
        let left = self.steps.get().saturating_sub(count as u64);
        self.steps.set(left);
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Returns the losses that the log counted; `None` if the file ends or is damaged before them.
    #[must_use]
    pub fn losses(&self) -> Option<Losses> {
        self.file.losses()
    }

    /// Returns the summed lengths of the parts of each output (backward) and source (forward).
    #[must_use]
    pub fn items(&self) -> BTreeMap<(Direction, u64), u64> {
        let mut items = BTreeMap::new();
        for direction in [Direction::Backward, Direction::Forward] {
            for (id, bytes) in self.parts(direction) {
                *items.entry((direction, id)).or_default() += bytes.end - bytes.start;
            }
        }
        items
    }

    /// Returns the ids and bytes of the outputs (backward) or sources (forward).
    fn parts(&self, direction: Direction) -> Box<dyn Iterator<Item = (u64, Range<u64>)> + '_> {
        match direction {
            Direction::Backward => {
                let outputs = self.file.outputs().iter();
                Box::new(outputs.map(|output| (output.id, output_bytes(output))))
            }
            Direction::Forward => {
                let sources = self.file.sources().iter();
                Box::new(sources.map(|source| (source.id, source_bytes(source))))
            }
        }
    }
}

/// Bytes of items by id.
pub type BytesByItem = BTreeMap<u64, ByteRanges>;

/// Returns an id as 16 hexadecimal digits, as ids of spans are written.
#[must_use]
pub fn item_id(id: u64) -> String {
    format!("{id:016x}")
}

fn listed(ids: &BTreeSet<u64>) -> String {
    let mut listed: Vec<String> = ids.iter().take(IDS_MAX).map(|id| item_id(*id)).collect();
    match ids.len() {
        0 => "none".to_owned(),
        count if count > IDS_MAX => {
            listed.push(format!("and {} more", count - IDS_MAX));
            listed.join(", ")
        }
        _ => listed.join(", "),
    }
}

struct Query {
    direction: Direction,
    answer: ProvenanceAnswer,
    /// Bytes of items that the query has yet to follow.
    waiting: BytesByItem,
}

impl Query {
    /// Takes the waiting bytes that are new, and adds them to the answer.
    fn fresh(&mut self) -> BytesByItem {
        let mut fresh = BytesByItem::new();
        for (id, waiting) in std::mem::take(&mut self.waiting) {
            let item = self.answer.items.entry(id).or_default();
            let mut new = waiting;
            item.bytes.iter().for_each(|bytes| new.remove(bytes));
            new.iter().for_each(|bytes| item.bytes.insert(bytes));
            if !new.is_empty() {
                fresh.insert(id, new);
            }
        }
        fresh
    }

    /// Adds the flows of bytes in one log: from outputs (backward) or from sources (forward). Ends
    /// early if the log has no steps left.
    fn follow(
        &mut self,
        number: usize,
        log: &ProvenanceLog<'_>,
        from: &BytesByItem,
    ) -> ControlFlow<()> {
        let file = &log.file;
        let Some(last) = file.inputs().checked_sub(1) else {
            return ControlFlow::Continue(());
        };
        log.take_steps(file.sources().len() + file.outputs().len())?;
        let inputs = match self.direction {
            Direction::Backward => {
                let mut all = InputSet::new();
                all.insert(0, last);
                all
            }
            Direction::Forward => inputs_of_sources(file, from),
        };
        if inputs.is_empty() {
            return ControlFlow::Continue(());
        }
        let is_forward = self.direction == Direction::Forward;
        if is_forward {
            log.take_steps(file.nodes() as usize)?;
        }
        let reach = is_forward.then(|| Reach::new(file, inputs.clone()));
        let mut by_label: HashMap<Label, Vec<(u64, Range<u64>)>> = HashMap::new();
        for output in file.outputs() {
            let all = output_bytes(output);
            let parts: Vec<Range<u64>> = match (&reach, from.get(&output.id)) {
                (Some(_), _) => vec![all],
                (None, Some(bytes)) => bytes.within(all).collect(),
                (None, None) => continue,
            };
            match successive_inputs(output) {
                Some(first) => {
                    for bytes in parts {
                        let first = first + (bytes.start - output.offset) as u32;
                        self.copied(number, log, (output.id, bytes), first, &inputs)?;
                    }
                }
                None => {
                    let label = output.labels.at(0);
                    if reach.as_ref().is_none_or(|reach| reach.contains(label)) {
                        let parts = parts.into_iter().map(|bytes| (output.id, bytes));
                        by_label.entry(label).or_default().extend(parts);
                    }
                }
            }
        }
        let labels: Vec<Label> = by_label.keys().copied().collect();
        sweep_within(&log.steps, file, &labels, |label, of_label| {
            let outputs = &by_label[&label];
            // The sweep ends if this breaks off: no steps are left then.
            let _ = of_label.ranges().try_for_each(|range| {
                log.take_steps(1)?;
                let mut common = inputs.ranges_within(*range.start(), *range.end());
                common.try_for_each(|common| self.computed(number, log, outputs, common))
            });
        });
        ControlFlow::Continue(())
    }

    /// Adds the flows of output bytes that are copies of successive inputs, as far as these are
    /// among `inputs`.
    fn copied(
        &mut self,
        number: usize,
        log: &ProvenanceLog<'_>,
        output: (u64, Range<u64>),
        first: u32,
        inputs: &InputSet,
    ) -> ControlFlow<()> {
        let (id, bytes) = output;
        let Some(last) = (bytes.end - bytes.start).checked_sub(1) else {
            return ControlFlow::Continue(());
        };
        for common in inputs.ranges_within(first, first + last as u32) {
            for (source, of_source, input) in sources_of(&log.file, common) {
                log.take_steps(1)?;
                let start = bytes.start + u64::from(input - first);
                let copy = start..start + (of_source.end - of_source.start);
                self.add(number, (id, copy), (source, of_source), true);
            }
        }
        ControlFlow::Continue(())
    }

    /// Adds the flows to `outputs`, whose bytes each depend on all of `inputs`.
    fn computed(
        &mut self,
        number: usize,
        log: &ProvenanceLog<'_>,
        outputs: &[(u64, Range<u64>)],
        inputs: RangeInclusive<u32>,
    ) -> ControlFlow<()> {
        let mut unknown = u64::from(*inputs.end() - *inputs.start()) + 1;
        for (source, of_source, _) in sources_of(&log.file, inputs) {
            unknown -= of_source.end - of_source.start;
            for output in outputs {
                log.take_steps(1)?;
                let source = (source, of_source.clone());
                self.add(number, output.clone(), source, false);
            }
        }
        self.answer.unknown += u64::from(unknown > 0);
        ControlFlow::Continue(())
    }

    /// Adds a flow. The query follows its other end in the next round.
    fn add(
        &mut self,
        log: usize,
        output: (u64, Range<u64>),
        source: (u64, Range<u64>),
        is_copy: bool,
    ) {
        if self.answer.flows.len() < FLOWS_MAX {
            self.answer.flows.push(ByteFlow {
                log,
                output: output.0,
                output_bytes: (output.1.start, output.1.end),
                source: source.0,
                source_bytes: (source.1.start, source.1.end),
                is_copy,
            });
        } else {
            self.answer.left_out += 1;
        }
        let (id, bytes) = match self.direction {
            Direction::Backward => source,
            Direction::Forward => output,
        };
        self.waiting.entry(id).or_default().insert(bytes);
    }

    /// Returns the answer, without repeated flows, and with flows that continue each other joined.
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

/// Joins each flow with the one before it if both are of the same log, items and kind, the output's
/// bytes are successive, and `continues` holds.
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

/// Returns the input of an output's first byte, if its bytes are successive inputs.
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

/// Returns the bytes of an output. The sum fits, as a log has no bytes beyond the largest offset.
fn output_bytes(output: &Output) -> Range<u64> {
    output.offset..output.offset + output.count
}

/// Returns the bytes of a source. The sum fits, as a log has no bytes beyond the largest offset.
fn source_bytes(source: &Source) -> Range<u64> {
    source.offset..source.offset + u64::from(source.count)
}

/// Returns the inputs that bytes of sources became.
fn inputs_of_sources(file: &LogFile<'_>, items: &BytesByItem) -> InputSet {
    let mut inputs = InputSet::new();
    for source in file.sources() {
        let Some(item) = items.get(&source.id) else {
            continue;
        };
        for bytes in item.within(source_bytes(source)) {
            let first = source.first + (bytes.start - source.offset) as u32;
            inputs.insert(first, first + (bytes.end - bytes.start - 1) as u32);
        }
    }
    inputs
}

/// Returns the sources of inputs: the id, the bytes, and the input of the first of these bytes.
fn sources_of<'a>(
    file: &'a LogFile<'_>,
    inputs: RangeInclusive<u32>,
) -> impl Iterator<Item = (u64, Range<u64>, u32)> + use<'a> {
    let sources = file.sources();
    let (first, last) = inputs.into_inner();
    let last_of = |source: &Source| source.first + (source.count - 1);
    let from = sources.partition_point(|source| last_of(source) < first);
    sources[from..].iter().map_while(move |source| {
        let first = first.max(source.first);
        let last = last.min(last_of(source));
        let start = source.offset + u64::from(first - source.first);
        (first <= last).then(|| (source.id, start..start + u64::from(last - first) + 1, first))
    })
}

#[cfg(test)]
mod tests;
