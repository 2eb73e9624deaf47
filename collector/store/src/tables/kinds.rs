//! Kinds of columns, which define how values are written and read.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, FixedSizeBinaryArray,
    PrimitiveArray, RecordBatch, StringArray,
};
use arrow_schema::{ArrowError, DataType};

use super::batch_column::{column, optional_column};
use super::texts::{TextColumns, TextIndex, TextReader};
use crate::record::StringId;

/// Column as it is written.
pub(super) type WriteResult = Result<ArrayRef, ArrowError>;

/// Column of kind `K` as it is read, or the reason why it cannot be read.
pub(super) type OpenResult<K> = Result<<K as ReadKind>::Reader, String>;

/// Values of rows in a column of kind `K`.
pub(super) trait Values<'a, K: ColumnKind>: ExactSizeIterator<Item = K::Value<'a>> {}

impl<'a, K: ColumnKind, I: ExactSizeIterator<Item = K::Value<'a>>> Values<'a, K> for I {}

/// Kind of column that can be written.
pub(super) trait ColumnKind: Sized {
    /// Value of a row in this column, as it is written.
    type Value<'a>;
    const IS_NULLABLE: bool = false;
    /// True if the writer should not build a dictionary, because there are many distinct values.
    const IS_DISTINCT: bool = false;

    fn data_type() -> DataType;

    fn write<'a>(values: impl Values<'a, Self>, texts: &TextColumns) -> WriteResult;
}

/// Kind of column that can be read.
pub(super) trait ReadKind: ColumnKind {
    /// Value of a row in this column, as it is read.
    type Cell: Clone + Debug;
    /// Opened column of a record batch.
    type Reader;

    /// Opens the column by its name. A nullable column may be absent, because older files may lack
    /// it.
    fn open(batch: &RecordBatch, name: &str, texts: &mut TextReader<'_>) -> OpenResult<Self>;

    /// Returns the value of a row.
    fn cell(opened: &Self::Reader, row: usize) -> Self::Cell;

    /// Converts a value to a cell. Texts become indexes into the strings of the written rows.
    fn cell_of(value: Self::Value<'_>) -> Self::Cell;
}

/// Kind of columns that may have nulls or be absent.
pub(super) struct Nullable<K>(PhantomData<K>);

/// Kind of columns with many distinct values, for which the writer builds no dictionary.
pub(super) struct Distinct<K>(PhantomData<K>);

impl<K: ColumnKind> ColumnKind for Distinct<K> {
    type Value<'a> = K::Value<'a>;
    const IS_NULLABLE: bool = K::IS_NULLABLE;
    const IS_DISTINCT: bool = true;

    fn data_type() -> DataType {
        K::data_type()
    }

    fn write<'a>(values: impl Values<'a, Self>, texts: &TextColumns) -> WriteResult {
        K::write(values, texts)
    }
}

impl<K: ReadKind> ReadKind for Distinct<K> {
    type Cell = K::Cell;
    type Reader = K::Reader;

    fn open(batch: &RecordBatch, name: &str, texts: &mut TextReader<'_>) -> OpenResult<Self> {
        K::open(batch, name, texts)
    }

    #[inline]
    fn cell(opened: &Self::Reader, row: usize) -> Self::Cell {
        K::cell(opened, row)
    }

    #[inline]
    fn cell_of(value: Self::Value<'_>) -> Self::Cell {
        K::cell_of(value)
    }
}

/// Kind of columns with numbers of one Arrow type.
pub(super) struct Number<T>(PhantomData<T>);

pub(super) type U32 = Number<UInt32Type>;
pub(super) type U64 = Number<UInt64Type>;
pub(super) type I64 = Number<Int64Type>;

impl<T: ArrowPrimitiveType> ColumnKind for Number<T> {
    type Value<'a> = T::Native;

    fn data_type() -> DataType {
        T::DATA_TYPE
    }

    fn write<'a>(values: impl Values<'a, Self>, _: &TextColumns) -> WriteResult {
        Ok(Arc::new(PrimitiveArray::<T>::from_iter_values(values)))
    }
}

impl<T: ArrowPrimitiveType> ReadKind for Number<T> {
    type Cell = T::Native;
    type Reader = PrimitiveArray<T>;

