//! Columns of lists of small structs, such as windows, losses and clock steps. The structs are
//! declared like tables.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::{Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Schema};

use super::batch_column::column;
use super::columns::{DeclaredTable, fields, write_columns};
use super::kinds::{ColumnKind, Nullable, OpenResult, ReadKind, Values, WriteResult};
use super::texts::{TextColumns, TextReader};

/// Kind of columns with lists whose items are rows of `T`.
pub(super) struct List<T>(PhantomData<T>);

fn item_field<T: DeclaredTable>() -> Field {
    Field::new("item", DataType::Struct(fields::<T>()), false)
}

impl<T: DeclaredTable<Row: Clone>> ColumnKind for List<T> {
    type Value<'a> = &'a [T::Row];

    fn data_type() -> DataType {
        DataType::List(Arc::new(item_field::<T>()))
    }

    fn write<'a>(values: impl Values<'a, Self>, texts: &TextColumns) -> WriteResult {
        let lists: Vec<&[T::Row]> = values.collect();
        let columns = write_columns::<T>(&lists.concat(), texts)?;
        let items = StructArray::try_new(fields::<T>(), columns, None)?;
        let offsets = OffsetBuffer::from_lengths(lists.iter().map(|list| list.len()));
        let item = Arc::new(item_field::<T>());
        let lists = ListArray::try_new(item, offsets, Arc::new(items), None)?;
        Ok(Arc::new(lists))
    }
}

impl<T: DeclaredTable<Row: Clone>> ReadKind for List<T> {
    type Cell = Vec<T::Cells>;
    /// Lists of a record batch, and the cells of all their items.
    type Reader = (ListArray, Vec<T::Cells>);

    fn open(batch: &RecordBatch, name: &str, texts: &mut TextReader<'_>) -> OpenResult<Self> {
        let lists: ListArray = column(batch, name)?;
        let items = lists.values().as_any().downcast_ref::<StructArray>();
        let (fields, columns, _) = items
            .cloned()
            .ok_or_else(|| format!("column {name} holds no lists of structs"))?
            .into_parts();
        let mut cells = Vec::new();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
            .map_err(|error| error.to_string())
            .and_then(|items| T::read(&items, texts, &mut cells))
            .map_err(|reason| format!("the structs in column {name}: {reason}"))?;
        Ok((lists, cells))
    }

    fn cell((lists, cells): &Self::Reader, row: usize) -> Vec<T::Cells> {
        let offsets = lists.value_offsets();
        let range = offsets[row] as usize..offsets[row + 1] as usize;
        cells.get(range).map(<[_]>::to_vec).unwrap_or_default()
    }

    fn cell_of(value: &[T::Row]) -> Vec<T::Cells> {
        value.iter().map(T::cells_of).collect()
    }
}

/// Lists that are empty if the column is absent, because older files may lack it.
impl<T: DeclaredTable<Row: Clone>> ColumnKind for Nullable<List<T>> {
    type Value<'a> = &'a [T::Row];
    const IS_NULLABLE: bool = true;

    fn data_type() -> DataType {
        List::<T>::data_type()
    }

    fn write<'a>(values: impl Values<'a, Self>, texts: &TextColumns) -> WriteResult {
        List::<T>::write(values, texts)
    }
}

impl<T: DeclaredTable<Row: Clone>> ReadKind for Nullable<List<T>> {
    type Cell = Vec<T::Cells>;
    type Reader = Option<<List<T> as ReadKind>::Reader>;

    fn open(batch: &RecordBatch, name: &str, texts: &mut TextReader<'_>) -> OpenResult<Self> {
        let column = batch.column_by_name(name);
        column
            .map(|_| List::<T>::open(batch, name, texts))
            .transpose()
    }

    fn cell(opened: &Self::Reader, row: usize) -> Vec<T::Cells> {
        let lists = opened.as_ref().map(|opened| List::<T>::cell(opened, row));
        lists.unwrap_or_default()
    }

    fn cell_of(value: &[T::Row]) -> Vec<T::Cells> {
        List::<T>::cell_of(value)
    }
}
