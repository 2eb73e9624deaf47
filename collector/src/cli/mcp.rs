//! The `mcp` subcommand.

use clap::Args;
use stroboscope_mcp::server::ToolServer;
use stroboscope_mcp::tools::{ANSWER_BYTES_MAX, ToolStore, Tools};
use stroboscope_reports::arguments::DataArguments;
use stroboscope_reports::memory_limit::{of_verb, parse_reading_limit};
use stroboscope_reports::size::parse_size;
use stroboscope_reports::{Failure, Status};
use tokio::runtime::Runtime;

/// Answer an agent's questions about a store, by the Model Context Protocol
///
/// Agents start this command themselves: it reads requests from standard input, and writes answers
/// to standard output, until its input ends. Its tools are reports, and change nothing. `view`,
/// and `collect` without --forward, serve the same tools over HTTP, at /mcp of --http.
///
///   claude mcp add stroboscope -- stroboscope mcp --data /var/lib/stroboscope
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Mcp {
    #[command(flatten)]
    data: DataArguments,
    /// Address of the pages over the same store, for links in answers, such as
    /// http://127.0.0.1:4319
    #[arg(long, value_name = "URL", value_parser = parse_site)]
    page: Option<String>,
    /// Maximum length of an answer's JSON; lists of a longer one are cut, and the answer states so
    #[arg(long, value_name = "SIZE", default_value_t = ANSWER_BYTES_MAX as u64, value_parser = parse_size)]
    answer_max: u64,
    /// Memory for traces and the model inferred from them [default: 60 % of the control group's
    /// limit, or of the machine's memory, at least 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_reading_limit)]
    memory_limit: Option<u64>,
}

/// Parses the address of a site; removes slashes at its end.
fn parse_site(text: &str) -> Result<String, String> {
    let is_site = ["http://", "https://"].iter().any(|scheme| {
        text.strip_prefix(scheme)
            .is_some_and(|rest| !rest.is_empty() && !rest.contains(['?', '#', ' ']))
    });
    match is_site {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err("an address such as http://127.0.0.1:4319".to_owned()),
    }
}

impl Mcp {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let directory = self.data.or_newest_demo().to_read(runtime.handle())?;
        let tools = Tools::of(ToolStore {
            data: directory.directory().to_owned(),
            runtime: runtime.handle().clone(),
            memory: of_verb(self.memory_limit),
            answer_bytes_max: usize::try_from(self.answer_max).unwrap_or(usize::MAX),
        });
        let served = runtime.block_on(ToolServer::serve_stdio(tools, self.page));
        served.map_err(Failure::of)?;
        Ok(Status::Done)
    }
}
