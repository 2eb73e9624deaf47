//! What verbs take that care for the store's files.

use std::time::Duration;

use clap::Args;

use stroboscope_reports::arguments::parse_duration;
use stroboscope_reports::size::parse_size;
use stroboscope_server::intake::CareOptions;
use stroboscope_store::care::CareSettings;

/// How long data is kept.
#[derive(Clone, Debug, Args)]
pub(super) struct RetentionArguments {
    /// Delete hours of data that ended longer ago than this, such as 36h, 30d or 8w; imported data too, by the time it
    /// is of
    #[arg(long, value_name = "AGE", value_parser = parse_duration)]
    keep: Option<Duration>,
    /// Delete the oldest hours of data as long as the tables have more bytes than this, such as 500MB or 20GiB. The
    /// current hour always stays
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    keep_bytes: Option<u64>,
}

impl RetentionArguments {
    pub(super) fn settings(&self) -> CareSettings {
        let usual = CareSettings::default();
        CareSettings {
            keep: self.keep,
            keep_bytes: self.keep_bytes,
            // What is deleted stays for a while, and belongs to what was asked for.
            replaced_bytes_max: self.keep_bytes.map_or(usual.replaced_bytes_max, |most| {
                usual.replaced_bytes_max.min(most / 4)
            }),
            ..usual
        }
    }
}

/// How a running collector cares for its store.
#[derive(Clone, Debug, Args)]
pub(super) struct CareArguments {
    #[command(flatten)]
    retention: RetentionArguments,
    /// Leave the store's small files as they are: each flush makes one per table and hour
    #[arg(long)]
    no_compaction: bool,
}

impl CareArguments {
    pub(super) fn options(&self) -> CareOptions {
        CareOptions {
            settings: CareSettings {
                compacts: !self.no_compaction,
                ..self.retention.settings()
            },
            ..CareOptions::default()
        }
    }
}
