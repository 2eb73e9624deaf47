//! SQL over the store, by Apache DataFusion. Empty without the feature `datafusion`.
//!
//! It provides the tables of the store that have files, such as `spans` and `events`, with a column
//! for each attribute that has one in any file. The view `traces` has one row per trace. Results
//! are tables, too: `segments`, `relations`, `pipelines` and `paths`. The aggregate function
//! `infer` returns a model.
#![cfg(feature = "datafusion")]
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

mod given;
mod infer;
mod results;
mod snapshot;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::AggregateUDF;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures_util::TryStreamExt as _;
use tokio::runtime::Handle;

use self::given::GivenProvider;
pub use self::given::GivenTable;
use self::infer::{InferFunction, traces_view};
use self::results::{ResultKind, ResultTable};
use self::snapshot::{Snapshot, URL};
use stroboscope_query::{InferSettings, QueryError, Selection, Source, Study};
use stroboscope_store::query_memory::QueryMemory;
use stroboscope_store::tables::{ColumnInfo, StoreTable, attribute_fields};

/// Error of a query.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    #[error(transparent)]
    Query(#[from] QueryError),
    /// Error of the engine or of the query.
    #[error("{}", engine_text(.0))]
    Engine(#[from] DataFusionError),
    /// The query exceeded its time limit.
    #[error("the query took longer than {0:?}, and was ended")]
    Timeout(Duration),
    /// The rows cannot be printed.
    #[error("cannot print the rows: {0}")]
    Print(#[from] datafusion::arrow::error::ArrowError),
}

/// Returns the text of an engine error; for errors of parsing and planning, without their kind.
fn engine_text(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::SQL(parser, _) => {
            let text = parser.to_string();
            let text = text.strip_prefix("sql parser error: ").unwrap_or(&text);
            format!("cannot read the query: {text}")
        }
        DataFusionError::Plan(text) => {
            let rest = text.strip_prefix("table 'datafusion.public.");
            match rest.and_then(|rest| rest.strip_suffix("' not found")) {
                Some(table) => format!("there is no table {table}; `show tables` lists them"),
                None => text.clone(),
            }
        }
        _ => error.strip_backtrace(),
    }
}

/// Limits of one query.
#[derive(Clone, Copy, Debug)]
pub struct SqlLimits {
    /// Maximum memory in bytes for sorting, joining and grouping. Operators that can do so spill
    /// the excess to temporary files. The analyses behind tables such as `segments` are not
    /// counted; they have an equal limit of their own.
    pub memory_bytes: usize,
    /// Maximum duration of the query.
    pub time: Duration,
}

impl Default for SqlLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 2 << 30,
            time: Duration::from_secs(600),
        }
    }
}

/// Rows that a query returned.
#[derive(Debug)]
pub struct SqlRows(Vec<RecordBatch>);

impl SqlRows {
    /// Renders the rows as a table, or as one JSON object per line.
    ///
    /// # Errors
    /// Fails if a column's type cannot be printed.
    pub fn render(&self, json: bool) -> Result<String, SqlError> {
        if !json {
            return Ok(pretty_format_batches(&self.0)?.to_string());
        }
        let mut writer = LineDelimitedWriter::new(Vec::new());
        writer.write_batches(&self.0.iter().collect::<Vec<_>>())?;
        writer.finish()?;
        Ok(String::from_utf8_lossy(&writer.into_inner()).into_owned())
    }
}

/// Maximum number of rows that [`sql_printed`] shows as a table. The widths of its columns are
/// known only when all rows are known.
const TABLE_ROWS_MAX: usize = 10_000;

/// Runs one query over the tables of the data directory.
///
/// # Errors
/// Fails if the directory is missing, empty or unreadable, or if the query is invalid, fails or
/// exceeds a default limit.
pub fn sql(data: &Path, query: &str, runtime: &Handle) -> Result<SqlRows, SqlError> {
    sql_with(data, query, SqlLimits::default(), Vec::new(), runtime)
}

/// Runs one query like [`sql`], within these limits and with additional tables. Each of these is
/// computed when the query reads it.
///
/// # Errors
/// Fails if the directory is missing, empty or unreadable, or if the query is invalid, fails or
/// exceeds a limit.
pub fn sql_with(
    data: &Path,
    query: &str,
    limits: SqlLimits,
    tables: Vec<Arc<dyn GivenTable>>,
    runtime: &Handle,
) -> Result<SqlRows, SqlError> {
    let config = SessionConfig::new();
    collected(|each| run(data, query, config, limits, tables, runtime, each))
}

/// Runs one query like [`sql`], with this number of target partitions, but at least one.
///
/// # Errors
/// Fails like [`sql`].
pub fn sql_in_partitions(
    data: &Path,
    query: &str,
    partitions: usize,
    runtime: &Handle,
) -> Result<SqlRows, SqlError> {
    let config = SessionConfig::new().with_target_partitions(partitions.max(1));
    let limits = SqlLimits::default();
    collected(|each| run(data, query, config, limits, Vec::new(), runtime, each))
}

