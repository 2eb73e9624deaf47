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
    /// Number of traces that are in the selected time range, have the selected root operation and
    /// satisfy the filter.
    pub traces: u64,
    /// Number of complete ones among these traces.
    pub complete_traces: u64,
    /// Number of fragments: incomplete traces without their real root, mostly because the request
    /// began before the burst.
    #[serde(skip)]
    pub fragments: u64,
    /// Number of connections by operation; absent if there are none. A connection is a span that
    /// outlasts many requests, which are its children.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(default)]
    pub connections: BTreeMap<String, u64>,
    /// Number of incomplete traces by cause. A trace may have several causes.
    pub incomplete: BTreeMap<Cow<'static, str>, u64>,
    /// Number of flaws in used traces, by cause.
    pub diagnostics: BTreeMap<Cow<'static, str>, u64>,
    /// Statistics of the traces by root operation, including root operations that were not
    /// selected.
    #[serde(skip)]
    pub roots: ByRoot,
    /// Number of segments left out because they match the user's exclusion pattern.
    pub excluded_segments: u64,
    /// Records that the reading left out.
    #[serde(skip)]
    pub left_out: LeftOut,
    /// Hosts whose kernels report that their clocks are not synchronised, if several hosts
    /// recorded.
    #[serde(rename = "unsynchronised_hosts", serialize_with = "texts")]
    #[schemars(with = "Vec<String>")]
    pub unsynchronised: Vec<Arc<str>>,
    /// Bytes in the log of a running collector, which it has accepted from services but not yet
    /// written to the tables.
    pub unflushed_bytes: u64,
    /// Files that could not be read in full.
    #[serde(rename = "damaged_files", serialize_with = "damaged_files")]
    #[schemars(with = "Vec<DamagedFile<'_>>")]
    pub damage: Vec<Damage>,
    /// Sampling of the used traces; absent if none is weighted, has malformed or differing
    /// thresholds, or was recorded in a sampler's burst.
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
    /// Adds the notes from another part of the store, except unsynchronised hosts and unflushed
    /// bytes.
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
        self.add_damage_by(other.damage, |before, more| before + more);
    }

    /// Returns notes that report only damaged files and a number of traces that were too large to
    /// read.
    #[must_use]
    pub fn of_unread(damage: Vec<Damage>, large_traces: u64) -> Self {
        let mut notes = Self::default();
        (notes.damage, notes.left_out.large_traces) = (damage, large_traces);
        notes
    }

    /// Adds the damaged files that another reading of the same store found. If it left out more
    /// large traces, takes its number of them. Returns the increase of this number.
    pub(super) fn add_unread(&mut self, reading: Notes) -> u64 {
        let before = &mut self.left_out.large_traces;
        let more = reading.left_out.large_traces.saturating_sub(*before);
        *before += more;
        self.add_damage(reading.damage);
        more
    }

    /// Adds damage that another reading of the same store found, with one entry for each file. Rows
    /// that several readings read count once.
    pub(super) fn add_damage(&mut self, damage: Vec<Damage>) {
        self.add_damage_by(damage, u64::max);
    }

    /// Adds damage. For a file that is already listed, `rows` combines both numbers of rows read.
    fn add_damage_by(&mut self, damage: Vec<Damage>, rows: fn(u64, u64) -> u64) {
        for flaw in damage {
            match self.damage.iter_mut().find(|known| known.file == flaw.file) {
                Some(known) => known.rows_read = rows(known.rows_read, flaw.rows_read),
                None => self.damage.push(flaw),
            }
        }
    }

    /// Returns the notes with `weighing`, which states the figures of a report that use sampling
    /// weights.
    #[must_use]
    pub(super) fn weighing(mut self, weighing: WeightUse) -> Self {
        self.sampling.weighing = weighing;
        self
    }

    /// Returns the causes of incompleteness with their counts, such as `lossy 3, no_root 1`.
    #[must_use]
    pub fn incomplete_text(&self) -> String {
        let causes = self.incomplete.iter();
        let texts = causes.map(|(cause, count)| format!("{cause} {count}"));
        texts.collect::<Vec<_>>().join(", ")
    }
}

/// Cached part of the notes: all except those about the data directory and damaged files.
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
        Self {
            traces: notes.traces,
            complete_traces: notes.complete_traces,
            fragments: notes.fragments,
            connections: notes.connections.clone(),
            incomplete: notes.incomplete.clone(),
            diagnostics: notes.diagnostics.clone(),
            roots: notes.roots.clone(),
            excluded_segments: notes.excluded_segments,
            left_out: notes.left_out,
            sampling: notes.sampling.clone(),
        }
    }

    /// Returns complete notes, with `first` as the notes about the data directory.
    pub(super) fn with(self, first: Notes) -> Notes {
        Notes {
            traces: self.traces,
            complete_traces: self.complete_traces,
            fragments: self.fragments,
            connections: self.connections,
            incomplete: self.incomplete,
            diagnostics: self.diagnostics,
            roots: self.roots,
            excluded_segments: self.excluded_segments,
            left_out: self.left_out,
            sampling: self.sampling,
            ..first
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_rows(rows: &[(&str, u64)]) -> Notes {
        let flaw = |(file, rows_read): &(&str, u64)| Damage {
            file: (*file).to_owned(),
            reason: "truncated".to_owned(),
            rows_read: *rows_read,
        };
        Notes::of_unread(rows.iter().map(flaw).collect(), 0)
    }

    #[test]
    fn readings_count_rows_once_and_parts_add_them() {
        let mut parts = of_rows(&[("a", 3), ("b", 4)]);
        parts.merge(of_rows(&[("b", 5), ("c", 6)]));
        assert_eq!(
            parts.damage,
            of_rows(&[("a", 3), ("b", 9), ("c", 6)]).damage
        );
        let mut readings = of_rows(&[("a", 3), ("b", 4)]);
        readings.add_unread(of_rows(&[("b", 4), ("a", 2), ("c", 6)]));
        assert_eq!(
            readings.damage,
            of_rows(&[("a", 3), ("b", 4), ("c", 6)]).damage
        );
    }
}
