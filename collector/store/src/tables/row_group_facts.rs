//! Facts about the values in a row group, from its statistics and dictionaries, without reading its
//! rows.
//!
//! A column with few distinct texts has a dictionary that contains each text once. It is exact,
//! unlike a Bloom filter, and the writer creates it anyway. If a dictionary would become too large,
//! pages contain values directly, and only the statistics are known.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageReader as _};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;

use super::names::ATTRIBUTES;
use super::parquet_source::ParquetSource;
use super::partition::StoreTable;
use super::reader::guarded;
use super::shredding::AttributeColumn;

/// Known facts about the values of a column or an attribute in a row group.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ColumnFacts {
    /// True if there may be any values in addition to those listed.
    pub is_unknown: bool,
    /// True if some rows may have no value; without meaning if `is_unknown` is true.
    pub may_be_absent: bool,
    /// Possible values, as texts, except numbers in `between`. The list is complete unless
    /// `is_unknown` is true.
    pub texts: Vec<String>,
    /// Lowest and highest value of further numbers; `None` if there are none or they are unknown.
    pub between: Option<(f64, f64)>,
}

/// Row group of a file, with access to facts about its values.
#[derive(Debug)]
pub struct RowGroupFacts<'a> {
    pub(super) table: StoreTable,
    pub(super) source: &'a ParquetSource,
    pub(super) metadata: &'a ParquetMetaData,
    pub(super) group: &'a RowGroupMetaData,
    /// Values of dictionaries that were read, by index of the column; `None` for a column without a
    /// complete and readable dictionary of texts or integers.
    pub(super) read: RefCell<HashMap<usize, Option<Vec<String>>>>,
}

impl RowGroupFacts<'_> {
    #[must_use]
    pub fn table(&self) -> StoreTable {
        self.table
    }

    fn column(&self, name: &str) -> Option<(usize, &ColumnChunkMetaData)> {
        let columns = self.metadata.file_metadata().schema_descr().columns();
        // Compares whole names, because attribute names may contain dots. A column that is no list
        // has a path of one part.
        let mut columns = columns.iter();
        let at =
            columns.position(|column| column.path().parts().len() == 1 && column.name() == name)?;
        Some((at, self.group.columns().get(at)?))
    }

    /// Returns facts about the texts of a column. Any values are possible if the row group lacks
    /// the column.
    #[must_use]
    pub fn texts(&self, name: &str) -> ColumnFacts {
        let Some((at, column)) = self.column(name) else {
            return ColumnFacts {
                is_unknown: true,
                ..ColumnFacts::default()
            };
        };
        self.facts(at, column)
    }

    /// Returns a lower and an upper bound of the durations of spans, in ns; `None` without
    /// statistics.
    #[must_use]
    pub fn durations_ns(&self) -> Option<(i64, i64)> {
        let times = |name: &str| {
            let (_, column) = self.column(name)?;
            match column.statistics()? {
                Statistics::Int64(found) => Some((*found.min_opt()?, *found.max_opt()?)),
                _ => None,
            }
        };
        let (starts, ends) = (times("start_ns")?, times("end_ns")?);
        let least = ends.0.saturating_sub(starts.1).max(0);
        Some((least, ends.1.saturating_sub(starts.0).max(0)))
    }

    /// Returns facts about the values of an attribute, in all of its columns. Any values are
    /// possible if the row group has attributes as JSON.
    #[must_use]
    pub fn attribute(&self, key: &str) -> ColumnFacts {
        let mut facts = ColumnFacts {
            may_be_absent: true,
            ..ColumnFacts::default()
        };
        let is_empty = |column: &ColumnChunkMetaData| {
            let nulls = column.statistics().and_then(|found| found.null_count_opt());
            let nulls = nulls.and_then(|nulls| i64::try_from(nulls).ok());
            nulls.is_some_and(|nulls| nulls >= column.num_values())
        };
        if let Some((_, json)) = self.column(ATTRIBUTES)
            && !is_empty(json)
        {
            facts.is_unknown = true;
            return facts;
        }
        let columns = self.metadata.file_metadata().schema_descr().columns();
        for (at, known) in columns.iter().enumerate() {
            let is_it = AttributeColumn::of_name(known.name()).is_some_and(|of| *of.key == *key);
            let Some(column) = self.group.columns().get(at).filter(|_| is_it) else {
                continue;
            };
            if is_empty(column) {
                continue;
            }
            let of_column = self.facts(at, column);
            facts.is_unknown |= of_column.is_unknown;
            facts.texts.extend(of_column.texts);
            facts.between = match (facts.between, of_column.between) {
                (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
                (a, b) => a.or(b),
            };
        }
        facts
    }

    fn facts(&self, at: usize, column: &ColumnChunkMetaData) -> ColumnFacts {
        let mut facts = ColumnFacts {
            may_be_absent: true,
            ..ColumnFacts::default()
        };
        let mut read = self.read.borrow_mut();
        let dictionary = read
            .entry(at)
            .or_insert_with(|| guarded(|| Ok(self.dictionary(column))).unwrap_or_default());
        if let Some(texts) = dictionary {
            facts.texts.clone_from(texts);
            return facts;
        }
        match column.statistics() {
            Some(Statistics::Int64(found)) => match (found.min_opt(), found.max_opt()) {
                (Some(low), Some(high)) => facts.between = Some((*low as f64, *high as f64)),
                _ => facts.is_unknown = true,
            },
            Some(Statistics::Double(found)) => match (found.min_opt(), found.max_opt()) {
                (Some(low), Some(high)) => facts.between = Some((*low, *high)),
                _ => facts.is_unknown = true,
            },
            Some(Statistics::Boolean(_)) => {
                facts.texts = ["false", "true"].map(str::to_owned).to_vec();
            }
            _ => facts.is_unknown = true,
        }
        facts
    }

    /// Returns all distinct texts or integers of a column; `None` unless all its pages refer to its
    /// dictionary.
    fn dictionary(&self, column: &ColumnChunkMetaData) -> Option<Vec<String>> {
        column.dictionary_page_offset()?;
        let mask = column.page_encoding_stats_mask()?;
        if !mask.is_only(Encoding::RLE_DICTIONARY) && !mask.is_only(Encoding::PLAIN_DICTIONARY) {
            return None;
        }
        let rows = usize::try_from(self.group.num_rows()).ok()?;
        let source = Arc::new(self.source.clone());
        let mut pages = SerializedPageReader::new(source, column, rows, None).ok()?;
        match pages.get_next_page().ok()?? {
            Page::DictionaryPage {
                buf, num_values, ..
            } => plain_values(column.column_type(), &buf, num_values as usize),
            _ => None,
        }
    }
}

/// Decodes texts or 64-bit integers from Parquet's plain encoding to texts; `None` for values of
/// other types, or if the bytes are damaged.
fn plain_values(of: Type, bytes: &Bytes, count: usize) -> Option<Vec<String>> {
    let mut values = Vec::new();
    let mut rest = &bytes[..];
    for _ in 0..count {
        values.push(match of {
            Type::BYTE_ARRAY => {
                let (length, after) = rest.split_first_chunk::<4>()?;
                let (text, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                rest = after;
                std::str::from_utf8(text).ok()?.to_owned()
            }
            Type::INT64 => {
                let (number, after) = rest.split_first_chunk::<8>()?;
                rest = after;
                i64::from_le_bytes(*number).to_string()
            }
            _ => return None,
        });
    }
    Some(values)
}
