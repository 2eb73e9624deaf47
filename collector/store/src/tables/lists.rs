//! Columns of lists of small structs, such as windows, losses and clock steps. The structs are
//! declared like tables.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, ListArray, RecordBatch, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Schema};

use super::batch_column::{column, optional_column};
use super::columns::{DeclaredTable, fields, write_columns};
use super::kinds::{ColumnKind, Nullable, ReadKind};
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

    fn write<'a>(
        values: impl ExactSizeIterator<Item = Self::Value<'a>>,
        texts: &TextColumns,
    ) -> Result<ArrayRef, ArrowError> {
        let lists: Vec<&[T::Row]> = values.collect();
        let items = StructArray::try_new(
            fields::<T>(),
            write_columns::<T>(&lists.concat(), texts)?,
            None,
        )?;
        let offsets = OffsetBuffer::from_lengths(lists.iter().map(|list| list.len()));
        Ok(Arc::new(ListArray::try_new(
            Arc::new(item_field::<T>()),
            offsets,
            Arc::new(items),
            None,
        )?))
    }
}

impl<T: DeclaredTable<Row: Clone>> ReadKind for List<T> {
    type Cell = Vec<T::Cells>;
    /// Lists of a record batch, and the cells of all their items.
    type Reader = (ListArray, Vec<T::Cells>);

    fn open(
        batch: &RecordBatch,
        name: &str,
        texts: &mut TextReader<'_>,
    ) -> Result<Self::Reader, String> {
        Self::opened(column(batch, name)?, name, texts)
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

impl<T: DeclaredTable<Row: Clone>> List<T> {
    fn opened(
        lists: ListArray,
        name: &str,
        texts: &mut TextReader<'_>,
    ) -> Result<<Self as ReadKind>::Reader, String> {
        let items = lists
            .values()
            .as_any()
            .downcast_ref::<StructArray>()
            .cloned();
        let (fields, columns, _) = items
            .ok_or_else(|| format!("column {name} holds no lists of structs"))?
            .into_parts();
        let mut cells = Vec::new();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
            .map_err(|error| error.to_string())
            .and_then(|items| T::read(&items, texts, &mut cells))
            .map_err(|reason| format!("the structs in column {name}: {reason}"))?;
        Ok((lists, cells))
    }
}

/// Lists that are empty if the column is absent, because older files may lack it.
impl<T: DeclaredTable<Row: Clone>> ColumnKind for Nullable<List<T>> {
    type Value<'a> = &'a [T::Row];
    const IS_NULLABLE: bool = true;

    fn data_type() -> DataType {
        List::<T>::data_type()
    }

    fn write<'a>(
        values: impl ExactSizeIterator<Item = Self::Value<'a>>,
        texts: &TextColumns,
    ) -> Result<ArrayRef, ArrowError> {
        List::<T>::write(values, texts)
    }
}

impl<T: DeclaredTable<Row: Clone>> ReadKind for Nullable<List<T>> {
    type Cell = Vec<T::Cells>;
    type Reader = Option<<List<T> as ReadKind>::Reader>;

    fn open(
        batch: &RecordBatch,
        name: &str,
        texts: &mut TextReader<'_>,
    ) -> Result<Self::Reader, String> {
        optional_column::<ListArray>(batch, name)?
            .map(|lists| List::<T>::opened(lists, name, texts))
            .transpose()
    }

    fn cell(opened: &Self::Reader, row: usize) -> Vec<T::Cells> {
        opened
            .as_ref()
            .map(|opened| List::<T>::cell(opened, row))
            .unwrap_or_default()
    }

    fn cell_of(value: &[T::Row]) -> Vec<T::Cells> {
        List::<T>::cell_of(value)
    }
}
