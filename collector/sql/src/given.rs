//! Tables whose rows are computed when a query reads them.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

/// Table whose rows are computed only when a query reads it.
pub trait GivenTable: Debug + Send + Sync {
    /// Returns the name of the table in queries.
    fn name(&self) -> &str;

    /// Returns the columns, which are known before the rows.
    fn schema(&self) -> SchemaRef;

    /// Computes the rows. Blocks until they are complete.
    ///
    /// # Errors
    /// Returns the reason as a text if there is no result.
    fn rows(&self) -> std::result::Result<RecordBatch, String>;
}

/// Adapts a given table to a session of DataFusion.
#[derive(Debug)]
pub(super) struct GivenProvider(pub(super) Arc<dyn GivenTable>);

#[async_trait]
impl TableProvider for GivenProvider {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let table = self.0.clone();
        let rows = tokio::task::spawn_blocking(move || table.rows())
            .await
            .map_err(|error| DataFusionError::External(Box::new(error)))?
            .map_err(DataFusionError::Execution)?;
        MemTable::try_new(self.schema(), vec![vec![rows]])?
            .scan(state, projection, filters, limit)
            .await
    }
}
