//! Writing of files.

use std::io::{self, Write};
use std::vec::Vec;

use super::{
    END, HEADER_BYTES, ITEMS, MAGIC, NODES, OUTPUTS, SEGMENT_BYTES, SOURCES, VERSION,
    checked_offset, checksum,
};
use crate::log::MergeLog;
use crate::read::ReadLog;
use crate::source::{Item, Labels, Output, Source};

/// Maximum number of nodes, sources or outputs of a segment: 512 KiB of nodes.
const RECORDS_MAX: usize = 1 << 16;

/// Writer of a log's file.
#[derive(Debug)]
pub struct LogWriter<W> {
    to: W,
    /// Offset of the next segment.
    at: usize,
    nodes: u32,
    /// First input after the written sources.
    inputs: u32,
    sources: u64,
    outputs: usize,
    items: usize,
}

impl<W: Write> LogWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Returns the errors of the writer.
    pub fn new(mut to: W) -> io::Result<Self> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let sum = checksum(None, &header[..12], &[]);
        header[12..].copy_from_slice(&sum.to_le_bytes());
        to.write_all(&header)?;
        Ok(Self {
            to,
            at: HEADER_BYTES,
            nodes: 0,
            inputs: 0,
            sources: 0,
            outputs: 0,
            items: 0,
        })
    }

    /// Appends the additions to the log since the last call, and flushes.
    ///
    /// # Errors
    /// Returns the errors of the writer. The file may then end within a segment. Also returns an
    /// error if the log has fewer inputs, nodes, outputs or items than earlier calls wrote: every
    /// call must pass the same log.
    pub fn append(&mut self, log: &MergeLog) -> io::Result<()> {
        let inputs = log.inputs();
        let is_behind = inputs < self.inputs || log.nodes() < self.nodes;
        let (outputs, items) = (
            log.outputs().get(self.outputs..),
            log.items().get(self.items..),
        );
        let (false, Some(outputs), Some(items)) = (is_behind, outputs, items) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "this is another log than that of the last call: write each log to a file of its own",
            ));
        };
        let from = log
            .sources()
            .partition_point(|source| source.end() <= self.inputs);
        for sources in log.sources()[from..].chunks(RECORDS_MAX) {
            let mut records = Vec::new();
            for source in sources {
                self.write_source(*source, &mut records);
            }
            self.segment(SOURCES, sources.len(), inputs, &records)?;
        }
        while self.nodes < log.nodes() {
            let end = log.nodes().min(self.nodes + RECORDS_MAX as u32);
            let nodes = (self.nodes..end).filter_map(|index| log.node(index));
            let records: Vec<u8> = nodes.flat_map(|node| node.raw().to_le_bytes()).collect();
            self.segment(NODES, (end - self.nodes) as usize, inputs, &records)?;
            self.nodes = end;
        }
        for outputs in outputs.chunks(RECORDS_MAX) {
            let records: Vec<u8> = outputs.iter().flat_map(output_record).collect();
            self.segment(OUTPUTS, outputs.len(), inputs, &records)?;
            self.outputs += outputs.len();
        }
        for item in items {
            let record = item_record(item);
            self.segment(ITEMS, record.len() / 8, inputs, &record)?;
            self.items += 1;
        }
        self.to.flush()
    }

    /// Appends the last additions to the log, and ends the file.
    ///
    /// # Errors
    /// Returns an error in the cases of [`append`](Self::append).
    pub fn finish(mut self, log: &MergeLog) -> io::Result<W> {
        self.append(log)?;
        let losses = log.losses();
        let numbers = [
            u64::from(self.nodes),
            self.sources,
            self.outputs as u64,
            losses.coarse_merges,
            losses.shared_inputs,
            losses.forgotten_nodes,
            losses.dropped_outputs,
            losses.dropped_items,
        ];
        let record: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        self.segment(END, 1, log.inputs(), &record)?;
        self.to.flush()?;
        Ok(self.to)
    }

    /// Adds the record of a source or, if the source was written before, of its growth since.
    fn write_source(&mut self, source: Source, records: &mut Vec<u8>) {
        let written = self.inputs.saturating_sub(source.first);
        let (first, count) = (source.first + written, source.count - written);
        records.extend(source.id.to_le_bytes());
        records.extend((source.offset + u64::from(written)).to_le_bytes());
        records.extend(first.to_le_bytes());
        records.extend(count.to_le_bytes());
        self.inputs = source.end();
        self.sources += 1;
    }

    fn segment(&mut self, kind: u32, count: usize, inputs: u32, records: &[u8]) -> io::Result<()> {
        let offset = checked_offset(VERSION, self.at);
        let header = segment_header(offset, [kind, count as u32, inputs], records);
        self.at += SEGMENT_BYTES + records.len();
        self.to.write_all(&header)?;
        self.to.write_all(records)
    }
}

/// Returns the header of a segment with this kind, count and number of inputs.
pub(super) fn segment_header(
    offset: Option<u64>,
    [kind, count, inputs]: [u32; 3],
    records: &[u8],
) -> [u8; SEGMENT_BYTES] {
    let mut header = [0; SEGMENT_BYTES];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[4..8].copy_from_slice(&count.to_le_bytes());
    header[8..12].copy_from_slice(&inputs.to_le_bytes());
    let sum = checksum(offset, &header[..12], records);
    header[12..].copy_from_slice(&sum.to_le_bytes());
    header
}

pub(super) fn item_record(item: &Item) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(item.id.to_le_bytes());
    record.extend(item.span.to_le_bytes());
    record.extend((item.name.len() as u32).to_le_bytes());
    record.extend((item.content.len() as u32).to_le_bytes());
    record.extend(item.name.as_bytes());
    record.extend(&*item.content);
    record.resize(record.len().next_multiple_of(8), 0);
    record
}

fn output_record(output: &Output) -> Vec<u8> {
    let (label, is_first) = match output.labels {
        Labels::Shared(label) => (label, 0_u32),
        Labels::Inputs(label) => (label, 1),
    };
    let mut record = Vec::new();
    record.extend(output.id.to_le_bytes());
    record.extend(output.offset.to_le_bytes());
    record.extend(output.count.to_le_bytes());
    record.extend(label.raw().to_le_bytes());
    record.extend(is_first.to_le_bytes());
    record
}
