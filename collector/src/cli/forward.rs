//! Arguments that make a collector an agent.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stroboscope_reports::arguments::parse_duration;
use stroboscope_reports::size::parse_size;
use stroboscope_server::forward::ForwardSettings;
use stroboscope_server::ingest::Options;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Agent")]
pub(super) struct ForwardArguments {
    /// Run as an agent, which keeps no store: forward everything received to this collector,
    /// http://HOST:PORT, https://HOST:PORT or unix:/PATH, and take the burst-config and the policy
    /// of tradeoffs from it. With several, separated by commas, the agent uses one at a time
    #[arg(
        long,
        value_name = "URL",
        value_delimiter = ',',
        conflicts_with_all = [
            "publish", "kernel", "burst_config", "tradeoffs", "jaeger", "tempo", "keep", "keep_bytes", "thin_after",
            "no_compaction", "flush_interval", "live_quiet", "live_window", "max_segments", "no_live_model",
        ]
    )]
    forward: Vec<String>,
    /// Authority that signed the certificate of an https collector, as PEM. It is read again for
    /// each connection [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "forward")]
    forward_ca: Option<PathBuf>,
    /// File with the token for the collectors of --forward, whose role is write. It is read again
    /// for each connection
    #[arg(long, value_name = "FILE", requires = "forward")]
    forward_token_file: Option<PathBuf>,
    /// Maximum interval between forwards
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration, requires = "forward")]
    forward_interval: Duration,
    /// Maximum size of the log that waits to be forwarded. When it is full, services keep their
    /// records in their own buffers
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size, requires = "forward")]
    buffer_bytes: u64,
}

impl ForwardArguments {
    /// Reports whether the collector is an agent.
    pub(super) fn is_agent(&self) -> bool {
        !self.forward.is_empty()
    }

    /// Returns the settings of an agent; `None` for a collector with a store.
    pub(super) fn settings(&self) -> Option<ForwardSettings> {
        self.is_agent().then(|| ForwardSettings {
            gateways: self.forward.clone(),
            flag: "--forward",
            ca: self.forward_ca.clone(),
            token: self.forward_token_file.clone(),
        })
    }

    /// Sets the interval and the buffer of an agent, and disables its live model and maintenance.
    /// Does nothing for a collector with a store.
    pub(super) fn bound_intake(&self, intake: &mut Options) {
        if self.is_agent() {
            intake.flush_interval = self.forward_interval;
            intake.backlog_bytes_max = self.buffer_bytes;
            intake.live_quiet = None;
            intake.care = None;
        }
    }
}