    fn open(batch: &RecordBatch, name: &str, _: &mut TextReader<'_>) -> OpenResult<Self> {
        column(batch, name)
    }

    #[inline]
    fn cell(opened: &Self::Reader, row: usize) -> T::Native {
        opened.value(row)
    }

    #[inline]
    fn cell_of(value: T::Native) -> T::Native {
        value
    }
}

impl<T: ArrowPrimitiveType> ColumnKind for Nullable<Number<T>> {
    type Value<'a> = Option<T::Native>;
    const IS_NULLABLE: bool = true;

    fn data_type() -> DataType {
        T::DATA_TYPE
    }

    fn write<'a>(values: impl Values<'a, Self>, _: &TextColumns) -> WriteResult {
        Ok(Arc::new(values.collect::<PrimitiveArray<T>>()))
    }
}

impl<T: ArrowPrimitiveType> ReadKind for Nullable<Number<T>> {
    type Cell = Option<T::Native>;
    type Reader = Option<PrimitiveArray<T>>;

    fn open(batch: &RecordBatch, name: &str, _: &mut TextReader<'_>) -> OpenResult<Self> {
        optional_column(batch, name)
    }

    fn cell(opened: &Self::Reader, row: usize) -> Option<T::Native> {
        let column = opened.as_ref()?;
        column.is_valid(row).then(|| column.value(row))
    }

    fn cell_of(value: Option<T::Native>) -> Option<T::Native> {
        value
    }
}

/// Kind of columns with boolean values.
pub(super) enum Flag {}

impl ColumnKind for Nullable<Flag> {
    type Value<'a> = Option<bool>;
    const IS_NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn write<'a>(values: impl Values<'a, Self>, _: &TextColumns) -> WriteResult {
        Ok(Arc::new(values.collect::<BooleanArray>()))
    }
}

impl ReadKind for Nullable<Flag> {
    type Cell = Option<bool>;
    type Reader = Option<BooleanArray>;

    fn open(batch: &RecordBatch, name: &str, _: &mut TextReader<'_>) -> OpenResult<Self> {
        optional_column(batch, name)
    }

    fn cell(opened: &Self::Reader, row: usize) -> Option<bool> {
        let column = opened.as_ref()?;
        column.is_valid(row).then(|| column.value(row))
    }

    fn cell_of(value: Option<bool>) -> Option<bool> {
        value
    }
}

/// Kind of columns with ids of 16 bytes, big-endian.
pub(super) enum Id {}

impl ColumnKind for Id {
    type Value<'a> = u128;

    fn data_type() -> DataType {
        DataType::FixedSizeBinary(16)
    }

    fn write<'a>(values: impl Values<'a, Self>, _: &TextColumns) -> WriteResult {
        let mut bytes = Vec::with_capacity(values.len() * 16);
        values.for_each(|value| bytes.extend_from_slice(&value.to_be_bytes()));
        let ids = FixedSizeBinaryArray::try_new(16, bytes.into(), None)?;
        Ok(Arc::new(ids))
    }
}

impl ReadKind for Id {
    type Cell = u128;
    type Reader = FixedSizeBinaryArray;

    fn open(batch: &RecordBatch, name: &str, _: &mut TextReader<'_>) -> OpenResult<Self> {
        ids(batch, name)
    }

    #[inline]
    fn cell(opened: &Self::Reader, row: usize) -> u128 {
        id(opened, row)
    }

    #[inline]
    fn cell_of(value: u128) -> u128 {
        value
    }
}

/// Returns a column of 16-byte ids.
pub(super) fn ids(batch: &RecordBatch, name: &str) -> Result<FixedSizeBinaryArray, String> {
    let ids: FixedSizeBinaryArray = column(batch, name)?;
    if ids.value_length() == 16 {
        Ok(ids)
    } else {
        Err(format!("column {name} holds no 16-byte ids"))
    }
}

/// Returns the 16-byte id in a row of the column.
#[inline]
pub(super) fn id(column: &FixedSizeBinaryArray, row: usize) -> u128 {
    <[u8; 16]>::try_from(column.value(row)).map_or(0, u128::from_be_bytes)
}

/// Kind of columns with bytes.
pub(super) enum Binary {}

impl ColumnKind for Binary {
    type Value<'a> = &'a [u8];

    fn data_type() -> DataType {
        DataType::Binary
    }

