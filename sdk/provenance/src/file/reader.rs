//! Reading of files.

use std::vec::Vec;

use super::{
    END, END_BYTES, FileError, HEADER_BYTES, ITEM_HEADER_BYTES, ITEMS, MAGIC, NODE_BYTES, NODES,
    OUTPUT_BYTES, OUTPUTS, SEGMENT_BYTES, SOURCE_BYTES, SOURCES, VERSION, VERSION_WITHOUT_OFFSETS,
    checked_offset, checksum,
};
use crate::label::{INPUTS_MAX, Label, LabelKind, NODES_MAX};
use crate::limits::Losses;
use crate::node::Node;
use crate::read::ReadLog;
use crate::source::{Item, Labels, Output, Source};

/// Log in a file, whose nodes stay in the file's bytes, in memory or mapped.
#[derive(Debug)]
pub struct LogFile<'a> {
    /// For each segment with nodes: the index after its last node, and its records.
    nodes: Vec<(u32, &'a [u8])>,
    sources: Vec<Source>,
    outputs: Vec<Output>,
    items: Vec<Item>,
    inputs: u32,
    losses: Option<Losses>,
}

/// Segment whose checksum matches.
pub(super) struct Segment<'a> {
    pub(super) kind: u32,
    pub(super) count: u32,
    pub(super) inputs: u32,
    pub(super) records: &'a [u8],
}

/// Cursor that reads numbers from the front of bytes.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn u32(&mut self) -> u32 {
        let (number, rest) = self.0.split_first_chunk().unwrap_or((&[0; 4], &[]));
        self.0 = rest;
        u32::from_le_bytes(*number)
    }

    fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }
}

impl<'a> LogFile<'a> {
    /// Reads a whole file, and checks all of it.
    ///
    /// # Errors
    /// Returns an error unless the bytes are exactly one complete log of a known version.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FileError> {
        match Self::recover(bytes)? {
            (_, Some(error)) => Err(error),
            (file, None) => Ok(file),
        }
    }

    /// Reads the log up to the first error, for example in the file of a program that crashed. Also
    /// returns this error, if any.
    ///
    /// # Errors
    /// Returns an error if the bytes do not begin as a log of a known version.
    pub fn recover(bytes: &'a [u8]) -> Result<(Self, Option<FileError>), FileError> {
        let version = version(bytes)?;
        let mut file = Self {
            nodes: Vec::new(),
            sources: Vec::new(),
            outputs: Vec::new(),
            items: Vec::new(),
            inputs: 0,
            losses: None,
        };
        let mut at = HEADER_BYTES;
        while file.losses.is_none() {
            let segment = match segment(bytes, version, at) {
                Ok(segment) => segment,
                Err(error) => return Ok((file, Some(error))),
            };
            if let Err(problem) = file.add(&segment) {
                return Ok((file, Some(FileError::Invalid { at, problem })));
            }
            at += SEGMENT_BYTES + segment.records.len();
        }
        let surplus = (at < bytes.len()).then_some(FileError::Surplus { at });
        Ok((file, surplus))
    }

    fn add(&mut self, segment: &Segment<'a>) -> Result<(), &'static str> {
        if segment.inputs < self.inputs || segment.inputs > INPUTS_MAX {
            return Err("an impossible number of inputs");
        }
        self.inputs = segment.inputs;
        match segment.kind {
            NODES => self.add_nodes(segment.records),
            SOURCES => self.add_sources(segment.records),
            OUTPUTS => self.add_outputs(segment.records),
            ITEMS => self.add_items(segment.records),
            _ => self.end(segment.records),
        }
    }

    fn add_nodes(&mut self, records: &'a [u8]) -> Result<(), &'static str> {
        let first = self.nodes();
        let mut index = first;
        for record in records.chunks_exact(NODE_BYTES) {
            let is_node = Node::from_raw(Numbers(record).u64(), index, self.inputs).is_some();
            if !is_node || index >= NODES_MAX {
                return Err("a node with parents that no log has");
            }
            index += 1;
        }
        if index > first {
            self.nodes.push((index, records));
        }
        Ok(())
    }

    fn add_sources(&mut self, records: &[u8]) -> Result<(), &'static str> {
        for record in records.chunks_exact(SOURCE_BYTES) {
            let mut numbers = Numbers(record);
            let source = Source {
                id: numbers.u64(),
                offset: numbers.u64(),
                first: numbers.u32(),
                count: numbers.u32(),
            };
            let end = self.sources.last().map_or(0, Source::end);
            let is_last_known = u64::from(source.first) + u64::from(source.count);
            let has_offsets = source.offset.checked_add(source.count.into()).is_some();
            if source.first < end || source.count == 0 || is_last_known > self.inputs.into() {
                return Err("a source whose inputs no log has");
            }
            if !has_offsets {
                return Err("a source beyond the largest offset");
            }
            self.sources.push(source);
        }
        Ok(())
    }

    fn add_outputs(&mut self, records: &[u8]) -> Result<(), &'static str> {
        for record in records.chunks_exact(OUTPUT_BYTES) {
            let mut numbers = Numbers(record);
            let (id, offset, count) = (numbers.u64(), numbers.u64(), numbers.u64());
            if offset.checked_add(count).is_none() {
                return Err("an output beyond the largest offset");
            }
            let label = Label::from_raw(numbers.u32()).ok_or("an output with an unknown label")?;
            let labels = match (numbers.u32(), label.kind()) {
                (1, _) if label.has_successors(count, self.inputs) => Labels::Inputs(label),
                (0, LabelKind::Node(index)) if index < self.nodes() => Labels::Shared(label),
                (0, LabelKind::Input(input)) if input < self.inputs => Labels::Shared(label),
                (0, LabelKind::Block { .. } | LabelKind::Null) => Labels::Shared(label),
                _ => return Err("an output with an unknown label"),
            };
            self.outputs.push(Output {
                id,
                offset,
                count,
                labels,
            });
        }
        Ok(())
    }

    fn add_items(&mut self, mut records: &[u8]) -> Result<(), &'static str> {
        while !records.is_empty() {
            let (item, rest) = item(records).ok_or("an item that is cut off or no UTF-8")?;
            self.items.push(item);
            records = rest;
        }
        Ok(())
    }

    fn end(&mut self, record: &[u8]) -> Result<(), &'static str> {
        let mut numbers = Numbers(record);
        let totals = [numbers.u64(), numbers.u64(), numbers.u64()];
        let found = [
            u64::from(self.nodes()),
            self.sources.len() as u64,
            self.outputs.len() as u64,
        ];
        if totals != found {
            return Err("totals that differ from the segments before it");
        }
        self.losses = Some(Losses {
            coarse_merges: numbers.u64(),
            shared_inputs: numbers.u64(),
            forgotten_nodes: numbers.u64(),
            dropped_outputs: numbers.u64(),
            dropped_items: numbers.u64(),
        });
        Ok(())
    }

    /// Returns the losses of precision; `None` if reading stopped before or in the end segment.
    pub fn losses(&self) -> Option<Losses> {
        self.losses
    }
}

