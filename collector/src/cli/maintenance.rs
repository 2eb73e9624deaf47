//! Arguments of the subcommands that maintain the store's files.

use std::path::Path;
use std::time::Duration;

use clap::Args;

use stroboscope_remote::is_published;
use stroboscope_reports::arguments::parse_duration;
use stroboscope_reports::output::say;
use stroboscope_reports::size::parse_size;
use stroboscope_server::ingest::MaintenanceOptions;
use stroboscope_store::maintenance::MaintenanceSettings;

/// Arguments for the retention of data.
#[derive(Clone, Debug, Args)]
pub(super) struct RetentionArguments {
    /// Delete hours of data that ended longer ago than this, such as 36h, 30d or 8w. Imported data
    /// expires by its own timestamps
    #[arg(long, value_name = "AGE", value_parser = parse_duration)]
    keep: Option<Duration>,
    /// Delete the oldest hours of data while the tables are larger than this, such as 500MB or
    /// 20GiB. The current hour always stays
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    keep_bytes: Option<u64>,
}

impl RetentionArguments {
    pub(super) fn settings(&self) -> MaintenanceSettings {
        let usual = MaintenanceSettings::default();
        MaintenanceSettings {
            keep: self.keep,
            keep_bytes: self.keep_bytes,
            // Replaced files stay for a while, in addition to the requested size. They may take up
            // to a quarter of it.
            replaced_bytes_max: self.keep_bytes.map_or(usual.replaced_bytes_max, |most| {
                usual.replaced_bytes_max.min(most / 4)
            }),
            ..usual
        }
    }

    /// Reports whether any data expires.
    pub(super) fn is_anything(&self) -> bool {
        self.keep.is_some() || self.keep_bytes.is_some()
    }

    /// Returns the settings for a data directory that no collector uses. Prints a remark if data
    /// shall expire by its age and the directory was published, because then none does.
    pub(super) fn settings_without_collector(&self, data: &Path) -> MaintenanceSettings {
        let settings = MaintenanceSettings {
            // Every hour waits to be published, as no publisher tells which ones are.
            publishing: is_published(data).then(Default::default),
            ..self.settings()
        };
        if settings.publishing.is_some() && settings.keep.is_some() {
            say!(
                "--keep deletes nothing: {} is published to an object store, and only `collect --publish` knows which \
                 hours are; if it is no longer published, delete its published.json",
                data.display()
            );
        }
        settings
    }
}

/// Arguments for the maintenance of the store by a running collector.
#[derive(Clone, Debug, Args)]
pub(super) struct MaintenanceArguments {
    #[command(flatten)]
    retention: RetentionArguments,
    /// Do not merge the store's small files; each flush writes one file per table and hour
    #[arg(long)]
    no_compaction: bool,
}

impl MaintenanceArguments {
    pub(super) fn options(&self) -> MaintenanceOptions {
        MaintenanceOptions {
            settings: MaintenanceSettings {
                compacts: !self.no_compaction,
                ..self.retention.settings()
            },
            ..MaintenanceOptions::default()
        }
    }
}