    fn write<'a>(values: impl Values<'a, Self>, _: &TextColumns) -> WriteResult {
        Ok(Arc::new(BinaryArray::from_iter_values(values)))
    }
}

impl ReadKind for Binary {
    type Cell = Vec<u8>;
    type Reader = BinaryArray;

    fn open(batch: &RecordBatch, name: &str, _: &mut TextReader<'_>) -> OpenResult<Self> {
        column(batch, name)
    }

    fn cell(opened: &Self::Reader, row: usize) -> Vec<u8> {
        opened.value(row).to_vec()
    }

    fn cell_of(value: &[u8]) -> Vec<u8> {
        value.to_vec()
    }
}

/// Kind of text columns that are Arrow dictionaries, for texts that repeat.
pub(super) enum Text {}

fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

impl ColumnKind for Text {
    type Value<'a> = StringId;

    fn data_type() -> DataType {
        dictionary()
    }

    fn write<'a>(values: impl Values<'a, Self>, texts: &TextColumns) -> WriteResult {
        texts.dictionary(values.map(Some))
    }
}

impl ReadKind for Text {
    type Cell = TextIndex;
    type Reader = Vec<TextIndex>;

    fn open(batch: &RecordBatch, name: &str, texts: &mut TextReader<'_>) -> OpenResult<Self> {
        texts
            .of_dictionary(&column(batch, name)?)
            .map_err(|reason| format!("column {name}: {reason}"))
    }

    #[inline]
    fn cell(opened: &Self::Reader, row: usize) -> TextIndex {
        opened[row]
    }

    #[inline]
    fn cell_of(value: StringId) -> TextIndex {
        TextIndex::from(value)
    }
}

impl ColumnKind for Nullable<Text> {
    type Value<'a> = Option<StringId>;
    const IS_NULLABLE: bool = true;

    fn data_type() -> DataType {
        dictionary()
    }

    fn write<'a>(values: impl Values<'a, Self>, texts: &TextColumns) -> WriteResult {
        texts.dictionary(values)
    }
}

impl ReadKind for Nullable<Text> {
    type Cell = TextIndex;
    type Reader = Vec<TextIndex>;

    fn open(batch: &RecordBatch, name: &str, texts: &mut TextReader<'_>) -> OpenResult<Self> {
        match batch.column_by_name(name) {
            Some(_) => Text::open(batch, name, texts),
            None => Ok(vec![TextIndex::NONE; batch.num_rows()]),
        }
    }

    #[inline]
    fn cell(opened: &Self::Reader, row: usize) -> TextIndex {
        opened[row]
    }

    #[inline]
    fn cell_of(value: Option<StringId>) -> TextIndex {
        value.map_or(TextIndex::NONE, TextIndex::from)
    }
}

/// Kind of text columns that are no Arrow dictionaries. In rows, their texts are interned like
/// others.
pub(super) enum PlainText {}

impl ColumnKind for PlainText {
    type Value<'a> = StringId;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn write<'a>(values: impl Values<'a, Self>, texts: &TextColumns) -> WriteResult {
        Ok(texts.plain(values.map(Some)))
    }
}

impl ReadKind for PlainText {
    type Cell = TextIndex;
    type Reader = Vec<TextIndex>;

    fn open(batch: &RecordBatch, name: &str, texts: &mut TextReader<'_>) -> OpenResult<Self> {
        Ok(texts.of_plain(&column(batch, name)?))
    }

    fn cell(opened: &Self::Reader, row: usize) -> TextIndex {
        opened[row]
    }

    fn cell_of(value: StringId) -> TextIndex {
        TextIndex::from(value)
    }
}

impl ColumnKind for Nullable<PlainText> {
    type Value<'a> = Option<StringId>;
    const IS_NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn write<'a>(values: impl Values<'a, Self>, texts: &TextColumns) -> WriteResult {
        Ok(texts.plain(values))
    }
}

/// Kind of columns with JSON as text. Readers parse it only on demand (see `attributes.rs`), so it
/// has no cell.
pub(super) enum Json {}

impl ColumnKind for Nullable<Json> {
    type Value<'a> = Option<&'a str>;
    const IS_NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn write<'a>(values: impl Values<'a, Self>, _: &TextColumns) -> WriteResult {
        Ok(Arc::new(values.collect::<StringArray>()))
    }
}
