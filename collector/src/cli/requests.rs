//! The `store set-requests` subcommand.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::runtime::Runtime;

use stroboscope_reports::arguments::{DataArguments, parse_operation};
use stroboscope_reports::output::print;
use stroboscope_reports::{Failure, Status};
use stroboscope_store::data_dir::DataDir;

/// Set which operations of a data directory are requests wherever they occur
///
/// The outermost spans of these operations are requests, also below spans of other operations.
/// Subcommands, pages and SQL apply the setting as if each had `--request`, which takes precedence.
/// Prints the setting that then applies. Pages apply a change without a restart; the live model of
/// a collector applies it when the collector starts.
#[derive(Debug, Args)]
pub(super) struct SetRequests {
    #[command(flatten)]
    data: DataArguments,
    /// Operation (service:name). With `none`, children of long-lived spans, such as those of
    /// connections, are not requests
    #[arg(value_name = "OPERATION", value_parser = parse_operation)]
    operations: Vec<String>,
    /// Remove the setting
    #[arg(long, conflicts_with = "operations")]
    clear: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Request operations of a data directory.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RequestSetting {
    /// `service:name`, or `none`; empty if nothing is set.
    requests: Vec<String>,
}

impl SetRequests {
    pub(super) fn run(self, _: &Runtime) -> Result<Status, Failure> {
        let data = DataDir::existing(self.data.local()?).map_err(Failure::of)?;
        if self.clear || !self.operations.is_empty() {
            data.set_requests(&self.operations).map_err(Failure::of)?;
        }
        let setting = RequestSetting {
            requests: data.requests().map_err(Failure::of)?,
        };
        let text = match setting.requests.is_empty() {
            _ if self.json => serde_json::to_string_pretty(&setting).map_err(Failure::of)?,
            true => "no operations of requests are set".to_owned(),
            false => setting.requests.join("\n"),
        };
        print(&text)?;
        Ok(Status::Done)
    }
}
