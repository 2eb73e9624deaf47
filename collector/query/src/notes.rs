//! Notes of a query about the data that it read, in addition to its result.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use stroboscope_analysis::by_root::ByRoot;

use super::sampled_notes::{SamplingEntry, SamplingNotes, WeightUse};
use stroboscope_store::tables::{Damage, LeftOut};

/// Notes of a query about the data that it read.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Notes {
    /// Number of traces read.
    pub traces: u64,
    /// Number of complete traces.
    pub complete_traces: u64,
    /// Number of incomplete traces that lack their request's beginning: parts of requests older
    /// than their burst.
    #[serde(skip)]
    pub fragments: u64,
    /// Long-lived spans whose children are requests, by operation; absent if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(default)]
    pub connections: BTreeMap<String, u64>,
    /// Incomplete traces by cause. A trace may have several causes.
    pub incomplete: BTreeMap<Cow<'static, str>, u64>,
    /// Flaws in used traces by cause.
    pub diagnostics: BTreeMap<Cow<'static, str>, u64>,
    /// Traces by root operation, including roots other than the one selected.
    #[serde(skip)]
    pub roots: ByRoot,
    /// Number of segments left out by request of the user.
    pub excluded_segments: u64,
    /// Records left out.
    #[serde(skip)]
    pub left_out: LeftOut,
    /// Hosts whose kernels report that their clocks are not synchronised, if several hosts
    /// recorded.
    #[serde(rename = "unsynchronised_hosts", serialize_with = "texts")]
    #[schemars(with = "Vec<String>")]
    pub unsynchronised: Vec<Arc<str>>,
    /// Bytes in the log of a running collector: accepted from services, and not in the store yet.
    pub unflushed_bytes: u64,
    /// Files that could not be read in full.
    #[serde(rename = "damaged_files", serialize_with = "damaged_files")]
    #[schemars(with = "Vec<DamagedFile<'_>>")]
    pub damage: Vec<Damage>,
    /// Sampling weights of the traces used; absent if each trace stands for itself.
    #[serde(
        skip_serializing_if = "SamplingNotes::is_empty",
        serialize_with = "sampling_entry"
    )]
    #[schemars(with = "Option<SamplingEntry>")]
    pub sampling: SamplingNotes,
}

/// File that could not be read in full, with the reason.
#[derive(Serialize, JsonSchema)]
struct DamagedFile<'a> {
    file: &'a str,
    reason: &'a str,
}

fn damaged_files<S: Serializer>(damage: &[Damage], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(damage.iter().map(|of| DamagedFile {
        file: &of.file,
        reason: &of.reason,
    }))
}

fn sampling_entry<S: Serializer>(
    sampling: &SamplingNotes,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    SamplingEntry::from(sampling).serialize(serializer)
}

fn texts<S: Serializer>(texts: &[Arc<str>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(texts.iter().map(|text| &**text))
}

impl Notes {
    /// Adds the notes of another part.
    pub(super) fn merge(&mut self, other: Self) {
        self.traces += other.traces;
        self.complete_traces += other.complete_traces;
        self.fragments += other.fragments;
        for (connection, count) in other.connections {
            *self.connections.entry(connection).or_default() += count;
        }
        self.roots.merge(&other.roots);
        self.excluded_segments += other.excluded_segments;
        for (cause, count) in other.incomplete {
            *self.incomplete.entry(cause).or_default() += count;
        }
        for (cause, count) in other.diagnostics {
            *self.diagnostics.entry(cause).or_default() += count;
        }
        self.left_out.merge(other.left_out);
        self.sampling.merge(&other.sampling);
        self.add_damage(other.damage);
    }

    /// Returns the notes of a reading that has nothing to report except files and traces that it
    /// could not read.
    #[must_use]
    pub fn of_unread(damage: Vec<Damage>, large_traces: u64) -> Self {
        let left_out = LeftOut {
            large_traces,
            ..LeftOut::default()
        };
        Self {
            damage,
            left_out,
            ..Self::default()
        }
    }

    /// Adds the files and traces that another reading of the same store left unread. Returns the
    /// number of additional traces.
    pub(super) fn add_unread(&mut self, reading: Notes) -> u64 {
        let (large, before) = (
            reading.left_out.large_traces,
            &mut self.left_out.large_traces,
        );
        let more = large.saturating_sub(*before);
        *before += more;
        self.add_damage(reading.damage);
        more
    }

    /// Adds damage, with one entry for each file.
    pub(super) fn add_damage(&mut self, damage: Vec<Damage>) {
        for flaw in damage {
            match self.damage.iter_mut().find(|known| known.file == flaw.file) {
                Some(known) => known.rows_read += flaw.rows_read,
                None => self.damage.push(flaw),
            }
        }
    }

    /// Returns the notes with the extent to which a report takes weights into account.
    #[must_use]
    pub(super) fn weighing(mut self, weighing: WeightUse) -> Self {
        self.sampling.weighing = weighing;
        self
    }

    /// Returns the causes of incompleteness as a text.
    #[must_use]
    pub fn incomplete_text(&self) -> String {
        let causes: Vec<String> = self
            .incomplete
            .iter()
            .map(|(cause, count)| format!("{cause} {count}"))
            .collect();
        causes.join(", ")
    }
}

/// Part of the notes that does not change if the same files are read again.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptNotes {
    traces: u64,
    complete_traces: u64,
    fragments: u64,
    connections: BTreeMap<String, u64>,
    incomplete: BTreeMap<Cow<'static, str>, u64>,
    diagnostics: BTreeMap<Cow<'static, str>, u64>,
    roots: ByRoot,
    excluded_segments: u64,
    left_out: LeftOut,
    sampling: SamplingNotes,
}

impl KeptNotes {
    pub(super) fn of(notes: &Notes) -> Self {
        let Notes {
            traces,
            complete_traces,
            fragments,
            excluded_segments,
            left_out,
            sampling,
            ..
        } = *notes;
        let (incomplete, diagnostics) = (notes.incomplete.clone(), notes.diagnostics.clone());
        let (roots, connections) = (notes.roots.clone(), notes.connections.clone());
        Self {
            traces,
            complete_traces,
            fragments,
            connections,
            incomplete,
            diagnostics,
            roots,
            excluded_segments,
            left_out,
            sampling,
        }
    }

    /// Adds the notes about the directory.
    pub(super) fn with(self, first: Notes) -> Notes {
        let Self {
            traces,
            complete_traces,
            fragments,
            connections,
            incomplete,
            diagnostics,
            roots,
            excluded_segments,
            left_out,
            sampling,
        } = self;
        Notes {
            traces,
            complete_traces,
            fragments,
            connections,
            incomplete,
            diagnostics,
            roots,
            excluded_segments,
            left_out,
            sampling,
            ..first
        }
    }
}
