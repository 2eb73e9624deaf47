//! What verbs take that care for the store's files.

use std::time::Duration;

use clap::Args;

use super::arguments::parse_duration;
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
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
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

/// Bytes, with a decimal or binary unit.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || "must be a number of bytes, such as 500MB, 20GiB or 1TB".to_owned();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number
        .checked_mul(scale)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        assert_eq!(parse_bytes("500MB"), Ok(500_000_000));
        assert_eq!(parse_bytes("20GiB"), Ok(20 << 30));
        assert_eq!(parse_bytes("17"), Ok(17));
        for wrong in ["", "0", "GB", "-1GB", "1.5GB", "5gb", "99999999999TB"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
