//! The `sql` subcommand.

#[cfg(feature = "sql")]
mod tables;

#[cfg(feature = "sql")]
use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
#[cfg(feature = "sql")]
use stroboscope_render::show::{escaped_json, scrubbed_lines};
#[cfg(feature = "sql")]
use stroboscope_reports::output::{print_some, say};
use tokio::runtime::Runtime;

use stroboscope_reports::arguments::{DataArguments, parse_duration};
use stroboscope_reports::size::parse_size;
#[cfg(not(feature = "sql"))]
use stroboscope_reports::suggest::{command_on, quoted};
use stroboscope_reports::{Failure, Status};

/// Query the store in SQL
///
/// The tables are spans, events, batches, kernel and provenance, each with the partition columns
/// date and hour. Results are tables too, computed when a query reads them: segments, relations,
/// pipelines, and paths (critical paths and slack). The reports of subcommands without arguments
/// are tables, too: critical_path, categories, slack, anomalies, operations, map_services,
/// map_edges, requests, failures, failure_changes, failure_origins, failure_leaves,
/// recovered_failures, heatmap, root_series, losses, predictions, flows, clock_pairs, clock_hosts,
/// clock_kernels and provenance_map. The view traces has one row per trace; `SELECT infer(trace_id,
/// spans, events) FROM traces` returns the model, as `infer --save` writes it. The results and
/// `infer` correct clocks that provably differ, as the `infer` subcommand does; the view traces and
/// the tables of the store are as recorded. A query can read no files outside of the store, and can
/// change nothing. Needs a binary built with the `sql` feature.
#[derive(Debug, Args)]
pub(super) struct Sql {
    #[command(flatten)]
    data: DataArguments,
    /// Print one JSON object per row, as rows arrive, instead of a table of the first 10,000 rows
    #[arg(long)]
    json: bool,
    /// Memory for sorts, joins and groups of the query; sorts and groups put the excess into
    /// temporary files
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    memory_limit: u64,
    /// Timeout of the query
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = parse_duration)]
    timeout: Duration,
    /// SQL query, such as "SELECT service, count(*) FROM spans GROUP BY service"
    #[arg(value_name = "QUERY")]
    query: String,
}

impl Sql {
    #[cfg(not(feature = "sql"))]
    #[allow(clippy::unused_self, clippy::needless_pass_by_value)] // the signature of every `run`
    pub(super) fn run(self, _runtime: &Runtime) -> Result<Status, Failure> {
        let Self {
            data, json, query, ..
        } = self;
        let json = if json { " --json" } else { "" };
        Err(Failure::new(format!(
            "this binary was built without SQL; released binaries have it, or build with `cargo build --release \
             --features sql` (DataFusion compiles for many minutes) and repeat: {}{json} {}. Any Parquet \
             engine reads the directory as well, for example DuckDB: SELECT * FROM '{}/spans/**/*.parquet'",
            command_on("sql", &data.data),
            quoted(&query),
            data.data.display(),
        )))
    }

    #[cfg(feature = "sql")]
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let directory = self.data.to_read(runtime.handle())?;
        let data = directory.directory();
        let tables = tables::of_reports(data, runtime.handle());
        let limits = stroboscope_sql::SqlLimits {
            memory_bytes: usize::try_from(self.memory_limit).unwrap_or(usize::MAX),
            time: self.timeout,
        };
        let query = &self.query;
        let mut printed = Ok(ControlFlow::Continue(()));
        let mut print = |text: &str| {
            let text = match self.json {
                true => escaped_json(text),
                false => scrubbed_lines(text),
            };
            printed = match text.trim_end() {
                "" => Ok(ControlFlow::Continue(())),
                text => print_some(&[text.as_bytes(), b"\n"]),
            };
            match printed {
                Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        };
        let form = (self.json, limits);
        let rest =
            stroboscope_sql::sql_printed(data, query, form, tables, runtime.handle(), &mut print);
        let is_cut = rest.map_err(|error| match error {
            stroboscope_sql::SqlError::Query(error) => Failure::of(error),
            other => Failure::of(other),
        })?;
        if is_cut {
            say!("note: there are more rows; --json prints all of them, LIMIT fewer");
        }
        printed.map(|_| Status::Done)
    }
}
