//! SQL over the store, by Apache DataFusion. Only with the `sql` feature.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use tokio::runtime::Handle;

use super::{QueryError, Source};
use crate::store::Table;

/// Why a query has no rows.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The store.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The engine, or the query.
    #[error("{0}")]
    Engine(#[from] DataFusionError),
    /// The rows cannot be printed.
    #[error("cannot print the rows: {0}")]
    Print(#[from] datafusion::arrow::error::ArrowError),
}

/// The rows of a query.
#[derive(Debug)]
pub struct SqlRows(Vec<RecordBatch>);

impl SqlRows {
    /// As a table, or as one JSON object a line.
    ///
    /// # Errors
    /// When a column's type cannot be printed.
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

/// Runs one query over the tables of the data folder.
///
/// # Errors
/// When the folder is missing or empty, or the query is wrong.
pub fn sql(data: &Path, query: &str, runtime: &Handle) -> Result<SqlRows, SqlError> {
    let source = Source::open(data, runtime.clone())?;
    // A table without a file has no schema to read.
    let mut tables = Vec::new();
    for table in Table::ALL {
        if !source.files(table)?.is_empty() {
            tables.push(table);
        }
    }
    runtime.block_on(async {
        let context = SessionContext::new();
        for table in tables {
            context.register_table(table.name(), listing(&context, data, table).await?)?;
        }
        Ok(SqlRows(context.sql(query).await?.collect().await?))
    })
}

async fn listing(context: &SessionContext, data: &Path, table: Table) -> Result<Arc<ListingTable>, SqlError> {
    let folder = data.join(table.name());
    let absolute = std::fs::canonicalize(&folder).map_err(QueryError::Folder)?;
    let url = ListingTableUrl::parse(format!("{}/", absolute.display()))?;
    let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
        .with_file_extension(".parquet")
        .with_table_partition_cols(vec![
            ("date".to_owned(), DataType::Utf8),
            ("hour".to_owned(), DataType::Utf8),
        ]);
    let config =
        ListingTableConfig::new(url).with_listing_options(options).infer_schema(&context.state()).await?;
    Ok(Arc::new(ListingTable::try_new(config)?))
}
