//! Arguments of the subcommands that maintain the store's files.

use std::path::Path;
use std::time::Duration;

use clap::Args;

use stroboscope_remote::is_published;
use stroboscope_reports::arguments::{parse_duration, parse_share};
use stroboscope_reports::output::say;
use stroboscope_reports::size::parse_size;
use stroboscope_server::ingest::MaintenanceOptions;
use stroboscope_store::maintenance::{MaintenanceSettings, SETTLED, ThinningSettings};

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

    /// Reports whether any of these arguments is given.
    pub(super) fn is_anything(&self) -> bool {
        self.keep.is_some() || self.keep_bytes.is_some()
    }

    /// Returns the settings for a data directory that no collector uses. Prints a remark if data
    /// should expire by its age but cannot, because the directory was published.
    pub(super) fn settings_without_collector(&self, data: &Path) -> MaintenanceSettings {
        let settings = MaintenanceSettings {
            // Every hour counts as unpublished, because no publisher reports which hours are
            // published.
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

/// Arguments for the thinning of old hours.
#[derive(Clone, Debug, Args)]
pub(super) struct ThinningArguments {
    /// Thin hours of data that ended longer ago than this, such as 48h or 7d, at least 25h: keep
    /// failed requests, and a share of the others, which then count for more. Needs --thin-ratio
    #[arg(long, value_name = "AGE", value_parser = parse_thin_after, requires = "thin_ratio")]
    thin_after: Option<Duration>,
    /// Share of requests that thinning keeps; at 5%, each of them then counts for 20. Needs
    /// --thin-after
    #[arg(long, value_name = "SHARE", value_parser = parse_thin_ratio, requires = "thin_after")]
    thin_ratio: Option<f64>,
    /// Keep all requests that take at least this long, such as 500ms, when thinning. Needs
    /// --thin-after
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "thin_after")]
    thin_slower: Option<Duration>,
}

impl ThinningArguments {
    /// Returns the settings. Prints a remark if hours are deleted at the age at which they would be
    /// thinned, or before.
    pub(super) fn settings(&self, retention: &RetentionArguments) -> Option<ThinningSettings> {
        let (after, ratio) = self.thin_after.zip(self.thin_ratio)?;
        if retention.keep.is_some_and(|keep| keep <= after) {
            say!("--thin-after thins nothing: --keep deletes hours before they are that old");
        }
        Some(ThinningSettings {
            after,
            ratio,
            slow: self.thin_slower,
        })
    }
}

/// Parses the age at which hours are thinned. Rejects ages at which records may still arrive.
fn parse_thin_after(text: &str) -> Result<Duration, String> {
    let after = parse_duration(text)?;
    if after < SETTLED {
        let hours = SETTLED.as_secs() / 3_600;
        return Err(format!(
            "write at least {hours}h: records of an hour may arrive until {hours} hours after its end"
        ));
    }
    Ok(after)
}

/// Minimum ratio of thinning: the weights of requests have an upper limit.
const THIN_RATIO_MIN: f64 = 1e-8;

fn parse_thin_ratio(text: &str) -> Result<f64, String> {
    let ratio = parse_share(text)?;
    if ratio < THIN_RATIO_MIN {
        return Err("write at least 0.000001%".to_owned());
    }
    Ok(ratio)
}

/// Arguments for the maintenance of the store by a running collector.
#[derive(Clone, Debug, Args)]
pub(super) struct MaintenanceArguments {
    #[command(flatten)]
    retention: RetentionArguments,
    #[command(flatten)]
    thinning: ThinningArguments,
    /// Do not merge the store's small files; each flush writes one file per table and hour
    #[arg(long)]
    no_compaction: bool,
}

impl MaintenanceArguments {
    pub(super) fn options(&self) -> MaintenanceOptions {
        MaintenanceOptions {
            settings: MaintenanceSettings {
                compacts: !self.no_compaction,
                thinning: self.thinning.settings(&self.retention),
                ..self.retention.settings()
            },
            ..MaintenanceOptions::default()
        }
    }
}
