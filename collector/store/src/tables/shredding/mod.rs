//! Shredding: frequent attributes become typed columns of their own, such as `int:user` or
//! `text:http.route`. The column `attributes` stores the other attributes as JSON.
//!
//! Each file has columns for its most frequent attributes, up to [`COLUMNS_MAX`], or up to 512 if
//! it is merged. Thinning may add one. The type is part of a column's name. Columns with equal
//! names therefore have equal types in all files, and any reader can combine files by name. A row's
//! attributes are the values of its columns plus its JSON. No value is stored twice. A column
//! stores a value only if the value can be restored exactly.
//!
//! The term comes from Parquet's VARIANT type. A shredded VARIANT takes equally many bytes, but
//! readers do not use its columns yet: DuckDB takes 9 to 40 times as long to read one attribute,
//! and pyarrow returns only raw bytes.

mod fold;
mod members;
mod name;
mod read;
mod write;

pub(super) use fold::{fold, folded};
pub(super) use members::without_text;
pub(super) use name::AttributeColumn;
pub(super) use read::ShreddedColumns;
pub(super) use write::{HasAttributes, Shredder};

/// Maximum number of attribute columns in a file that is neither merged nor thinned. Also limits
/// the positions in an object at which a shredder remembers the last attribute.
pub(super) const COLUMNS_MAX: usize = 128;
