//! Plan of one task: a single node, with the bytes of the task.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{BinaryArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::runner::Runner;

/// Maximum size of one row of a result, in bytes. Each row is a message, so this bounds messages.
const ROW_BYTES_MAX: usize = 1 << 20;

/// Content of the first row, one byte, which distinguishes a result from an error.
pub(crate) const IS_RESULT: u8 = 1;
pub(crate) const IS_ERROR: u8 = 2;

/// Node that runs a task. Its first row distinguishes a result from an error; the other rows are
/// the pieces, in order.
#[derive(Debug)]
pub(crate) struct TaskExec {
    task: Arc<[u8]>,
    /// `None` in the driver, which runs no tasks.
    runner: Option<Runner>,
    properties: Arc<PlanProperties>,
}

impl TaskExec {
    pub(crate) fn new(task: Arc<[u8]>, runner: Option<Runner>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            task,
            runner,
            properties: Arc::new(properties),
        }
    }
}

fn schema() -> SchemaRef {
    let piece = Field::new("piece", DataType::Binary, false);
    Arc::new(Schema::new(vec![piece]))
}

fn row(piece: &[u8]) -> Result<RecordBatch> {
    let pieces = BinaryArray::from(vec![piece]);
    Ok(RecordBatch::try_new(schema(), vec![Arc::new(pieces)])?)
}

impl DisplayAs for TaskExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskExec: {} bytes", self.task.len())
    }
}

#[allow(deprecated)] // `with_new_children` is deprecated and required
impl ExecutionPlan for TaskExec {
    fn name(&self) -> &'static str {
        "TaskExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(runner) = self.runner.clone() else {
            return Err(DataFusionError::Internal("only workers run tasks".into()));
        };
        let task = self.task.clone();
        let rows = stream::once(async move {
            let (first, bytes) = match runner.run(task).await {
                Ok(bytes) => (IS_RESULT, bytes),
                Err(error) => (IS_ERROR, error.into_bytes()),
            };
            let pieces = (0..bytes.len().div_ceil(ROW_BYTES_MAX)).map(move |number| {
                let from = number * ROW_BYTES_MAX;
                row(&bytes[from..bytes.len().min(from + ROW_BYTES_MAX)])
            });
            let rows = std::iter::once(row(&[first])).chain(pieces);
            Ok::<_, DataFusionError>(stream::iter(rows))
        });
        let rows = rows.try_flatten().boxed();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema(), rows)))
    }
}

/// Codec of [`TaskExec`], and of no other node.
#[derive(Clone, Debug)]
pub(crate) struct TaskCodec(pub(crate) Option<Runner>);

impl PhysicalExtensionCodec for TaskCodec {
    fn try_decode(
        &self,
        task: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !inputs.is_empty() {
            return Err(foreign_plan());
        }
        Ok(Arc::new(TaskExec::new(task.into(), self.0.clone())))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let node = node.downcast_ref::<TaskExec>().ok_or_else(foreign_plan)?;
        bytes.extend_from_slice(&node.task);
        Ok(())
    }
}

pub(crate) fn foreign_plan() -> DataFusionError {
    let text = "this worker runs shards of Stroboscope's reports, and no other plans";
    DataFusionError::Plan(text.into())
}
