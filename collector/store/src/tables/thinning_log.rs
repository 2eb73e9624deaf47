//! Decisions about the requests of an hour that is thinned, in the order of trace ids.
//!
//! The decisions are in a temporary file, because an hour may have millions of requests. The tables
//! of requests all follow them, so that a request is kept or dropped as a whole.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use stroboscope_analysis::flow::ERROR;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::thinning::{NewThreshold, ThinningDecision, ThinningRule};
use twox_hash::XxHash3_128;

use super::attributes::AttributeKeys;
use super::compact::MergeError;
use super::objects::{Store, StoreError};
use super::partition::Hour;
use super::spill::temporary_file;
use super::trace_files::{FileLists, TraceFiles};
use super::traces::TraceReader;

/// Maximum memory to reserve for a request that is thinned, in bytes. Larger ones stay unchanged.
const TRACE_BYTES_MAX: usize = 64 << 20;
/// Size of an entry: the trace id, the kind of decision, and the previous threshold.
const ENTRY_BYTES: usize = 16 + 1 + 8;

/// Returns the hash by which a request is kept: the upper half of XXH3-128 of the 16 bytes of the
/// trace id in big-endian order. It depends on all bits of the id, and is practically independent
/// of the random bits that samplers compare with their thresholds.
fn hash_of(trace_id: u128) -> u64 {
    (XxHash3_128::oneshot(&trace_id.to_be_bytes()) >> 64) as u64
}

/// Task to thin one hour: the rule, and the ratio that it implements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThinningTask {
    pub(crate) hour: Hour,
    pub(crate) rule: ThinningRule,
    pub(crate) ratio: f64,
}

/// Decisions about the requests of an hour. Requests without an entry stay unchanged.
#[derive(Debug)]
pub(crate) struct ThinningLog {
    /// Directory of the temporary file, for errors.
    directory: PathBuf,
    file: File,
    /// Number of requests that are dropped.
    pub(crate) dropped: u64,
    /// True if all requests stay unchanged.
    pub(crate) is_empty: bool,
}

impl ThinningLog {
    /// Decides about all requests in `thinned`, the files of spans and of events that are thinned.
    /// `others` are files in which requests may have further records: a request with a record in
    /// them stays unchanged, as does a request that is too large or has unreadable attributes.
    ///
    /// # Errors
    /// Returns an error if a file is damaged, if the store or a temporary file fails, or if
    /// `goes_on` returned false.
    pub(crate) fn create(
        store: &Store,
        of: &ThinningTask,
        thinned: FileLists,
        others: FileLists,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Self, MergeError> {
        let (directory, file) = temporary_file(store)?;
        let failed = |error: io::Error| temporary_failed(&directory, &error);
        let keys = AttributeKeys::of([ERROR]).with_weights();
        let mut reader = TraceReader::of(&TraceFiles::open_files(store, &keys, thinned)?);
        let none = AttributeKeys::none();
        let mut others = TraceReader::of(&TraceFiles::open_files(store, &none, others)?);
        let hour_ns = of.hour.begin_ns()..of.hour.end_ns();
        let (mut dropped, mut is_empty, mut entries) = (0, true, BufWriter::new(file));
        let (mut trace, mut unreadable) = (TraceRecords::default(), 0);
        let mut other = others.next_id();
        while reader.next_within(&mut trace, |bytes| bytes <= TRACE_BYTES_MAX) {
            if !goes_on() {
                return Err(MergeError::Stopped);
            }
            let id = trace.id.0;
            while let Some(next) = other.filter(|next| *next < id) {
                others.skip_trace(next);
                other = others.next_id();
            }
            let before =
                std::mem::replace(&mut unreadable, reader.left_out().unreadable_attributes);
            if other == Some(id) || before != unreadable {
                continue;
            }
            let decision = of.rule.decide(&trace, hash_of(id), &hour_ns);
            dropped += u64::from(decision == ThinningDecision::Dropped);
            if let Some(entry) = entry_of(id, decision) {
                is_empty = false;
                entries.write_all(&entry).map_err(failed)?;
            }
        }
        // Reads the others to their end, because damage in them may hide records.
        while let Some(next) = other {
            others.skip_trace(next);
            other = others.next_id();
        }
        let damage = reader.damage().into_iter().chain(others.damage()).next();
        if let Some(damage) = damage {
            return Err(MergeError::Damaged(damage));
        }
        let file = entries.into_inner();
        let file = file.map_err(|error| failed(error.into_error()))?;
        Ok(Self {
            directory,
            file,
            dropped,
            is_empty,
        })
    }

    /// Reads the decisions from the first one on.
    pub(super) fn read(&mut self) -> Result<ThinningCursor<'_>, MergeError> {
        let rewound = self.file.rewind();
        rewound.map_err(|error| temporary_failed(&self.directory, &error))?;
        let mut cursor = ThinningCursor {
            directory: &self.directory,
            from: BufReader::new(&mut self.file),
            next: None,
        };
        cursor.advance()?;
        Ok(cursor)
    }
}

/// Reader of decisions in the order of trace ids.
pub(super) struct ThinningCursor<'a> {
    directory: &'a Path,
    from: BufReader<&'a mut File>,
    next: Option<(u128, ThinningDecision)>,
}

impl ThinningCursor<'_> {
    /// Returns the decision about a request. The ids of successive calls must not decrease.
    pub(super) fn decision(&mut self, trace_id: u128) -> Result<ThinningDecision, MergeError> {
        while let Some((id, decision)) = self.next.filter(|(id, _)| *id <= trace_id) {
            if id == trace_id {
                return Ok(decision);
            }
            self.advance()?;
        }
        Ok(ThinningDecision::Unchanged)
    }

    fn advance(&mut self) -> Result<(), MergeError> {
        let mut entry = [0; ENTRY_BYTES];
        self.next = match self.from.read_exact(&mut entry) {
            Ok(()) => Some(decision_of(&entry)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(temporary_failed(self.directory, &error)),
        };
        Ok(())
    }
}

fn temporary_failed(directory: &Path, error: &io::Error) -> MergeError {
    MergeError::Store(StoreError::Temporary {
        directory: directory.to_owned(),
        reason: error.to_string(),
    })
}

/// Returns the entry of a decision; `None` for a request that stays unchanged.
fn entry_of(trace_id: u128, decision: ThinningDecision) -> Option<[u8; ENTRY_BYTES]> {
    let (kind, previous) = match decision {
        ThinningDecision::Unchanged => return None,
        ThinningDecision::Dropped => (0, 0),
        ThinningDecision::Reweighted(of) => (1 + u8::from(of.is_held), of.previous),
    };
    let mut entry = [0; ENTRY_BYTES];
    entry[..16].copy_from_slice(&trace_id.to_be_bytes());
    entry[16] = kind;
    entry[17..].copy_from_slice(&previous.to_be_bytes());
    Some(entry)
}

fn decision_of(entry: &[u8; ENTRY_BYTES]) -> (u128, ThinningDecision) {
    let [id @ .., kind, _, _, _, _, _, _, _, _] = entry;
    let previous = u64::from_be_bytes(entry[17..].try_into().unwrap_or_default());
    let decision = match kind {
        0 => ThinningDecision::Dropped,
        kind => ThinningDecision::Reweighted(NewThreshold {
            previous,
            is_held: *kind == 2,
        }),
    };
    (u128::from_be_bytes(*id), decision)
}
