//! The `store compact` subcommand.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::maintenance::{RetentionArguments, ThinningArguments};
use stroboscope_render::humanise::counted;
use stroboscope_reports::arguments::DataArguments;
use stroboscope_reports::output::print;
use stroboscope_reports::{Failure, Status};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::flush::{Counters, Flusher, now_ns};
use stroboscope_store::maintenance::{Care, MaintenanceCounters, MaintenanceSettings};
use stroboscope_store::tables::Store;

/// Merge the many small files of a store into few large ones
///
/// For a store that no collector is using, because a running collector compacts its store itself.
/// First flushes the log into the store. Then merges the files of each table and hour into one, or
/// into a few if they are large. Subcommands that are reading continue: up to 4 GiB of replaced
/// files are kept for an hour, and deleted by the first `compact` or `collect` after it.
#[derive(Debug, Args)]
pub(super) struct Compact {
    #[command(flatten)]
    data: DataArguments,
    #[command(flatten)]
    retention: RetentionArguments,
    #[command(flatten)]
    thinning: ThinningArguments,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Result of the compaction.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CompactionReport {
    /// Number of files that were replaced.
    replaced_files: u64,
    /// Number of files that merges wrote.
    written_files: u64,
    read_bytes: u64,
    written_bytes: u64,
    rows: u64,
    /// Number of rows of OTLP that were dropped, because an equal one remains.
    otlp_retries_dropped: u64,
    deleted_hours: u64,
    deleted_bytes: u64,
    thinned_hours: u64,
    /// Number of requests that thinning dropped.
    thinned_requests: u64,
    /// Number of spans that thinning dropped.
    thinned_spans: u64,
    /// Size by which thinning reduced files.
    thinned_bytes: u64,
    /// Number of files that could not be merged because they are damaged.
    damaged_files: usize,
}

impl Compact {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let data = DataDir::existing(self.data.local()?).map_err(Failure::of)?;
        let _lock = data.lock().map_err(Failure::of)?;
        let store = Store::local(data.root(), runtime.handle().clone()).map_err(Failure::of)?;
        let flushed = Arc::new(Counters::default());
        let mut flusher =
            Flusher::load(&data, store.clone(), flushed.clone()).map_err(Failure::of)?;
        flusher.recover().map_err(Failure::of)?;
        let counters = Arc::new(MaintenanceCounters::default());
        let settings = MaintenanceSettings {
            is_at_rest: true,
            thinning: self.thinning.settings(&self.retention),
            ..self.retention.settings_without_collector(data.root())
        };
        let mut care = Care::of(store, settings, counters.clone());
        // A damaged file ends the work on its hour; the next round continues without it.
        let mut known = None;
        while known != Some(care.damaged().len()) {
            known = Some(care.damaged().len());
            care.round(flushed.checkpoint_segment.load(Relaxed), now_ns(), &|| true)
                .map_err(Failure::of)?;
        }
        let done = CompactionReport {
            replaced_files: counters.files_replaced.load(Relaxed),
            written_files: counters.compactions.load(Relaxed),
            read_bytes: counters.compaction_read_bytes.load(Relaxed),
            written_bytes: counters.compaction_written_bytes.load(Relaxed),
            rows: counters.compacted_rows.load(Relaxed),
            otlp_retries_dropped: counters.otlp_retries_dropped.load(Relaxed),
            deleted_hours: counters.hours_deleted_for_age.load(Relaxed)
                + counters.hours_deleted_for_size.load(Relaxed),
            deleted_bytes: counters.deleted_bytes.load(Relaxed),
            thinned_hours: counters.hours_thinned.load(Relaxed),
            thinned_requests: counters.requests_thinned.load(Relaxed),
            thinned_spans: counters.spans_thinned.load(Relaxed),
            thinned_bytes: counters.thinned_bytes.load(Relaxed),
            damaged_files: care.damaged().len(),
        };
        if self.json {
            print(&serde_json::to_string_pretty(&done).map_err(Failure::of)?)?;
        } else {
            print(&done.text())?;
        }
        Ok(Status::Done)
    }
}

impl CompactionReport {
    fn text(&self) -> String {
        let Self {
            replaced_files,
            written_files,
            read_bytes,
            written_bytes,
            rows,
            ..
        } = self;
        let mut text = format!(
            "{} ({read_bytes} bytes) became {written_files} ({written_bytes} bytes, {})",
            counted(*replaced_files, "file"),
            counted(*rows, "row")
        );
        let mut more = |count: u64, what: &str| {
            if count > 0 {
                text += &format!("\n{count} {what}");
            }
        };
        more(
            self.otlp_retries_dropped,
            "duplicate rows of OTLP were removed",
        );
        more(self.deleted_hours, "hours were deleted");
        more(
            self.thinned_hours,
            &format!(
                "hours were thinned by {}, {} and {} bytes",
                counted(self.thinned_requests, "request"),
                counted(self.thinned_spans, "span"),
                self.thinned_bytes
            ),
        );
        more(
            self.damaged_files as u64,
            "damaged files were left unchanged: see `stroboscope store check`",
        );
        text
    }
}
