//! Reads a file's spans or events trace by trace.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch, StringArray};

use super::attributes::{AttributeKeys, AttributeValues, parse_attributes};
use super::batch_column::optional_column;
use super::columns::{DeclaredTable, cell_columns};
use super::kinds::{id, ids};
use super::names::{ATTRIBUTES, TRACE_ID, TRACE_NAME};
use super::reader::{Damage, TableReader};
use super::shredding::ShreddedColumns;
use super::texts::{StringInterner, TextIndexer, TextReader};

/// State that all cursors of one reader share, such as interned texts and the selected attributes.
#[derive(Debug, Default)]
pub(super) struct ReadContext {
    pub(super) names: StringInterner,
    pub(super) indexer: TextIndexer,
    pub(super) keys: AttributeKeys,
    /// Number of rows whose attributes were parsed, but are not a JSON object.
    pub(super) unreadable_attributes: u64,
}

impl ReadContext {
    /// Returns the state of a reader of the selected attributes.
    pub(super) fn of(keys: &AttributeKeys) -> Self {
        Self {
            keys: keys.clone(),
            ..Self::default()
        }
    }

    fn attribute_values(&mut self, column: Option<&StringArray>, row: usize) -> AttributeValues {
        let Some(column) = column.filter(|column| column.is_valid(row)) else {
            return AttributeValues::new();
        };
        let Self {
            names,
            keys,
            unreadable_attributes,
            ..
        } = self;
        parse_attributes(column.value(row), keys, |text| names.get(text)).unwrap_or_else(|| {
            *unreadable_attributes += 1;
            AttributeValues::new()
        })
    }
}

/// Columns of a batch, transposed into an array of structs. In a merge of many files, consecutive
/// traces mostly come from different files, so few accesses hit a cache. A struct needs about one
/// cache line per row, and columns would need one each. With hundreds of open files, columns would
/// also need more pages than the TLB has entries.
#[derive(Debug)]
pub(super) struct RowLayout<T: DeclaredTable> {
    pub(super) cells: Vec<T::Cells>,
    /// Texts that the cells refer to by index.
    pub(super) texts: Vec<Arc<str>>,
    shredded: ShreddedColumns,
    /// JSON of the attributes without columns of their own; `None` if it is not read, or if no row
    /// has any.
    attributes: Option<StringArray>,
}

impl<T: DeclaredTable> Default for RowLayout<T> {
    fn default() -> Self {
        Self {
            cells: Vec::new(),
            texts: Vec::new(),
            shredded: ShreddedColumns::default(),
            attributes: None,
        }
    }
}

impl<T: DeclaredTable> RowLayout<T> {
    /// Returns the columns to read, without the columns of single attributes.
    pub(super) fn columns(keys: &AttributeKeys) -> Vec<&'static str> {
        let attributes = (!keys.is_empty()).then_some(ATTRIBUTES);
        [TRACE_ID, TRACE_NAME]
            .into_iter()
            .chain(cell_columns::<T>())
            .chain(attributes)
            .collect()
    }

    /// Replaces the rows with those of `batch`.
    pub(super) fn fill(
        &mut self,
        batch: &RecordBatch,
        context: &mut ReadContext,
    ) -> Result<(), String> {
        let Self {
            cells,
            texts,
            shredded,
            attributes,
        } = self;
        cells.clear();
        texts.clear();
        *attributes = attribute_column(batch, context)?;
        let ReadContext {
            names,
            indexer,
            keys,
            ..
        } = context;
        let mut texts = TextReader {
            indexer,
            names,
            texts,
        };
        *shredded = ShreddedColumns::open(batch, keys, &mut texts)?;
        T::read(batch, &mut texts, cells)
    }

    /// Returns the attributes of a row that are selected or needed for weights.
    pub(super) fn attributes(&self, row: usize, context: &mut ReadContext) -> AttributeValues {
        let mut values = context.attribute_values(self.attributes.as_ref(), row);
        self.shredded
            .add_values(row, &self.texts, &mut context.names, &mut values);
        values
    }
}