/// Reads an item, and returns it with the records after it; `None` if the item is cut off or its
/// name is no UTF-8.
pub(super) fn item(records: &[u8]) -> Option<(Item, &[u8])> {
    let (header, rest) = records.split_at_checked(ITEM_HEADER_BYTES)?;
    let mut numbers = Numbers(header);
    let (id, span) = (numbers.u64(), numbers.u64());
    let (name_bytes, content_bytes) = (numbers.u32() as usize, numbers.u32() as usize);
    let (name, after_name) = rest.split_at_checked(name_bytes)?;
    let (content, padding) = after_name.split_at_checked(content_bytes)?;
    let (_, rest) = padding.split_at_checked(padding.len() % 8)?;
    let item = Item {
        id,
        span,
        name: core::str::from_utf8(name).ok()?.into(),
        content: content.into(),
    };
    Some((item, rest))
}

/// Checks the header of a file, and returns its version.
pub(super) fn version(bytes: &[u8]) -> Result<u32, FileError> {
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if bytes.is_empty() || !MAGIC.starts_with(magic) {
        return Err(FileError::Foreign);
    }
    let header = bytes
        .get(..HEADER_BYTES)
        .ok_or(FileError::Truncated { at: 0 })?;
    let mut numbers = Numbers(&header[MAGIC.len()..]);
    let (found, sum) = (numbers.u32(), numbers.u32());
    if checksum(None, &header[..12], &[]) != sum {
        return Err(FileError::Corrupt { at: 0 });
    }
    match found {
        0 => Err(FileError::Foreign),
        VERSION_WITHOUT_OFFSETS..=VERSION => Ok(found),
        _ => Err(FileError::Version { found }),
    }
}

pub(super) fn segment(bytes: &[u8], version: u32, at: usize) -> Result<Segment<'_>, FileError> {
    let truncated = FileError::Truncated { at };
    let rest = bytes.get(at..).ok_or(truncated)?;
    let header = rest.get(..SEGMENT_BYTES).ok_or(truncated)?;
    let mut numbers = Numbers(header);
    let (kind, count, inputs, sum) = (numbers.u32(), numbers.u32(), numbers.u32(), numbers.u32());
    let record_bytes = match kind {
        NODES => NODE_BYTES,
        SOURCES => SOURCE_BYTES,
        OUTPUTS => OUTPUT_BYTES,
        ITEMS => 8,
        END if count == 1 => END_BYTES,
        _ => {
            let problem = "an unknown kind";
            return Err(FileError::Invalid { at, problem });
        }
    };
    let length = record_bytes.checked_mul(count as usize).ok_or(truncated)?;
    let end = length.checked_add(SEGMENT_BYTES).ok_or(truncated)?;
    let records = rest.get(SEGMENT_BYTES..end).ok_or(truncated)?;
    if checksum(checked_offset(version, at), &header[..12], records) != sum {
        return Err(FileError::Corrupt { at });
    }
    Ok(Segment {
        kind,
        count,
        inputs,
        records,
    })
}

impl ReadLog for LogFile<'_> {
    fn inputs(&self) -> u32 {
        self.inputs
    }

    fn nodes(&self) -> u32 {
        self.nodes.last().map_or(0, |(end, _)| *end)
    }

    fn node(&self, index: u32) -> Option<Node> {
        let at = self.nodes.partition_point(|(end, _)| *end <= index);
        let (end, records) = self.nodes.get(at)?;
        let from_end = (end - index) as usize * NODE_BYTES;
        let record = records.get(records.len().checked_sub(from_end)?..)?;
        Node::from_raw(Numbers(record).u64(), index, self.inputs)
    }

    fn sources(&self) -> &[Source] {
        &self.sources
    }

    fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    fn items(&self) -> &[Item] {
        &self.items
    }
}