/// With `json`, passes the rows of a query to `print` as they arrive, one JSON object per line,
/// until `print` breaks. Otherwise, passes a table of the first 10,000 rows at the end. Returns
/// true if the table was cut after them.
///
/// # Errors
/// Fails if the directory is missing, empty or unreadable, if the query is invalid, fails or
/// exceeds a limit, or if a column's type cannot be printed.
pub fn sql_printed(
    data: &Path,
    query: &str,
    (json, limits): (bool, SqlLimits),
    tables: Vec<Arc<dyn GivenTable>>,
    runtime: &Handle,
    print: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<bool, SqlError> {
    let (mut shown, mut rows) = (Vec::new(), 0);
    let mut each = |batch: RecordBatch| {
        if json {
            let text = SqlRows(vec![batch]).render(true)?;
            return Ok(print(&text));
        }
        let left = TABLE_ROWS_MAX - rows;
        rows += batch.num_rows().min(left);
        let is_cut = batch.num_rows() > left;
        shown.push(if is_cut { batch.slice(0, left) } else { batch });
        Ok(match is_cut {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    };
    let config = SessionConfig::new();
    let end = run(data, query, config, limits, tables, runtime, &mut each)?;
    if !json {
        let _ = print(&SqlRows(shown).render(false)?);
    }
    Ok(!json && end.is_break())
}

/// Consumer of the batches of a query's rows.
type Each<'a> = &'a mut dyn FnMut(RecordBatch) -> Result<ControlFlow<()>, SqlError>;

fn collected(
    run: impl FnOnce(Each<'_>) -> Result<ControlFlow<()>, SqlError>,
) -> Result<SqlRows, SqlError> {
    let mut batches = Vec::new();
    let _ = run(&mut |batch| {
        batches.push(batch);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(SqlRows(batches))
}

fn run(
    data: &Path,
    query: &str,
    config: SessionConfig,
    limits: SqlLimits,
    given: Vec<Arc<dyn GivenTable>>,
    runtime: &Handle,
    each: Each<'_>,
) -> Result<ControlFlow<()>, SqlError> {
    let memory = QueryMemory::of_one_query(limits.memory_bytes);
    let source = Source::open(data, runtime.clone())?.with_memory(&memory);
    let source = Arc::new(source);
    // Leave out tables without files.
    let mut tables = Vec::new();
    for table in StoreTable::ALL {
        let files = source.store().list(table).map_err(QueryError::from)?;
        if !files.is_empty() {
            let attributes = attribute_fields(source.store(), table).map_err(QueryError::from)?;
            tables.push(StoredTable { table, attributes });
        }
    }
    let snapshot = Snapshot::of(source.store()).map_err(QueryError::from)?;
    runtime.block_on(async {
        let memory = RuntimeEnvBuilder::new().with_memory_limit(limits.memory_bytes, 1.0);
        let context = SessionContext::new_with_config_rt(
            config.with_information_schema(true),
            memory.build_arc()?,
        );
        let store = ListingTableUrl::parse(URL)?.object_store();
        context.register_object_store(store.as_ref(), Arc::new(snapshot));
        for table in &tables {
            context.register_table(table.table.name(), listing(table)?)?;
        }
        let traces = context.sql(&traces_view(&tables)).await?;
        context.register_table("traces", traces.into_view())?;
        let (selection, settings) = (Selection::default(), InferSettings::default());
        let study = Arc::new(Study::new(source.clone(), selection, settings));
        let result = |kind| -> Arc<dyn GivenTable> {
            let study = study.clone();
            Arc::new(ResultTable { kind, study })
        };
        for table in ResultKind::ALL.map(result).into_iter().chain(given) {
            context.register_table(table.name(), Arc::new(GivenProvider(table.clone())))?;
        }
        context.register_udaf(AggregateUDF::from(InferFunction::new(source)));
        // Queries only read: they create no external tables, write none, and change no setting.
        let asking = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let asked = async {
            let rows = context.sql_with_options(query, asking).await?;
            let schema = Arc::new(rows.schema().as_arrow().clone());
            let mut rows = rows.execute_stream().await?;
            // An empty batch carries the columns of a result without rows.
            let mut next = Some(RecordBatch::new_empty(schema));
            while let Some(batch) = next {
                if each(batch)?.is_break() {
                    return Ok::<_, SqlError>(ControlFlow::Break(()));
                }
                next = rows.try_next().await?;
            }
            Ok(ControlFlow::Continue(()))
        };
        let end = tokio::time::timeout(limits.time, asked).await;
        end.map_err(|_| SqlError::Timeout(limits.time))?
    })
}

/// Table that has files in the store.
#[derive(Debug)]
struct StoredTable {
    table: StoreTable,
    /// Columns of the table's attributes.
    attributes: Vec<Field>,
}

fn listing(of: &StoredTable) -> Result<Arc<ListingTable>, SqlError> {
    let table = of.table;
    let url = ListingTableUrl::parse(format!("{URL}{}/", table.name()))?;
    let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
        .with_file_extension(".parquet")
        .with_table_partition_cols(vec![
            ("date".to_owned(), DataType::Utf8),
            ("hour".to_owned(), DataType::Utf8),
        ]);
    // Declares the schema instead of using the files' own ones, because a file may be older than a
    // column, and files have different attributes.
    let field = |column: ColumnInfo| Field::new(column.name, column.data_type, column.is_nullable);
    let mut fields: Vec<Field> = table.columns().into_iter().map(field).collect();
    fields.extend(of.attributes.iter().cloned());
    let schema = Schema::new(fields);
    let config = ListingTableConfig::new(url)
        .with_listing_options(options)
        .with_schema(Arc::new(schema));
    Ok(Arc::new(ListingTable::try_new(config)?))
}