/// Run of consecutive rows of one trace.
#[derive(Debug)]
struct TraceRun {
    trace_id: u128,
    /// Trace id as its source wrote it, from the first row that has it; `None` if no row has it.
    trace_name: Option<Arc<str>>,
    /// Index of the row after the last row of the run.
    end: usize,
}

/// Reading position in a file whose rows are in the order of trace ids.
#[derive(Debug)]
pub(super) struct Cursor<T: DeclaredTable> {
    reader: TableReader,
    rows: RowLayout<T>,
    runs: Vec<TraceRun>,
    /// Index of the next run; `row` is the index of its first row.
    run: usize,
    row: usize,
}

impl<T: DeclaredTable> Cursor<T> {
    pub(super) fn new(reader: TableReader) -> Self {
        Self {
            reader,
            rows: RowLayout::default(),
            runs: Vec::new(),
            run: 0,
            row: 0,
        }
    }

    pub(super) fn damage(&self) -> Option<&Damage> {
        self.reader.damage()
    }

    /// Returns the trace id of the next row; `None` at the end of the file, or where damage begins.
    pub(super) fn trace_id(&mut self, context: &mut ReadContext) -> Option<u128> {
        loop {
            if let Some(run) = self.runs.get(self.run) {
                return Some(run.trace_id);
            }
            (self.run, self.row) = (0, 0);
            self.runs.clear();
            let Some(batch) = self.reader.next_batch() else {
                // Frees the rows of this file, because reading the other files may take much
                // longer.
                (self.rows, self.runs) = (RowLayout::default(), Vec::new());
                return None;
            };
            if let Err(reason) = self.fill(&batch, context) {
                self.runs.clear();
                self.reader.refuse(&batch, reason);
            }
        }
    }

    fn fill(&mut self, batch: &RecordBatch, context: &mut ReadContext) -> Result<(), String> {
        self.rows.fill(batch, context)?;
        let ids = ids(batch, TRACE_ID)?;
        let names: Option<StringArray> = optional_column(batch, TRACE_NAME)?;
        let names = names.filter(|names| names.null_count() < names.len());
        for row in 0..ids.len() {
            let trace_id = id(&ids, row);
            match self.runs.last_mut() {
                Some(run) if run.trace_id == trace_id => run.end = row + 1,
                _ => self.runs.push(TraceRun {
                    trace_id,
                    trace_name: None,
                    end: row + 1,
                }),
            }
            if let Some(names) = names.as_ref().filter(|names| names.is_valid(row))
                && let Some(run) = self.runs.last_mut().filter(|run| run.trace_name.is_none())
            {
                run.trace_name = Some(names.value(row).into());
            }
        }
        Ok(())
    }

    /// Passes all rows of a trace with its name to `visit`. Does nothing if the next row is of
    /// another trace.
    pub(super) fn take(
        &mut self,
        trace_id: u128,
        context: &mut ReadContext,
        mut visit: impl FnMut(&RowLayout<T>, usize, Option<&Arc<str>>, &mut ReadContext),
    ) {
        while self.trace_id(context) == Some(trace_id) {
            let Some(run) = self.runs.get(self.run) else {
                return;
            };
            let name = run.trace_name.as_ref();
            (self.row..run.end).for_each(|row| visit(&self.rows, row, name, context));
            self.row = run.end;
            self.run += 1;
        }
    }

    /// Skips all rows of traces with ids below `trace_id`.
    pub(super) fn skip_to(&mut self, trace_id: u128, context: &mut ReadContext) {
        while self.trace_id(context).is_some_and(|next| next < trace_id) {
            self.row = self.runs[self.run].end;
            self.run += 1;
        }
    }
}

/// Returns the column of JSON attributes; `None` if no attributes are selected, or if no row has
/// any in this column.
fn attribute_column(
    batch: &RecordBatch,
    context: &ReadContext,
) -> Result<Option<StringArray>, String> {
    if context.keys.is_empty() {
        return Ok(None);
    }
    let column: Option<StringArray> = optional_column(batch, ATTRIBUTES)?;
    Ok(column.filter(|column| column.null_count() < column.len()))
}
